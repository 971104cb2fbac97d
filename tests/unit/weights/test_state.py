import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from codezero.errors import WeightsError
from codezero.weights.state import Layout, of_tensors, read_weights, write_anchor

TENSORS = {"b": torch.tensor([1.5, -2.0]), "a": torch.arange(6.0).view(2, 3)}


def test_an_anchor_is_what_was_published(tmp_path: Path) -> None:
    weights = of_tensors(TENSORS)
    write_anchor(weights, tmp_path / "anchor.safetensors")
    again = read_weights(tmp_path / "anchor.safetensors", weights.layout)
    assert again.content() == weights.content() and (again.bits == weights.bits).all()
    assert all(torch.equal(value.float(), TENSORS[name]) for name, value in again.tensors().items())


def test_a_directory_in_shards_is_one_model(tmp_path: Path) -> None:
    for name, tensor in TENSORS.items():
        save_file({name: tensor}, tmp_path / f"{name}.safetensors")
    assert read_weights(tmp_path).content() == of_tensors(TENSORS).content()


def test_float32_is_rounded_as_torch_rounds() -> None:
    values = torch.randn(1000, generator=torch.Generator().manual_seed(2))
    assert torch.equal(of_tensors({"w": values}).tensors()["w"], values.bfloat16())


def test_one_bit_and_one_name_change_the_state() -> None:
    states = {of_tensors(TENSORS).content(), of_tensors(TENSORS | {"b": torch.tensor([1.5, 2.0])}).content()}
    states.add(of_tensors({"b": TENSORS["b"], "c": TENSORS["a"]}).content())
    assert len(states) == 3


def test_what_is_read_is_a_copy() -> None:
    tensors = {"w": torch.ones(4, dtype=torch.bfloat16)}
    weights = of_tensors(tensors)
    tensors["w"].zero_()
    assert weights.tensors()["w"].tolist() == [1.0] * 4


@pytest.mark.parametrize("value", [torch.tensor([float("nan")]), torch.tensor([float("inf")]), torch.tensor([1])])
def test_what_is_no_weight_is_refused(value: torch.Tensor) -> None:
    with pytest.raises(WeightsError):
        of_tensors({"w": value})


def test_a_strangers_file_of_another_shape_is_refused(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "x.safetensors")
    with pytest.raises(WeightsError, match="of another model"):
        read_weights(tmp_path / "x.safetensors", Layout({"a": (3, 2), "b": (2,)}))


def test_a_file_that_is_none_says_so(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(b"\xff" * 100)
    for path in (tmp_path, tmp_path / "x.safetensors", tmp_path / "y.safetensors", Path("/proc")):
        with pytest.raises(WeightsError):
            read_weights(path)


def test_an_anchor_loads_as_safetensors_do(tmp_path: Path) -> None:
    write_anchor(of_tensors(TENSORS), tmp_path / "model.safetensors")
    assert load_file(tmp_path / "model.safetensors")["a"].dtype == torch.bfloat16


def test_a_type_that_cannot_be_converted_is_refused(tmp_path: Path) -> None:
    header = b'{"w":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}}'
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(2))
    with pytest.raises(WeightsError, match="cannot be read"):
        read_weights(tmp_path / "x.safetensors", Layout({"w": (4,)}))
