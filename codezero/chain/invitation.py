"""The invitation, `swarm.toml`: all that a newcomer needs to join a swarm, every field signed by its founder.

And the code by which a newcomer joins: where the founder's node is, and which invitation it has to give. The text is
`cz1`, the version, and base58 with a checksum of a few fields as msgpack: one word, easily copied."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import base58
import msgspec
from msgspec import Meta

from codezero.chain.errors import printable
from codezero.errors import ConfigError, InviteError, translated
from codezero.system.files import Address, read_bounded

VERSION = 1
MAX_FILE = 64 << 10
DIGEST = 16  # bytes of a digest, so that a code stays short: nobody finds a second invitation with the same

# No field holds what a shell, a template or a resolver reads: quotes, backslashes, `$`, `{` and `}`.
# A multiaddress that ends in a peer id; for the contract's list too.
BOOTNODE = r"^/[A-Za-z0-9._:/%-]{1,180}/p2p/[1-9A-HJ-NP-Za-km-z]{32,64}\Z"
NAME = r"^[A-Za-z0-9_.-]{1,64}\Z"
Url = Annotated[str, Meta(pattern=r"^https?://[A-Za-z0-9._~:/?#\[\]@!&()*+,;=%-]+\Z", max_length=256)]
Multiaddress = Annotated[str, Meta(pattern=BOOTNODE, max_length=256)]
ModelName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._~/:@+-]+\Z", max_length=256)]


class ChainPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where the swarm's contracts are. What has its default is neither written nor signed."""

    id: Annotated[int, Meta(ge=1, le=2**53 - 1)]
    rpc: Annotated[list[Url], Meta(max_length=8)]  # endpoints, tried in turn; none: every node names its own
    contract: Address
    round_seconds: Annotated[float, Meta(gt=0, le=31_536_000)]
    block: Annotated[int, Meta(ge=0, le=2**53 - 1)] = 0  # in which the contract was deployed, or one before


class NetworkPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The way its nodes meet, and their environment."""

    name: Annotated[str, Meta(pattern=NAME)]
    protocol: Annotated[int, Meta(ge=1, le=2**31)]  # version of the wire format
    bootnodes: Annotated[list[Multiaddress], Meta(max_length=64)]
    # Its name; empty: code. A joiner's own settings have to name the plug-in, since none is taken from here.
    environment: Annotated[str, Meta(pattern=r"^([a-z][a-z0-9_.-]{0,63})?\Z")] = ""
    digest: Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?\Z")] = ""  # of the environment


class JudgePart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who says what is right: rewards only compare between nodes that ask the same judge."""

    model: ModelName
    # `models.revision.weights_digest`; empty for a judge behind an endpoint, which shows nobody its weights.
    digest: Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?\Z")]


class Invitation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: Literal[1]
    founder: Address
    chain: ChainPart
    network: NetworkPart
    judge: JudgePart
    signature: Annotated[str, Meta(pattern=r"^(0x[0-9a-f]{130})?\Z")] = ""

    @property
    def message(self) -> str:
        """The text that the founder signs (EIP-191): every other field, in order, as JSON without spaces."""
        prefix = "codezero invitation\n"  # so that no other message of the founder's account is an invitation
        return prefix + msgspec.json.encode(msgspec.structs.replace(self, signature=""), order="sorted").decode()

    @property
    def digest(self) -> bytes:
        """[DIGEST] bytes, of all that is signed."""
        return hashlib.sha256(self.message.encode()).digest()[:DIGEST]


def signed(invitation: Invitation, sign: Callable[[str], bytes]) -> Invitation:
    """`sign` makes the 65 bytes of the founder's EIP-191 signature. Raises InviteError for a field out of bounds."""
    try:
        msgspec.convert(msgspec.to_builtins(invitation), Invitation)
    except msgspec.ValidationError as error:
        raise InviteError(f"an invitation cannot hold this: {printable(str(error))}; choose a plainer name") from error
    return msgspec.structs.replace(invitation, signature="0x" + sign(invitation.message).hex())


def check_signature(invitation: Invitation) -> None:
    """Raises InviteError."""
    from eth_account import Account  # slow import (0.5 s): only needed to read an invitation
    from eth_account.messages import encode_defunct
    from eth_keys.exceptions import BadSignature
    from eth_utils.exceptions import ValidationError

    again = "ask the founder for the file again"
    if not invitation.signature:
        raise InviteError(f"the invitation is not signed; {again}")
    malformed, none = (BadSignature, ValidationError, ValueError, TypeError), "the invitation's signature is none"
    with translated(InviteError, none, *malformed, mend=again, reason=False):
        signer = str(Account.recover_message(encode_defunct(text=invitation.message), signature=invitation.signature))
    if signer.lower() != invitation.founder.lower():
        founder = invitation.founder
        raise InviteError(
            f"the invitation was changed after {founder} signed it, or another account signed it; {again}"
        )


