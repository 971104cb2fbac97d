"""The page's other routes, as its OpenAPI document describes them: logging in, and what programs ask of the node."""

from typing import Any

from codezero.login import schema, signing
from codezero.login.node_api import (
    Activated,
    ActivationCall,
    Hash,
    PeerCall,
    PublicKey,
    RewardCall,
    StampedCall,
    WinnersCall,
)
from codezero.monitor.openapi import Parameter, Route

OWN_PAGES = {
    400: "the body is not as described",
    401: "nobody is logged in here",
    403: "asked by a page of another site, or what proves the owner is wrong",
    409: "the node has an owner already, has none yet, or one who proves himself otherwise",
    413: "a body of more than 64 KiB",
    415: "the body is not application/json",
    421: "asked by another name than localhost",
    422: "this authenticator keeps no secret",
    429: "too often; Retry-After says when",
    503: "a file of the login cannot be read or written",
}
PROGRAMS = {
    400: "the body is not as described, or the contract refuses: `error` is then its error's name",
    401: "no token, or another one",
    403: "asked by a page",
    409: "the key is locked",
    413: "a body of more than 64 KiB",
    415: "the body is not application/json",
    421: "asked by another name than localhost",
    503: "the chain did not answer, and nothing was done",
    504: "the chain did not answer, and it may have been done",
}


def _ours(path: str, text: str, body: Any, answer: Any = schema.State) -> Route:
    return Route("post", path, text, answer, body=body, errors=OWN_PAGES)


def _program(path: str, text: str, body: Any, answer: Any) -> Route:
    return Route("post", path, text, answer, body=body, errors=PROGRAMS, token=True)


def _asked(path: str, text: str, answer: Any, media: str = "application/json") -> Route:
    organisation = Parameter("orgId", "of a client of the original, which has no token", str)
    return Route("get", path, text, answer, media, parameters=[organisation], errors=PROGRAMS, token=True)


OTHER_ROUTES = (
    Route("get", "/api/session", "Who owns the node, and is he logged in?", schema.State, errors={421: OWN_PAGES[421]}),
    _ours("/api/claim/passkey/options", "Begin to claim with a passkey.", schema.CodeBody, schema.PasskeyOptions),
    _ours("/api/claim/passkey/verify", "Claim with it.", schema.NewPasskey),
    _ours("/api/claim/passphrase", "Claim with a passphrase.", schema.NewPassphrase),
    _ours("/api/login/passkey/options", "Begin to log in with the passkey.", schema.Nothing, schema.PasskeyOptions),
    _ours("/api/login/passkey/verify", "Log in with it.", schema.GivenPasskey),
    _ours("/api/login/passphrase", "Log in with the passphrase.", schema.GivenPassphrase),
    _ours("/api/logout", "Log out; with `lock` nothing is signed until the next login.", schema.Logout),
    _program("/api/sign-transaction", "Have a transaction signed.", signing.SignBody, signing.Signed),
    _program("/api/claim/code", "Have a new code for claiming the node.", schema.Nothing, signing.NewCode),
    _program("/api/register-peer", "Register a peer on the contract.", PeerCall, Hash),
    _program("/api/submit-reward", "Submit a round's reward.", RewardCall, Hash),
    _program("/api/submit-winner", "Vote in a round.", WinnersCall, Hash),
    _asked("/api/get-api-key-status", "activated, or pending while nobody is logged in.", str, "text/plain"),
    _asked("/api/get-api-key", "The address that the node signs with.", PublicKey),
    _program("/api/get-api-key", "The same.", StampedCall, PublicKey),
    _program("/api/set-api-key-activated", "Ask whether this address signs here.", ActivationCall, Activated),
)
