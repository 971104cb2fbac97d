"""A judged group as people see it: cut to a size that any attempt keeps. Pure."""

import math

from codezero.monitor.names import readable_name
from codezero.monitor.view import Rollout, RolloutLine, ShownVerdict
from codezero.types import Completion, ScoredGroup, Status, Verdict

MAX_TEXT = 16_384
"""Bytes of an attempt."""
MAX_QUESTION = 8_192
"""Bytes."""
MAX_TEST = 2_048
"""Bytes of one test."""
MAX_TESTS = 24
MAX_ATTEMPTS = 64
MAX_REASONS = 16
MAX_REASON = 512
"""Bytes of one reason."""
BEGINNING = 200
"""Characters of the question in a list."""


def shown(scored: ScoredGroup, *, iteration: int, mine: bool) -> Rollout:
    """With id 0: who keeps it gives it one."""
    group, problem = scored.group, scored.group.problem
    attempts = [
        _attempt(completion, verdict)
        for completion, verdict in zip(group.completions[:MAX_ATTEMPTS], scored.verdicts[:MAX_ATTEMPTS], strict=True)
    ]
    question = beginning(problem.question, MAX_QUESTION)
    line = RolloutLine(
        id=0,
        iteration=iteration,
        round=group.round,
        peer_id=group.peer_id,
        peer_name=readable_name(group.peer_id),
        mine=mine,
        question=question[:BEGINNING],
        source=problem.source.value,
        level=problem.level,
        rewards=[attempt.reward for attempt in attempts],
    )
    tests = [beginning(test, MAX_TEST) for test in problem.tests[:MAX_TESTS]]
    return Rollout(line=line, problem_id=problem.id, question=question, tests=tests, attempts=attempts)


def beginning(text: str, most: int) -> str:
    """At most `most` bytes of UTF-8, whole characters; what cannot be encoded becomes a question mark."""
    return text[:most].encode("utf-8", "replace")[:most].decode("utf-8", "ignore")


def _attempt(completion: Completion, verdict: Verdict) -> ShownVerdict:
    text = beginning(completion.text, MAX_TEXT)
    told = verdict.status is not Status.UNAVAILABLE
    return ShownVerdict(
        text=text,
        status=verdict.status.value,
        reward=_number(verdict.reward, told),
        correctness=_number(verdict.correctness, told),
        structure=_number(verdict.structure, told),
        adherence=_number(verdict.adherence, told),
        format=_number(verdict.format, told),
        cap=_number(verdict.cap, told),
        reasons=[beginning(reason, MAX_REASON) for reason in verdict.reasons[:MAX_REASONS]],
        finished=completion.finished,
        cut=len(text) < len(completion.text),
    )


def _number(value: float, told: bool) -> float | None:
    """None where nothing could be told, which is not a zero."""
    return round(value, 4) if told and math.isfinite(value) else None
