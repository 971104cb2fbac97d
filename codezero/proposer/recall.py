"""A proposer that takes back what turned out broken, and does not write it again.

A problem is broken when the attempts that were made since show it (`refuting.py`), or when enough able peers say so
(`hearsay.py`). It is known by its question, so that it cannot come back with other tests.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from codezero.errors import CheckpointError
from codezero.proposer.hearsay import Hearsay, HearsayState
from codezero.proposer.pending import question_key
from codezero.proposer.refuting import Refuting, Values
from codezero.protocols import Proposer
from codezero.types import Feedback, Metrics, Problem, ScoredGroup

_FILE = "recall.json"
REMEMBERED = 1024
"""Ids and questions that were taken back; two for each problem."""
MAX_FILE = 16 << 20
REPORTED = "reported"
"""Why: peers say so."""

_Count = Annotated[int, Meta(ge=0)]
_Key = Annotated[str, Meta(max_length=64)]


class _State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: Annotated[list[_Key], Meta(max_length=REMEMBERED)] = []
    untold: Annotated[list[_Key], Meta(max_length=REMEMBERED)] = []
    hearsay: HearsayState = HearsayState()
    counts: Annotated[dict[str, _Count], Meta(max_length=64)] = {}
    right: _Count = 0
    wrong: _Count = 0


class RecallingProposer:
    """See `protocols.Proposer`. `refuting`: what looks at the attempts; `values`: counts wrong expected values."""

    def __init__(
        self, proposer: Proposer, *, peer_id: str, refuting: Sequence[Refuting] = (), values: Values | None = None
    ) -> None:
        self._proposer, self._peer_id = proposer, peer_id
        self._refuting, self._values = refuting, values
        self._hearsay = Hearsay()
        self._taken_back: dict[str, None] = {}
        """Ids and keys of questions, oldest first."""
        self._untold: list[str] = []
        """Ids that the swarm was not told of yet."""
        self._counts = Counter[str]()

    def propose(self, levels: Sequence[int]) -> list[Problem]:
        """Raises SandboxError where values are counted."""
        written = self._proposer.propose(levels)
        if self._values is not None:
            self._values.look(written)
        fresh = [problem for problem in written if not self._is_taken_back(problem)]
        self._counts["rewritten"] += len(written) - len(fresh)
        return fresh

    def learn(self, scored: Sequence[ScoredGroup]) -> Metrics:
        return self._proposer.learn(scored)

    def broken(self, scored: Sequence[ScoredGroup], feedback: Sequence[Feedback]) -> list[str]:
        """See `protocols.Proposer`. What was found before an error is told at the next call."""
        mine = [one for one in scored if one.group.problem.proposer == self._peer_id]
        self._hearsay.saw(mine)
        for problem_id in self._hearsay.hear(feedback):
            self._take_back(problem_id, problem_id, REPORTED)
        for look in self._refuting:
            for problem in look.broken(mine):
                self._take_back(problem.id, question_key(problem), look.reason)
        told, self._untold = self._untold, []
        return told

    def metrics(self) -> Metrics:
        """Beside the proposer's own, since the first iteration: `proposer/withdrawn` and why, and
        `proposer/values_right`, `values_wrong` where proposals are executed."""
        why = {name: self._counts[name] for name in ("contradicted", "refuted", REPORTED)}
        told: Metrics = {"proposer/withdrawn": sum(why.values())}
        told |= {f"proposer/withdrawn_{name}": count for name, count in why.items()}
        told["proposer/rewritten"] = self._counts["rewritten"]
        if self._values is not None:
            right, wrong = self._values.counts[True], self._values.counts[False]
            told |= {"proposer/values_right": right, "proposer/values_wrong": wrong}
            told["proposer/wrong_value_share"] = wrong / (right + wrong) if right + wrong else None
        return self._proposer.metrics() | told

    def save(self, folder: Path) -> None:
        self._proposer.save(folder)
        right, wrong = (self._values.counts[True], self._values.counts[False]) if self._values is not None else (0, 0)
        state = _State(
            list(self._taken_back), self._untold[-REMEMBERED:], self._hearsay.state(), dict(self._counts), right, wrong
        )
        (folder / _FILE).write_bytes(msgspec.json.encode(state))

    def load(self, folder: Path) -> None:
        """Raises CheckpointError."""
        self._proposer.load(folder)
        path = folder / _FILE
        try:
            with path.open("rb") as file:
                state = msgspec.json.decode(file.read(MAX_FILE), type=_State)
        except FileNotFoundError:
            state = _State()  # of a time when nothing was taken back
        except (OSError, msgspec.MsgspecError, UnicodeError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
        self._taken_back = dict.fromkeys(state.keys)
        self._untold = list(state.untold)
        self._hearsay = Hearsay(state.hearsay)
        self._counts = Counter(state.counts)
        if self._values is not None:
            self._values.counts = Counter({True: state.right, False: state.wrong})

    def _is_taken_back(self, problem: Problem) -> bool:
        return problem.id in self._taken_back or question_key(problem) in self._taken_back

    def _take_back(self, problem_id: str, key: str, reason: str) -> None:
        """Once, and the oldest are forgotten."""
        if problem_id in self._taken_back or key in self._taken_back:
            return
        self._counts[reason] += 1
        self._untold.append(problem_id)
        self._taken_back |= {problem_id: None, key: None}
        while len(self._taken_back) > REMEMBERED:
            del self._taken_back[next(iter(self._taken_back))]
