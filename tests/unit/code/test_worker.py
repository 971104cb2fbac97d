"""Hostile text costs itself and nothing else: not the node, not its neighbours in the batch."""

import os
import signal
import sys

import pytest
from builders.hostile_completions import BOMBS

from codezero.code.parsing import fence
from codezero.code.report import StaticRequest, check
from codezero.code.worker import MAX_TEXT, StaticGuard
from codezero.errors import EvaluatorError

TESTS = ("assert f(2) == 4", "assert f(3) == 6")


def request(code: str, tests: tuple[str, ...] = TESTS) -> StaticRequest:
    return StaticRequest(fence(code), tests, "f", "Write a function f(x) that doubles x.")


GOOD = request("def f(x):\n    return x * 2")


@pytest.fixture(scope="module")
def guard():
    with StaticGuard(seconds=5.0) as one:
        yield one


def test_text_beyond_the_limit_is_not_even_sent():
    guard = StaticGuard()
    (report,) = guard.check_many([StaticRequest("x" * (MAX_TEXT + 1), TESTS, "f", "")])
    assert report.certain_failure and guard.workers[0].pid is None


def test_a_problem_that_is_too_long_is_not_the_solutions_fault():
    (report,) = StaticGuard().check_many([StaticRequest("", ("x" * MAX_TEXT,), "f", "y")])
    assert report.unavailable


def test_the_child_says_what_the_function_says(guard: StaticGuard):
    items = [
        GOOD,
        request("def f(x)"),
        request("def f(x, y):\n    return x"),
        request("import os\ndef f(x):\n    pass"),
    ]
    assert guard.check_many(items) == [check(item) for item in items]


def test_a_dead_child_is_replaced():
    with StaticGuard() as guard:
        guard.check_many([GOOD])
        assert guard.workers[0].pid is not None
        first = guard.workers[0].pid
        os.kill(first, signal.SIGKILL)
        os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
        (report,) = guard.check_many([request("def f(x):\n    return x / 2")])
        assert guard.workers[0].pid != first
        # killed between two items it may be noticed before or while the next is sent
        assert report.canonical or "could not finish" in report.refusal
        (again,) = guard.check_many([request("def f(x):\n    return 2 * x")])
        assert again.canonical


def test_a_stopped_child_is_could_not_tell_and_is_not_remembered():
    with StaticGuard(seconds=0.25) as guard:
        guard.check_many([GOOD])
        assert guard.workers[0].pid is not None
        os.kill(guard.workers[0].pid, signal.SIGSTOP)
        other = request("def f(x):\n    return x + x")
        (report,) = guard.check_many([other])
        assert report.unavailable
        assert sum(worker.deaths for worker in guard.workers) == 1
    with StaticGuard() as guard:
        (report,) = guard.check_many([other])
        assert report.canonical


def test_cpu_time_is_limited_for_each_item(monkeypatch: pytest.MonkeyPatch):
    """A completion that needs more CPU time than it may have is unparseable; the next one is asked a new child."""
    monkeypatch.setattr("codezero.code.worker.PATIENCE", 10_000.0)  # a busy machine must not strike first
    with StaticGuard(seconds=0.004) as guard:
        (report,) = guard.check_many([request("def f(x):\n    return [\n" + ",\n".join(["(x + 1) * 2"] * 390) + "]")])
        assert "could not finish" in report.refusal
        assert sum(worker.deaths for worker in guard.workers) == 1 and guard.workers[0].pid is None


def test_close_ends_the_child_and_another_question_starts_one():
    guard = StaticGuard()
    guard.check_many([GOOD])
    pid = guard.workers[0].pid
    assert pid is not None
    guard.close()
    guard.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert guard.check_many([request("def f(x):\n    return x")])[0].canonical
    guard.close()


def test_a_child_that_cannot_start_is_an_error_not_a_verdict(monkeypatch: pytest.MonkeyPatch):
    for command in ("/bin/false", "/nonexistent"):
        monkeypatch.setattr(sys, "executable", command)
        with pytest.raises(EvaluatorError, match="static pass"):
            StaticGuard().check_many([GOOD])


def test_the_least_memory_the_config_allows_is_enough_for_a_big_program():
    big = "def f(x):\n" + "\n".join(f"    x = x + {i}" for i in range(390)) + "\n    return x"
    with StaticGuard(memory_mib=128) as guard:
        assert guard.check_many([request(big)])[0].canonical


def test_programs_are_renamed_in_the_child(guard: StaticGuard):
    source = "def f(x):\n    return x * 2 if x > 1 else 0"
    moved = guard.transplant_many([(source, "f", "g"), ("def f(", "f", "g"), ("\ud800", "f", "g"), (source, "f", "x")])
    assert moved == [source.replace("def f", "def g"), None, None, None]


def test_a_bomb_is_not_transplanted_and_harms_nobody(guard: StaticGuard):
    items = [(bomb, "f", "g") for bomb in BOMBS.values()]
    good = ("def f(x):\n    return x", "f", "g")
    *_, last = guard.transplant_many([*items, good])
    assert last == "def g(x):\n    return x" and not any(worker.deaths for worker in guard.workers)
    assert guard.transplant_many([("#" * (MAX_TEXT + 1), "f", "g")]) == [None]
    assert guard.check_many([GOOD])[0].canonical
