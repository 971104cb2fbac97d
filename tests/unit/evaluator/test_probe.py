"""A probe orders the attempts of one problem, and knows whose states it reads."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from builders.models import tiny_policy
from hypothesis import given
from hypothesis import strategies as st

from codezero.errors import ConfigError
from codezero.evaluator.build import find_probe
from codezero.evaluator.judge import LikelihoodJudge
from codezero.evaluator.judge_prompts import LIKELIHOOD, PROBE
from codezero.evaluator.probe import Attempted, Probe, depth_of, fit, last_norm, left_out, read_probe, unseen
from codezero.evaluator.types import Program

RIGHT, EASY, NOISE = np.eye(12)[:3]
PROGRAMS = [Program("Double it.", code) for code in ("def f(v0):\n    return 2 * v0", "def f(v0):\n    return v0")]


def groups(count: int, seed: int = 0) -> list[Attempted]:
    """Right attempts lie a little along RIGHT, and far along EASY where most of their group are right."""
    chance, made = np.random.default_rng(seed), list[Attempted]()
    for _ in range(count):
        share = chance.uniform(0.2, 0.8)
        passed = [True, False, *(chance.random(6) < share).tolist()]
        easy = 9 * share * EASY
        states = [1.2 * right * RIGHT + easy + chance.normal(size=12) for right in passed]
        made.append(Attempted(np.array(states)[:, None], passed))
    return made


def probe(**more: object) -> Probe:
    loaded = tiny_policy()
    width = loaded.model.config.hidden_size
    known: dict[str, object] = {
        "judge": "tiny", "layers": depth_of(loaded), "layer": 1, "state": "mean",
        "norm": last_norm(loaded), "direction": [1.0] * (width + 1), "fitted_on": "nothing", "within": [0.7, 0.6, 0.8],
        "groups": 40, "pairs": 300,
    }  # fmt: skip
    return Probe(**(known | more))  # pyright: ignore[reportArgumentType]


def test_it_finds_what_tells_attempts_apart_and_not_what_tells_problems_apart() -> None:
    weights = fit(groups(200), 0)
    assert weights[0] > 5 * np.abs(weights[1:-1]).max()  # the last is the likelihood's, which is hardly shrunk


def test_its_figure_is_of_groups_that_it_was_not_fitted_on() -> None:
    order = unseen(groups(160), 0)
    assert order is not None and 0.7 < order.low < order.area < 0.85
    chance = np.random.default_rng(1)
    noise = [Attempted(chance.normal(size=(8, 1, 60)), [True, False] * 4) for _ in range(60)]
    blind = unseen(noise, 0)
    assert blind is not None and blind.low < 0.5 < blind.high


def test_a_set_is_ordered_by_what_the_others_have_taught() -> None:
    """Where right lies the other way round, the others mislead."""
    turned = [Attempted(each.features * (1 - 2 * RIGHT), each.passed) for each in groups(20, 3)]
    orders = left_out({"like": groups(60), "too": groups(60, 1), "turned": turned}, 0)
    assert [*orders] == ["like", "too", "turned"] and orders["turned"].high < 0.5 < orders["like"].low


def test_problems_of_another_kind_are_named() -> None:
    known = probe(sets=["mbpp"], elsewhere={"humaneval": [0.67, 0.57, 0.76]})
    assert not known.doubt(["mbpp", "synthetic"]) and not known.doubt(["data/mbpp.jsonl"]) and not probe().doubt(["x"])
    assert known.doubt(["my/rows.jsonl"]) == (
        "the probe was fitted on mbpp, and rows may be of another kind; with a set left out of the fit its AUROC "
        "within groups was 0.67 [0.57, 0.76] on humaneval"
    )
    assert probe(sets=["mbpp"]).doubt(["code_contests@abc"]).endswith("was not measured")


def test_a_judge_reads_what_it_says_of_its_own_states() -> None:
    loaded, known = tiny_policy(), probe()
    judge = LikelihoodJudge(loaded, questions=[LIKELIHOOD, PROBE], probe=known)
    assert judge.names == ("probe",)
    readings = judge.read(PROGRAMS, frozenset(judge.names))
    for reading, features in zip(readings, judge.features(PROGRAMS, [1]), strict=True):
        assert reading.scores is not None and features is not None
        assert reading.scores[-1] == pytest.approx(features[0].sum(), rel=1e-5)
    assert LikelihoodJudge(loaded, questions=[LIKELIHOOD, PROBE]).names == ("least_gap", "mean_gap")


def test_a_file_comes_back_and_fits_its_own_judge_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "probe.json"
    probe().write(path)
    assert read_probe(path) == probe() and find_probe(tiny_policy(), str(path)) == probe()
    assert find_probe(tiny_policy(), "none") is None and find_probe(tiny_policy(), "auto") is None
    probe(norm=[2.0] * 32).write(path)
    with pytest.raises(ConfigError, match="is of tiny, not of"):
        find_probe(tiny_policy(), str(path))


@given(st.one_of(st.binary(max_size=200), st.builds(lambda at: msgspec.json.encode(probe())[:at], st.integers(0, 300))))
def test_any_other_file_is_refused_by_name(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("probe") / "probe.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"{path}"):
        read_probe(path)


@pytest.mark.parametrize(
    "more", [{"direction": [float("nan")]}, {"direction": []}, {"layer": 0}, {"layer": 9}, {"state": "last"}]
)
def test_numbers_out_of_bounds_are_refused(tmp_path: Path, more: dict[str, object]) -> None:
    content = msgspec.to_builtins(probe()) | more
    (tmp_path / "probe.json").write_bytes(msgspec.json.encode(content))
    with pytest.raises(ConfigError):
        find_probe(tiny_policy(), str(tmp_path / "probe.json"))
