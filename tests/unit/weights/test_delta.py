"""A model's weights as bits: copies, anchors, and exact deltas between them."""

import random
import struct
import zlib
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.torch import load_file, save_file

from codezero.errors import WeightsError
from codezero.weights import delta
from codezero.weights.delta import Bits, Layout, Weights, read_anchor, weights_of, write_anchor

LAYOUT = Layout({"b": (700,), "a": (30, 10)})
FINITE = st.integers(0, 0xFFFF).filter(lambda bits: bits & 0x7F80 != 0x7F80)


def weights(bits: Bits) -> Weights:
    own = Weights(LAYOUT, bits.copy())
    own.state = own.content()
    return own


def drawn(seed: int, share: float = 0.02) -> tuple[Weights, Bits]:
    generator = np.random.default_rng(seed)
    old, other = generator.integers(0, 0x7F00, (2, 1000)).astype(np.uint16)
    return weights(old), np.where(generator.random(1000) < share, other, old)


@given(*[arrays.arrays(np.uint16, 1000, elements=FINITE, fill=st.just(7))] * 2)
def test_any_two_states_are_bridged_exactly(old: Bits, new: Bits) -> None:
    own = weights(old)
    blob = delta.encode(own, new)
    delta.apply(own, blob)
    assert (own.bits == new).all() and own.state == delta.state_of(blob)


def test_several_streams_in_threads_are_one_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "CHUNK", 64)
    for share in (0.0, 0.001, 0.3, 1.0):
        own, new = drawn(3, share)
        delta.apply(own, delta.encode(own, new))
        assert (own.bits == new).all()


def sealed(blob: bytes) -> bytes:
    """As somebody who can compute a digest sends it."""
    return blob + sha256(blob).digest()


def rebuilt(start: bytes, chunks: object) -> bytes:
    return sealed(delta.MAGIC + msgspec.msgpack.encode([start, chunks]))


def base(blob: bytes) -> bytes:
    return msgspec.msgpack.decode(blob[len(delta.MAGIC) : -delta.DIGEST])[0]


def changed(blob: bytes, gaps: Sequence[int], steps: Sequence[int], *, count: int | None = None) -> bytes:
    """A delta of these gaps and zigzag steps; `count`: how many it says that there are."""
    planes = bytes(gap >> 8 * byte & 255 for byte in range(3) for gap in gaps)
    planes += bytes(step >> 8 * byte & 255 for byte in range(2) for step in steps)
    return rebuilt(base(blob), [[len(gaps) if count is None else count, zlib.compress(planes, wbits=-15)]])


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "garbage": lambda blob: random.Random(1).randbytes(len(blob)),
    "nothing": lambda blob: b"",
    "a flipped bit": lambda blob: blob[:50] + bytes([blob[50] ^ 1]) + blob[51:],
    "cut": lambda blob: blob[:-9],
    "cut and sealed again": lambda blob: sealed(blob[: -delta.DIGEST - 9]),
    "more behind": lambda blob: sealed(blob[: -delta.DIGEST] + b"more"),
    "another base": lambda blob: rebuilt(bytes(32), [[0, b""]]),
    "a short base": lambda blob: rebuilt(bytes(31), [[0, b""]]),
    "a stream beyond the end": lambda blob: sealed(delta.MAGIC + b"\x92\xc6\xff\xff\xff\xff" + blob[8:-32]),
    "nested": lambda blob: sealed(delta.MAGIC + b"\x91" * 2000),
    "too many chunks": lambda blob: rebuilt(base(blob), [[0, b""]] * 65_537),
    "a count too many": lambda blob: changed(blob, [5], [2], count=2),
    "a count too few": lambda blob: changed(blob, [5, 5], [2, 2], count=1),
    "a step too few": lambda blob: changed(blob, [5, 5], [2]),
    "a place beyond the end": lambda blob: changed(blob, [1000], [2]),
    "a place far beyond": lambda blob: changed(blob, [0xFFFFFF] * 1000, [2] * 1000),
    "a bomb": lambda blob: changed(blob, bytes(3_000_000), bytes(3_000_000), count=9),
    "a stream that does not end": lambda blob: rebuilt(base(blob), [[0, b"\x01"]]),
    "two chunks for one": lambda blob: rebuilt(base(blob), [[0, b""]] * 2),
    "infinity": lambda blob: changed(blob, [0], [2]),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_delta_leaves_the_weights_as_they_were(what: str) -> None:
    own, new = drawn(5)
    own.bits[0] = new[0] = 0x7F7F  # the largest number: one step more is infinity
    own.state = own.content()
    before, state = own.bits.copy(), own.state
    blob = BROKEN[what](delta.encode(own, new))
    with pytest.raises(WeightsError, match="the delta begins at 0000" if what == "another base" else None):
        delta.apply(own, blob)
    assert (own.bits == before).all() and own.state == state


