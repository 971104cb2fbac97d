"""Models of real shape go the same way as the embedded ones. Weights are random: nothing here shows skill."""

import json
import re
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import torch
from builders.data_sets import write
from builders.models import real_words
from builders.real_data import real_data
from builders.users import status
from e2e.test_data_sets import REAL, node, rows, until
from fakes.hub_server import serving
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM
from unit.models.test_generation import small_tokenizer
from unit.problems.test_sources_hub import a_hub

from codezero.evaluator.build import build_canaries
from codezero.problems.filters import KEY_DIGITS, Novelty
from codezero.problems.rows import read_row
from codezero.problems.sources import MAX_HELD_BACK, canary_rows, digest, exam_problems
from codezero.settings import compose


def qwen_half_billion(layers: int, directory: Path, vocabulary: int = 151_936) -> None:
    """Qwen2.5-0.5B's shape with random weights; the vocabulary too, of which the tokenizer uses little."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=896,
        intermediate_size=4_864,
        num_hidden_layers=layers,
        num_attention_heads=14,
        num_key_value_heads=2,
        max_position_embeddings=32_768,
        rope_parameters={"rope_theta": 1_000_000.0, "rope_type": "default"},
        tie_word_embeddings=True,
        eos_token_id=0,
        pad_token_id=0,
        bos_token_id=None,
    )
    Qwen2ForCausalLM(config).to(torch.bfloat16).save_pretrained(directory)
    small_tokenizer().save_pretrained(directory)


def run(folder: Path, models: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    settings = [f"model.solver={models}", f"evaluator.model={models}", f"proposer.model={models}"]
    settings += [f"run.directory={folder}", "run.name=run", f"run.logs={folder / 'logs'}", "monitor.view=off"]
    settings += [
        f"swarm.identity={folder / 'swarm.pem'}",
        "evaluator.canaries=80",
        "run.max_iterations=1",
        "chain.kind=clock",
    ]
    settings += ["solver.problems_per_iteration=2", "solver.group_size=2", "solver.max_new_tokens=8"]
    settings += ["evals.problems=5", "evals.samples=2", "proposer.every=1", "proposer.max_new_tokens=16", *overrides]
    command = [sys.executable, "-m", "codezero", "run", *settings]
    return subprocess.run(command, capture_output=True, text=True, timeout=1700)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("layers", "vocabulary"),
    [(1, 8_192), pytest.param(24, 151_936, marks=[pytest.mark.long, pytest.mark.timeout(1800)])],
)
def test_a_directory_of_real_shape_solves_judges_and_proposes(layers: int, vocabulary: int, tmp_path: Path) -> None:
    models = tmp_path / "models"
    qwen_half_billion(layers, models, vocabulary)
    done = run(tmp_path, models)
    assert done.returncode == 0, done.stderr
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["iteration"] == 1 and last["eval/average_at_2"] == 0.0
    # A judge of random weights has no skill, and must not be believed.
    assert last["judge/weight"] == 0.0
    assert last["proposer/refused"] >= 1
    saved = tmp_path / "run" / "checkpoints" / "00000001" / "solver" / "model"
    model = AutoModelForCausalLM.from_pretrained(saved, dtype=torch.float32)
    assert model.config.num_hidden_layers == layers


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Settings that name a solver and a judge with Qwen's own tokenizer, and no problems; and a short run of them."""
    model = real_words(tmp_path_factory.mktemp("real") / "qwen")
    quick = ["solver.max_new_tokens=12", "evals.problems=8", "evals.samples=2", "evals.every=2"]
    return [f"model.solver={model}", f"evaluator.model={model}", "run.checkpoint_seconds=1", *quick]


@pytest.fixture(scope="module")
def splits() -> dict[str, list[dict[str, Any]]]:
    """MBPP's rows as its authors split them."""
    lines = map(json.loads, (real_data("mbpp.jsonl") / "mbpp.jsonl").read_text().splitlines())
    ends = {"train": range(601, 975), "test": range(11, 511)}
    every = {row["task_id"]: row for row in lines}
    return {name: [every[number] for number in numbers] for name, numbers in ends.items()}


