"""LiveCodeBench's private tests: JSON text as one pickled string, compressed by zlib, in base64.

A pickle is a program, and nothing of a stranger's is run here. Of its operations those are known that write down one
string; a pickle with any other is refused by name.
"""

import base64
import binascii
import zlib

from codezero.errors import ProblemError

MAX_UNPACKED = 256 << 20
"""Bytes."""
_LENGTHS = {b"X": 4, b"\x8c": 1, b"\x8d": 8}
"""BINUNICODE, SHORT_BINUNICODE and BINUNICODE8: how many bytes tell the length, the lowest first."""
_MEMOS = {b"q": 1, b"r": 4, b"\x94": 0}
"""BINPUT, LONG_BINPUT and MEMOIZE: bytes that follow. They keep the string for later, and there is no later."""
_PROTO, _FRAME, _STOP = b"\x80", b"\x95", b"."


def unpack(text: str) -> str:
    """The JSON text inside. Raises ProblemError."""
    try:
        inflater = zlib.decompressobj()
        data = inflater.decompress(base64.b64decode(text, validate=True), MAX_UNPACKED + 1)
    except (binascii.Error, zlib.error, ValueError) as error:
        raise ProblemError(f"is not zlib in base64: {error}") from error
    if len(data) > MAX_UNPACKED:
        raise ProblemError(f"unpacks to more than {MAX_UNPACKED >> 20} MiB")
    if not inflater.eof:
        raise ProblemError("ends before its compressed data does")
    return pickled_string(data)


def pickled_string(data: bytes) -> str:
    """The one string that a pickle of a string holds, read and not executed. Raises ProblemError."""
    at, found = 0, None
    while at < len(data):
        operation, at = data[at : at + 1], at + 1
        if operation == _STOP and found is not None and at == len(data):
            try:
                return found.decode("utf-8", "surrogatepass")
            except UnicodeDecodeError as error:
                raise ProblemError("is pickled text that is not UTF-8") from error
        if operation == _PROTO and at == 1:
            at += 1
        elif operation == _FRAME:
            at += 8
        elif operation in _MEMOS and found is not None:
            at += _MEMOS[operation]
        elif operation in _LENGTHS and found is None:
            start = at + _LENGTHS[operation]
            at = start + int.from_bytes(data[at:start], "little")
            found = data[start:at]
        else:
            raise ProblemError(f"is a pickle of more than one string (operation {operation!r}), which is never run")
    raise ProblemError("is a pickle that is cut off")
