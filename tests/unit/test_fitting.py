"""What is left to the hardware is chosen once and kept, what does not fit is refused, and what takes long is said."""

import dataclasses
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from builders.models import byte_tokenizer, tiny_policy

from codezero import fitting
from codezero.config import ChainConfig, NodeConfig
from codezero.errors import ConfigError, ModelError
from codezero.fitting import EXAM_SECONDS, FILE, ITERATION_SECONDS, fit_hardware, foreseen, start_advice
from codezero.models import device as device_module
from codezero.models import hardware
from codezero.models.device import DeviceMemory
from codezero.models.hardware import recomputes, weigh
from codezero.models.memory import GIB, SEVEN
from codezero.settings import compose


def machine(monkeypatch: pytest.MonkeyPatch, kind: str, free: float, total: float = 0.0) -> None:
    """A device of `free` GiB; without `total` all of it is."""

    def memory(config: NodeConfig) -> tuple[DeviceMemory, torch.device]:
        if config.model.device not in ("auto", kind):
            raise ModelError(f"no {config.model.device} device here")
        return DeviceMemory(int(free * GIB), int((total or free) * GIB)), torch.device(kind)

    for module in (fitting, hardware):
        monkeypatch.setattr(module, "memory_free", memory)
    monkeypatch.setattr(
        device_module, "choose_precision", lambda _, where: torch.bfloat16 if where.type == "cuda" else torch.float32
    )


