"""Scored groups for tests of what learns from them."""

from collections.abc import Sequence

from codezero.types import Completion, Problem, RolloutGroup, ScoredGroup, Source, Standing, Status, Verdict, problem_id


def proposed(number: int, question: str = "", level: int = 2) -> Problem:
    """A proposal; another for each number."""
    question = question or f"Return the answer {number} of f(x)."
    tests = (f"assert f({number}) == 1", "assert f(-1) == 2")
    known = (Source.PROPOSER, Standing.CLAIMED, level)
    return Problem(problem_id(question, tests), question, tests, "f", *known, proposer="peer")


def scored(level: int | None, correctness: Sequence[float], status: Status = Status.JUDGED) -> ScoredGroup:
    """One group at a level whose attempts were judged so."""
    problem = proposed(0)
    problem = Problem(problem.id, problem.question, problem.tests, problem.entry_point, problem.source, level=level)
    completions = tuple(Completion("", (), (), True) for _ in correctness)
    verdicts = tuple(Verdict(value, value, 1.0, 1.0, 1.0, 1.0, status) for value in correctness)
    return ScoredGroup(RolloutGroup(problem, completions, "peer", 0, 0), verdicts)