@given(st.binary(max_size=300))
def test_no_bytes_of_a_stranger_raise_anything_else(tail: bytes) -> None:
    own, _ = drawn(7)
    for blob in (tail, sealed(delta.MAGIC + tail)):
        with pytest.raises(WeightsError):
            delta.apply(own, blob)


TENSORS = {"b": torch.tensor([1.5, -2.0]), "a": torch.arange(6.0).view(2, 3)}


def test_an_anchor_is_what_was_published(tmp_path: Path) -> None:
    weights = weights_of(TENSORS)
    write_anchor(weights, tmp_path / "anchor.safetensors")
    again = read_anchor(tmp_path / "anchor.safetensors", weights.layout)
    assert again.content() == weights.content() and (again.bits == weights.bits).all()
    loaded = load_file(tmp_path / "anchor.safetensors")
    assert all(torch.equal(value.float(), TENSORS[name]) for name, value in again.tensors().items())
    assert {tensor.dtype for tensor in loaded.values()} == {torch.bfloat16}


def test_float32_is_rounded_as_torch_rounds() -> None:
    values = torch.randn(1000, generator=torch.Generator().manual_seed(2))
    assert torch.equal(weights_of({"w": values}).tensors()["w"], values.bfloat16())


def test_one_bit_and_one_name_change_the_state() -> None:
    states = {weights_of(TENSORS).content(), weights_of(TENSORS | {"b": torch.tensor([1.5, 2.0])}).content()}
    states.add(weights_of({"b": TENSORS["b"], "c": TENSORS["a"]}).content())
    assert len(states) == 3


def test_what_is_read_is_a_copy() -> None:
    tensors = {"w": torch.ones(4, dtype=torch.bfloat16)}
    weights = weights_of(tensors)
    tensors["w"].zero_()
    assert weights.tensors()["w"].tolist() == [1.0] * 4


@pytest.mark.parametrize("value", [torch.tensor([float("nan")]), torch.tensor([float("inf")]), torch.tensor([1])])
def test_what_is_no_weight_is_refused(value: torch.Tensor) -> None:
    with pytest.raises(WeightsError):
        weights_of({"w": value})


def test_a_strangers_file_of_another_shape_is_refused(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "x.safetensors")
    with pytest.raises(WeightsError, match="of another model"):
        read_anchor(tmp_path / "x.safetensors", Layout({"a": (3, 2), "b": (2,)}))


def test_a_file_that_is_none_says_so(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(b"\xff" * 100)
    for path in (tmp_path, tmp_path / "x.safetensors", tmp_path / "y.safetensors", Path("/proc")):
        with pytest.raises(WeightsError):
            read_anchor(path, LAYOUT)


def test_a_type_that_cannot_be_converted_is_refused(tmp_path: Path) -> None:
    header = b'{"w":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}}'
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(2))
    with pytest.raises(WeightsError, match="cannot be read"):
        read_anchor(tmp_path / "x.safetensors", Layout({"w": (4,)}))
