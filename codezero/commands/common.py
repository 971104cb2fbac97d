"""What all commands share: how one is added, what its exit code says, and the help that several repeat."""

import argparse
import sys
from collections.abc import Callable

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

Handler = Callable[[argparse.Namespace], int]
"""Does what was asked for; returns the exit code."""
Command = Callable[[str, Handler, str], argparse.ArgumentParser]
"""Adds a command: its name, what it does, one line of help."""

OVERRIDES = "any setting as key=value, for example solver.learning_rate=1e-4 (`codezero config show` lists them all)"
OF_A_RUN = "run.name=NAME; without it the newest run"


def take_settings(parser: argparse.ArgumentParser, help: str = OVERRIDES) -> None:
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=help)


def take_json(parser: argparse.ArgumentParser, help: str = "print one JSON object") -> None:
    parser.add_argument("--json", action="store_true", help=help)


def take_login_port(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--login-port", type=int, metavar="PORT", help="the same as login.port=PORT")


def say(doing: str) -> None:
    """What is being done, for whoever waits."""
    print(f"codezero: {doing} …", file=sys.stderr, flush=True)
