"""The routes by which a page claims the node, logs in and logs out."""

import secrets
from collections.abc import Awaitable, Callable

from aiohttp import web

from codezero.errors import HttpRefusal
from codezero.login import passkey
from codezero.login.guard import COOKIE, LOGIN, PROGRAM, answer, origin_of, read_body, session_of
from codezero.login.login import Login, PasskeyClaim
from codezero.login.schema import (
    CodeBody,
    EmptyBody,
    GivenPasskey,
    GivenPassphrase,
    Logout,
    NewPasskey,
    NewPassphrase,
    PasskeyOptions,
)
from codezero.login.sessions import CODE, OFTEN, PASSPHRASE, Bucket, RateLimit
from codezero.login.vault import Passphrase, Scrypt, key_of_secret, new_salt

Answering = Callable[[web.Request], Awaitable[web.Response]]
NO_SECRET = "this authenticator cannot keep a secret; use a passphrase"


def login_routes(login: Login) -> list[web.RouteDef]:
    """For everybody on this machine; what they may do is decided here."""
    posts: list[tuple[str, Answering, RateLimit]] = [
        ("/api/claim/passkey/options", claim_passkey_options, CODE),
        ("/api/claim/passkey/verify", claim_passkey, OFTEN),
        ("/api/claim/passphrase", claim_passphrase, CODE),
        ("/api/login/passkey/options", login_passkey_options, OFTEN),
        ("/api/login/passkey/verify", login_passkey, OFTEN),
        ("/api/login/passphrase", login_passphrase, PASSPHRASE),
        ("/api/logout", log_out, OFTEN),
    ]
    limited = [web.post(path, _limited(handler, Bucket(rate, login.clock))) for path, handler, rate in posts]
    return [web.get("/api/session", show_session), *limited]


async def show_session(request: web.Request) -> web.Response:
    return answer(request.app[LOGIN].state(session_of(request)))


async def claim_passkey_options(request: web.Request) -> web.Response:
    login, body = request.app[LOGIN], await read_body(request, CodeBody)
    login.check_code(body.code)
    claim = PasskeyClaim(secrets.token_bytes(32), new_salt())
    options = passkey.creation_options(claim.challenge, claim.salt)
    return answer(PasskeyOptions(login.passkey_claims.give(claim), options))


async def claim_passkey(request: web.Request) -> web.Response:
    """Without a secret the ticket stays good: some authenticators give it only when they are asked once more."""
    login, body = request.app[LOGIN], await read_body(request, NewPasskey)
    if body.prf is None:
        raise HttpRefusal(422, NO_SECRET)
    claim = login.passkey_claims.take(body.ticket)
    proof = passkey.register(body.credential, claim.challenge, origin_of(request), claim.salt)
    return _entered(request, await login.claim(proof, key_of_secret(passkey.secret(body.prf), proof.salt, "passkey")))


async def claim_passphrase(request: web.Request) -> web.Response:
    login, body = request.app[LOGIN], await read_body(request, NewPassphrase)
    login.check_code(body.code)
    proof = Passphrase(Scrypt(new_salt()))
    return _entered(request, await login.claim(proof, await login.opener(body.passphrase, proof.scrypt)))


async def login_passkey_options(request: web.Request) -> web.Response:
    login, _ = request.app[LOGIN], await read_body(request, EmptyBody)
    _, proof = login.passkey()
    challenge = secrets.token_bytes(32)
    options = passkey.request_options(challenge, proof)
    return answer(PasskeyOptions(login.passkey_logins.give(challenge), options))


async def login_passkey(request: web.Request) -> web.Response:
    login, body = request.app[LOGIN], await read_body(request, GivenPasskey)
    challenge = login.passkey_logins.take(body.ticket)
    owner, proof = login.passkey()
    counted = passkey.authenticate(body.credential, challenge, origin_of(request), proof)
    if body.prf is None:
        raise HttpRefusal(
            422, "the passkey gave no secret; use the browser and the authenticator that claimed the node"
        )
    opener = key_of_secret(passkey.secret(body.prf), proof.salt, "passkey")
    wrong = "the passkey's secret does not open the key; use the authenticator that claimed the node"
    return _entered(request, await login.enter(owner, opener, wrong, counted))


async def login_passphrase(request: web.Request) -> web.Response:
    login, body = request.app[LOGIN], await read_body(request, GivenPassphrase)
    owner = login.owner("passphrase")
    assert isinstance(owner.proof, Passphrase)
    opener = await login.opener(body.passphrase, owner.proof.scrypt)
    return _entered(request, await login.enter(owner, opener, "this is not the passphrase of this node"))


async def log_out(request: web.Request) -> web.Response:
    login, body = request.app[LOGIN], await read_body(request, Logout)
    token = session_of(request)
    if body.lock and not request[PROGRAM] and login.sessions.expires(token) is None:
        raise HttpRefusal(401, "log in to lock the node")
    login.leave(token, lock=body.lock)
    response = answer(login.state(""))
    response.del_cookie(COOKIE, path="/", httponly=True, samesite="Strict")
    return response


def _limited(handler: Answering, bucket: Bucket) -> Answering:
    async def limited(request: web.Request) -> web.Response:
        bucket.take()
        return await handler(request)

    return limited


def _entered(request: web.Request, token: str) -> web.Response:
    login = request.app[LOGIN]
    response = answer(login.state(token))
    response.set_cookie(
        COOKIE, token, max_age=login.sessions.seconds, path="/", httponly=True, samesite="Strict", secure=False
    )
    return response
