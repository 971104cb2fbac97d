"""The guard between every request and its handler: another site in the owner's browser must reach nothing here.

    421  another Host than `login.origins` has: DNS rebinding, and 127.0.0.1, at which no passkey works
    403  another Origin: a page that is not ours; or another machine, which can ask only in a container
    415  another content type: what another site's page may send without asking first
    413  a body over the limit           401  neither session nor token           429  too often

Bodies are bounded in bytes and seconds and checked against their type. Every answer carries the headers below; every
refusal is {"error": "one line"}."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from enum import Enum

from aiohttp import web
from aiohttp.typedefs import Handler

from codezero.errors import CodeZeroError, HttpRefusal, LoginError
from codezero.login.login import Login
from codezero.system.web import error, refuse

logger = logging.getLogger("codezero.login")

MAX_BODY = 64 << 10  # bytes; the largest honest one deploys a contract
PORT: web.AppKey[int] = web.AppKey("port", int)  # set by who opens the port, before the application starts
# addresses that are answered, where others than this machine could ask; set like PORT
CALLERS: web.AppKey[frozenset[str]] = web.AppKey("callers", frozenset)
LOGIN: web.AppKey[Login] = web.AppKey("login", Login)
ORIGINS: web.AppKey[tuple[str, ...]] = web.AppKey("origins", tuple)  # `login.origins`; set like PORT
# the request carries the bearer token and comes from no web page
PROGRAM: web.RequestKey[bool] = web.RequestKey("program", bool)
COOKIE = "codezero_session"


class Access(Enum):
    """In each case only from this machine, and only through a page of ours or without any page."""

    OPEN = "whoever asks; the handler decides further"
    READABLE = "everybody until somebody owns the node; then its owner, or a program with the token"
    PROBE = "whoever asks, also by 127.0.0.1 or [::1]: monitoring"
    BEARER = "a program with the token, never a page"


Routes = Mapping[Access, Sequence[web.RouteDef]]
ACCESS: web.AppKey[dict[str, Access]] = web.AppKey("access", dict)  # by a route's path pattern


def session_of(request: web.Request) -> str:
    return request.cookies.get(COOKIE, "")


def may_read(request: web.Request) -> bool:
    """Raises LoginError when the login's files cannot be read."""
    login = request.app[LOGIN]
    if request.get(PROGRAM, False) or login.vault.owner() is None:
        return True
    return login.sessions.expires(session_of(request)) is not None


def all_origins(request: web.Request) -> list[str]:
    return [f"http://localhost:{request.app[PORT]}", *request.app[ORIGINS]]


def own_origins(request: web.Request) -> list[str]:
    """The origins of our pages that may send this request; empty: its Host is not served. A proxy may leave its own
    host in Host, or put there the one that it asks."""
    known, hosts = all_origins(request), request.headers.getall("Host", [])
    matching = [origin for origin in known if hosts == [origin.partition("://")[2]]]
    return known if known[0] in matching else matching


def origin_of(request: web.Request) -> str:
    """The origin of the page that sent it; for a program, of a page that could have."""
    own, named = own_origins(request), request.headers.get("Origin")
    return named if named in own else own[0]


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
OFF = ("accelerometer", "camera", "display-capture", "geolocation", "gyroscope", "magnetometer", "microphone", "midi",
       "payment", "screen-wake-lock", "serial", "usb", "xr-spatial-tracking")  # fmt: skip
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": ", ".join(
        [*(f"{feature}=()" for feature in OFF), "publickey-credentials-create=(self), publickey-credentials-get=(self)"]
    ),
}
SAFE = ("GET", "HEAD")


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    resource = request.match_info.route.resource
    access = request.app[ACCESS][resource.canonical] if resource else Access.OPEN  # what is not there is refused anyway
    try:
        _check(request, access)
        if access is not Access.READABLE:
            return await handler(request)
        if not may_read(request):
            raise HttpRefusal(401, "log in to see this")
        watch = asyncio.create_task(_cut_when_forbidden(request))
        try:
            return await handler(request)
        finally:
            watch.cancel()
    except (HttpRefusal, web.HTTPException) as failure:
        return refuse(failure)
    except CodeZeroError as failure:
        logger.error("%s could not be answered: %s", request.path[:100], failure)
        return error(503, str(failure))


def _check(request: web.Request, access: Access) -> None:
    """Raises HttpRefusal. A link from elsewhere may lead to the page, and to none of its data."""
    headers, callers, pages = request.headers, request.app.get(CALLERS), " and ".join(all_origins(request))
    if callers is not None and request.remote not in callers:
        raise HttpRefusal(403, "this page is answered to the machine that it runs on only")
    numbers = [[f"{name}:{request.app[PORT]}"] for name in ("127.0.0.1", "[::1]") if access is Access.PROBE]
    if not own_origins(request) and headers.getall("Host", []) not in numbers:
        raise HttpRefusal(421, f"this page is served at {pages} only; open it there, or add to login.origins")
    kind, _, token = headers.get("Authorization", "").partition(" ")
    known = kind.lower() == "bearer" and request.app[LOGIN].is_program(token)
    request[PROGRAM] = known and "Origin" not in headers
    if access is Access.BEARER:
        if "Origin" in headers or "Sec-Fetch-Site" in headers:
            raise HttpRefusal(403, "this address is for programs and not for web pages")
    elif not request[PROGRAM] and _is_of_another_site(request):
        raise HttpRefusal(403, f"this is answered to pages of {pages} only")
    is_json = request.content_type == "application/json" and "Content-Encoding" not in headers
    if request.method not in SAFE and not is_json:
        raise HttpRefusal(415, "only application/json, not compressed, is read here")
    if access is Access.BEARER and not request[PROGRAM]:
        raise HttpRefusal(401, "this needs the header `Authorization: Bearer` with the token in node.token")


def _is_of_another_site(request: web.Request) -> bool:
    """A change needs our Origin; reading may come without one, as when an address is typed."""
    origins, site = request.headers.getall("Origin", []), request.headers.get("Sec-Fetch-Site")
    own = [[origin] for origin in own_origins(request)]
    if request.method not in SAFE:
        return origins not in own or site not in (None, "same-origin")
    elsewhere = origins not in ([], *own) or site not in (None, "same-origin", "none")
    return elsewhere and request.path.startswith("/api/")


async def _cut_when_forbidden(request: web.Request) -> None:
    """End a long answer two seconds after its reader was logged out."""
    with contextlib.suppress(LoginError):  # what cannot be read allows nothing
        while may_read(request):
            await asyncio.sleep(2.0)
    if request.transport is not None:
        request.transport.close()


def guarded_app(login: Login, tables: Sequence[Routes], origins: Sequence[str]) -> web.Application:
    """An application with these routes. A path has one access, whatever its methods: ValueError for a second one."""

    async def add_headers(_request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers.popall("Server", None)

    app = web.Application(middlewares=[guard], client_max_size=MAX_BODY)
    app[LOGIN], app[ACCESS], app[ORIGINS] = login, {}, tuple(origins)
    app.on_response_prepare.append(add_headers)
    for access, definitions in (item for routes in tables for item in routes.items()):
        for route in app.router.add_routes(definitions):
            assert route.resource is not None
            if app[ACCESS].setdefault(route.resource.canonical, access) is not access:
                raise ValueError(f"{route.resource.canonical} is given two kinds of access")
    return app
