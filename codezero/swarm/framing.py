"""The frame of every record: version, schema, bounds and compression; and headers, which announce a body.

Decoding raises WireRefusal alone, whatever the bytes. What is encoded is read back.
"""

import hashlib
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from codezero.swarm.schema import DERIVED, MAX_BODY, MAX_HEADER, MAX_INFLATED, VERSION, Header, Versioned, WireRefusal
from codezero.system.files import UNDECODABLE

Schema = TypeVar("Schema", bound=msgspec.Struct)
Derived = TypeVar("Derived", bound=msgspec.Struct)


def encode_header(header: Header) -> bytes:
    """Raises WireRefusal for a header that no peer would read."""
    data = msgspec.msgpack.encode(header)
    decode_header(data)
    return data


def decode_header(data: bytes) -> Header:
    """Raises WireRefusal."""
    header = decode(data, Header, Header, most=MAX_HEADER)
    if (header.v == DERIVED) != bool(header.environment):
        raise WireRefusal("schema", f"version {header.v} with or without an environment")
    return header


def body_digest(data: bytes) -> bytes:
    """[32] bytes that a header names a served body by."""
    return hashlib.sha256(data).digest()


def decode(
    data: bytes, schema: type[Schema], derived: type[Derived] | None = None, *, most: int = MAX_INFLATED
) -> Schema | Derived:
    """Check the version first: a newer peer is refused as newer, not as malformed. derived: the schema of DERIVED."""
    if len(data) > most:
        raise WireRefusal("size", f"{len(data)} bytes, above {most}")
    try:
        version = msgspec.msgpack.decode(data, type=Versioned).v
        if version == DERIVED and derived is not None:
            return msgspec.msgpack.decode(data, type=derived)
        if version != VERSION:
            raise WireRefusal("version", f"this node reads version {VERSION}, not {version}")
        return msgspec.msgpack.decode(data, type=schema)
    except UNDECODABLE as error:
        raise WireRefusal("schema", str(error)) from error


def deflate(body: msgspec.Struct, decode: Callable[[bytes], Any]) -> bytes:
    """Compress, and check that `decode` accepts the result."""
    try:
        raw = msgspec.msgpack.encode(body)
    except (UnicodeEncodeError, OverflowError) as error:
        raise WireRefusal("schema", str(error)) from error
    if len(raw) > MAX_INFLATED:
        raise WireRefusal("size", f"{len(raw)} bytes before compression")
    data = zlib.compress(raw, 6)
    decode(data)
    return data


def inflate(data: bytes) -> bytes:
    if len(data) > MAX_BODY:
        raise WireRefusal("size", f"a body of {len(data)} bytes")
    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(data, MAX_INFLATED + 1)
    except zlib.error as error:
        raise WireRefusal("inflate", str(error)) from error
    if len(raw) > MAX_INFLATED:
        raise WireRefusal("inflate", f"more than {MAX_INFLATED} bytes inside")
    if not stream.eof or stream.unused_data:
        raise WireRefusal("inflate", "cut off, or followed by more")
    return raw
