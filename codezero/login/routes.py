"""The login's routes: claiming the node, logging in and out for pages, and signing for the node's programs.

A passkey is registered, and proves later that its owner is there, by the two ceremonies of WebAuthn. The user is
verified both times (finger, face or PIN). The relying party is the host of the page's origin: `localhost`, which all
servers on this machine share, so that the PRF is asked with a salt that only this node's owner is told.

No transaction that sends value is signed, and no program sees the key. `POST /api/claim/code` with {} makes a new code
for claiming the node: {"code": "1234-5678"}, 409 once it has an owner."""

import logging
import secrets
import socket
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, TypeVar

import cbor2
import msgspec
import webauthn
from aiohttp import web
from cryptography.exceptions import UnsupportedAlgorithm
from eth_account import Account
from eth_utils.address import to_checksum_address
from msgspec import Meta
from webauthn import helpers
from webauthn.helpers import structs
from webauthn.helpers.cose import COSEAlgorithmIdentifier
from webauthn.helpers.decoded_public_key_to_cryptography import decoded_public_key_to_cryptography
from webauthn.helpers.exceptions import WebAuthnException
from webauthn.helpers.options_to_json_dict import options_to_json_dict

from codezero.errors import HttpRefusal
from codezero.login.guard import COOKIE, LOGIN, PROGRAM, Access, Routes, origin_of, session_of
from codezero.login.login import Login
from codezero.login.vault import Passkey, Passphrase, Scrypt
from codezero.system.files import Address
from codezero.system.web import RateLimit, answer, read_body

logger = logging.getLogger("codezero.login")
T = TypeVar("T")
Handler = Callable[[Login, web.Request, T], Awaitable[web.Response]]

OFTEN = 30, 1.0  # requests at once, and seconds until one more: of what costs little and guesses nothing
CODE = 10, 10.0
PASSPHRASE = 5, 30.0  # some 2,900 guesses a day
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Code = Annotated[str, Meta(max_length=32)]
MAX_PASSPHRASE = 1024
VERIFIED = structs.UserVerificationRequirement.REQUIRED
ALGORITHMS = [
    COSEAlgorithmIdentifier.ECDSA_SHA_256,
    COSEAlgorithmIdentifier.EDDSA,
    COSEAlgorithmIdentifier.RSASSA_PKCS1_v1_5_SHA_256,
]
# errors of the library over bytes that no authenticator makes
MALFORMED = (WebAuthnException, cbor2.CBORError, UnsupportedAlgorithm, ValueError, TypeError, LookupError,
             AttributeError, ArithmeticError, RecursionError)  # fmt: skip


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request; {} where it has no fields. Bytes are base64url without padding."""


class CodeBody(Body, frozen=True):
    code: Code


class NewPassphrase(CodeBody, frozen=True):
    passphrase: Annotated[str, Meta(min_length=10, max_length=MAX_PASSPHRASE)]


class GivenPassphrase(Body, frozen=True):
    passphrase: Annotated[str, Meta(max_length=MAX_PASSPHRASE)]


class PasskeyBody(Body, frozen=True):
    """prf: the secret, [32] bytes; null when this authenticator gives none."""

    ticket: Annotated[str, Meta(max_length=64)]
    credential: dict[str, Any]  # RegistrationResponseJSON or AuthenticationResponseJSON, which are checked later
    prf: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{43}=?\Z")] | None


class Logout(Body, frozen=True):
    """lock: end all sessions, and leave the node unable to sign until the next login."""

    lock: bool


class PasskeyOptions(msgspec.Struct, frozen=True):
    """options: PublicKeyCredentialCreationOptionsJSON or ...RequestOptionsJSON, with `extensions.prf`."""

    ticket: str
    options: dict[str, Any]


class TransactionFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """EIP-1559. Fees in wei for each unit of gas."""

    type: Literal[2]
    chain_id: Count
    nonce: Count
    value: Literal[0]
    data: Annotated[str, Meta(pattern=r"^0x([0-9a-fA-F]{2})*\Z")]
    gas: Count
    max_fee_per_gas: Count
    max_priority_fee_per_gas: Count
    to: Address | msgspec.UnsetType = msgspec.UNSET

    def fields(self) -> dict[str, Any]:
        """The fields as eth-account takes them."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields if isinstance(self.to, msgspec.UnsetType) else fields | {"to": to_checksum_address(self.to)}


class SignBody(Body, frozen=True):
    transaction: TransactionFields


