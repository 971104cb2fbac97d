"""A policy that solves nothing learns solutions first, and never one of a problem like those of its exam."""

import json
from pathlib import Path

import pytest
import torch

from codezero.cli import main
from codezero.commands.common import FAILED
from codezero.config.learning import DataConfig
from codezero.environments.code import CodeEnvironment
from codezero.models.load import load_model
from codezero.nano import weights_directory
from codezero.ops.measure import find_policy
from codezero.problems.stream import MixedStream
from codezero.settings import compose
from codezero.types import Problem

FAST = ["evals.problems=40", "evals.samples=2", "model.device=cpu"]


@pytest.fixture
def spoilt(tmp_path: Path) -> Path:
    """The embedded solver under so much noise that it solves nothing."""
    loaded = load_model(str(weights_directory("solver")), device="cpu", role="solver")
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in loaded.model.parameters():
            weight.add_(0.6 * weight.std() * torch.randn_like(weight) * (weight.dim() > 1))
    loaded.model.save_pretrained(tmp_path / "spoilt")
    loaded.tokenizer.save_pretrained(tmp_path / "spoilt")
    return tmp_path / "spoilt"


def rows(path: Path, problems: list[Problem]) -> str:
    lines = [{"text": each.question, "test_list": each.tests, "code": each.reference} for each in problems]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def stream(count: int) -> list[Problem]:
    return MixedStream(CodeEnvironment(), DataConfig(), seed=1, peer_id="", batch=count).next_batch([])


@pytest.mark.slow
def test_a_spoilt_policy_solves_problems_after_it_was_warmed(
    spoilt: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, into = rows(tmp_path / "data.jsonl", stream(400)), tmp_path / "warm"
    words = ["warm", data, "--steps", "60", "--into", str(into), "--json", f"model.solver={spoilt}", *FAST]
    assert main([*words, "solver.learning_rate=1e-3"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["before"]["average"] == 0 and done["after"]["low"] > 0.1, done["after"]
    assert done["likelihood"][-1] > done["likelihood"][0] + 1 and done["solutions"] > 300
    assert find_policy(compose([f"model.solver={into}"]), "").digest != find_policy(compose(), str(spoilt)).digest


@pytest.mark.slow
def test_own_attempts_that_passed_are_learned_without_a_solution(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [{"text": each.question, "test_list": each.tests} for each in stream(200)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ["warm", str(tmp_path / "data.jsonl"), "--own", "4", "--steps", "40", "--into", str(tmp_path / "warm")]
    assert main([*words, "--json", "solver.learning_rate=1e-3", "evals.problems=100"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["after"]["average"] > done["before"]["average"] + 0.05, done
    assert 100 < done["solutions"] < 800


def test_a_policy_none_of_whose_attempts_pass_is_sent_to_solutions(
    spoilt: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = rows(tmp_path / "data.jsonl", stream(5))
    words = ["warm", data, "--own", "2", "--into", str(tmp_path / "warm"), f"model.solver={spoilt}", *FAST]
    assert main(words) == 2 and "none of 2 own attempts at each of 5 problems passed" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("spoilt", "data.jsonl")] == []


def test_an_adapter_is_warmed_too_and_nothing_half_written_is_left(
    spoilt: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, into = rows(tmp_path / "data.jsonl", stream(20)), tmp_path / "warm"
    words = ["warm", data, "--steps", "2", "--into", str(into), f"model.solver={spoilt}", "model.train=lora", *FAST]
    assert main(words) == 0
    assert "20 solutions, 2 steps" in capsys.readouterr().out
    assert (into / "adapter_model.safetensors").is_file() and {*tmp_path.iterdir()} >= {into}
    assert not [path for path in tmp_path.iterdir() if "unfinished" in path.name]
    assert main(words) == 2 and "is there already" in capsys.readouterr().err
    (tmp_path / "file").touch()
    words[words.index(str(into))] = str(tmp_path / "file" / "warm")
    assert main(words) == 2 and "cannot be written" in capsys.readouterr().err


def test_what_the_exam_asks_is_not_learned(spoilt: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = rows(tmp_path / "data.jsonl", CodeEnvironment().held_out(40, 0))
    words = ["warm", data, "--into", str(tmp_path / "warm"), f"model.solver={spoilt}", *FAST]
    assert main(words) in (2, FAILED) and "solutions" in capsys.readouterr().err
    assert not (tmp_path / "warm").exists()
