"""`codezero login`: wait until the owner of this node has logged in on the page, and say how to get there."""

import http.client
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from codezero.config import LoginConfig, NodeConfig
from codezero.errors import LoginError
from codezero.login.login import TOKEN
from codezero.login.page_process import Page, Ready, invitation
from codezero.login.signing import NewCode
from codezero.login.store import Folder
from codezero.login.vault import Vault

LOOK_SECONDS = 0.5
ASK_SECONDS = 10.0
MAX_ANSWER = 4096


def wait_for_login(config: NodeConfig, overrides: Sequence[str], minutes: float, say: Callable[[str], None]) -> str:
    """The account, once the node can sign for it; at once where a login still lasts.

    Raises LoginError when the page cannot be served, or nobody has logged in after `minutes`.
    """
    folder = Folder(Path(config.login.directory))
    vault = Vault(folder, config.login.days, time.time)
    if account := _open(vault):
        return account
    with Page(config, overrides) as page:
        ready = page.ready()
        if ready is None or ready.problem:
            raise LoginError(ready.problem if ready else f"the page does not start; see {config.run.logs}/login.log")
        if ready.standby and vault.owner() is None:
            ready = Ready(url=ready.url, code=_new_code(config.login, folder))
        say(f"{invitation(ready)}; waiting for that up to {minutes:g} minutes")
        until = time.monotonic() + 60 * minutes
        while time.monotonic() < until:
            if account := _open(vault):
                return account
            time.sleep(LOOK_SECONDS)
    raise LoginError(f"nobody has logged in within {minutes:g} minutes; open {ready.url} and try again")


def _open(vault: Vault) -> str | None:
    """The account that the node can sign for."""
    owner = vault.owner()
    return owner.account if owner is not None and vault.unlocked else None


def _new_code(config: LoginConfig, folder: Folder) -> str:
    """Of the process that serves the page: the code it began with may have scrolled away. Raises LoginError."""
    token = (folder.read(TOKEN) or b"").decode("ascii", "replace").strip()
    connection = http.client.HTTPConnection("localhost", config.port, timeout=ASK_SECONDS)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    try:
        connection.request("POST", "/api/claim/code", b"{}", headers)
        answer = connection.getresponse()
        return msgspec.json.decode(answer.read(MAX_ANSWER), type=NewCode).code
    except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
        raise LoginError(f"the page at http://localhost:{config.port} gives no code: {error}") from error
    finally:
        connection.close()
