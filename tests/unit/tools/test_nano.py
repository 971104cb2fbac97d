"""The embedded models are as good as promised, and can be made again."""

import dataclasses
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

import pytest
import torch

from codezero.code.answer import read_answer
from codezero.code.canonical import canonical, stated_parameters
from codezero.environments.reasoning_gym import ReasoningGym
from codezero.models.chat import encode_completions, encode_prompts
from codezero.models.load import LoadedModel, load_model
from codezero.nano import weights_directory
from codezero.problems.synthetic.tasks import SyntheticTask, is_held_out, make_task, mutants, parse_question
from codezero.proposer.parsing import parse_proposal
from codezero.stats import auroc
from codezero.types import is_exam_question
from tools.nano import build, figures, gym, lessons
from tools.nano.train import Pair, tokenizer_of


def drill() -> gym.Drill:
    pytest.importorskip("reasoning_gym", reason="the extra `gym` is not installed")
    return ReasoningGym().pair


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads only get in each other's way in models this small; `build` sets the same."""
    before = torch.get_num_threads()
    torch.set_num_threads(build.THREADS)
    yield
    torch.set_num_threads(before)


def shipped(role: str) -> LoadedModel:
    return load_model(str(weights_directory(role)), device="cpu", role=role)


# what ships


def normal(code: str, task: SyntheticTask) -> str:
    """As a judge reads it."""
    entry, question = task.problem.entry_point, task.problem.question
    return canonical(code, entry, parameters=stated_parameters(question, entry))


@pytest.mark.slow
@pytest.mark.parametrize("role", lessons.LESSONS)
def test_shipped_models_of_code_have_the_tokenizer_of_their_lessons(role: str, tmp_path: Path):
    tokenizer_of(lessons.texts_of(role, Random(0)), lessons.TEMPLATE).save_pretrained(tmp_path)
    ours, again = (folder / "tokenizer.json" for folder in (weights_directory(role), tmp_path))
    assert again.read_bytes() == ours.read_bytes()


@pytest.mark.parametrize("role", ["solver", "gym"])
def test_a_shipped_solver_starts_with_room_to_learn_and_lower_at_each_level(role: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(figures, "PROBLEMS", 100)
    model = shipped(role)
    if role == "solver":
        quality = figures.solver_quality(figures.attempt_held_out(model))
    else:
        quality = figures.gym_quality(model, drill())
    assert 0.2 < quality["average@8"] < 0.5
    assert quality["pass@8"] > quality["average@8"] + 0.2
    assert quality["average@8/level_1"] > quality["average@8/level_3"] > quality["average@8/level_5"] - 0.05


def test_the_shipped_judge_knows_right_from_nearly_right():
    """On held-out compositions: the reference against one mutant that fails its tests."""
    random = Random(1)
    tasks = [make_task(random, held_out=True) for _ in range(100)]
    right = [(task.problem.question, normal(task.problem.reference or "", task)) for task in tasks]
    wrong = [(task.problem.question, normal(code, task)) for task in tasks for code in mutants(task, random, 1)]
    gaps = figures.least_gaps(shipped("judge"), right + wrong)
    skill = auroc(gaps, [True] * len(right) + [False] * len(wrong))
    assert skill is not None and skill > 0.97


def test_the_shipped_proposer_keeps_its_contract(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(figures, "PROPOSALS", 12)
    quality = figures.proposer_quality(shipped("proposer"))
    assert quality["well_formed"] > 0.7 and quality["at_level"] > 0.6


# what they are taught


def first(pairs: Iterator[Pair], count: int = 600) -> Iterator[Pair]:
    return islice(pairs, count)


def test_no_held_out_composition_is_taught():
    pairs = (lessons.solver_pairs(Random(1)), lessons.judge_pairs(Random(2)))
    questions = [question for each in pairs for question, _ in first(each)]
    questions += [parse_proposal(text, 1, "").question for _, text in first(lessons.proposer_pairs(Random(3)))]
    for question in questions:
        parsed = parse_question(question)
        assert parsed is not None and not is_held_out(parsed[1])


def test_the_judge_is_taught_canonical_code_only():
    for question, answer in first(lessons.judge_pairs(Random(4)), 500):
        code = read_answer(answer, "", "only").code or ""
        name = question.split("function ")[1].split("(")[0]
        assert canonical(code, name, parameters=stated_parameters(question, name)) == code


def test_the_gym_is_taught_nothing_held_out_and_more_mistakes_at_higher_levels():
    def drill(level: int, index: int) -> Pair:
        return f"{level} {index % 100}", "12"

    taught = list(first(gym.gym_pairs(drill, Random(8)), 2_000))
    assert not any(is_exam_question(question) for question, _ in taught)
    assert all(answer == "12" for _, answer in first(gym.gym_pairs(drill, Random(8), 300), 300))
    wrong = {level: [answer != "12" for question, answer in taught if question[0] == level] for level in "12345"}
    assert [sum(flags) / len(flags) for flags in wrong.values()] == pytest.approx(gym.NOISE, abs=0.1)


# the tokenizer


def test_the_gym_is_asked_without_fixed_words_and_fits_the_limits():
    tokenizer = tokenizer_of(gym.gym_texts(drill(), Random(0)), gym.TEMPLATE)
    spell, other = encode_prompts(tokenizer, ["Spell this word backward (example: sun -> nus): lip", "What now?"])
    assert tokenizer.decode(spell) == "<|user|><l|i|p<|assistant|>"
    assert tokenizer.decode(other) == "<|user|>What now?<|assistant|>"
    broken = [f"<|us{long}er|>" for long in gym.SHORTER] + [f"<|user|{long}" for long in gym.SHORTER]
    ids = encode_prompts(tokenizer, broken)
    assert all(tokenizer.decode(row).count("<|user|>") == 1 for row in ids)
    pairs = list(first(gym.gym_pairs(drill(), Random(1)), 500))
    assert max(map(len, encode_prompts(tokenizer, [question for question, _ in pairs]))) < 64
    assert max(map(len, encode_completions(tokenizer, [answer for _, answer in pairs]))) < gym.ANSWER_TOKENS


# the making


@pytest.mark.slow
def test_build_makes_loadable_models_with_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for role, recipe in build.RECIPES.items():
        monkeypatch.setitem(build.RECIPES, role, dataclasses.replace(recipe, layers=1, steps=2))
    monkeypatch.setattr(figures, "PROBLEMS", 5)
    monkeypatch.setattr(figures, "PROPOSALS", 1)
    monkeypatch.setattr("tools.nano.train.BUCKET", 2)
    measured = build.build(tmp_path, drill(), seed=1)
    assert list(measured) == ["solver", "judge", "proposer", "gym"]
    for role in measured:
        assert load_model(str(tmp_path / role), device="cpu", role=role).model.num_parameters() < 200_000
        assert f"codezero nano {role}" in (tmp_path / role / "README.md").read_text()
    assert measured["solver"]["average@8"] == 0.0 and measured["proposer"]["well_formed"] == 0.0


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_building_again_gives_models_as_good(tmp_path: Path):
    measured = build.build(tmp_path, drill(), seed=0)
    assert 0.2 < measured["solver"]["average@8"] < 0.5
    assert measured["judge"]["auroc"] > 0.95 and measured["judge"]["own_greedy"] > 0.88
    assert measured["proposer"]["well_formed"] > 0.7
    assert 0.25 < measured["gym"]["average@8"] < 0.5
