"""Commands that run nodes: `run`, `propose`, `swarm up|create|join|bootnode|peers`; `rollout-host` decodes for one."""

import argparse
import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from codezero.commands import common
from codezero.commands.common import DONE, LOGIN_PORT, OF_A_RUN, Commands, answer, composed, flag, say, setting, value
from codezero.errors import ConfigError, SwarmError
from codezero.weights import TOKEN

if TYPE_CHECKING:
    from codezero.rollout.client import RolloutServer

FRESH = "begin anew; a run that has the name is kept whole beside it, under a dated name"
FORK = (
    "begin a new run with the best checkpoint of RUN, or its newest without an exam; a name below run.directory or a "
    "folder, which stays as it is. "
    "Without --fresh and --fork a run goes on where it stopped"
)
SUPERVISE = (
    "start the node again when it dies, after longer and longer pauses, until run.max_deaths in a row came without an "
    "iteration saved between them; the exit code is the last one's"
)
P2P_PORT = {"--p2p-port": setting("swarm.port={}", "PORT", "the same as swarm.port=PORT")}
PORTS = {**P2P_PORT, **LOGIN_PORT}
SUPERVISED = {"--supervise": flag(SUPERVISE)}
READY_SECONDS, LINE_SECONDS = 90.0, 60.0
MAX_BODY = 16 << 20
ROLLOUT_HOST = f"""On the node's machine A, and then here on B:
  export {TOKEN}=SECRET       the same on both; without one only loopback is listened at
  A$ codezero run weights.listen=A:18430 rollout.servers=[http://B:18431/0,http://B:18431/1]
  B$ codezero rollout-host --model NAME --count 2 --weights http://A:18430 --listen B:18431
The addresses that this prints are those for rollout.servers. Either side may be started first and again. Traffic is
not encrypted: between sites use a tunnel. Settings that count here: model.*, rollout.*, and of the solver how long
prompts and attempts may be (solver.max_prompt_tokens, solver.max_new_tokens), which have to be those of the node.
"""


def add(commands: Commands) -> None:
    node = {**PORTS, "--fresh": flag(FRESH), "--fork": value(str, "RUN", FORK), **SUPERVISED}
    commands.add("run", run, "run a node: attempt problems, judge, learn, propose, share", node, json="")
    service = "write problems for a swarm and attempt none"
    commands.add("propose", propose, service, node, json="")
    swarm = commands.group("swarm", "run a swarm of several nodes")
    nodes = value(int, "N", "how many, 1 to 64 (default 2)", default=2)
    up = "start N nodes on this machine with one summary view"
    swarm.add("up", swarm_up, up, {"--nodes": nodes, **PORTS}, json="")
    out = value(Path, "FILE", "default: swarm.toml", default=Path("swarm.toml"))
    create = {"--out": out, "--no-run": flag("only write the invitation; `swarm join` runs the node")}
    founding = "found a swarm: deploy its contract, write an invitation, and run its first node"
    swarm.add("create", swarm_create, founding, {**create, **PORTS, **SUPERVISED}, json="")  # it ends in join
    place = value(str, "CODE|FILE", "what `swarm create` printed, or the file that it wrote", nargs="?")
    swarm.add("join", swarm_join, "check an invitation and run a node of its swarm", {"place": place, **node}, json="")
    light = "run a light node that only shows others the way into the swarm; prints its addresses"
    swarm.add("bootnode", swarm_bootnode, light, P2P_PORT, json="")
    peers = "show whom a node knows, what it got from them, whom it refuses"
    swarm.add("peers", swarm_peers, peers, settings=OF_A_RUN)
    takes = {
        "--model": setting("model.solver={}", "NAME", "the node's model.solver"),
        "--count": setting("rollout.start={}", "N", "servers to start, one a card (default 1)"),
        "--engine": setting("rollout.engine={}", "ENGINE", "little or vllm (default little)"),
        "--cards": setting("rollout.cards=[{}]", "CARDS", "of each server, for example 0,1"),
        "--weights": value(str, "SOURCE", "where the node serves versions: its weights.listen", required=True),
        "--listen": value(str, "HOST:PORT", "where the node reaches the servers", required=True),
    }
    commands.add("rollout-host", rollout_host, "decode for a node on another machine", takes, epilog=ROLLOUT_HOST)


