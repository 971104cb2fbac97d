"""Cards are dealt in turn, and who shares one counts on a part of its memory."""

import pytest
import torch

from codezero.models import hardware as hardware
from codezero.models import load
from codezero.models.hardware import assign_cards, describe_sharing, find_cards
from codezero.nano import weights_directory


def test_enough_cards_are_one_for_each():
    assert assign_cards(["0", "1", "2"], 2) == ["0", "1"]
    assert describe_sharing(assign_cards(["0", "1"], 2)) == ""


def test_too_few_cards_are_dealt_in_turn_and_that_is_said():
    seats = assign_cards(["2", "GPU-5"], 3)
    assert seats == ["2", "GPU-5", "2"]
    assert describe_sharing(seats) == "3 nodes and 2 cards: 2 on card 2, each with 1/2 of its memory"


def test_without_cards_the_machine_is_shared():
    seats = assign_cards([], 4)
    assert seats == [""] * 4
    assert describe_sharing(seats) == ""


@pytest.mark.parametrize(
    ("value", "expected"), [("", []), ("0", ["0"]), ("1, 3", ["1", "3"]), ("-1", []), ("2,-1,0", ["2"])]
)
def test_what_the_user_shows_is_what_there_is(value: str, expected: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CPU_ONLY", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert find_cards("auto") == expected
    assert find_cards("cpu") == []
    monkeypatch.setenv("CPU_ONLY", "1")
    assert find_cards("auto") == []


def test_torch_is_asked_only_where_there_is_a_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: object):
    for name in ("CPU_ONLY", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(hardware, "COUNT", "print(2)")
    monkeypatch.setattr(hardware, "DRIVERS", ())
    assert find_cards("auto") == []
    monkeypatch.setattr(hardware, "DRIVERS", ("/dev/null",))
    assert find_cards("auto") == ["0", "1"]
    monkeypatch.setattr(hardware, "COUNT", "raise SystemExit('no torch')")
    assert find_cards("auto") == []


@pytest.mark.parametrize(
    ("answer", "card"), [("print(1)", "GPU-5"), ("print(0)", "2"), ("print(7)", "2"), ("1/0", "2")]
)
def test_the_freest_card_is_asked_for_by_a_process_of_its_own(
    answer: str, card: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "FREEST", answer)
    assert hardware.freest_card(["2", "GPU-5"]) == card


def test_embedded_models_compute_on_the_cpu_whatever_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()
    monkeypatch.setattr(load, "choose_device", lambda device, role: asked.append(device) or torch.device("cpu"))
    for device in ("auto", "cuda"):
        load.load_model(str(weights_directory("solver")), device=device, role="solver")
    assert asked == ["cpu", "cuda"]
