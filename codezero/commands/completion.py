"""`completion SHELL`: what lets a shell complete commands, options and the names of settings."""

import argparse
from collections.abc import Iterable
from typing import Any

from codezero.commands.common import DONE, Commands

SHELLS = ("bash", "zsh", "fish")
ABOUT = """  bash:  codezero completion bash >> ~/.bashrc
  zsh:   codezero completion zsh >> ~/.zshrc
  fish:  codezero completion fish > ~/.config/fish/completions/codezero.fish
"""


def add(commands: Commands) -> None:
    shell = {"shell": {"choices": SHELLS, "metavar": "SHELL", "help": "bash, zsh or fish"}}
    commands.add(
        "completion", completion, "let a shell complete what you type", shell, settings="", json="", epilog=ABOUT
    )


def completion(options: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    print(shellcode(["codezero"], True, options.shell))
    return DONE


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell and end the process."""
    finder(parser)(parser, default_completer=settings_beginning)


def finder(parser: argparse.ArgumentParser) -> Any:
    """Offers the commands of a group too where one of them was put in, as after `codezero judge`."""
    from argcomplete.finders import CompletionFinder

    class _Finder(CompletionFinder):
        def collect_completions(
            self, active_parsers: list[argparse.ArgumentParser], parsed_args: argparse.Namespace, cword_prefix: str
        ) -> list[str]:
            beside: list[str] = [name for parser in active_parsers for name in getattr(parser, "beside", ())]
            found = [name for name in beside if name.startswith(cword_prefix)]
            return found + super().collect_completions(active_parsers, parsed_args, cword_prefix)

    completer: Any = settings_beginning  # a function will do, whatever argcomplete's types say
    return _Finder(parser, default_completer=completer)


def settings_beginning(prefix: str, action: argparse.Action, **_: Any) -> Iterable[str]:
    """Of KEY=VALUE the keys that begin so."""
    if action.dest != "overrides":
        return ()
    from codezero.settings import keys

    return [f"{key}=" for key in keys() if key.startswith(prefix)]
