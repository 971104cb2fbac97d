"""`completion SHELL`: what lets a shell complete commands, options and the names of settings."""

import argparse
from collections.abc import Iterable
from typing import Any

from codezero.commands.common import Commands, answer

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
    import argcomplete

    options.json = False
    return answer(options, None, argcomplete.shellcode(["codezero"], shell=options.shell))


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell and end the process."""
    import argcomplete

    argcomplete.autocomplete(parser, default_completer=settings_beginning)


def settings_beginning(prefix: str, action: argparse.Action, **_: Any) -> Iterable[str]:
    """Of KEY=VALUE the keys that begin so."""
    if action.dest != "overrides":
        return ()
    from codezero.settings import keys

    return [f"{key}=" for key in keys() if key.startswith(prefix)]
