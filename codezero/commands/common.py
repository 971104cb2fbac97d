"""Parts that all commands share: adding one, its settings, printing its result, its exit code."""

import argparse
import json as json_module
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from codezero.errors import ConfigError

if TYPE_CHECKING:
    from codezero.config import NodeConfig

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

Arguments = Mapping[str, Mapping[str, Any]]  # options and positional arguments: what `add_argument` takes, by name

OVERRIDES = "any setting as key=value, for example solver.learning_rate=1e-4 (`codezero config show` lists them all)"
OF_A_RUN = "run.name=NAME; without it the newest run"


def flag(help: str) -> dict[str, Any]:
    return {"action": "store_true", "help": help}


def value(type: Callable[[str], object], metavar: str, help: str, **more: Any) -> dict[str, Any]:
    return {"type": type, "metavar": metavar, "help": help, **more}


def setting(form: str, metavar: str, help: str) -> dict[str, Any]:
    """form: KEY={}. `cli.parse` moves it to the overrides."""
    return value(form.format, metavar, help, dest="ports", action="append")


LOGIN_PORT: Arguments = {"--login-port": setting("login.port={}", "PORT", "the same as login.port=PORT")}


class Commands:
    """The commands of a parser, or of a group in it."""

    def __init__(self, parser: argparse.ArgumentParser, metavar: str = "COMMAND") -> None:
        listed = argparse.SUPPRESS if metavar == "COMMAND" else None  # else `cli.build_parser` lists them
        self._parsers = parser.add_subparsers(metavar=metavar, required=True, prog=parser.prog, help=listed)
        self.helps: dict[str, str] = {}

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
    ) -> None:
        """handler: returns the exit code. settings, json: help of KEY=VALUE and --json; empty: it takes none."""
        parser = self._parser(name, help, epilog)
        parser.set_defaults(handler=handler)
        for argument, options in (takes or {}).items():
            parser.add_argument(argument, **options)
        if settings:
            parser.add_argument("overrides", **value(str, "KEY=VALUE", settings, nargs="*"))
        if json:
            parser.add_argument("--json", **flag(json))

    def _parser(self, name: str, help: str, epilog: str) -> argparse.ArgumentParser:
        self.helps[name] = help
        about: dict[str, Any] = {"help": help, "description": f"{help[0].upper()}{help[1:]}.", "epilog": epilog}
        return self._parsers.add_parser(name, formatter_class=argparse.RawDescriptionHelpFormatter, **about)


def composed(options: argparse.Namespace, *first: str) -> "NodeConfig":
    """`first`, then the settings that were typed. Raises ConfigError."""
    from codezero.settings import compose

    return compose([*first, *options.overrides])


def composed_for_reading(options: argparse.Namespace) -> "NodeConfig":
    """`composed`, of which only `run` is wanted: without Hydra, most of such a command's time, where nothing needs it.
    Raises ConfigError."""
    from codezero.config import NodeConfig, contradictions
    from codezero.settings import own_settings, typed

    given = typed(options.overrides)
    if given.keys() - {"run.directory", "run.name"} or "${" in str(given) or own_settings(given):
        return composed(options)
    config = NodeConfig()
    for key, text in given.items():
        setattr(config.run, key[4:], text)
    for contradiction in contradictions(config):
        raise ConfigError(contradiction)
    return config


def answer(options: argparse.Namespace, result: object, text: str | Callable[[], object]) -> int:
    """Print the result as JSON with --json, else the text, or call what prints it."""
    say("")
    if options.json:
        import msgspec  # --help does without

        print(json_module.dumps(result, default=msgspec.to_builtins), flush=True)
    elif callable(text):
        text()
    else:
        print(text, flush=True)
    return DONE


def until_signal() -> int:
    """Wait for one; returns the exit code that it stands for."""
    from codezero.system.signals import Stop

    stop = Stop()
    with stop.on_signals():
        while not stop.wait(1.0):
            pass
    return INTERRUPTED if stop.received is signal.SIGINT else DONE


class ProgressLines:
    """Print on stderr what a command is at: at once, then ever less often, with the time that may be left. A thread
    writes the later lines, so that a step which blocks is not silent."""

    def __init__(self) -> None:
        self._lock, self._doing = threading.Lock(), ""
        self._began = self._due = self._pause = 0.0
        self._known, self._thread = 0, threading.Thread(target=self._keep_up, name="progress", daemon=True)

    def __call__(self, doing: str) -> None:
        """doing: of a `signals.Share` the time left is estimated, once some is done; empty: the work has ended."""
        with self._lock:
            goes_on = getattr(doing, "what", doing) == getattr(self._doing, "what", self._doing)
            self._doing = doing
            if doing and not goes_on:
                self._began, self._pause, self._known = time.monotonic(), 2.0, getattr(doing, "done", 0)
                self._due = self._began + (self._pause if getattr(doing, "done", 1) == 0 else 0.0)
                self._write_due()
        if doing and not self._thread.ident:
            self._thread.start()

    def _keep_up(self) -> None:
        while True:
            time.sleep(0.2)
            with self._lock:
                self._write_due()

    def _write_due(self) -> None:
        if not self._doing or (now := time.monotonic()) < self._due:
            return
        from codezero.monitor.text import duration

        seconds = now - self._began
        line = f"codezero: {self._doing} …" + (f" {duration(seconds)}" if seconds >= 1 else "")
        new = getattr(self._doing, "done", 0) - self._known
        if new > 0 and (rest := getattr(self._doing, "of", 0) - self._known - new) > 0:
            line += f", about {duration(seconds / new * rest)} left"
        print(line, file=sys.stderr, flush=True)
        self._due, self._pause = now + self._pause, min(30.0, 1.5 * self._pause)


say = ProgressLines()