def login_routes(login: Login) -> Routes:
    """Make the routes. Those of pages are open to everybody on this machine; the handlers decide what one may do."""

    def post(path: str, form: type[T], handler: Handler[T], rate: tuple[int, float]) -> web.RouteDef:
        limit = RateLimit(*rate, login.clock)

        async def handle(request: web.Request) -> web.Response:
            limit.take()
            return await handler(login, request, await read_body(request, form))

        return web.post(f"/api/{path}", handle)

    async def show_session(request: web.Request) -> web.Response:
        return answer(login.state(session_of(request)))

    return {
        Access.OPEN: [
            web.get("/api/session", show_session),
            post("claim/passkey/options", CodeBody, claim_passkey_options, CODE),
            post("claim/passkey/verify", PasskeyBody, claim_passkey, OFTEN),
            post("claim/passphrase", NewPassphrase, claim_passphrase, CODE),
            post("login/passkey/options", Body, login_passkey_options, OFTEN),
            post("login/passkey/verify", PasskeyBody, login_passkey, OFTEN),
            post("login/passphrase", GivenPassphrase, login_passphrase, PASSPHRASE),
            post("logout", Logout, log_out, OFTEN),
        ],
        Access.BEARER: [web.post("/api/sign-transaction", sign_transaction), web.post("/api/claim/code", new_code)],
    }


async def claim_passkey_options(login: Login, request: web.Request, body: CodeBody) -> web.Response:
    login.check_code(body.code)
    challenge, salt = secrets.token_bytes(32), secrets.token_bytes(32)
    options = webauthn.generate_registration_options(
        rp_id=_party_of(origin_of(request)),
        rp_name="CodeZero",
        user_name=f"CodeZero node on {socket.gethostname()[:64]}",
        challenge=challenge,
        attestation=structs.AttestationConveyancePreference.NONE,
        authenticator_selection=structs.AuthenticatorSelectionCriteria(
            resident_key=structs.ResidentKeyRequirement.PREFERRED, user_verification=VERIFIED
        ),
        supported_pub_key_algs=ALGORITHMS,
    )
    return _asked(login.passkey_claims.give((challenge, salt)), options, salt)


async def claim_passkey(login: Login, request: web.Request, body: PasskeyBody) -> web.Response:
    """Without a secret the ticket stays good: some authenticators give it only when they are asked once more."""
    if body.prf is None:
        raise HttpRefusal(422, "this authenticator cannot keep a secret; use a passphrase")
    challenge, salt = login.passkey_claims.take(body.ticket)
    proof = register(body.credential, challenge, origin_of(request), salt)
    return _entered(request, await login.claim(proof, proof.key(helpers.base64url_to_bytes(body.prf))))


async def claim_passphrase(login: Login, request: web.Request, body: NewPassphrase) -> web.Response:
    login.check_code(body.code)
    proof = Passphrase(Scrypt(secrets.token_bytes(32)))
    return _entered(request, await login.claim(proof, await login.opener(body.passphrase, proof.scrypt)))


async def login_passkey_options(login: Login, request: web.Request, _body: Body) -> web.Response:
    challenge, passkey = secrets.token_bytes(32), login.owner(Passkey)[1]
    if passkey.relying_party != _party_of(origin_of(request)):
        raise HttpRefusal(403, f"this node's passkey works at {passkey.relying_party} only; open the page there")
    options = webauthn.generate_authentication_options(
        rp_id=passkey.relying_party,
        challenge=challenge,
        allow_credentials=[structs.PublicKeyCredentialDescriptor(id=passkey.credential)],
        user_verification=VERIFIED,
    )
    return _asked(login.passkey_logins.give(challenge), options, passkey.salt)


async def login_passkey(login: Login, request: web.Request, body: PasskeyBody) -> web.Response:
    challenge = login.passkey_logins.take(body.ticket)
    owner, proof = login.owner(Passkey)
    counted = authenticate(body.credential, challenge, origin_of(request), proof)
    if body.prf is None:
        mend = "use the browser and the authenticator that claimed the node"
        raise HttpRefusal(422, f"the passkey gave no secret; {mend}")
    wrong = "the passkey's secret does not open the key; use the authenticator that claimed the node"
    return _entered(request, await login.enter(owner, proof.key(helpers.base64url_to_bytes(body.prf)), wrong, counted))


async def login_passphrase(login: Login, request: web.Request, body: GivenPassphrase) -> web.Response:
    owner, proof = login.owner(Passphrase)
    opener = await login.opener(body.passphrase, proof.scrypt)
    return _entered(request, await login.enter(owner, opener, "this is not the passphrase of this node"))


