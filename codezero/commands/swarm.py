"""Commands of a swarm: `swarm up|create|join|bootnode|peers`."""

import argparse
import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from codezero.commands.common import DONE, OF_A_RUN, Command, take_json, take_settings
from codezero.commands.run import run, take_node_options
from codezero.errors import ConfigError, SwarmError

if TYPE_CHECKING:
    from codezero.swarm.supervisor import NetworkProcess
    from codezero.system.signals import Stop

INVITED = ("chain.rpc_urls", "evaluator.model")
"""Settings that the invitation shows to whoever reads it."""
READY_SECONDS = 90.0
LINE_SECONDS = 60.0
BOOTNODE = "bootnode"
"""Folder below `run.directory` with the state of a bootnode."""


def add(command: Command) -> None:
    swarm = command("swarm", swarm_up, "run a swarm of several nodes")
    commands = swarm.add_subparsers(metavar="SWARM_COMMAND", required=True)
    up = commands.add_parser("up", help="start N nodes on this machine with one summary view")
    up.set_defaults(handler=swarm_up)
    up.add_argument("--nodes", type=int, default=2, metavar="N", help="how many, 1 to 64 (default 2)")
    take_settings(up)
    take_node_options(up, one=False, supervise=False)

    create = commands.add_parser(
        "create", help="found a swarm: deploy its contract, write an invitation, and run its first node"
    )
    create.set_defaults(handler=swarm_create)
    create.add_argument("--out", type=Path, default=Path("swarm.toml"), metavar="FILE", help="default: swarm.toml")
    create.add_argument("--no-run", action="store_true", help="only write the invitation; `swarm join` runs the node")
    take_settings(create)
    take_node_options(create, one=False)  # it ends in `join`

    join = commands.add_parser("join", help="check an invitation and run a node of its swarm")
    join.set_defaults(handler=swarm_join)
    join.add_argument("file", type=Path, metavar="FILE", help="what `swarm create` wrote")
    take_settings(join)
    take_node_options(join)

    bootnode = commands.add_parser(
        "bootnode", help="run a light node that only shows others the way into the swarm; prints its addresses"
    )
    bootnode.set_defaults(handler=swarm_bootnode)
    take_settings(bootnode)
    bootnode.add_argument("--p2p-port", type=int, metavar="PORT", help="the same as swarm.port=PORT")

    peers = commands.add_parser("peers", help="show whom a node knows, what it got from them, whom it refuses")
    peers.set_defaults(handler=swarm_peers)
    take_settings(peers, OF_A_RUN)
    take_json(peers)


def swarm_up(options: argparse.Namespace) -> int:
    from codezero.runs import refuse_options
    from codezero.settings import compose

    refuse_options("up", fresh=options.fresh, fork=options.fork)

    if not 1 <= options.nodes <= 64:
        raise ConfigError(f"--nodes={options.nodes} is out of bounds; it must be 1 to 64")
    config = compose(["network=peer", *options.overrides])
    from codezero.ops.fleet import run_fleet

    return run_fleet(config, options.overrides, options.nodes)


def swarm_create(options: argparse.Namespace) -> int:
    from codezero.runs import refuse_options
    from codezero.settings import PUBLISHED, compose

    refuse_options("create", fresh=options.fresh, fork=options.fork)

    config = compose(["network=peer", *options.overrides], published=(*PUBLISHED, *INVITED))
    from codezero.wiring.founding import create_swarm, summary

    with contextlib.ExitStack() as chain:
        for line in summary(create_swarm(config, options.out, chain), options.out):
            print(line, flush=True)
        options.file = options.out
        return DONE if options.no_run else swarm_join(options)


def swarm_join(options: argparse.Namespace) -> int:
    from codezero.settings import compose

    config = compose(["network=peer", *options.overrides])
    from codezero.wiring.founding import joined

    options.overrides = [*joined(options.file, config), *options.overrides]
    return run(options)


def swarm_bootnode(options: argparse.Namespace) -> int:
    """A way into the swarm that is always there: it holds records and names neighbours, and publishes nothing.

    Until SIGINT or SIGTERM; its network process comes back by itself with the same identity. Raises ConfigError,
    IdentityError and SwarmError (it never came up).
    """
    from codezero.settings import compose

    config = compose(["network=peer", *options.overrides])
    from codezero.monitor.text import print_flushed
    from codezero.swarm.identity import Identity
    from codezero.swarm.messages import network_settings
    from codezero.swarm.supervisor import NetworkProcess
    from codezero.system.signals import Stop

    network = NetworkProcess(
        network_settings(replace(config.swarm, pull_groups=0)), Path(config.run.directory) / BOOTNODE
    )
    Identity.load_or_create(Path(config.swarm.identity))
    stop = Stop()
    with stop.on_signals():
        network.start()
        try:
            for address in network.wait_ready(READY_SECONDS).addresses:
                print_flushed(address)
            _watch(network, stop)
        finally:
            network.close()
    return DONE


def _watch(network: "NetworkProcess", stop: "Stop") -> None:
    """A line a minute, and one when the network process died."""
    import time

    from codezero.monitor.text import count, print_flushed

    printed = -LINE_SECONDS
    while not stop:
        try:
            network.check()
        except SwarmError as error:
            print_flushed(f"codezero: {error}")
        if time.monotonic() - printed >= LINE_SECONDS:
            printed = time.monotonic()
            print_flushed(f"codezero: {count(network.neighbours, 'neighbour')}")
        stop.wait(0.2)


def swarm_peers(options: argparse.Namespace) -> int:
    from codezero.inspection.peers import newest_status, print_peers
    from codezero.settings import compose

    config = compose(options.overrides)
    status = newest_status(Path(config.run.directory), config.run.name)
    if options.json:
        import msgspec

        print(msgspec.json.encode(status).decode())
    else:
        print_peers(status)
    return DONE
