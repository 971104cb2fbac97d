"""Commands that run one node: `run`, `propose`."""

import argparse

from codezero.commands.common import DONE, INTERRUPTED, Command, take_login_port, take_settings

FRESH = "begin anew; a run that has the name is kept whole beside it, under a dated name"
FORK = (
    "begin a new run with the newest checkpoint of RUN, a name below run.directory or a folder; RUN stays as it is. "
    "Without --fresh and --fork a run goes on where it stopped"
)
SUPERVISE = (
    "start the node again when it dies, after longer and longer pauses, until run.max_deaths in a row came without an "
    "iteration saved between them; the exit code is the last one's"
)


def add(command: Command) -> None:
    alone = command("run", run, "run a node: attempt problems, judge, learn, propose, share")
    service = command(
        "propose", propose, "write problems for a swarm and attempt none: `swarm join FILE role=proposer` too"
    )
    for parser in (alone, service):
        take_settings(parser)
        take_node_options(parser)


def take_node_options(parser: argparse.ArgumentParser, *, one: bool = True, supervise: bool = True) -> None:
    """one: False for a command of several nodes, which knows --fresh and --fork only to refuse them in one line."""
    parser.add_argument("--p2p-port", type=int, metavar="PORT", help="the same as swarm.port=PORT")
    take_login_port(parser)
    parser.add_argument("--fresh", action="store_true", help=FRESH if one else argparse.SUPPRESS)
    parser.add_argument("--fork", metavar="RUN", help=FORK if one else argparse.SUPPRESS)
    if supervise:
        parser.add_argument("--supervise", action="store_true", help=SUPERVISE)


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
