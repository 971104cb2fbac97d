"""The commands. Arguments and config are parsed and checked before torch, hivemind or web3 is imported."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from codezero.errors import CodeZeroError, ConfigError

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

OVERRIDES = "any setting as key=value, for example solver.learning_rate=1e-4 (`codezero config show` lists them all)"

EPILOG = """examples:
  codezero run                          a swarm of one: no network, no account, no GPU
  codezero run run.max_minutes=3        stop after three minutes and write a report
  codezero swarm up --nodes 3           three nodes on this machine that learn from each other
  codezero run profile=peer swarm.bootstrap=[ADDRESS]    join a swarm
  codezero run model=qwen               real models from the Hugging Face Hub; model.solver=DIR for your own

exit codes: 0 done, 1 failed while running, 2 bad usage or setting, 130 interrupted
"""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="codezero",
        description="A peer-to-peer swarm in which language models learn to code together.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, handler: Callable[[argparse.Namespace], int], help: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        made.set_defaults(handler=handler)
        return made

    run = command("run", _run, "run a node: attempt problems, judge, learn, propose, share")
    run.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=OVERRIDES)

    swarm = command("swarm", _swarm_up, "run a swarm of several nodes")
    swarm_commands = swarm.add_subparsers(metavar="SWARM_COMMAND", required=True)
    up = swarm_commands.add_parser("up", help="start N nodes on this machine with one summary view")
    up.set_defaults(handler=_swarm_up)
    up.add_argument("--nodes", type=int, default=2, metavar="N", help="how many, 1 to 64 (default 2)")
    up.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=OVERRIDES)

    bootnode = swarm_commands.add_parser(
        "bootnode", help="run a light node that only shows others the way into the swarm; prints its addresses"
    )
    bootnode.set_defaults(handler=_swarm_bootnode)
    bootnode.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=OVERRIDES)
    peers = swarm_commands.add_parser("peers", help="show whom a node knows, what it got from them, whom it refuses")
    peers.set_defaults(handler=_swarm_peers)
    peers.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="run.name=NAME; without it the newest run")
    peers.add_argument("--json", action="store_true", help="print one JSON object")
    for networked in (run, up, bootnode):
        networked.add_argument("--p2p-port", type=int, metavar="PORT", help="the same as swarm.port=PORT")

    evaluate = command("eval", _eval, "attempt the held-out problems once and execute the attempts in the sandbox")
    evaluate.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=OVERRIDES)
    evaluate.add_argument("--json", action="store_true", help="print one JSON object")

    judge = command("evaluate", _evaluate, "judge attempts that are already written, with reasons")
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

    bench = command("bench", _bench, "measure, side by side; NAME is a file of benchmarks/, `judge` for example")
    bench.add_argument("name", metavar="NAME", help="which one; `list` names them all")
    bench.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="its own arguments, --json and --help too")

    nano = command("nano", _nano_build, "the embedded models")
    nano_commands = nano.add_subparsers(metavar="NANO_COMMAND", required=True)
    build = nano_commands.add_parser(
        "build", help="make the embedded models again from nothing (about twelve minutes of one core)"
    )
    build.set_defaults(handler=_nano_build)
    build.add_argument("--out", type=Path, metavar="DIR", help="where to write them (default: the installed package)")
    build.add_argument("--seed", type=int, default=0, help="chooses data and initial weights (default 0)")
    build.add_argument("--json", action="store_true", help="print the measured quality as one JSON object")

    config = command("config", _config_show, "look at the settings")
    config_commands = config.add_subparsers(metavar="CONFIG_COMMAND", required=True)
    show = config_commands.add_parser("show", help="print every setting and its value as YAML")
    show.set_defaults(handler=_config_show)
    show.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=OVERRIDES)

    identity = command("identity", _identity_show, "who this node is")
    identity_commands = identity.add_subparsers(metavar="IDENTITY_COMMAND", required=True)
    who = identity_commands.add_parser("show", help="print the name and peer id of swarm.pem")
    export = identity_commands.add_parser("export", help="copy swarm.pem to FILE, to keep or to move this node")
    take = identity_commands.add_parser("import", help="make FILE the identity of this node, if it has none yet")
    for made, handler in ((who, _identity_show), (export, _identity_export), (take, _identity_import)):
        made.set_defaults(handler=handler)
        if made is not who:
            made.add_argument("file", type=Path, metavar="FILE", help="whoever can read it can act as this node")
        made.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=OVERRIDES)
        made.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit code."""
    parser = build_parser()
    options, left = parser.parse_known_args(arguments)
    if left:  # argparse takes KEY=VALUE only before the first option that follows FILE
        if not hasattr(options, "overrides") or any(word.startswith("-") for word in left):
            parser.error(f"unrecognized arguments: {' '.join(left)}")
        options.overrides += left
    if getattr(options, "p2p_port", None) is not None:
        options.overrides.append(f"swarm.port={options.p2p_port}")
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