def attempted(run: Path) -> set[str]:
    """Beginnings of the ids of all problems of data sets that the newest checkpoint and rollouts.db know of."""
    checkpoint = max((run / "checkpoints").glob("*/*/stream.json"))
    shelves = json.loads(checkpoint.read_bytes())["shelves"].values()
    with closing(sqlite3.connect(run / "rollouts.db")) as kept:
        bodies = [json.loads(body) for (body,) in kept.execute("SELECT body FROM rollouts")]
    assert {body["line"]["source"] for body in bodies} <= {"mbpp", "synthetic", "code_contests"}
    shown = {body["problem_id"][:KEY_DIGITS] for body in bodies if body["line"]["source"] == "mbpp"}
    assert shown
    return shown.union(*(shelf["given"] for shelf in shelves))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("sources", "problems"),
    [
        ([], r"mbpp@[0-9a-f]{8}:3, synthetic:1"),
        ([REAL, "data.wait_seconds=60"], r"mbpp@[0-9a-f]{8}:3, code_contests@[0-9a-f]{8}:1"),
    ],
    ids=["defaults", "from 1.5 B on"],
)
def test_a_real_run_learns_is_examined_and_judged_on_real_problems_that_stay_apart(
    sources: list[str], problems: str, qwen: list[str], splits: dict[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    """Also after a kill."""
    with serving(a_hub(tmp_path, **splits)) as hub:
        with node(tmp_path, *qwen, *sources, hub=hub.url) as process:
            until("saved", lambda row: row["iteration"] >= 4, tmp_path, process)
            process.kill()
        killed, before = status(tmp_path), attempted(tmp_path / "run")
        with node(tmp_path, *qwen, *sources, "run.max_iterations=8", hub=hub.url) as process:
            assert process.wait(400) == 0, (tmp_path / "out").read_text()
    ended, written, report = status(tmp_path), rows(tmp_path), (tmp_path / "run" / "report.md").read_text()
    facts = {name: ended["facts"][name] for name in ("problems", "exam", "canaries")}
    assert facts == {name: killed["facts"][name] for name in facts} and killed["iteration"] < ended["iteration"] == 8
    assert re.fullmatch(problems, facts["problems"]) and ended["stand_ins"] == ""

    train, test = (str(write(tmp_path / f"{name}.parquet", split)) for name, split in splits.items())
    exam = exam_problems(test, 8, seed=compose().evals.seed, seconds=60)
    withheld, canaries = Novelty(most=MAX_HELD_BACK), Novelty(most=MAX_HELD_BACK)
    assert [withheld.add(problem) for problem in exam] == [None] * 8 and facts[
        "exam"
    ] == f"mbpp_test, 8 problems, {digest(exam)}"
    with ExitStack() as stack:
        known = build_canaries(compose([f"data.sources=[{train}]"]), withheld, stack, str).name
    assert facts["canaries"].startswith(f"mbpp, {known.removeprefix(f'{train}, ')}")
    canaries = {row.problem.id for row in canary_rows(train, withheld=Novelty(most=MAX_HELD_BACK), seconds=60)}
    learned = {problem.id: problem for row in splits["train"] if (problem := read_row(row).problem)}
    assert len(canaries) > 80 and canaries < learned.keys() and not canaries & {problem.id for problem in exam}
    tried = [problem for key, problem in learned.items() if key[:KEY_DIGITS] in before | attempted(tmp_path / "run")]
    assert len(tried) >= 16 and not any(problem.id in canaries or withheld.repeats(problem) for problem in tried)

    examined = [row for row in written if row.get("eval/set")]
    assert {row["eval/set"] for row in examined} == {facts["exam"]} and {row["eval/source"] for row in examined} == {
        "executed"
    }
    assert all(row["eval/control"] == 0.0 == row["eval/average_at_2"] for row in examined), "no skill, and no unknown"
    assert all(row[f"run/{name}"] == fact for name, fact in facts.items() for row in examined)
    assert all(f"`{fact}`" in report for fact in facts.values()) and ended["executed_source"] == "executed"
    assert written[-1]["judge/weight"] == 0.0, "a judge of random weights is not believed"
    assert written[-1]["problems/refused_held_out"] >= 1 and "rehearsal" not in report + (tmp_path / "out").read_text()
