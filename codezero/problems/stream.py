"""The problems of each iteration: a share of peers' proposals, the rest from the sources; never an item twice.

Each position of a peer's synthetic problems has its own generator, so a resumed run goes on as if it had never stopped.
Two positions can hold the same text; one that was among the last 4,096 is skipped. A source that has nothing to give is
stood in for by the others, and in the end by synthetic problems, those that the environment generates."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from codezero.config.learning import MAX_SOURCES, DataConfig, source_weights
from codezero.environment import Environment
from codezero.problems.filters import Fits, Keys, Novelty, NoveltyState, Screen, remember
from codezero.problems.sources import DataSource, SourceState, open_rows
from codezero.system.state import StateFile
from codezero.types import REHEARSAL, Metrics, Problem

PEER_SHARE = 0.5  # most of the proposals' places that one other peer may fill, and at least one place


def pick(
    offered: Sequence[Problem], places: int, *, own_peer_id: str, usable: Callable[[Problem], bool], random: Random
) -> list[Problem]:
    """At most `places` of what is `offered`, newest first. `usable` is asked once about each that has its turn.

    Peers take turns in random order; each gives the newest problem of a level drawn from those it has left. Another
    peer gets at most PEER_SHARE of the places, also when nobody else offers anything."""
    waiting: defaultdict[str, defaultdict[int, list[Problem]]] = defaultdict(lambda: defaultdict(list))
    for problem in reversed(offered):  # the newest is the first to be taken
        waiting[problem.proposer or ""][problem.level or 0].append(problem)
    left = dict.fromkeys(waiting, max(1, int(places * PEER_SHARE)))
    if own_peer_id in left:
        left[own_peer_id] = places
    turns = sorted(waiting)
    random.shuffle(turns)
    chosen: list[Problem] = []
    while turns and len(chosen) < places:
        peer = turns.pop(0)
        problem = next(filter(usable, _drawn(waiting[peer], random)), None)
        if problem is not None:
            chosen.append(problem)
            left[peer] -= 1
            if left[peer]:
                turns.append(peer)
    return chosen


def _drawn(levels: dict[int, list[Problem]], random: Random) -> Iterator[Problem]:
    while levels:
        level = random.choice(sorted(levels))
        problem = levels[level].pop()
        if not levels[level]:
            del levels[level]
        yield problem


SYNTHETIC = "synthetic"

_Count = Annotated[int, Meta(ge=0)]


class _State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cursor: _Count
    synthetic: Keys
    proposals: Keys
    slots: _Count = 0
    picks: _Count = 0
    novelty: NoveltyState = NoveltyState()
    shelves: Annotated[dict[str, SourceState], Meta(max_length=MAX_SOURCES)] = {}
    counts: Annotated[dict[str, _Count], Meta(max_length=256)] = {}


class MixedStream(StateFile[_State], file="stream.json", schema=_State):
    """The stream of a node. Its state is in every checkpoint."""

    def __init__(
        self,
        environment: Environment,
        data: DataConfig,
        *,
        seed: int,
        peer_id: str,
        batch: int,
        fits: Fits = lambda problem: True,
        withheld: Novelty | None = None,
    ) -> None:
        """batch: problems in an iteration; withheld: what none may be like. Raises ProblemError for a bad revision."""
        self._environment, self._origin, self._peer_id = environment, f"{seed} {peer_id}", peer_id
        self._batch, self._most_proposals = batch, int(batch * data.proposer_share)
        self._weights = source_weights(data.sources)
        rows = {name: open_rows(name) for name in self._weights if name != SYNTHETIC}
        # its sources, those of the hub with the beginning of their commit, and their weights
        self.name = ", ".join(f"{rows.get(name, name)}:{weight:g}" for name, weight in self._weights.items())
        self._counts: Counter[str] = Counter()
        screen = partial(Screen, environment, fits, withheld)
        self._data_sources = {
            name: DataSource(name, opened, self._origin, screen(), self._counts, data.wait_seconds)
            for name, opened in rows.items()
        }
        self._cursor = self._slots = self._picks = 0
        self._synthetic, self._proposals = dict[str, None](), dict[str, None]()  # ids seen last, oldest first
        self._screen = screen()

    def next_batch(self, proposals: Sequence[Problem], count: int | None = None) -> list[Problem]:
        """`count` problems (None: `batch`): usable `proposals` up to their share, then those of the sources."""
        wanted = self._batch if count is None else count
        chosen: list[Problem] = []
        if proposals:
            self._picks += 1
            chosen = pick(
                proposals,
                min(wanted, self._most_proposals),
                own_peer_id=self._peer_id,
                usable=self._take,
                random=Random(f"{self._origin} proposals {self._picks}"),
            )
        chosen.extend(self._fresh() for _ in range(wanted - len(chosen)))
        return chosen

    def probe(self) -> str:
        """Look for each source, waiting a while for those on the hub. Returns `stand_ins`."""
        for source in self._data_sources.values():
            source.probe()
        return self.stand_ins

    @property
    def stand_ins(self) -> str:
        """Name what stands in for sources that give nothing now, and why they do not; empty while all give."""
        lost = {name: source.trouble for name, source in self._data_sources.items() if source.trouble}
        others = ", ".join(name for name in self._data_sources if name not in lost)
        instead = f"problems of {others} stand in" if others else REHEARSAL
        return f"{instead}: {'; '.join(lost.values())}" if lost else ""

    def admits(self, problem: Problem) -> bool:
        """False for a problem that the exam asks or the judge is measured on."""
        return not self._screen.withholds(problem)

    def metrics(self) -> Metrics:
        """`problems/drawn_<source>`, `problems/refused` and `problems/refused_<reason>`, `problems/outages`;
        `problems/stand_ins` while sources give nothing."""
        refused = sum(count for name, count in self._counts.items() if name.startswith("refused_"))
        counts: Metrics = {f"problems/{name}": count for name, count in sorted(self._counts.items())}
        stand_ins: Metrics = {"problems/stand_ins": self.stand_ins} if self.stand_ins else {}
        return counts | stand_ins | {"problems/refused": refused}

    def state(self) -> _State:
        recent = list(self._synthetic), list(self._proposals)
        shelves = {name: source.state() for name, source in self._data_sources.items()}
        novelty, counts = self._screen.state(), dict(self._counts)
        return _State(self._cursor, *recent, self._slots, self._picks, novelty, shelves, counts)

    def restore(self, state: _State) -> None:
        """A source that the checkpoint does not know begins anew; one that is no longer asked for is forgotten."""
        self._cursor, self._slots, self._picks = state.cursor, state.slots, state.picks
        self._synthetic, self._proposals = dict.fromkeys(state.synthetic), dict.fromkeys(state.proposals)
        self._screen.restore(state.novelty)
        self._counts.clear()
        self._counts.update(state.counts)
        for name, source in self._data_sources.items():
            source.restore(state.shelves.get(name, SourceState()))

    def _take(self, problem: Problem) -> bool:
        """Is this proposal used? Each is looked at once, however often it is offered."""
        if not remember(self._proposals, problem.id):
            return False
        refusal = self._screen.refuse(problem)
        self._counts["drawn_proposals" if refusal is None else f"refused_{refusal.reason}"] += 1
        return refusal is None

    def _fresh(self) -> Problem:
        """The next problem of the source whose turn it is, drawn by weight, else of the others in their order."""
        names = list(self._weights)
        (first,) = Random(f"{self._origin} source {self._slots}").choices(names, list(self._weights.values()))
        self._slots += 1
        for name in sorted(names, key=lambda name: name != first):
            source = self._data_sources.get(name)
            problem = self._next_synthetic() if source is None else source.draw()
            if problem is not None:
                self._counts[f"drawn_{Path(name).name}"] += 1
                return problem
        self._counts[f"drawn_{SYNTHETIC}"] += 1
        return self._next_synthetic()

    def _next_synthetic(self) -> Problem:
        """The next problem from the cursor on that is not remembered, or the last that is looked at."""
        for _ in range(64):  # a small environment has fewer problems than are remembered
            if remember(self._synthetic, (problem := self._generated()).id):
                return problem
        return self._generated()

    def _generated(self) -> Problem:
        self._cursor += 1
        return self._environment.generate(f"{self._origin} {self._cursor - 1}")
