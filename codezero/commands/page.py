"""Commands of the page: `dashboard`, `login`, `logout`."""

import argparse
import json
from pathlib import Path

from codezero.commands.common import DONE, FAILED, OVERRIDES, Command, say, take_json, take_login_port, take_settings
from codezero.errors import ConfigError

LOST = """The account's key lies encrypted in runs/login/, and only your passkey, passphrase or wallet opens it. If that
is lost, so is the account with its points. To begin anew as another node, move runs/login/ and swarm.pem away.
"""


def add(command: Command) -> None:
    page = command("dashboard", dashboard, "serve the page about the runs below runs/, or about FOLDER")
    page.add_argument(
        "overrides",
        nargs="*",
        metavar="[FOLDER] KEY=VALUE",
        help=f"a run's folder, for a page about it alone; {OVERRIDES}",
    )
    take_json(page, "print where it is as one JSON object a line")
    enter = command("login", login, "own this node: serve the page, and wait until you have logged in there")
    take_settings(enter)
    enter.formatter_class, enter.epilog = argparse.RawDescriptionHelpFormatter, LOST
    enter.add_argument("--minutes", type=float, default=10.0, help="to wait for you (default 10)")
    take_json(enter, "print the account as one JSON object")
    leave = command("logout", logout, "end every session; nothing is signed until the next login")
    take_settings(leave)
    take_json(leave)
    for made in (page, enter, leave):
        take_login_port(made)


def dashboard(options: argparse.Namespace) -> int:
    """Serves the page until it is told to stop. A node starts this with --json."""
    import msgspec

    from codezero.errors import LoginError
    from codezero.login.page_process import Ready, invitation
    from codezero.settings import compose

    words = options.overrides
    folder = Path(words.pop(0)) if words and "=" not in words[0] else None
    config = compose(words)
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"{folder} is no folder of a run; `runs/` has them")
    from codezero.wiring.page import serve_page

    def tell(ready: Ready) -> None:
        print(msgspec.json.encode(ready).decode() if options.json else f"codezero: {invitation(ready)}", flush=True)

    try:
        serve_page(config, folder, tell)
    except LoginError as error:
        if not options.json:
            raise
        tell(Ready(url="", problem=str(error)))
        return FAILED
    return DONE


def login(options: argparse.Namespace) -> int:
    from codezero.commands.login import wait_for_login
    from codezero.settings import compose

    config = compose(options.overrides)
    account = wait_for_login(config, options.overrides, options.minutes, say)
    print(json.dumps({"address": account}) if options.json else f"logged in; this node's account is {account}")
    return DONE


def logout(options: argparse.Namespace) -> int:
    from codezero.login.login import log_out
    from codezero.settings import compose

    config = compose(options.overrides)
    was_open = log_out(Path(config.login.directory))
    if options.json:
        print(json.dumps({"was_logged_in": was_open}))
    else:
        print("logged out; nothing is signed until the next login" if was_open else "nobody was logged in")
    return DONE