def _run(options: argparse.Namespace) -> int:
    from codezero.compose import compose
    from codezero.run_folder import open_run_folder

    config = compose(options.overrides)
    folder = open_run_folder(config)
    from codezero.wiring import run_node  # torch, hivemind and TRL load only now

    return INTERRUPTED if run_node(config, folder) else DONE


def _swarm_up(options: argparse.Namespace) -> int:
    from codezero.compose import compose

    if not 1 <= options.nodes <= 64:
        raise ConfigError(f"--nodes={options.nodes} is out of bounds; it must be 1 to 64")
    config = compose(["profile=peer", *options.overrides])
    from codezero.fleet import run_fleet

    return run_fleet(config, options.overrides, options.nodes)


def _swarm_bootnode(options: argparse.Namespace) -> int:
    from codezero.compose import compose

    config = compose(["profile=peer", *options.overrides])
    from codezero.bootnode import run_bootnode

    run_bootnode(config)
    return DONE


def _swarm_peers(options: argparse.Namespace) -> int:
    from codezero.compose import compose
    from codezero.peers import newest_status, print_peers

    config = compose(options.overrides)
    status = newest_status(Path(config.run.directory), config.run.name)
    if options.json:
        import msgspec

        print(msgspec.json.encode(status).decode())
    else:
        print_peers(status)
    return DONE


def _eval(options: argparse.Namespace) -> int:
    from codezero.compose import compose

    config = compose(options.overrides)
    from codezero.wiring import examine

    measured = examine(config, _say)
    if options.json:
        print(json.dumps(measured))
    else:
        for name, value in measured.items():
            print(f"{name:28} {value:.4g}" if isinstance(value, float) else f"{name:28} {value}")
    return DONE


def _evaluate(options: argparse.Namespace) -> int:
    from codezero.compose import compose

    config = compose(options.overrides)
    from codezero.evaluate import evaluate

    marked = evaluate(config, options.file, audit=options.audit, say=_say)
    if options.json:
        for one, _ in marked:
            print(json.dumps(one.to_json()), flush=True)
        return DONE
    from codezero.monitor.card import print_marked

    print_marked((one.scored, one.executed, known) for one, known in marked)
    return DONE


def _bench(options: argparse.Namespace) -> int:
    """Runs the file as a program of its own would be."""
    from codezero.compose import beside_package

    found = {path.stem: path for path in sorted(beside_package("benchmarks").glob("*.py"))}
    if options.name == "list":
        print("\n".join(found))
        return DONE
    if options.name not in found:
        raise ConfigError(f"there is no benchmark {options.name}; choose one of: {', '.join(found)}")
    import runpy

    sys.argv = [str(found[options.name]), *options.rest]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED if end.code else DONE
    return DONE


def _say(doing: str) -> None:
    print(f"codezero: {doing} …", file=sys.stderr, flush=True)


def _nano_build(options: argparse.Namespace) -> int:
    from codezero.nano import WEIGHTS
    from codezero.nano.build import build

    measured = build(options.out or WEIGHTS, seed=options.seed)
    if options.json:
        print(json.dumps(measured))
    return DONE


def _config_show(options: argparse.Namespace) -> int:
    from codezero.compose import compose, to_yaml

    print(to_yaml(compose(options.overrides)), end="")
    return DONE


def _identity_show(options: argparse.Namespace) -> int:
    from codezero.swarm.identity import Identity

    path = _identity_path(options)
    return _tell_identity(Identity.load(path).peer_id, path, options)


def _identity_export(options: argparse.Namespace) -> int:
    from codezero.swarm.identity import Identity

    return _tell_identity(Identity.copy(_identity_path(options), options.file).peer_id, options.file, options)


def _identity_import(options: argparse.Namespace) -> int:
    from codezero.swarm.identity import Identity

    path = _identity_path(options)
    return _tell_identity(Identity.copy(options.file, path).peer_id, path, options)


def _identity_path(options: argparse.Namespace) -> Path:
    from codezero.compose import compose

    return Path(compose(options.overrides).swarm.identity)


def _tell_identity(peer_id: str, path: Path, options: argparse.Namespace) -> int:
    from codezero.monitor.names import readable_name

    told = {"peer_id": peer_id, "name": readable_name(peer_id), "file": str(path)}
    print(json.dumps(told) if options.json else f"{told['name']}  {peer_id}  {path}")
    return DONE