def write_invitation(path: Path, invitation: Invitation) -> None:
    """Raises ConfigError, also where there is a file already: who joined with it would look for another swarm."""
    text = "# An invitation to a codezero swarm. `codezero swarm join FILE` checks it and runs a node.\n"
    refused = translated(ConfigError, f"{path} cannot be written", OSError, mend="choose another name with --out")
    with refused, path.open("x") as file:
        file.write(text + msgspec.toml.encode(invitation).decode())


def read_invitation(path: Path) -> Invitation:
    """Checked against schema and signature. Raises InviteError, and ConfigError when there is no such file."""
    with translated(ConfigError, str(path), OSError), translated(InviteError, f"{path} is no invitation", ValueError):
        raw = read_bounded(path, MAX_FILE)
    return decode_invitation(raw, str(path))


def decode_invitation(raw: bytes, origin: str) -> Invitation:
    """Check a file's bytes against schema and signature; `origin` is named in errors. Raises InviteError."""
    try:
        if len(raw) > MAX_FILE:
            raise ValueError(f"more than {MAX_FILE} bytes")
        invitation = msgspec.toml.decode(raw, type=Invitation)
    except (ValueError, RecursionError) as error:
        raise InviteError(f"{origin} is no invitation: {printable(str(error))}") from error
    check_signature(invitation)
    return invitation


CODE_PREFIX = "cz1"
MAX_CODE, MAX_WAYS = 1024, 4  # characters of a code, and addresses in it; with two IPv4 addresses it has about 165
_HOST = r"(?:ip4|ip6|dns[46]?)/[0-9A-Za-z.:-]{1,128}"
Way = tuple[Annotated[str, Meta(pattern=rf"^{_HOST}\Z")], Annotated[int, Meta(ge=1, le=65535)]]  # host, port
_WAY = re.compile(rf"/({_HOST})/tcp/(\d{{1,5}})/p2p/([1-9A-HJ-NP-Za-km-z]{{32,64}})")


class JoinCode(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The content of a code, of which nothing is believed before the invitation has this digest and is signed."""

    name: Annotated[str, Meta(pattern=NAME)]
    digest: Annotated[bytes, Meta(min_length=DIGEST, max_length=DIGEST)]  # as `Invitation.digest`
    peer: Annotated[bytes, Meta(min_length=34, max_length=38)]  # the multihash that a peer id is
    ways: Annotated[list[Way], Meta(min_length=1, max_length=MAX_WAYS)]

    @property
    def addresses(self) -> list[str]:
        """Multiaddresses of the founder's node, which end in its peer id."""
        peer = base58.b58encode(self.peer).decode()
        return [f"/{host}/tcp/{port}/p2p/{peer}" for host, port in self.ways]

    @property
    def text(self) -> str:
        return CODE_PREFIX + base58.b58encode_check(msgspec.msgpack.encode(self)).decode()


def encode_code(invitation: Invitation) -> str:
    """Raises ConfigError for a founder whose addresses are all of another kind."""
    ways = [match.groups() for address in invitation.network.bootnodes if (match := _WAY.fullmatch(address))]
    if not ways:
        raise ConfigError("no address of the invitation is like /ip4/HOST/tcp/PORT; name one with swarm.announce")
    peer, hosts = ways[0][2], [(host, int(port)) for host, port, of in ways if of == ways[0][2]]
    return JoinCode(invitation.network.name, invitation.digest, base58.b58decode(peer), hosts[:MAX_WAYS]).text


def decode_code(text: str) -> JoinCode:
    """Raises InviteError."""
    if re.match(r"cz[2-9]", text):
        raise InviteError(f"this code is of a later version, {text[:3]}; update this node")
    try:
        code = msgspec.msgpack.decode(base58.b58decode_check(text[len(CODE_PREFIX) : MAX_CODE]), type=JoinCode)
        if code.text != text:
            raise ValueError("not as it is written")
    except ValueError as error:  # msgspec raises nothing else
        raise InviteError(
            f"{text[:20]!r}… is neither a file here nor a whole code: a letter of it is missing or mistyped; copy it "
            "again from what the founder's node prints"
        ) from error
    return code
