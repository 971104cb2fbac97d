"""The commands. Arguments and config are parsed and checked before torch, hivemind or web3 is imported."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from codezero import commands
from codezero.commands import FAILED, INTERRUPTED, USAGE
from codezero.errors import CodeZeroError, ConfigError

OVERRIDES = "any setting as key=value, for example solver.learning_rate=1e-4 (`codezero config show` lists them all)"

EPILOG = """examples:
  codezero run                          a swarm of one: no network, no account, no GPU
  codezero run run.max_minutes=3        stop after three minutes and write a report
  codezero swarm up --nodes 3           three nodes on this machine that learn from each other
  codezero swarm create --p2p-port 38331    found a swarm and write swarm.toml, the invitation to it
  codezero swarm join swarm.toml        join it
  codezero dashboard runs/NAME          look at a run that has ended, in the browser
  codezero run model=qwen               real models from the Hugging Face Hub; model.solver=DIR for your own

exit codes: 0 done, 1 failed while running, 2 bad usage or setting, 130 interrupted
"""

LOST = """The account's key lies encrypted in runs/login/, and only your passkey, passphrase or wallet opens it. If that
is lost, so is the account with its points. To begin anew as another node, move runs/login/ and swarm.pem away.
"""

Handler = Callable[[argparse.Namespace], int]
Command = Callable[[str, Handler, str], argparse.ArgumentParser]
"""Adds a command: its name, what it does, one line of help."""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="codezero",
        description="A peer-to-peer swarm in which language models learn to code together.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, handler: Handler, help: str) -> argparse.ArgumentParser:
        made = subparsers.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        made.set_defaults(handler=handler)
        return made

    for add in (_add_nodes, _add_page, _add_chain, _add_measures, _add_settings):
        add(command)
    return parser


def _add_nodes(command: Command) -> None:
    run = command("run", commands.run, "run a node: attempt problems, judge, learn, propose, share")
    run.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=OVERRIDES)

    swarm = command("swarm", commands.swarm_up, "run a swarm of several nodes")
    swarm_commands = swarm.add_subparsers(metavar="SWARM_COMMAND", required=True)
    up = swarm_commands.add_parser("up", help="start N nodes on this machine with one summary view")
    up.set_defaults(handler=commands.swarm_up)
    up.add_argument("--nodes", type=int, default=2, metavar="N", help="how many, 1 to 64 (default 2)")
    up.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=OVERRIDES)

    create = swarm_commands.add_parser(
        "create", help="found a swarm: deploy its contract, write an invitation, and run its first node"
    )
    create.set_defaults(handler=commands.swarm_create)
    create.add_argument("--out", type=Path, default=Path("swarm.toml"), metavar="FILE", help="default: swarm.toml")
    create.add_argument("--no-run", action="store_true", help="only write the invitation; `swarm join` runs the node")
    create.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=OVERRIDES)
    join = swarm_commands.add_parser("join", help="check an invitation and run a node of its swarm")
    join.set_defaults(handler=commands.swarm_join)
    join.add_argument("file", type=Path, metavar="FILE", help="what `swarm create` wrote")
    join.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=OVERRIDES)

    bootnode = swarm_commands.add_parser(
        "bootnode", help="run a light node that only shows others the way into the swarm; prints its addresses"
    )
    bootnode.set_defaults(handler=commands.swarm_bootnode)
    bootnode.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=OVERRIDES)
    peers = swarm_commands.add_parser("peers", help="show whom a node knows, what it got from them, whom it refuses")
    peers.set_defaults(handler=commands.swarm_peers)
    peers.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="run.name=NAME; without it the newest run")
    peers.add_argument("--json", action="store_true", help="print one JSON object")
    for networked in (run, up, create, join, bootnode):
        networked.add_argument("--p2p-port", type=int, metavar="PORT", help="the same as swarm.port=PORT")
    for shown in (run, up, create, join):
        shown.add_argument("--login-port", type=int, metavar="PORT", help="the same as login.port=PORT")


def _add_page(command: Command) -> None:
    dashboard = command("dashboard", commands.dashboard, "serve the page about the runs below runs/, or about FOLDER")
    dashboard.add_argument(
        "overrides",
        nargs="*",
        metavar="[FOLDER] KEY=VALUE",
        help=f"a run's folder, for a page about it alone; {OVERRIDES}",
    )
    dashboard.add_argument("--json", action="store_true", help="print where it is as one JSON object a line")
    login = command("login", commands.login, "own this node: serve the page, and wait until you have logged in there")
    login.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=OVERRIDES)
    login.formatter_class, login.epilog = argparse.RawDescriptionHelpFormatter, LOST
    login.add_argument("--minutes", type=float, default=10.0, help="to wait for you (default 10)")
    login.add_argument("--json", action="store_true", help="print the account as one JSON object")
    logout = command("logout", commands.logout, "end every session; nothing is signed until the next login")
    logout.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=OVERRIDES)
    logout.add_argument("--json", action="store_true", help="print one JSON object")
    for made in (dashboard, login, logout):
        made.add_argument("--login-port", type=int, metavar="PORT", help="the same as login.port=PORT")


def _add_chain(command: Command) -> None:
    status = command("status", commands.status, "one page about a run: step, truth, peers, submissions and why not")
    status.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="run.name=NAME; without it the newest run")
    status.add_argument("--json", action="store_true", help="print one JSON object")

    wallet = command("wallet", commands.wallet_show, "the account that registers this node and takes its points")
    wallet_commands = wallet.add_subparsers(metavar="WALLET_COMMAND", required=True)
    address = wallet_commands.add_parser("show", help="print its address")
    make = wallet_commands.add_parser("create", help="make a keystore with a passphrase of your own")
    bring = wallet_commands.add_parser("import", help="make a keystore of a key that you have")
    bring.add_argument("--key-file", type=Path, metavar="FILE", help="64 hex digits; without it the key is asked for")
    for made, handler in (
        (address, commands.wallet_show),
        (make, commands.wallet_create),
        (bring, commands.wallet_import),
    ):
        made.set_defaults(handler=handler)
        made.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=OVERRIDES)
        made.add_argument("--json", action="store_true", help="print one JSON object")

    board = command("leaderboard", commands.leaderboard, "who earned what, read from the chain")
    board.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=OVERRIDES)
    board.add_argument("--invitation", type=Path, metavar="FILE", help="of the swarm that FILE invites to")
    board.add_argument("--json", action="store_true", help="print one JSON object")

    chain = command("chain", commands.chain_dev, "the chain that counts rewards and votes")
    chain_commands = chain.add_subparsers(metavar="CHAIN_COMMAND", required=True)
    dev = chain_commands.add_parser("dev", help="serve a chain of your own on this machine; nodes that need it find it")
    dev.set_defaults(handler=commands.chain_dev)
    dev.add_argument("--port", type=int, default=0, metavar="PORT", help="default: the last one, or any that is free")
    dev.add_argument("--data", type=Path, default=Path("runs/chain"), metavar="DIR", help="default: runs/chain")
    dev.add_argument("--json", action="store_true", help="print where it is as one JSON object")


def _add_measures(command: Command) -> None:
    evaluate = command(
        "eval", commands.sit_exam, "attempt the held-out problems once; execute the attempts in the sandbox"
    )
    evaluate.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=OVERRIDES)
    evaluate.add_argument("--json", action="store_true", help="print one JSON object")

    judge = command("evaluate", commands.evaluate, "judge attempts that are already written, with reasons")
    judge.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="JSON lines: question, tests, completions[, entry_point, level]; - is stdin",
    )
    judge.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=OVERRIDES)
    judge.add_argument(
        "--audit", action="store_true", help="also EXECUTE every attempt in a sandbox, beside the verdict"
    )
    judge.add_argument("--json", action="store_true", help="print a JSON line of verdicts for each line")

    bench = command(
        "bench", commands.bench, "measure, side by side; NAME is a file of benchmarks/, `judge` for example"
    )
    bench.add_argument("name", metavar="NAME", help="which one; `list` names them all")
    bench.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="its own arguments, --json and --help too")


def _add_settings(command: Command) -> None:
    nano = command("nano", commands.nano_build, "the embedded models")
    nano_commands = nano.add_subparsers(metavar="NANO_COMMAND", required=True)
    build = nano_commands.add_parser(
        "build", help="make the embedded models again from nothing (about twelve minutes of one core)"
    )
    build.set_defaults(handler=commands.nano_build)
    build.add_argument("--out", type=Path, metavar="DIR", help="where to write them (default: the installed package)")
    build.add_argument("--seed", type=int, default=0, help="chooses data and initial weights (default 0)")
    build.add_argument("--json", action="store_true", help="print the measured quality as one JSON object")

    config = command("config", commands.config_show, "look at the settings")
    config_commands = config.add_subparsers(metavar="CONFIG_COMMAND", required=True)
    show = config_commands.add_parser("show", help="print every setting and its value as YAML")
    show.set_defaults(handler=commands.config_show)
    show.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=OVERRIDES)

    identity = command("identity", commands.identity_show, "who this node is")
    identity_commands = identity.add_subparsers(metavar="IDENTITY_COMMAND", required=True)
    who = identity_commands.add_parser("show", help="print the name and peer id of swarm.pem")
    export = identity_commands.add_parser("export", help="copy swarm.pem to FILE, to keep or to move this node")
    take = identity_commands.add_parser("import", help="make FILE the identity of this node, if it has none yet")
    for made, handler in (
        (who, commands.identity_show),
        (export, commands.identity_export),
        (take, commands.identity_import),
    ):
        made.set_defaults(handler=handler)
        if made is not who:
            made.add_argument("file", type=Path, metavar="FILE", help="whoever can read it can act as this node")
        made.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=OVERRIDES)
        made.add_argument("--json", action="store_true", help="print one JSON object")


def main(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit code."""
    parser = build_parser()
    options, left = parser.parse_known_args(arguments)
    if left:  # argparse takes KEY=VALUE only before the first option that follows FILE
        if not hasattr(options, "overrides") or any(word.startswith("-") for word in left):
            parser.error(f"unrecognized arguments: {' '.join(left)}")
        options.overrides += left
    for option, key in (("p2p_port", "swarm.port"), ("login_port", "login.port")):
        if getattr(options, option, None) is not None:
            options.overrides.append(f"{key}={getattr(options, option)}")
    try:
        return options.handler(options)
    except ConfigError as error:
        print(f"codezero: {error}", file=sys.stderr)
        return USAGE
    except CodeZeroError as error:
        print(f"codezero: {type(error).__name__}: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