def run(options: argparse.Namespace) -> int:
    from codezero.runs import begin

    config = composed(options)
    models = {
        "model.solver": config.model.solver,
        "evaluator.model": config.evaluator.model if config.evaluator.in_process else "",
        "proposer.model": config.proposer.model if config.proposer.kind == "local" else "",
    }
    for key, name in models.items():
        if name.startswith(("/", "./", "../", "~")) and not os.path.isdir(os.path.expanduser(name)):
            raise ConfigError(f"{key}={name} is no directory; name one that save_pretrained wrote, or a hub id")
    from codezero.settings import RIGHTS, own_code

    if (named := ", ".join(own_code(config))) and not options.supervise:  # else the node's own process says so
        print(f"codezero: {named}: {RIGHTS}", flush=True)
    folder = begin(config, fresh=options.fresh, fork=options.fork, supervised=options.supervise)
    if options.supervise:
        from codezero.ops.supervisor import run_supervised

        folder.release()
        return run_supervised(config, folder.path, options.overrides)
    from codezero.monitor.terminal import choose_view

    with contextlib.closing(choose_view(config.monitor.view)) as start:
        start.busy("loading the libraries")
        if config.role == "proposer":  # torch, hivemind and TRL load only now
            from codezero.propose import run_proposer as run_role
        else:
            from codezero.node import run_node as run_role
        return common.INTERRUPTED if run_role(config, folder, options.overrides, start) else DONE


def propose(options: argparse.Namespace) -> int:
    options.overrides = ["network=peer", "role=proposer", *options.overrides]
    return run(options)


def swarm_up(options: argparse.Namespace) -> int:
    if not 1 <= options.nodes <= 64:
        raise ConfigError(f"--nodes={options.nodes} is out of bounds; it must be 1 to 64")
    config = composed(options, "network=peer")
    from codezero.ops.fleet import run_fleet

    return run_fleet(config, options.overrides, options.nodes)


def swarm_create(options: argparse.Namespace) -> int:
    from codezero.settings import PUBLISHED, compose

    shown = (*PUBLISHED, "chain.rpc_urls", "evaluator.model")  # to whoever reads the invitation
    config = compose(["network=peer", *options.overrides], published=shown)
    from codezero.ops.founding import create_swarm

    with contextlib.ExitStack() as chain:
        contract, invitation, code = create_swarm(config, options.out, chain)
        lines = [contract, invitation, *([code] if options.no_run else [])]  # else the node prints it
        print(*lines, sep="\n", flush=True)
        options.place, options.fresh, options.fork = str(options.out), False, None
        return DONE if options.no_run else swarm_join(options)


def swarm_join(options: argparse.Namespace) -> int:
    if options.place and "=" in options.place:  # then it is the first KEY=VALUE
        options.overrides, options.place = [options.place, *options.overrides], None
    if options.place is None:
        raise ConfigError("name the swarm: `codezero swarm join CODE`")
    config = composed(options, "network=peer")
    from codezero.ops.founding import joined

    options.overrides = [*joined(options.place, config), *options.overrides]
    return run(options)


def swarm_bootnode(options: argparse.Namespace) -> int:
    """Hold records and name neighbours, publish nothing, until a signal; print a line a minute. Raises ConfigError,
    IdentityError and SwarmError (it never came up)."""
    config = composed(options, "network=peer")
    from codezero.monitor.text import count, print_flushed
    from codezero.swarm.identity import Identity
    from codezero.swarm.supervisor import NetworkProcess, network_settings
    from codezero.system.signals import Stop

    config.swarm.pull_groups = 0
    network = NetworkProcess(network_settings(config.swarm), Path(config.run.directory) / "bootnode")
    Identity.load_or_create(Path(config.swarm.identity))
    stop, printed = Stop(), -LINE_SECONDS
    with stop.on_signals(), contextlib.closing(network):
        network.start()
        for address in network.wait_ready(READY_SECONDS).addresses:
            print_flushed(address)
        while not stop:
            try:
                network.check()
            except SwarmError as error:  # it died, and is started again
                print_flushed(f"codezero: {error}")
            if time.monotonic() - printed >= LINE_SECONDS:
                printed = time.monotonic()
                print_flushed(f"codezero: {count(network.neighbours, 'neighbour')}")
            stop.wait(0.2)
    return DONE


def swarm_peers(options: argparse.Namespace) -> int:
    from codezero.inspection.status import newest_network, print_peers

    config = common.composed_for_reading(options)
    status = newest_network(Path(config.run.directory), config.run.name)
    return answer(options, status, lambda: print_peers(status))


def rollout_host(options: argparse.Namespace) -> int:
    """Decode until a signal. Raises ConfigError and RolloutError."""
    config = composed(options, "rollout.start=1")
    from codezero.rollout.build import start_servers
    from codezero.rollout.client import build_door, serving

    token, servers = os.environ.get(TOKEN, ""), list["RolloutServer"]()
    with contextlib.ExitStack() as stack:
        door = build_door(servers, token, MAX_BODY)
        port = stack.enter_context(serving(door, options.listen, "--listen", token))
        servers += start_servers(config, options.weights, say, stack)
        host = options.listen.rpartition(":")[0]
        addresses = [f"http://{host}:{port}/{number}" for number in range(len(servers))]
        answer(options, {"servers": addresses}, f"rollout.servers=[{','.join(addresses)}]")
        return common.until_signal()
