"""The code by which a stranger joins: where the founder's node is, and which invitation it has to give.

The text is `cz1`, the version, and base58 with a checksum of a few fields as msgpack: one word, easily copied.
"""

import re
from dataclasses import dataclass
from typing import Annotated

import base58
import msgspec
from msgspec import Meta

from codezero.chain.invitation import DIGEST, NAME, Invitation
from codezero.errors import ConfigError, InviteError

PREFIX = "cz1"
MAX_CODE, MAX_WAYS = 1024, 4
"""Characters of a code, and addresses in it; with two IPv4 addresses it has about 165."""
_HOST = r"(?:ip4|ip6|dns[46]?)/[0-9A-Za-z.:-]{1,128}"
_WAY = re.compile(rf"/({_HOST})/tcp/(\d{{1,5}})/p2p/([1-9A-HJ-NP-Za-km-z]{{32,64}})")


class _Fields(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(pattern=NAME)]
    digest: Annotated[bytes, Meta(min_length=DIGEST, max_length=DIGEST)]
    peer: Annotated[bytes, Meta(min_length=34, max_length=38)]
    """The multihash that a peer id is."""
    ways: Annotated[
        list[tuple[Annotated[str, Meta(pattern=rf"^{_HOST}\Z")], Annotated[int, Meta(ge=1, le=65535)]]],
        Meta(min_length=1, max_length=MAX_WAYS),
    ]
    """Hosts, each behind its protocol, and ports."""


@dataclass(frozen=True, slots=True)
class JoinCode:
    """What a code says. Nothing of it is believed before the invitation has this digest and its founder's signature."""

    name: str
    digest: bytes
    """[DIGEST], as `Invitation.digest`."""
    addresses: list[str]
    """Of the founder's node: multiaddresses that end in its peer id."""


def encode_code(invitation: Invitation) -> str:
    """Raises ConfigError for a founder whose addresses are all of another kind."""
    ways = [match.groups() for address in invitation.network.bootnodes if (match := _WAY.fullmatch(address))]
    if not ways:
        raise ConfigError("no address of the invitation is like /ip4/HOST/tcp/PORT; name one with swarm.announce")
    peer, hosts = ways[0][2], [(host, int(port)) for host, port, of in ways if of == ways[0][2]]
    return _text(_Fields(invitation.network.name, invitation.digest, base58.b58decode(peer), hosts[:MAX_WAYS]))


def decode_code(text: str) -> JoinCode:
    """Raises InviteError."""
    if re.match(r"cz[2-9]", text):
        raise InviteError(f"this code is of a later version, {text[:3]}; update this node")
    try:
        fields = msgspec.msgpack.decode(base58.b58decode_check(text[len(PREFIX) : MAX_CODE]), type=_Fields)
        if _text(fields) != text:
            raise ValueError("not as it is written")
    except ValueError as error:  # msgspec raises nothing else
        raise InviteError(
            f"{text[:20]!r}… is neither a file here nor a whole code: a letter of it is missing or mistyped; copy it "
            "again from what the founder's node prints"
        ) from error
    peer = base58.b58encode(fields.peer).decode()
    return JoinCode(fields.name, fields.digest, [f"/{host}/tcp/{port}/p2p/{peer}" for host, port in fields.ways])


def _text(fields: _Fields) -> str:
    return PREFIX + base58.b58encode_check(msgspec.msgpack.encode(fields)).decode()
