"""The command that starts servers on this machine which decode for a node on another one."""

import argparse
import contextlib
import os
import signal
from typing import TYPE_CHECKING

from codezero.commands.common import DONE, INTERRUPTED, Commands, answer, composed, say, setting, value
from codezero.weights import TOKEN

if TYPE_CHECKING:
    from codezero.rollout.client import RolloutServer

MAX_BODY = 16 << 20
EPILOG = f"""On the node's machine A, and then here on B:
  export {TOKEN}=SECRET       the same on both; without one only loopback is listened at
  A$ codezero run weights.listen=A:18430 rollout.servers=[http://B:18431/0,http://B:18431/1]
  B$ codezero rollout-host --model NAME --count 2 --weights http://A:18430 --listen B:18431
The addresses that this prints are those for rollout.servers. Either side may be started first and again. Traffic is
not encrypted: between sites use a tunnel. Settings that count here: model.*, rollout.*, and of the solver how long
prompts and attempts may be (solver.max_prompt_tokens, solver.max_new_tokens), which have to be those of the node.
"""


def add(commands: Commands) -> None:
    takes = {
        "--model": setting("model.solver={}", "NAME", "the node's model.solver"),
        "--count": setting("rollout.start={}", "N", "servers to start, one a card (default 1)"),
        "--engine": setting("rollout.engine={}", "ENGINE", "little or vllm (default little)"),
        "--cards": setting("rollout.cards=[{}]", "CARDS", "of each server, for example 0,1"),
        "--weights": value(str, "SOURCE", "where the node serves versions: its weights.listen", required=True),
        "--listen": value(str, "HOST:PORT", "where the node reaches the servers", required=True),
    }
    commands.add("rollout-host", serve, "decode for a node on another machine", takes, epilog=EPILOG)


def serve(options: argparse.Namespace) -> int:
    """Decode until a signal. Raises ConfigError and RolloutError."""
    config = composed(options, "rollout.start=1")
    from codezero.rollout.build import start_servers
    from codezero.rollout.client import build_door, serving
    from codezero.system.signals import Stop

    token, stop, servers = os.environ.get(TOKEN, ""), Stop(), list["RolloutServer"]()
    with contextlib.ExitStack() as stack:
        door = build_door(servers, token, MAX_BODY)
        port = stack.enter_context(serving(door, options.listen, "--listen", token))
        servers += start_servers(config, options.weights, say, stack)
        host = options.listen.rpartition(":")[0]
        addresses = [f"http://{host}:{port}/{number}" for number in range(len(servers))]
        answer(options, {"servers": addresses}, f"rollout.servers=[{','.join(addresses)}]")
        with stop.on_signals():
            while not stop.wait(1.0):
                pass
    return INTERRUPTED if stop.received is signal.SIGINT else DONE
