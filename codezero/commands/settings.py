"""Commands about what a node is made of: `nano build`, `config show`, `identity …`."""

import argparse
import json
from pathlib import Path

from codezero.commands.common import DONE, Command, take_json, take_settings


def add(command: Command) -> None:
    nano = command("nano", nano_build, "the embedded models")
    nano_commands = nano.add_subparsers(metavar="NANO_COMMAND", required=True)
    build = nano_commands.add_parser(
        "build", help="make the embedded models again from nothing (about twelve minutes of one core)"
    )
    build.set_defaults(handler=nano_build)
    build.add_argument("--out", type=Path, metavar="DIR", help="where to write them (default: the installed package)")
    build.add_argument("--seed", type=int, default=0, help="chooses data and initial weights (default 0)")
    take_json(build, "print the measured quality as one JSON object")

    config = command("config", config_show, "look at the settings")
    config_commands = config.add_subparsers(metavar="CONFIG_COMMAND", required=True)
    show = config_commands.add_parser("show", help="print every setting, its value and where that comes from, as YAML")
    show.set_defaults(handler=config_show)
    take_settings(show)
    take_json(show)

    identity = command("identity", identity_show, "who this node is")
    identity_commands = identity.add_subparsers(metavar="IDENTITY_COMMAND", required=True)
    who = identity_commands.add_parser("show", help="print the name and peer id of swarm.pem")
    export = identity_commands.add_parser("export", help="copy swarm.pem to FILE, to keep or to move this node")
    take = identity_commands.add_parser("import", help="make FILE the identity of this node, if it has none yet")
    for parser, handler in ((who, identity_show), (export, identity_export), (take, identity_import)):
        parser.set_defaults(handler=handler)
        if parser is not who:
            parser.add_argument("file", type=Path, metavar="FILE", help="whoever can read it can act as this node")
        take_settings(parser)
        take_json(parser)


def nano_build(options: argparse.Namespace) -> int:
    from codezero.nano import WEIGHTS
    from codezero.nano.build import build

    measured = build(options.out or WEIGHTS, seed=options.seed)
    if options.json:
        print(json.dumps(measured))
    return DONE


def config_show(options: argparse.Namespace) -> int:
    from codezero.settings import as_json, as_yaml, trace

    settings = trace(options.overrides)
    print(as_json(settings) + "\n" if options.json else as_yaml(settings), end="")
    return DONE


def identity_show(options: argparse.Namespace) -> int:
    from codezero.swarm.identity import Identity

    path = identity_path(options)
    return _print_identity(Identity.load(path).peer_id, path, options)


def identity_export(options: argparse.Namespace) -> int:
    from codezero.swarm.identity import Identity

    return _print_identity(Identity.copy(identity_path(options), options.file).peer_id, options.file, options)


def identity_import(options: argparse.Namespace) -> int:
    from codezero.swarm.identity import Identity

    path = identity_path(options)
    return _print_identity(Identity.copy(options.file, path).peer_id, path, options)


def identity_path(options: argparse.Namespace) -> Path:
    from codezero.settings import compose

    return Path(compose(options.overrides).swarm.identity)


def _print_identity(peer_id: str, path: Path, options: argparse.Namespace) -> int:
    from codezero.monitor.text import readable_name

    identity = {"peer_id": peer_id, "name": readable_name(peer_id), "file": str(path)}
    print(json.dumps(identity) if options.json else "  ".join(identity[key] for key in ("name", "peer_id", "file")))
    return DONE
