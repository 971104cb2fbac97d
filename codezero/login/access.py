"""Who may ask a route, and what the application keeps for its guard."""

from collections.abc import Mapping, Sequence
from enum import Enum

from aiohttp import web

from codezero.login.login import Login

PORT: web.AppKey[int] = web.AppKey("port", int)
"""Set by who opens the port, before the application starts."""
CALLERS: web.AppKey[frozenset[str]] = web.AppKey("callers", frozenset)
"""Addresses that are answered, where others than this machine could ask; set like PORT."""
LOGIN: web.AppKey[Login] = web.AppKey("login", Login)
PROGRAM: web.RequestKey[bool] = web.RequestKey("program", bool)
"""The request carries the bearer token and comes from no web page."""
COOKIE = "codezero_session"


class Access(Enum):
    """In each case only from this machine, and only through a page of ours or without any page."""

    OPEN = "whoever asks; the handler decides further"
    READABLE = "everybody until somebody owns the node; then its owner, or a program with the token"
    PROBE = "whoever asks, also by 127.0.0.1 or [::1]: monitoring"
    BEARER = "a program with the token, never a page"
    LEGACY = "a program, never a page; the handler decides whether it needs the token"


Routes = Mapping[Access, Sequence[web.RouteDef]]
ACCESS: web.AppKey[dict[str, Access]] = web.AppKey("access", dict)
"""By a route's path pattern."""


def add_routes(app: web.Application, routes: Routes) -> None:
    """A path has one access, whatever its methods. Raises ValueError for a second one."""
    table = app[ACCESS]
    for access, definitions in routes.items():
        for route in app.router.add_routes(definitions):
            resource = route.resource
            assert resource is not None
            if table.setdefault(resource.canonical, access) is not access:
                raise ValueError(f"{resource.canonical} is given two kinds of access")


def access_of(request: web.Request) -> Access:
    """OPEN for what is not there: it is refused anyway."""
    resource = request.match_info.route.resource
    return Access.OPEN if resource is None else request.app[ACCESS][resource.canonical]


def session_of(request: web.Request) -> str:
    """The token in the cookie; empty: none."""
    return request.cookies.get(COOKIE, "")


def may_read(request: web.Request) -> bool:
    """Raises LoginError when the login's files cannot be read."""
    login = request.app[LOGIN]
    if request.get(PROGRAM, False) or login.vault.owner() is None:
        return True
    return login.sessions.expires(session_of(request)) is not None


def origin_of(request: web.Request) -> str:
    """Of our own pages."""
    return f"http://localhost:{request.app[PORT]}"
