"""Asking what may take long, or never answer, without waiting for it longer than a given time."""

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from codezero.errors import ProblemError

_T = TypeVar("_T")


class _Question(Generic[_T]):
    def __init__(self, key: Hashable, work: Callable[[], _T]) -> None:
        self.key, self.work = key, work
        self.answer: _T | None = None
        self.error: ProblemError | None = None
        self.done = threading.Event()

    def run(self) -> None:
        try:
            self.answer = self.work()
        except ProblemError as error:
            self.error = error
        finally:
            self.done.set()


class Patient(Generic[_T]):
    """One question at a time, in a thread that ends with the process. For one thread that asks."""

    def __init__(self, seconds: float) -> None:
        """`seconds` to wait for the answer when a question is first asked; later on it is only looked at."""
        self._seconds = seconds
        self._question: _Question[_T] | None = None

    def ask(self, key: Hashable, work: Callable[[], _T]) -> _T | None:
        """What `work` returns; None while it is under way. The same `key` is the same question.

        Raises ProblemError when that is what the work ended with; asked again, it begins anew.
        """
        question = self._question
        if question is not None and question.key != key and not question.done.is_set():
            return None  # of an earlier place, still under way
        if question is None or question.key != key:
            question = self._question = _Question(key, work)
            threading.Thread(target=question.run, name="problems", daemon=True).start()
            question.done.wait(self._seconds)
        if not question.done.is_set():
            return None
        self._question = None
        if question.answer is None:
            raise question.error or ProblemError("reading ended unexpectedly; the log has the reason")
        return question.answer
