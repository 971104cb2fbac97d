"""Commands of training apart from sampling.

`weights info|verify|apply` look at published weights, of a folder or an address, and execute nothing. `rollout-host`
starts servers on this machine that decode for a node on another one.
"""

import argparse
import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from codezero.commands.common import DONE, INTERRUPTED, Commands, answer, composed, say, setting, value
from codezero.errors import ConfigError
from codezero.weights import TOKEN

if TYPE_CHECKING:
    from codezero.rollout.client import RolloutServer
    from codezero.weights.versions import VersionSource

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
    group = commands.group("weights", "published versions of a model: list, check, apply")
    source = {"source": value(str, "SOURCE", f"a folder of versions, or its address; {TOKEN} holds a token")}
    model = {"model": value(Path, "DIR", "a model as save_pretrained writes it; it becomes the newest version")}
    group.add("info", info, "list the versions: how large, and from where they can be reached", source, settings="")
    group.add("verify", verify, "follow every delta from the oldest anchor, compare each content", source, settings="")
    group.add("apply", apply, "bring a model directory to the newest version", source | model, settings="")
    takes = {
        "--model": setting("model.solver={}", "NAME", "the node's model.solver"),
        "--count": setting("rollout.start={}", "N", "servers to start, one a card (default 1)"),
        "--engine": setting("rollout.engine={}", "ENGINE", "little or vllm (default little)"),
        "--cards": setting("rollout.cards=[{}]", "CARDS", "of each server, for example 0,1"),
        "--weights": value(str, "SOURCE", "where the node serves versions: its weights.listen", required=True),
        "--listen": value(str, "HOST:PORT", "where the node reaches the servers", required=True),
    }
    commands.add("rollout-host", serve, "decode for a node on another machine", takes, epilog=EPILOG)


def info(options: argparse.Namespace) -> int:
    from codezero.weights.versions import read_manifest

    manifest = read_manifest(_source(options))
    rows = [f"{'version':>9}  {'delta':>14}  {'whole':>16}  state"]
    for version in manifest.versions:
        rows.append(f"{version.number:>9}  {version.delta:>14,}  {version.anchor:>16,}  {version.state[:16]}")
    return answer(options, manifest, "\n".join(rows))


def verify(options: argparse.Namespace) -> int:
    """Raises WeightsError where a version is not what was published."""
    from codezero.weights.versions import catch_up

    say("fetching and checking every version")
    weights, version = catch_up(_source(options), oldest=True)
    content, size = weights.content(), weights.layout.size
    result: dict[str, object] = {"version": version.number, "content": content, "weights": size}
    return answer(options, result, "version {version} is whole: {weights:,} weights, {content}".format(**result))


def apply(options: argparse.Namespace) -> int:
    """Other files stay; the weights are bfloat16 afterwards. Raises WeightsError: the model is as it was."""
    from codezero.errors import WeightsError, translated
    from codezero.weights.state import read_weights, write_anchor
    from codezero.weights.versions import catch_up

    if not options.model.is_dir():
        raise ConfigError(f"{options.model} is no folder of a model; name one that save_pretrained wrote")
    layout = read_weights(options.model).layout
    say("fetching the newest version")
    weights, version = catch_up(_source(options), layout=layout)
    with translated(WeightsError, f"{options.model} cannot be written", OSError):
        write_anchor(weights, options.model / "model.safetensors")
        for path in {*options.model.glob("model-*.safetensors"), *options.model.glob("*.safetensors.index.json")}:
            path.unlink()
    result: dict[str, object] = {"version": version.number, "model": os.fspath(options.model)}
    return answer(options, result, "{model} is version {version}".format(**result))


def _source(options: argparse.Namespace) -> "VersionSource":
    from codezero.weights.transfer import open_source

    if "://" not in options.source and not Path(options.source).is_dir():
        raise ConfigError(f"{options.source} is no folder of versions; name one, or its address http://HOST:PORT")
    return open_source(options.source, os.environ.get(TOKEN, ""))


def serve(options: argparse.Namespace) -> int:
    """Until a signal. Raises ConfigError and RolloutError."""
    config = composed(options, "rollout.start=1")
    from codezero.rollout.servers import build_door, serving
    from codezero.system.signals import Stop
    from codezero.wiring.rollout import start_servers

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
