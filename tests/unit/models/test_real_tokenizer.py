"""The real tokenizer of Qwen with random weights: prompts, answers and limits of a real judge."""

import pytest
from builders.models import real_words
from builders.real_data import real_data

from codezero.code.parsing import fence
from codezero.environments.code import solver_prompt
from codezero.evaluator.judge import LikelihoodJudge
from codezero.evaluator.judge_prompts import SCORES
from codezero.evaluator.types import Program
from codezero.models.chat import encode_completions, encode_prompts
from codezero.models.load import LoadedModel, load_model
from codezero.problems.rows import read_row
from codezero.types import Problem


def problems() -> list[Problem]:
    rows = (real_data("mbpp.jsonl") / "mbpp.jsonl").read_bytes().splitlines()[:40]
    return [read_row(row).problem for row in rows]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(str(real_words(tmp_path_factory.mktemp("qwen") / "model")), device="cpu", role="judge")


def test_a_prompt_is_the_templates_and_ends_where_the_answer_begins(loaded: LoadedModel) -> None:
    for problem in problems():
        (ids,) = encode_prompts(loaded.tokenizer, [solver_prompt(problem)])
        text = loaded.tokenizer.decode(ids)
        assert text.startswith("<|im_start|>") and problem.question in text
        assert "<|im_start|>assistant\n" in text and not text.rstrip().endswith("<|im_end|>")


def test_code_comes_back_from_its_tokens(loaded: LoadedModel) -> None:
    codes = [fence(str(problem.reference)) for problem in problems()]
    for code, ids in zip(codes, encode_completions(loaded.tokenizer, codes), strict=True):
        assert loaded.tokenizer.decode(ids) == code


@pytest.mark.slow
def test_every_question_can_be_asked_and_one_conversation_answers_as_many(loaded: LoadedModel) -> None:
    whole = LikelihoodJudge(loaded, questions=list(SCORES), share_prefix=False)
    shared = LikelihoodJudge(loaded, questions=list(SCORES))
    assert not shared.unused, "Yes and No are single tokens"
    programs = [Program(problem.question, str(problem.reference)) for problem in problems()[:4]]
    wanted = frozenset(shared.names)
    for first, second in zip(shared.read(programs, wanted), whole.read(programs, wanted), strict=True):
        assert first.scores is not None and second.scores is not None
        for score, reference in zip(first.scores, second.scores, strict=True):
            assert (score is None) is (reference is None)
            assert score is None or score == pytest.approx(reference, abs=1e-3)


def test_what_is_longer_than_the_context_is_unread_and_the_rest_is_not(loaded: LoadedModel) -> None:
    judge = LikelihoodJudge(loaded)
    short, long = Program("Add one.", "def f(x):\n    return x + 1"), Program("Add one.", "x = 1\n" * 2_048)
    read = judge.read([long, short], frozenset(judge.names))
    assert read[0].scores is None and "longer" in read[0].why_not and read[1].scores is not None
