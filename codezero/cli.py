"""The commands. Arguments and settings are checked before torch, hivemind or web3 is imported."""

import argparse
import difflib
import os
import sys
from argparse import RawDescriptionHelpFormatter
from collections.abc import Sequence
from itertools import chain
from typing import Any, NoReturn

from codezero.commands import account, inspect, measure, run
from codezero.commands.common import DONE, FAILED, USAGE, Commands, say
from codezero.errors import CodeZeroError, ConfigError, IdentityError, InviteError, ProblemError, WalletError
from codezero.models import isolate

ABOUT = "A peer-to-peer swarm in which language models learn to code together."
# the commands, in the order in which somebody needs them
PURPOSES = {
    "begin": "run warm ask export runs status dashboard doctor",
    "learn with others": "swarm propose login logout wallet identity leaderboard market",
    "measure": "eval judge bench data",
    "look inside, or build on it": "config chain rollout-host",
}
EPILOG = """examples:
  codezero run                          a swarm of one: no network, no account, no GPU
  codezero ask                          what has it learned? one problem, before and after
  codezero run run.max_minutes=3        stop after three minutes and write a report
  codezero run --fresh run.name=mine    begin `mine` anew; what it was is kept beside it
  codezero run --fork mine solver.learning_rate=1e-4    try something else from where `mine` is
  codezero swarm up --nodes 3           three nodes on this machine that learn from each other
  codezero swarm create --p2p-port 38331    found a swarm; it prints the code to join it with
  codezero swarm join CODE              join it
  codezero dashboard runs/NAME          look at a run that has ended, in the browser
  codezero run model=qwen               real models from the Hugging Face Hub; model.solver=DIR for your own
  codezero run --supervise              start it again whenever it dies; see docs/unattended.md

your own settings: every command reads configs/local.yaml of the folder it is started in, beside swarm.pem and runs/,
after the shipped values and before KEY=VALUE; CODEZERO_LOCAL=FILE names another file, CODEZERO_LOCAL= none.
`codezero config show` tells where each value comes from.

exit codes: 0 done, or stopped by SIGTERM or SIGHUP (a closed terminal); 1 failed while running; 2 a mistake in what was
given: usage, setting, model, file, invitation, identity or wallet, which no further try can mend; 130 interrupted
(Ctrl-C); 143 SIGTERM again, or before it had begun, or to an eval; 128 + N ended by signal N (137: out of memory?).
--supervise ends with the last code of its node. The first signal saves the iteration in flight, a second does not.
"""

MAX_LINE = 4000  # characters of an error


class Parser(argparse.ArgumentParser):
    """Name the nearest right word for a misspelt command or option."""

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            raise argparse.ArgumentError(action, f"there is no {value}{nearest(str(value), choices)}")

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]  # its overloads cannot be repeated
        self, args: Any = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """The words that are left are KEY=VALUE; an option among them ends the process with 2.

        `alone` stands before what is neither an option nor a command; any word is one, if misspelt, that is no file."""
        known = {*self._option_string_actions, *chain(*(action.choices or () for action in self._actions))}
        first, alone = args[0] if args else "", self.get_default("alone")
        if alone and first not in known and (not first.isalpha() or os.path.exists(first)):
            args = [alone, *args]
        options, left = super().parse_known_args(args, namespace)
        for word in (word for word in left if word.startswith("-")):
            near = nearest(word.partition("=")[0], list(self._option_string_actions))
            self.error(f"there is no option {word}{near}")
        return options, left

    def error(self, message: str) -> NoReturn:
        super().error(f"{message}\n`{self.prog} --help` explains it, with examples")


def nearest(word: str, known: Sequence[str]) -> str:
    """End a sentence with the known word that was meant, or all of them where none is near."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f"; choose one of: {', '.join(known)}"


def build_parser() -> argparse.ArgumentParser:
    usage, raw = "codezero COMMAND ... [KEY=VALUE ...]", RawDescriptionHelpFormatter
    parser = Parser(prog="codezero", usage=usage, description=ABOUT, epilog=EPILOG, formatter_class=raw)
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = Commands(parser)
    for module in (run, inspect, account, measure):
        module.add(commands)
    rows = list[str]()
    for purpose, names in PURPOSES.items():
        rows += [f"{purpose}:", *(f"  {name:<13} {commands.helps[name]}" for name in names.split()), ""]
    parser.epilog = "\n".join([*rows, EPILOG])
    return parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options; those that are settings (--p2p-port) are added to `overrides`. Bad usage ends the process with 2."""
    parser = build_parser()
    options, left = parser.parse_known_args(arguments)
    if hasattr(options, "overrides"):  # argparse takes KEY=VALUE only before the first option that follows FILE
        options.overrides += [*left, *(getattr(options, "ports", None) or [])]
    elif left:
        parser.error(f"unrecognized arguments: {' '.join(left)}")
    return options


def main(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit code."""
    isolate()
    if not arguments:
        build_parser().print_help()
        return DONE
    if list(arguments) == ["--version"]:
        import codezero  # reads the package's metadata, which loads a parser of e-mail

        print(f"codezero {codezero.__version__}")
        return DONE
    options = parse(arguments)
    try:
        return options.handler(options)
    except CodeZeroError as error:
        from codezero.monitor.text import clean

        print(f"codezero: {clean(str(error), MAX_LINE)}", file=sys.stderr)  # it may quote anybody's file
        mistakes = (ConfigError, ProblemError, InviteError, IdentityError, WalletError)
        return USAGE if isinstance(error, mistakes) else FAILED
    finally:
        say("")
