"""Commands of the page: `dashboard`, `login`, `logout`."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from codezero.commands.common import DONE, FAILED, LOGIN_PORT, OVERRIDES, Commands, answer, composed, say, value
from codezero.errors import ChainError, ConfigError, LoginError, translated

if TYPE_CHECKING:
    from codezero.login.store import Folder

POLL_SECONDS = 0.5
MAX_RESPONSE = 4096

LOST = """The account's key lies encrypted in runs/login/, and only your passkey or passphrase opens it. If that
is lost, so is the account with its points. To begin anew as another node, move runs/login/ and swarm.pem away.
"""


def add(commands: Commands) -> None:
    folder = value(str, "[FOLDER] KEY=VALUE", f"a run's folder, for a page about it alone; {OVERRIDES}", nargs="*")
    serve = "look at runs in the browser"
    where = "print where it is as one JSON object a line"
    commands.add("dashboard", dashboard, serve, {"overrides": folder, **LOGIN_PORT}, settings="", json=where)
    minutes = value(float, "MINUTES", "to wait for you (default 10)", default=10.0)
    own = "own this node: wait until you have logged in on the page"
    account = "print the account as one JSON object"
    commands.add("login", login, own, {"--minutes": minutes, **LOGIN_PORT}, json=account, epilog=LOST)
    commands.add("logout", logout, "end every session; nothing is signed until the next login", LOGIN_PORT)


def dashboard(options: argparse.Namespace) -> int:
    """Serve the page until a signal. A node starts this with --json."""
    from codezero.login.page_process import PageReady, invitation

    typed = options.overrides
    folder = Path(typed.pop(0)) if typed and "=" not in typed[0] else None
    config = composed(options)
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"{folder} is no folder of a run; `runs/` has them")
    from codezero.wiring.page import serve_page

    def report(ready: PageReady) -> None:
        answer(options, ready, f"codezero: {invitation(ready)}")

    try:
        serve_page(config, folder, report)
    except LoginError as error:
        if not options.json:
            raise ConfigError(str(error)) from error
        report(PageReady(url="", problem=str(error)))
        return FAILED
    return DONE


def login(options: argparse.Namespace) -> int:
    """Print the account once the node can sign for it; at once where a login still lasts.

    Raises LoginError when the page cannot be served, or nobody has logged in after the minutes.
    """
    from codezero.login.page_process import PageProcess, PageReady, invitation
    from codezero.login.store import Folder
    from codezero.login.vault import Vault

    config, minutes = composed(options), options.minutes
    folder = Folder(Path(config.login.directory))
    vault = Vault(folder, config.login.days, time.time)
    if not (account := vault.signer()):
        with PageProcess(config, options.overrides) as page:
            ready = page.ready()
            if ready.problem:
                raise ConfigError(ready.problem)
            if ready.standby and vault.owner() is None:
                ready = PageReady(url=ready.url, code=_new_code(ready.url, folder))
            say(f"{invitation(ready)}; waiting for that up to {minutes:g} minutes")
            until = time.monotonic() + 60 * minutes
            while not (account := vault.signer()):
                if time.monotonic() >= until:
                    late = f"nobody has logged in within {minutes:g} minutes; open {ready.url} and try again"
                    raise LoginError(late)
                time.sleep(POLL_SECONDS)
    return answer(options, {"address": account}, f"logged in; this node's account is {account}")


def _new_code(url: str, folder: "Folder") -> str:
    """Of the process that serves the page: the code it began with may have scrolled away. Raises LoginError."""
    import msgspec

    from codezero.chain.bounded_http import post
    from codezero.login.login import TOKEN, NewCode
    from codezero.system.files import UNDECODABLE

    bearer = {"Authorization": f"Bearer {(folder.read(TOKEN) or b'').decode('ascii', 'replace').strip()}"}
    with translated(LoginError, f"the page at {url} gives no code", ChainError, *UNDECODABLE):
        _, raw = post(f"{url}/api/claim/code", b"{}", 10.0, bearer, MAX_RESPONSE)
        return msgspec.json.decode(raw, type=NewCode).code


def logout(options: argparse.Namespace) -> int:
    from codezero.login.login import log_out

    was_open = log_out(Path(composed(options).login.directory))
    shown = "logged out; nothing is signed until the next login" if was_open else "nobody was logged in"
    return answer(options, {"was_logged_in": was_open}, shown)
