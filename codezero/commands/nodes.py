"""Commands that run nodes: `run`, `propose`, `swarm …`."""

import argparse
import contextlib
from pathlib import Path

from codezero.commands.common import (
    DONE,
    INTERRUPTED,
    OF_A_RUN,
    Command,
    take_json,
    take_login_port,
    take_settings,
)
from codezero.errors import ConfigError

FRESH = "begin anew; a run that has the name is kept whole beside it, under a dated name"
FORK = (
    "begin a new run with the newest checkpoint of RUN, a name below run.directory or a folder; RUN stays as it is. "
    "Without --fresh and --fork a run goes on where it stopped"
)
SUPERVISE = (
    "start the node again when it dies, after longer and longer pauses, until run.max_deaths in a row came without an "
    "iteration saved between them; the exit code is the last one's"
)

INVITED = ("chain.rpc_urls", "evaluator.model")
"""Settings that the invitation shows to whoever reads it."""


def add(command: Command) -> None:
    alone = command("run", run, "run a node: attempt problems, judge, learn, propose, share")
    take_settings(alone)

    service = command(
        "propose", propose, "write problems for a swarm and attempt none: `swarm join FILE role=proposer` too"
    )
    take_settings(service)

    swarm = command("swarm", swarm_up, "run a swarm of several nodes")
    swarm_commands = swarm.add_subparsers(metavar="SWARM_COMMAND", required=True)
    up = swarm_commands.add_parser("up", help="start N nodes on this machine with one summary view")
    up.set_defaults(handler=swarm_up)
    up.add_argument("--nodes", type=int, default=2, metavar="N", help="how many, 1 to 64 (default 2)")
    take_settings(up)

    create = swarm_commands.add_parser(
        "create", help="found a swarm: deploy its contract, write an invitation, and run its first node"
    )
    create.set_defaults(handler=swarm_create)
    create.add_argument("--out", type=Path, default=Path("swarm.toml"), metavar="FILE", help="default: swarm.toml")
    create.add_argument("--no-run", action="store_true", help="only write the invitation; `swarm join` runs the node")
    take_settings(create)
    join = swarm_commands.add_parser("join", help="check an invitation and run a node of its swarm")
    join.set_defaults(handler=swarm_join)
    join.add_argument("file", type=Path, metavar="FILE", help="what `swarm create` wrote")
    take_settings(join)

    bootnode = swarm_commands.add_parser(
        "bootnode", help="run a light node that only shows others the way into the swarm; prints its addresses"
    )
    bootnode.set_defaults(handler=swarm_bootnode)
    take_settings(bootnode)
    peers = swarm_commands.add_parser("peers", help="show whom a node knows, what it got from them, whom it refuses")
    peers.set_defaults(handler=swarm_peers)
    take_settings(peers, OF_A_RUN)
    take_json(peers)
    for networked in (alone, service, up, create, join, bootnode):
        networked.add_argument("--p2p-port", type=int, metavar="PORT", help="the same as swarm.port=PORT")
    for shown in (alone, service, up, create, join):
        take_login_port(shown)
        one = shown in (alone, service, join)  # the others know the two only to refuse them in one line
        shown.add_argument("--fresh", action="store_true", help=FRESH if one else argparse.SUPPRESS)
        shown.add_argument("--fork", metavar="RUN", help=FORK if one else argparse.SUPPRESS)
        if shown is not up:  # `create` ends in `join`
            shown.add_argument("--supervise", action="store_true", help=SUPERVISE)


def run(options: argparse.Namespace) -> int:
    from codezero.runs import begin
    from codezero.settings import check_directories, compose

    config = compose(options.overrides)
    check_directories(config)
    folder = begin(config, fresh=options.fresh, fork=options.fork, supervised=options.supervise)
    if options.supervise:
        from codezero.ops.supervisor import run_supervised

        folder.release()
        return run_supervised(config, folder.path, options.overrides)
    from codezero.wiring.node import run_node  # torch, hivemind and TRL load only now

    return INTERRUPTED if run_node(config, folder, options.overrides) else DONE


def propose(options: argparse.Namespace) -> int:
    options.overrides = ["network=peer", "role=proposer", *options.overrides]
    return run(options)


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
    from codezero.settings import compose

    config = compose(["network=peer", *options.overrides])
    from codezero.commands.bootnode import run_bootnode

    run_bootnode(config)
    return DONE


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
