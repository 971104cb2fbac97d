"""Commands of the page: `dashboard`, `login`, `logout`."""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from codezero.commands.common import DONE, FAILED, OVERRIDES, Command, say, take_json, take_login_port, take_settings
from codezero.errors import ConfigError

if TYPE_CHECKING:
    from codezero.config import LoginConfig, NodeConfig
    from codezero.login.store import Folder
    from codezero.login.vault import Vault

POLL_SECONDS = 0.5
REQUEST_SECONDS = 10.0
MAX_RESPONSE = 4096

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
    for parser in (page, enter, leave):
        take_login_port(parser)


def dashboard(options: argparse.Namespace) -> int:
    """Serve the page until a signal. A node starts this with --json."""
    import msgspec

    from codezero.errors import LoginError
    from codezero.login.page_process import PageReady, invitation
    from codezero.settings import compose

    words = options.overrides
    folder = Path(words.pop(0)) if words and "=" not in words[0] else None
    config = compose(words)
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"{folder} is no folder of a run; `runs/` has them")
    from codezero.wiring.page import serve_page

    def report(ready: PageReady) -> None:
        print(msgspec.json.encode(ready).decode() if options.json else f"codezero: {invitation(ready)}", flush=True)

    try:
        serve_page(config, folder, report)
    except LoginError as error:
        if not options.json:
            raise
        report(PageReady(url="", problem=str(error)))
        return FAILED
    return DONE


def login(options: argparse.Namespace) -> int:
    from codezero.settings import compose

    config = compose(options.overrides)
    account = _wait_for_login(config, options.overrides, options.minutes, say)
    print(json.dumps({"address": account}) if options.json else f"logged in; this node's account is {account}")
    return DONE


def _wait_for_login(config: "NodeConfig", overrides: Sequence[str], minutes: float, say: Callable[[str], None]) -> str:
    """The account, once the node can sign for it; at once where a login still lasts.

    Raises LoginError when the page cannot be served, or nobody has logged in after `minutes`.
    """
    import time

    from codezero.errors import LoginError
    from codezero.login.page_process import PageProcess, PageReady, invitation
    from codezero.login.store import Folder
    from codezero.login.vault import Vault

    folder = Folder(Path(config.login.directory))
    vault = Vault(folder, config.login.days, time.time)
    if account := _open(vault):
        return account
    with PageProcess(config, overrides) as page:
        ready = page.ready()
        if ready is None or ready.problem:
            raise LoginError(ready.problem if ready else f"the page does not start; see {config.run.logs}/login.log")
        if ready.standby and vault.owner() is None:
            ready = PageReady(url=ready.url, code=_new_code(config.login, folder))
        say(f"{invitation(ready)}; waiting for that up to {minutes:g} minutes")
        until = time.monotonic() + 60 * minutes
        while time.monotonic() < until:
            if account := _open(vault):
                return account
            time.sleep(POLL_SECONDS)
    raise LoginError(f"nobody has logged in within {minutes:g} minutes; open {ready.url} and try again")


def _open(vault: "Vault") -> str | None:
    """The account that the node can sign for."""
    owner = vault.owner()
    return owner.account if owner is not None and vault.unlocked else None


def _new_code(config: "LoginConfig", folder: "Folder") -> str:
    """Of the process that serves the page: the code it began with may have scrolled away. Raises LoginError."""
    import http.client

    import msgspec

    from codezero.errors import LoginError
    from codezero.login.login import TOKEN
    from codezero.login.signing import NewCode

    token = (folder.read(TOKEN) or b"").decode("ascii", "replace").strip()
    connection = http.client.HTTPConnection("localhost", config.port, timeout=REQUEST_SECONDS)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    try:
        connection.request("POST", "/api/claim/code", b"{}", headers)
        response = connection.getresponse()
        return msgspec.json.decode(response.read(MAX_RESPONSE), type=NewCode).code
    except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
        raise LoginError(f"the page at http://localhost:{config.port} gives no code: {error}") from error
    finally:
        connection.close()


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
