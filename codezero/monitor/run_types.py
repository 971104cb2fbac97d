"""The values that page, terminal and `codezero status` show of a run: frozen, JSON as they are, bounded always.

None: not measured, or unknown. An empty problem or reason: there is none. Shares and success rates are in [0, 1]; times
are seconds since 1970. Text of peers and models is as it came: whoever shows it shows it as text."""

from pathlib import Path
from typing import Literal

import msgspec

from codezero.chain.base import OutboxView
from codezero.errors import UnreadableError, translated
from codezero.monitor.text import measured, within_groups
from codezero.system.files import read_json, write_atomic

MAX_POINTS = 240  # points of a series: neighbours are averaged, so that a long run keeps its shape
MAX_EXAMS, MAX_ROUNDS, MAX_PEERS, MAX_TREND = 400, 40, 200, 24

Series = list[tuple[float, float]]  # [(iteration, value)], oldest first
SETTINGS = "settings.json"  # in a run's folder


class SettingLine(msgspec.Struct, frozen=True):
    key: str
    value: str  # as JSON; secrets are hidden
    origin: str  # default, a file, the command line, or this machine


class RunSettings(msgspec.Struct, frozen=True):
    settings: list[SettingLine]  # as the newest start of the run wrote them; empty: it wrote none


def write_settings(folder: Path, settings: list[SettingLine]) -> None:
    """Raises OSError."""
    write_atomic(folder / SETTINGS, msgspec.json.format(msgspec.json.encode(RunSettings(settings))), private=True)


def read_settings(folder: Path) -> RunSettings:
    with translated(UnreadableError, f"{folder / SETTINGS} cannot be read", OSError, ValueError):
        try:
            return read_json(folder / SETTINGS, RunSettings, 1 << 20)
        except FileNotFoundError:
            return RunSettings([])


class ExamView(msgspec.Struct, frozen=True, kw_only=True):
    """One sitting of the held-out problems. gain_low to gain_high: how far above the first one's, by pairs, 95 %."""

    iteration: int
    source: str  # how it was measured: executed, audited(n) or judged
    samples: int  # k of average@k and pass@k; low and high are 95 % intervals
    average: float
    low: float | None
    high: float | None
    gain_low: float | None = None
    gain_high: float | None = None
    passed: float | None
    pass_low: float | None
    pass_high: float | None
    believed: float | None
    levels: dict[int, float]  # average@k of each difficulty level that has problems
    set: str  # which problems, how many, and their digest; empty: not said
    control: float | None  # share of the attempts at embedded problems that pass, where the set is another one
    problems: float | None
    unknown_share: float | None
    cheats_share: float | None  # attempts that answer for their tests: they pass what must fail, and count as wrong
    unguarded_share: float | None  # attempts that pass a test which has no condition to find a cheat by
    auroc: float | None
    within_auroc: float | None
    within_auroc_low: float | None
    within_auroc_high: float | None
    within_auroc_pairs: float | None
    false_positive_share: float | None
    false_negative_share: float | None

    @property
    def label(self) -> str:
        return f"{self.source} average@{self.samples}"

    @property
    def interval(self) -> str:
        """`52.1 % [48.9, 55.2]`."""
        return measured(self.average, self.low, self.high)

    @property
    def ranks(self) -> str:
        """The judge's skill within groups, as text: `AUROC 0.96 [0.91, 0.98] within groups, of 695 pairs`."""
        return within_groups(self.within_auroc, self.within_auroc_low, self.within_auroc_high, self.within_auroc_pairs)


class LevelSkill(msgspec.Struct, frozen=True, kw_only=True):
    """Mean and 95 % interval of what the difficulty rule believes of the success rate at one level."""

    level: int
    mean: float
    low: float
    high: float
    weight: float  # share of the next requests for problems that would ask for this level


class JudgeBelief(msgspec.Struct, frozen=True, kw_only=True):
    """Says how far the judge can be believed, from its canaries: answers whose truth is known."""

    weight: float | None  # 0: without proven skill, it decides nothing
    auroc: float | None
    auroc_low: float | None
    false_positive_share: float | None
    false_positive_low: float | None
    false_positive_high: float | None
    false_negative_share: float | None
    canaries: int | None
    alarm: str
    summary: str  # all this in one line for people; empty: not known
    audit: str  # what executing some of the attempts says of it, in one line; empty: none were


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    peer_id: str
    name: str
    last_seen: float
    groups: int  # received; of these are judged some, and a share of those is used in an update
    judged: int
    share_used: float | None
    penalty: float
    state: Literal["ok", "quarantined"]
    reason: str


