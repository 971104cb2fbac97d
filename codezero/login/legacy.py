"""Clients of the original, which know no token: they send the `orgId` that they found in `userData.json`.

Off unless `login.legacy_clients` is set. The id is no secret: whoever runs a program on this machine and has seen it is
let in. A web page never is: the guard turns it away before.
"""

import hmac
import ipaddress
import re
import uuid

from aiohttp import web

from codezero.errors import LoginError
from codezero.login.store import Folder

FILE = "userData.json"
"""In the form that the original's scripts look for: awk and grep find the id in it, line by line."""
ID = re.compile(r'"orgId": "([0-9a-f-]{36})"')


class LegacyClients:
    """The id is kept in `folder`, and made where it is missing. Raises LoginError."""

    def __init__(self, folder: Folder) -> None:
        self.org_id = _kept(folder)

    def admit(self, request: web.Request, org_id: str | None) -> bool:
        """Is it a program of this machine that knows the id?"""
        known = org_id is not None and hmac.compare_digest(org_id.encode(), self.org_id.encode())
        return known and _is_here(request.remote)


def _is_here(remote: str | None) -> bool:
    try:
        return remote is not None and ipaddress.ip_address(remote.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _kept(folder: Folder) -> str:
    made = str(uuid.uuid4())
    folder.create(FILE, f'{{\n  "{made}": {{\n    "orgId": "{made}"\n  }}\n}}\n'.encode())
    found = ID.search((folder.read(FILE) or b"").decode(errors="replace"))
    if found is None:
        raise LoginError(f"{folder.path / FILE} holds no orgId; remove it, and a new one is made")
    return found[1]
