"""What all commands share: how one is added, its settings, how its result is printed, what its exit code says."""

import argparse
import json as json_module
import re
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from codezero.errors import ConfigError

if TYPE_CHECKING:
    from codezero.config import NodeConfig

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

Arguments = Mapping[str, Mapping[str, Any]]
"""Options and positional arguments: what `add_argument` takes, by name."""

OVERRIDES = "any setting as key=value, for example solver.learning_rate=1e-4 (`codezero config show` lists them all)"
OF_A_RUN = "run.name=NAME; without it the newest run"
PLAIN = re.compile(r"run\.(directory|name)=([A-Za-z./][\w./-]*|\d{4}-\d\d-\d\d_[\d-]+)")
"""A setting that means what stands there, without Hydra."""
NO_NAMES = {"null", "true", "false", "inf", "nan"}
"""Which are values to Hydra."""


def flag(help: str) -> dict[str, Any]:
    return {"action": "store_true", "help": help}


def value(type: Callable[[str], object], metavar: str, help: str, **more: Any) -> dict[str, Any]:
    return {"type": type, "metavar": metavar, "help": help, **more}


def setting(form: str, metavar: str, help: str) -> dict[str, Any]:
    """form: KEY={}. `cli.parse` moves it to the overrides."""
    return value(form.format, metavar, help, dest="ports", action="append")


def port(key: str) -> dict[str, Any]:
    return setting(key + "={}", "PORT", f"the same as {key}=PORT")


def words(metavar: str, help: str) -> dict[str, Any]:
    return {"nargs": "*", "metavar": metavar, "help": help}


LOGIN_PORT: Arguments = {"--login-port": port("login.port")}


class Commands:
    """The commands of a parser, or of a group in it."""

    def __init__(self, parser: argparse.ArgumentParser, metavar: str = "COMMAND") -> None:
        listed = argparse.SUPPRESS if metavar == "COMMAND" else None  # else `cli.by_purpose` lists them
        self._parsers = parser.add_subparsers(metavar=metavar, required=True, prog=parser.prog, help=listed)
        self.helps: dict[str, str] = {}
        """Of those that are shown."""

    def group(self, name: str, help: str, epilog: str = "", *, alone: str | None = None) -> "Commands":
        """alone: which of its commands the bare name stands for; `Parser.parse_known_args` puts it in."""
        parser = self._parser(name, help, epilog)
        parser.set_defaults(alone=alone)
        return Commands(parser, f"{name.upper()}_COMMAND")

    def add(
        self,
        name: str,
        handler: Callable[[argparse.Namespace], int],
        help: str,
        takes: Arguments | None = None,
        *,
        settings: str = OVERRIDES,
        json: str = "print one JSON object",
        epilog: str = "",
        hidden: bool = False,
    ) -> None:
        """handler: returns the exit code. settings, json: help of KEY=VALUE and --json; empty: it takes none."""
        parser = self._parser(name, help, epilog, hidden=hidden)
        parser.set_defaults(handler=handler)
        for argument, options in (takes or {}).items():
            parser.add_argument(argument, **options)
        if settings:
            parser.add_argument("overrides", **words("KEY=VALUE", settings))
        if json:
            parser.add_argument("--json", **flag(json))

    def _parser(self, name: str, help: str, epilog: str = "", *, hidden: bool = False) -> argparse.ArgumentParser:
        sentence, raw = f"{help[0].upper()}{help[1:]}.", argparse.RawDescriptionHelpFormatter
        shown: dict[str, Any] = {} if hidden else {"help": help}
        self.helps |= {} if hidden else {name: help}
        return self._parsers.add_parser(name, description=sentence, epilog=epilog, formatter_class=raw, **shown)


def composed(options: argparse.Namespace, *first: str) -> "NodeConfig":
    """`first`, then the settings that were typed. Raises ConfigError."""
    from codezero.settings import compose

    return compose([*first, *options.overrides])


def composed_for_reading(options: argparse.Namespace) -> "NodeConfig":
    """`composed`, of which only `run` is wanted: without Hydra, most of such a command's time, where nothing needs it.

    Raises ConfigError.
    """
    from codezero.settings import own_overrides

    given = [PLAIN.fullmatch(word) for word in options.overrides]
    words: dict[str, Any] = {match[1]: match[2] for match in given if match and match[2].lower() not in NO_NAMES}
    if len(words) < len(given) or own_overrides(options.overrides):
        return composed(options)
    from codezero.config import NodeConfig, RunConfig
    from codezero.config.contradictions import contradictions

    config = NodeConfig(run=RunConfig(**words))
    for contradiction in contradictions(config):
        raise ConfigError(contradiction)
    return config


def answer(options: argparse.Namespace, result: object, text: str | Callable[[], object]) -> int:
    """Print the result as JSON with --json, else the text, or call what prints it."""
    if options.json:
        import msgspec  # --help does without

        print(json_module.dumps(result, default=msgspec.to_builtins), flush=True)
    elif callable(text):
        text()
    else:
        print(text, flush=True)
    return DONE


def say(doing: str) -> None:
    print(f"codezero: {doing} …", file=sys.stderr, flush=True)