async def log_out(login: Login, request: web.Request, body: Logout) -> web.Response:
    token = session_of(request)
    if body.lock and not request[PROGRAM] and login.sessions.expires(token) is None:
        raise HttpRefusal(401, "log in to lock the node")
    login.leave(token, lock=body.lock)
    response = answer(login.state(""))
    response.del_cookie(COOKIE, path="/", httponly=True, samesite="Strict")
    return response


async def new_code(request: web.Request) -> web.Response:
    await read_body(request, Body)
    login = request.app[LOGIN]
    login.vault.refuse_owned()
    return answer({"code": login.code.renew()})  # the terminal shows the same


async def sign_transaction(request: web.Request) -> web.Response:
    transaction = (await read_body(request, SignBody)).transaction
    account = Account.from_key(request.app[LOGIN].vault.key())
    try:
        signed = account.sign_transaction(transaction.fields())
    except (TypeError, ValueError) as error:  # its text may hold a field, and none is secret
        raise HttpRefusal(400, f"the transaction cannot be signed: {error}") from error
    logger.info("signed transaction %d of %s on chain %d", transaction.nonce, account.address, transaction.chain_id)
    return answer({"raw": signed.raw_transaction.to_0x_hex(), "address": account.address})


def _entered(request: web.Request, token: str) -> web.Response:
    login, secure = request.app[LOGIN], origin_of(request).startswith("https://")
    response = answer(login.state(token))
    response.set_cookie(
        COOKIE, token, max_age=login.sessions.seconds, path="/", httponly=True, samesite="Strict", secure=secure
    )
    return response


def _asked(ticket: str, options: Any, salt: bytes) -> web.Response:
    """Ask for a ceremony in which the PRF is evaluated at `salt`."""
    prf = {"extensions": {"prf": {"eval": {"first": helpers.bytes_to_base64url(salt)}}}}
    return answer(PasskeyOptions(ticket, options_to_json_dict(options) | prf))


def _party_of(origin: str) -> str:
    return origin.partition("://")[2].partition(":")[0]


def register(credential: dict[str, Any], challenge: bytes, origin: str, salt: bytes) -> Passkey:
    """credential: RegistrationResponseJSON, of any form. Raises HttpRefusal."""
    try:
        parsed = helpers.parse_registration_credential_json(credential)
        # who made the authenticator is not asked; some tell all the same, and nothing of it is parsed
        data: Any = cbor2.loads(parsed.response.attestation_object)["authData"]
        parsed.response.attestation_object = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        verified = webauthn.verify_registration_response(
            credential=parsed,
            expected_challenge=challenge,
            expected_rp_id=_party_of(origin),
            expected_origin=origin,
            require_user_verification=True,
            supported_pub_key_algs=ALGORITHMS,
        )
        decoded_public_key_to_cryptography(helpers.decode_credential_public_key(verified.credential_public_key))
        key = verified.credential_public_key
        passkey = Passkey(verified.credential_id, key, verified.sign_count, salt, _party_of(origin))
        msgspec.convert(msgspec.to_builtins(passkey), Passkey)  # within the bounds of the file
    except MALFORMED as error:
        raise _refused(error) from error
    if parsed.raw_id != passkey.credential:
        raise HttpRefusal(403, "the passkey was not accepted: it names itself differently twice")
    return passkey


def authenticate(credential: dict[str, Any], challenge: bytes, origin: str, passkey: Passkey) -> Passkey:
    """credential: AuthenticationResponseJSON, of any form. The passkey with its new sign count. Raises HttpRefusal."""
    try:
        parsed = helpers.parse_authentication_credential_json(credential)
        if parsed.raw_id != passkey.credential:
            raise HttpRefusal(403, "this is another passkey; use the one that claimed the node")
        verified = webauthn.verify_authentication_response(
            credential=parsed,
            expected_challenge=challenge,
            expected_rp_id=passkey.relying_party,
            expected_origin=origin,
            credential_public_key=passkey.public_key,
            credential_current_sign_count=passkey.sign_count,
            require_user_verification=True,
        )
    except MALFORMED as error:
        raise _refused(error) from error
    return msgspec.structs.replace(passkey, sign_count=verified.new_sign_count)


def _refused(error: Exception) -> HttpRefusal:
    """A sentence of the library says what is wrong; of anything else only that something is."""
    reason = str(error) if isinstance(error, WebAuthnException) else "it is malformed"
    return HttpRefusal(403, f"the passkey was not accepted: {reason}")
