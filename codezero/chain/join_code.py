"""The code by which a stranger joins: where the founder's node is, and which invitation it has to give.

The text is `cz1`, the version, and base58 with a checksum of a few fields as msgpack: one word, easily copied.
"""

import ipaddress
import re
from dataclasses import dataclass
from typing import Annotated

import base58
import msgspec
from msgspec import Meta

from codezero.chain.invitation import DIGEST, NAME, Invitation
from codezero.errors import ConfigError, InviteError, translated

PREFIX = "cz1"
MAX_CODE, MAX_WAYS = 1024, 4
"""Characters of a code, and addresses in it; two IPv4 addresses take about 130."""
MEND = "name one like /ip4/HOST/tcp/PORT with swarm.announce"
_WAY = re.compile(r"/(ip4|ip6|dns[46]?)/([0-9A-Za-z.:-]{1,128})/tcp/(\d{1,5})/p2p/([1-9A-HJ-NP-Za-km-z]{32,64})")
_NAME = re.compile(r"dns[46]?/[0-9A-Za-z.-]{1,128}")

_Port = Annotated[int, Meta(ge=1, le=65535)]
_Host = Annotated[bytes, Meta(min_length=5, max_length=134)]


class _Fields(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(pattern=NAME)]
    digest: Annotated[bytes, Meta(min_length=DIGEST, max_length=DIGEST)]
    peer: Annotated[bytes, Meta(min_length=34, max_length=38)]
    """The multihash that a peer id is."""
    ways: Annotated[list[tuple[_Host, _Port]], Meta(min_length=1, max_length=MAX_WAYS)]
    """An IP address as its bytes behind a zero; a name as text behind its protocol."""


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
    with translated(ConfigError, "no address of the invitation fits a code", ValueError, LookupError, mend=MEND):
        matches = [match.groups() for address in invitation.network.bootnodes if (match := _WAY.fullmatch(address))]
        peer = matches[0][3]
        ways = [(_packed(kind, host), int(port)) for kind, host, port, of in matches if of == peer]
        return _text(_Fields(invitation.network.name, invitation.digest, base58.b58decode(peer), ways[:MAX_WAYS]))


def decode_code(text: str) -> JoinCode:
    """Raises InviteError."""
    if re.match(r"cz[2-9]", text):
        raise InviteError(f"this code is of a later version, {text[:3]}; update this node")
    try:
        fields = msgspec.msgpack.decode(base58.b58decode_check(text[len(PREFIX) : MAX_CODE]), type=_Fields)
        hosts = [_shown(host) for host, _ in fields.ways]
        if _text(fields) != text:
            raise ValueError("not as it is written")
    except ValueError as error:  # msgspec raises nothing else
        raise InviteError(
            f"{text[:20]!r}… is neither a file here nor a whole code: a letter of it is missing or mistyped; copy it "
            "again from what the founder's node prints"
        ) from error
    peer = base58.b58encode(fields.peer).decode()
    addresses = [f"/{host}/tcp/{port}/p2p/{peer}" for host, (_, port) in zip(hosts, fields.ways, strict=True)]
    return JoinCode(fields.name, fields.digest, addresses)


def _text(fields: _Fields) -> str:
    return PREFIX + base58.b58encode_check(msgspec.msgpack.encode(fields)).decode()


def _packed(kind: str, host: str) -> bytes:
    return b"\0" + ipaddress.ip_address(host).packed if kind in ("ip4", "ip6") else f"{kind}/{host}".encode()


def _shown(host: bytes) -> str:
    """Raises ValueError."""
    if host[0] == 0:
        address = ipaddress.ip_address(host[1:])
        return f"ip{address.version}/{address}"
    if not _NAME.fullmatch(text := host.decode("ascii")):
        raise ValueError("no address")
    return text
