"""The margin of Yes over No, on an embedded model that was given both words."""

import copy
from dataclasses import replace

import pytest
import torch
from builders.evaluator import FILTER, RIGHT

from codezero.evaluator.judge import LikelihoodJudge
from codezero.evaluator.judge_prompts import LEAST_GAP, MEAN_GAP, YES_MARGIN
from codezero.evaluator.types import Program
from codezero.models.load import LoadedModel, load_model
from codezero.nano import weights_directory


@pytest.fixture(scope="module")
def nano() -> LoadedModel:
    return load_model(str(weights_directory("judge")), device="cpu", role="judge")


def test_the_embedded_tokenizer_has_no_yes_and_no(nano: LoadedModel):
    judge = LikelihoodJudge(nano)
    assert judge.names == (LEAST_GAP, MEAN_GAP)
    assert "Yes" in judge.unused


@pytest.fixture(scope="module")
def affirmative(nano: LoadedModel) -> LoadedModel:
    """The embedded model with a Yes and a No of its own, one token each."""
    tokenizer = copy.deepcopy(nano.tokenizer)
    tokenizer.add_tokens(["Yes", "No"])
    model = copy.deepcopy(nano.model)
    torch.manual_seed(0)
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    return replace(nano, tokenizer=tokenizer, model=model.eval(), name="affirmative")


def test_a_tokenizer_with_yes_and_no_gives_a_margin_that_abstains(affirmative: LoadedModel):
    """This model never says Yes or No, so it has not answered: the margin is missing, not zero or wrong."""
    judge = LikelihoodJudge(affirmative)
    assert judge.names == (LEAST_GAP, MEAN_GAP, YES_MARGIN) and not judge.unused
    (reading,) = judge.read([Program(FILTER.question, RIGHT)], frozenset(judge.names))
    assert reading.scores is not None and reading.scores[0] is not None and reading.scores[2] is None


def test_margins_do_not_depend_on_order_padding_or_company(affirmative: LoadedModel, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("codezero.evaluator.judge_prompts.LEAST_MASS", 0.0)
    programs = [
        Program(FILTER.question, RIGHT),
        Program("Write f(x).", "def f(x):\n    return x"),
        Program("g", "g = 1"),
    ]
    wanted = frozenset((LEAST_GAP, MEAN_GAP, YES_MARGIN))
    together = [reading.scores for reading in LikelihoodJudge(affirmative).read(programs, wanted)]
    alone = [LikelihoodJudge(affirmative).read([program], wanted)[0].scores for program in reversed(programs)]
    for one, other in zip(together, reversed(alone), strict=True):
        assert one is not None and other is not None
        assert one[2] is not None and one[2] == pytest.approx(other[2], abs=1e-3)


def test_no_program_at_all_has_no_margin(affirmative: LoadedModel, monkeypatch: pytest.MonkeyPatch):
    """The content-free answer is taken off: `pass` and `N/A` are zero between them."""
    monkeypatch.setattr("codezero.evaluator.judge_prompts.LEAST_MASS", 0.0)
    readings = LikelihoodJudge(affirmative).read(
        [Program(FILTER.question, "pass"), Program(FILTER.question, "N/A")], frozenset((YES_MARGIN,))
    )
    margins = [reading.scores[2] for reading in readings if reading.scores is not None]
    assert sum(margin for margin in margins if margin is not None) == pytest.approx(0, abs=1e-4)


def test_a_margin_that_is_not_wanted_is_not_asked(affirmative: LoadedModel, monkeypatch: pytest.MonkeyPatch):
    judge = LikelihoodJudge(affirmative)
    monkeypatch.setattr(judge, "_next_token_margins", lambda rows: pytest.fail("asked"))  # pyright: ignore[reportUnknownLambdaType]
    (reading,) = judge.read([Program(FILTER.question, RIGHT)], frozenset((LEAST_GAP, MEAN_GAP)))
    assert reading.scores is not None and reading.scores[2] is None