class Round(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    began: float
    iterations: int
    reward: float | None


class NetworkView(msgspec.Struct, frozen=True, kw_only=True):
    neighbours: int
    reachable: bool | None
    reachability: str
    addresses: list[str]


class RunHead(msgspec.Struct, frozen=True, kw_only=True):
    run: str  # its key in the API
    name: str
    running: bool
    iteration: int | None
    updated: float | None  # when its last step was recorded


# gone: its process ended without a word; unknown: no process has reported from its folder
RunPhase = Literal["running", "stalled", "ended", "failed", "gone", "unknown"]


class RunSummary(RunHead, frozen=True, kw_only=True):
    """A run in a list. start, now and low to high: average@samples of the first and the newest exam that compare."""

    state: RunPhase
    fleet: str  # the run of `swarm up` whose node it is; empty: it is no part of one
    samples: int | None
    source: str  # how they were measured; empty: not yet
    start: float | None
    now: float | None
    low: float | None
    high: float | None
    delta: float | None  # now less start; None: there are not two exams to compare
    reward: float | None
    sparkline: list[float]  # the averages of these exams, oldest first, at most MAX_TREND


class RunView(RunHead, frozen=True, kw_only=True):
    """One run at one moment, as the page, the terminal, the swarm's table and `codezero status` show it. The fields
    with a default come from other files than the metrics and the process's report."""

    peer_id: str
    account: str = ""
    stopped: str  # why it ended; empty: it runs, or was killed
    supervisor: str = ""  # when what keeps it alive starts it again, or that it is given up; empty: nothing does
    began: float | None
    round: int | None
    level: int | None
    reward: float | None
    seconds_per_iteration: float | None  # median of the last ones, without exams
    limit_seconds: float  # a last step older than this is a stall, of a run that is running
    tokens_per_second: float | None
    stand_ins: str  # what stands in for sources of problems, or for the exam or the canaries, and why; empty: nothing
    attempts: str  # what became of the newest own ones, for people; empty: not known
    best: str  # the exam with the best lower bound; empty: there was none, or it is the newest
    hindrance: str  # what keeps it from learning, and the setting that mends it; empty: nothing
    facts: dict[str, str]  # what stays the same: models, problems, the kind of swarm
    series: dict[str, Series]  # those of run_state.CURVES that have values
    latest: dict[str, float]  # the newest value of each of CURVES, not averaged
    exams: list[ExamView]
    difficulty: list[LevelSkill]
    judge: JudgeBelief
    peers: list[Peer] = []
    network: NetworkView | None = None  # None: no network, as in a swarm of one
    rounds: list[Round]
    outbox: OutboxView | None = None  # None: this run counts no points on a chain
    tolerated: dict[str, int]  # errors that the run survived, by kind

    @property
    def exam_now(self) -> ExamView | None:
        return self.exams[-1] if self.exams and self.exams[-1].iteration == self.iteration else None


class Runs(msgspec.Struct, frozen=True, kw_only=True):
    runs: list[RunSummary]


class RolloutLine(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    iteration: int
    round: int
    peer_id: str
    peer_name: str
    own: bool = msgspec.field(name="mine")
    question: str
    source: str
    level: int | None
    rewards: list[float | None]


class RolloutPage(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first."""

    rollouts: list[RolloutLine]
    older: int | None  # ask with `before` this id for more; None: there are no more


class ShownVerdict(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    status: str
    reward: float | None
    correctness: float | None
    structure: float | None
    adherence: float | None
    format: float | None
    cap: float | None
    reasons: list[str]
    finished: bool
    cut: bool  # `text` is only its beginning


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    line: RolloutLine
    problem_id: str
    question: str
    tests: list[str]
    attempts: list[ShownVerdict]


class PeerPoints(msgspec.Struct, forbid_unknown_fields=True):
    """One peer's, counted from the chain's events."""

    owner: str = ""  # account that registered it; empty: nobody has
    points: int = 0
    rounds: int = 0  # in which it submitted a reward
    votes: int = 0  # received
    last_round: int = -1


class BoardLine(PeerPoints, kw_only=True):
    peer_id: str
    name: str
    own: bool = msgspec.field(name="mine")


class Leaderboard(msgspec.Struct, frozen=True, kw_only=True):
    chain_id: int | None
    contract: str
    round: int | None
    peers: list[BoardLine]  # most points first, at most MAX_PEERS
    problem: str


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """`/healthz`: HTTP 200 when `healthy`, else 503."""

    healthy: bool = True
    run: str = ""
    running: bool = False
    iteration: int | None = None
    seconds_since_step: float | None = None
    limit_seconds: float = 120.0
    problem: str = ""
