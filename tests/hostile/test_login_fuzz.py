"""Whatever is sent to the login's routes, the answer is a refusal and never a fault."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import cbor2
import pytest
from builders.login import Page, page
from fakes.authenticator import Authenticator, Json, client_data, decode, encode
from hypothesis import given, settings
from hypothesis import strategies as st

from codezero.errors import HttpRefusal
from codezero.login.routes import authenticate, register
from codezero.login.vault import Passkey

ORIGIN, CHALLENGE, SALT = "http://localhost:3000", b"\x07" * 32, bytes(32)
OPTIONS: Json = {"challenge": encode(CHALLENGE), "extensions": {"prf": {"eval": {"first": encode(SALT)}}}}
WAYS = ("passkey/options", "passkey/verify", "passphrase")
PATHS = [f"/api/{what}/{way}" for what in ("claim", "login") for way in WAYS]
PATHS += ["/api/logout", "/api/session", "/api/sign-transaction"]
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=64).map(encode)
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4))
names = st.sampled_from(["code", "passphrase", "ticket", "credential", "prf", "lock", "transaction"])
bodies = st.binary(max_size=200) | (values | st.dictionaries(names, values)).map(lambda one: json.dumps(one).encode())
cbor = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.integers(-4, 4) | st.text(), inner, max_size=5),
)


@pytest.fixture(scope="module")
def tabs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Page]]:
    with page(tmp_path_factory.mktemp("new")) as new, page(tmp_path_factory.mktemp("owned")) as owned:
        assert owned.claim_with(Authenticator()).status == 200
        yield [new, owned]


@given(path=st.sampled_from(PATHS), body=bodies, program=st.booleans(), owned=st.booleans())
@settings(max_examples=300)
def test_no_body_gives_a_fault(tabs: list[Page], path: str, body: bytes, program: bool, owned: bool) -> None:
    tab = tabs[owned]
    headers: dict[str, str | None] = {}
    if program:
        headers = {"Origin": None, "Sec_Fetch_Site": None, "Authorization": f"Bearer {tab.token}"}
    answer = tab.ask("POST", path, raw=body, **headers)
    assert answer.status < 500
    if answer.status != 200:
        assert answer.error


@given(path=st.text(max_size=80), header=st.text(st.characters(codec="latin-1"), max_size=80))
@settings(max_examples=100)
def test_no_address_and_no_header_gives_a_fault(tabs: list[Page], path: str, header: str) -> None:
    clean = "".join(character for character in header if character not in "\r\n\0")
    quoted = "".join(f"%{byte:02x}" for byte in path.encode("utf-8", "surrogatepass"))
    for name in ("Cookie", "Authorization", "Content_Type", "Origin", "Host"):
        answer = tabs[1].ask("POST", f"/{quoted}", {}, **{name: clean})
        assert answer.status in (400, 403, 404, 405, 415, 421)


def mutated(raw: bytes) -> st.SearchStrategy[bytes]:
    """Something inserted, left out or changed."""
    places = st.integers(0, len(raw))
    return st.builds(lambda at, until, new: raw[:at] + new + raw[until:], places, places, st.binary(max_size=40))


KEY = Authenticator()
CREATED, _ = KEY.create(OPTIONS, ORIGIN)
OBJECT = decode(CREATED["response"]["attestationObject"])
DATA = cbor2.loads(OBJECT)["authData"]
COSE = cbor2.loads(DATA[37 + 16 + 2 + len(KEY.id) :])
GOT, _ = KEY.get(OPTIONS | {"allowCredentials": [{"id": encode(KEY.id)}]}, ORIGIN)
KNOWN = Passkey(KEY.id, cbor2.dumps(COSE), 0, SALT)


def attested(data: object, **more: object) -> bytes:
    return cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data} | more)


def with_key(cose: object) -> bytes:
    return attested(DATA[: 37 + 16 + 2 + len(KEY.id)] + cbor2.dumps(cose))


keys = st.dictionaries(st.sampled_from([1, 3, -1, -2, -3]), cbor).map(lambda change: COSE | change) | cbor
objects = (
    mutated(OBJECT)
    | mutated(DATA).map(attested)
    | keys.map(with_key)
    | cbor.map(lambda one: attested(DATA, attStmt=one, fmt=one))
    | cbor.map(cbor2.dumps)
)
clients = mutated(decode(CREATED["response"]["clientDataJSON"])) | values.map(lambda one: json.dumps(one).encode())
fields = values.map(lambda one: {"type": one}) | values.map(lambda one: {"challenge": one, "tokenBinding": one})
odd = fields.map(lambda change: json.dumps(json.loads(client_data("webauthn.get", encode(CHALLENGE), ORIGIN)) | change))


@given(told=objects | cbor.map(lambda one: attested(one)))
@settings(max_examples=500)
def test_no_attestation_gives_a_fault(told: bytes) -> None:
    with contextlib.suppress(HttpRefusal):
        passkey = register(created(attestationObject=encode(told)), CHALLENGE, ORIGIN, SALT)
        with contextlib.suppress(HttpRefusal):
            authenticate(GOT, CHALLENGE, ORIGIN, passkey)


@given(client=clients | odd.map(str.encode), data=mutated(decode(GOT["response"]["authenticatorData"])))
@settings(max_examples=300)
def test_no_assertion_gives_a_fault_or_is_believed(client: bytes, data: bytes) -> None:
    with pytest.raises(HttpRefusal):
        authenticate(got(clientDataJSON=encode(client)), CHALLENGE, ORIGIN, KNOWN)
    if data != decode(GOT["response"]["authenticatorData"]):
        with pytest.raises(HttpRefusal):
            authenticate(got(authenticatorData=encode(data)), CHALLENGE, ORIGIN, KNOWN)


@given(
    name=st.sampled_from(["id", "rawId", "type", "response", "clientExtensionResults", "authenticatorAttachment"]),
    part=st.sampled_from(["clientDataJSON", "attestationObject", "authenticatorData", "signature", "transports"]),
    odd=values,
)
@settings(max_examples=300)
def test_no_credential_of_another_form_gives_a_fault(name: str, part: str, odd: Any) -> None:
    for change in (created(**{part: odd}), CREATED | {name: odd}):
        with contextlib.suppress(HttpRefusal):
            register(change, CHALLENGE, ORIGIN, SALT)
    for change in (got(**{part: odd}), GOT | {name: odd}):
        with contextlib.suppress(HttpRefusal):
            authenticate(change, CHALLENGE, ORIGIN, KNOWN)


def test_the_unchanged_ones_are_believed() -> None:
    assert register(CREATED, CHALLENGE, ORIGIN, SALT).credential == KEY.id
    assert authenticate(GOT, CHALLENGE, ORIGIN, KNOWN).sign_count == KEY.count


def created(**changes: object) -> Json:
    return CREATED | {"response": CREATED["response"] | changes}


def got(**changes: object) -> Json:
    return GOT | {"response": GOT["response"] | changes}