@pytest.fixture(autouse=True)
def extras(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every extra were installed; nothing is loaded here."""
    monkeypatch.setattr(fitting, "check_extras", lambda config: None)


def begun(folder: Path, *overrides: str) -> NodeConfig:
    return fit_hardware(compose(overrides), overrides, folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "free", "profile"),
    [("cuda", 79, "gpu-80g"), ("cuda", 11, "gpu-12g"), ("cpu", 500, "laptop"), ("mps", 15, "laptop")],
)
def test_auto_is_the_largest_profile_that_fits(
    kind: str, free: float, profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):  # fmt: skip
    machine(monkeypatch, kind, free)
    chosen = begun(tmp_path, "profile=auto", "seed=4")
    kept = ["model.activation_checkpointing=off"] if free > 100 else []  # there is room for activations
    expected = compose([f"profile={profile}", "seed=4", *kept])
    assert chosen == dataclasses.replace(expected, run=chosen.run)
    assert f"{profile} profile, solver {expected.model.solver}" in capsys.readouterr().out
    assert json.loads((tmp_path / FILE).read_text()) == {"profile": profile}


CARDS = [(4, "solo"), (6, "gpu-8g"), (8, "gpu-8g"), (10, "gpu-12g"), (12, "gpu-12g"), (16, "gpu-16g"),
         (24, "gpu-24g"), (40, "gpu-48g"), (48, "gpu-48g"), (80, "gpu-80g"), (139, "gpu-80g")]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("size", "profile"), CARDS)
@pytest.mark.parametrize("taken", [0.0, pytest.param(0.5, marks=pytest.mark.long)])
def test_a_card_gets_the_largest_profile_that_fits_what_is_free_on_it(
    size: float, profile: str, taken: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):  # fmt: skip
    """Nominal sizes, and with half a GiB taken by a screen."""
    machine(monkeypatch, "cuda", size - taken, size)
    chosen = begun(tmp_path, "profile=auto")
    need, has, _ = weigh(chosen)
    assert need is None or need.total <= has.free
    larger = fitting.LARGEST_FIRST[: fitting.LARGEST_FIRST.index(chosen.model.profile)]
    for name in larger:
        other = weigh(compose([f"profile={name}"]))[0]
        assert other is not None and other.total > has.free
    line = capsys.readouterr().out
    assert ("no profile made for a card fits" in line) == (chosen.model.profile in ("laptop", "solo"))
    if not taken:
        assert chosen.model.profile == profile


def test_a_profile_whose_library_is_missing_is_passed_over_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def missing(config: NodeConfig) -> None:
        if config.model.quantize == "nf4":
            raise ConfigError("model.quantize=nf4: bitsandbytes is not installed")

    machine(monkeypatch, "cuda", 16)
    monkeypatch.setattr(fitting, "check_extras", missing)
    assert begun(tmp_path, "profile=auto").model.profile == "gpu-12g"
    said = capsys.readouterr().out
    assert "profile gpu-16g is passed over: model.quantize=nf4: bitsandbytes is not installed" in said


@pytest.mark.parametrize("quantized", [True, False])
def test_a_larger_card_never_learns_a_smaller_policy(
    quantized: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(config: NodeConfig) -> None:
        if config.model.quantize == "nf4" and not quantized:
            raise ConfigError("no bitsandbytes")

    monkeypatch.setattr(fitting, "check_extras", check)
    sizes = list[tuple[float, float, int]]()
    for gib in (8, 12, 16, 24, 48, 80):
        machine(monkeypatch, "cuda", gib - 0.5, gib)
        (folder := tmp_path / str(gib)).mkdir()
        chosen = begun(folder, "profile=auto")
        names = chosen.model.solver, chosen.evaluator.model
        solver, judge = (float(name.split("-")[2].rstrip("B")) for name in names)
        sizes.append((solver, judge, chosen.solver.problems_per_iteration))
    assert sizes == sorted(sizes) and sizes[0][0] == 1.5 and sizes[-1][0] == 7


def test_a_proposer_behind_an_endpoint_takes_no_memory_here(monkeypatch: pytest.MonkeyPatch):
    machine(monkeypatch, "cuda", 24)
    words = ["profile=gpu-24g", "proposer.kind=openai", "proposer.url=http://127.0.0.1:1", "proposer.model=served"]
    need = weigh(compose(words))[0]
    assert need is not None and "propos" not in str(need)


def test_a_restart_keeps_what_was_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    machine(monkeypatch, "cuda", 79)
    first = begun(tmp_path, "profile=auto")
    machine(monkeypatch, "cuda", 70)
    capsys.readouterr()
    assert begun(tmp_path, "profile=auto") == first and not capsys.readouterr().out
    machine(monkeypatch, "cuda", 12)  # somebody else took the rest
    with pytest.raises(ConfigError, match=r"does not fit cuda: it has 12\.0 GiB and needs about"):
        begun(tmp_path, "profile=auto")


def test_too_much_is_refused_in_one_line_with_numbers_and_what_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    machine(monkeypatch, "cuda", 23.5)
    with pytest.raises(ConfigError) as caught:
        begun(tmp_path, "profile=gpu-80g")
    said = str(caught.value)
    assert "it has 23.5 GiB and needs about" in said and "solver" in said and "judging" in said and "\n" not in said
    assert "profile=gpu-24g with its own models fits" in said and "model.preflight=warn" in said
    machine(monkeypatch, "cpu", 2)
    with pytest.raises(ConfigError, match="profile=solo with its own models fits;"):
        begun(tmp_path, "profile=laptop")


def test_it_can_be_tried_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    machine(monkeypatch, "cuda", 23.5)
    assert begun(tmp_path, "profile=gpu-80g", "model.preflight=warn").model.solver == SEVEN
    assert "does not fit" in caplog.text


def test_what_the_user_says_wins_over_the_profile_that_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    machine(monkeypatch, "cuda", 79)
    chosen = begun(tmp_path, "profile=auto", "solver.learning_rate=3e-6", "network=peer", "swarm.name=ours")
    assert (chosen.model.profile, chosen.solver.learning_rate) == ("gpu-80g", 3e-6)
    assert (chosen.swarm.kind, chosen.swarm.name) == ("hivemind", "ours")


def test_what_belongs_to_the_node_stays_as_it_was_changed_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    machine(monkeypatch, "cuda", 79)
    config = compose(["profile=auto"])
    config.chain = ChainConfig(wallet="other.json")  # as a login does
    assert fit_hardware(config, ["profile=auto"], tmp_path).chain is config.chain


def test_the_embedded_models_are_not_weighed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    machine(monkeypatch, "cpu", 0.1)
    assert weigh(compose())[0] is None and begun(tmp_path) == compose() and not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"profile": "x"}', '{"profile": "auto"}', '{"profile": ""}'])
def test_a_damaged_choice_is_named(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    machine(monkeypatch, "cuda", 79)
    (tmp_path / FILE).write_text(text)
    with pytest.raises(ConfigError, match=r"hardware\.json cannot be read: .* remove it"):
        begun(tmp_path, "profile=auto")


@pytest.mark.parametrize(
    ("said", "size", "expected"), [("auto", 5e8, True), ("auto", 1e6, False), ("on", 1, True), ("off", 5e9, False)]
)
def test_activations_are_recomputed_by_size_or_setting(said: str, size: float, expected: bool):
    assert recomputes(compose([f"model.activation_checkpointing={said}"]), int(size)) == expected


HALF_A_BILLION, JUDGE = 494_032_768, 1_543_714_304
TWO_CORES = 410e9  # measured on an EPYC with AVX512-BF16


def test_the_laptop_profile_is_quick_enough_on_two_cores_that_multiply_in_bfloat16() -> None:
    config = compose(["profile=laptop"])
    exam, iteration = foreseen(config, HALF_A_BILLION, JUDGE, TWO_CORES)
    assert EXAM_SECONDS / 2 < exam < EXAM_SECONDS and ITERATION_SECONDS / 2 < iteration < ITERATION_SECONDS
    unexamined = replace(config, evals=replace(config.evals, every=0))
    assert foreseen(unexamined, HALF_A_BILLION, 0, TWO_CORES)[0] == 0


def test_embedded_models_are_not_measured_and_real_ones_on_a_cpu_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tiny_policy()
    policy.model.save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    monkeypatch.setattr(device_module, "measured_flops", lambda half: pytest.fail("measured"))
    assert start_advice(compose([])) == []
    words = [f"model.solver={tmp_path}", "model.device=cpu"]
    monkeypatch.setattr(device_module, "measured_flops", lambda half: 1e15)
    assert start_advice(compose(words)) == []
    monkeypatch.setattr(device_module, "measured_flops", lambda half: 1.0)
    exam, iteration = start_advice(compose(words))
    assert "evals.problems" in exam and "solver.problems_per_iteration" in iteration
