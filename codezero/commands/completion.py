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
    import argcomplete

    completer: Any = settings_beginning  # it asks for a class of its own, and calls whatever it gets
    argcomplete.autocomplete(parser, default_completer=completer)


def settings_beginning(prefix: str, action: argparse.Action, **_: Any) -> Iterable[str]:
    """Of KEY=VALUE the keys that begin so."""
    if action.dest != "overrides":
        return ()
    from codezero.settings import keys

    return [f"{key}=" for key in keys() if key.startswith(prefix)]
