"""The losses of a teacher, with small random models: how hard each token of an attempt is pushed."""

from collections.abc import Callable

import pytest
import teachers
import torch
from builders.models import EOS, judged, tiny_policy
from torch import Tensor

from codezero.environments.code import solver_prompt
from codezero.models.chat import encode_prompts
from codezero.solver.batch import TrainingRow, collate
from codezero.solver.loss import LossInputs

TEACHER = tiny_policy(1)
SCORED = judged(0, (0.9, 0.1, 0.6), tokens=[(65, 66, EOS), (67, EOS), (68, 69, 70, EOS)])
ADVANTAGES = (0.4, -0.4, 0.1)
ASKED = encode_prompts(TEACHER.tokenizer, [solver_prompt(SCORED.group.problem)])[0]


@pytest.fixture(autouse=True)
def teacher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teachers, "_teacher", lambda: TEACHER)
    monkeypatch.setattr(teachers, "_asked_with", {})


def pushes(loss: Callable[[LossInputs], Tensor]) -> list[list[float]]:
    """What each token of each attempt is pushed with, by the gradient where no weight has moved yet."""
    ids = [each.token_ids for each in SCORED.group.completions]
    rows = [TrainingRow(tuple(ASKED), each, (-2.0,) * len(each), ADVANTAGES[at]) for at, each in enumerate(ids)]
    inputs = collate(rows, TEACHER.pad_id, TEACHER.device)
    old, mask = inputs["old_per_token_logps"], inputs["completion_mask"].float()
    now = old.clone().requires_grad_()
    advantages = inputs["advantages"][:, None] * mask
    tokens = (inputs[name] for name in ("completion_ids", "prompt_ids", "prompt_mask"))
    loss(LossInputs(now, old, None, advantages, mask, *tokens)).backward()
    assert now.grad is not None
    return [line[: len(each)].tolist() for line, each in zip(-now.grad * mask.sum(), ids, strict=True)]


def leads(prompt: list[int], written: tuple[int, ...]) -> list[float]:
    """What the teacher finds each token likelier than the policy, by a whole forward pass."""
    with torch.no_grad():
        logits = TEACHER.model(torch.tensor([[*prompt, *written]])).logits[0, len(prompt) - 1 : -1]
    return (logits.log_softmax(-1).gather(1, torch.tensor(written)[:, None])[:, 0] + 2.0).tolist()


def test_a_token_is_pushed_by_what_the_teacher_finds_it_likelier() -> None:
    for pushed, each in zip(pushes(teachers.reverse_kl), SCORED.group.completions, strict=True):
        assert pushed == pytest.approx(leads(ASKED, each.token_ids), abs=1e-4)


def test_beside_the_judge_it_is_added_to_the_advantage() -> None:
    rows = zip(pushes(teachers.judge_and_teacher), pushes(teachers.reverse_kl), ADVANTAGES, strict=True)
    for both, alone, advantage in rows:
        assert both == pytest.approx([advantage + teachers.BESIDE * lead for lead in alone], abs=1e-5)


def test_the_attempt_that_is_believed_is_shown_to_the_others_alone() -> None:
    assert teachers.believed(SCORED) == [0.9, 0.1, 0.6]
    first, *others = pushes(teachers.shown_right)
    assert first == [0.0, 0.0, 0.0]
    asked = solver_prompt(SCORED.group.problem) + teachers.SHOWN.format("answer 0")
    shown = encode_prompts(TEACHER.tokenizer, [asked])[0]
    for pushed, each in zip(others, SCORED.group.completions[1:], strict=True):
        assert pushed == pytest.approx(leads(shown, each.token_ids), abs=1e-4)


def test_without_one_that_is_believed_nothing_is_pushed() -> None:
    teachers.believed(judged(0, (0.4, 0.1, 0.2), tokens=[each.token_ids for each in SCORED.group.completions]))
    assert not any(map(any, pushes(teachers.shown_right)))
