"""What the page shows of a run: frozen values that become JSON as they are, bounded whatever the run did.

None: not measured, or unknown. An empty problem or reason: there is none. Shares and success rates are in [0, 1]; times
are seconds since 1970. Text of peers and models is as it came: whoever shows it shows it as text.
"""

from typing import Literal

import msgspec

MAX_POINTS = 240
"""Points of a series: neighbours are averaged, so that a long run keeps its shape."""
MAX_EXAMS, MAX_ROUNDS, MAX_PEERS, MAX_TREND = 400, 40, 200, 24

Series = list[tuple[float, float]]
"""[(iteration, value)], oldest first."""


class ExamView(msgspec.Struct, frozen=True, kw_only=True):
    """One sitting of the held-out problems. gain_low to gain_high: how far above the first one's, by pairs, 95 %."""

    iteration: int
    source: str
    """How it was measured: executed, audited(n) or judged."""
    samples: int
    """k of average@k and pass@k; low and high are 95 % intervals."""
    average: float
    low: float | None
    high: float | None
    gain_low: float | None = None
    gain_high: float | None = None
    passed: float | None
    pass_low: float | None
    pass_high: float | None
    believed: float | None
    levels: dict[int, float]
    """average@k of each difficulty level that has problems."""
    set: str
    """Which problems, how many, and their digest; empty: not said."""
    control: float | None
    """Share of the attempts at embedded problems that pass, where the set is another one."""
    problems: float | None
    unknown_share: float | None
    cheats_share: float | None
    """Attempts that answer for their tests: they pass what must fail, and count as wrong."""
    unguarded_share: float | None
    """Attempts that pass a test which has no condition to find a cheat by."""
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


class LevelSkill(msgspec.Struct, frozen=True, kw_only=True):
    """Mean and 95 % interval of what the difficulty rule believes of the success rate at one level."""

    level: int
    mean: float
    low: float
    high: float
    weight: float
    """Share of the next requests for problems that would ask for this level."""


class JudgeBelief(msgspec.Struct, frozen=True, kw_only=True):
    """How far the judge can be believed, from its canaries: answers whose truth is known."""

    weight: float | None
    """0: without proven skill, it decides nothing."""
    auroc: float | None
    auroc_low: float | None
    false_positive_share: float | None
    false_positive_low: float | None
    false_positive_high: float | None
    false_negative_share: float | None
    canaries: int | None
    alarm: str


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """Another node, as this one knows it."""

    peer_id: str
    name: str
    last_seen: float
    groups: int
    """Received; of these are judged some, and a share of those is used in an update."""
    judged: int
    share_used: float | None
    penalty: float
    state: Literal["ok", "quarantined"]
    reason: str


class OutboxView(msgspec.Struct, frozen=True, kw_only=True):
    collecting: int
    pending: int
    accepted: int
    refused: int
    reasons: dict[str, int]
    problem: str


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What this node did in one round of the swarm."""

    number: int
    began: float
    iterations: int
    reward: float | None


class NetworkView(msgspec.Struct, frozen=True, kw_only=True):
    """Its place in the peer-to-peer network."""

    neighbours: int
    reachable: bool | None
    reachability: str
    addresses: list[str]


class RunHead(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    """Its key in the API."""
    name: str
    running: bool
    iteration: int | None
    updated: float | None
    """When its last step was recorded."""


RunPhase = Literal["running", "stalled", "ended", "failed", "gone", "unknown"]
"""gone: its process ended without a word. unknown: no process has reported from its folder."""


class RunSummary(RunHead, frozen=True, kw_only=True):
    """A run in a list. start, now and low to high: average@samples of the first and the newest exam that compare."""

    state: RunPhase
    fleet: str
    """The run of `swarm up` whose node it is; empty: it is no part of one."""
    samples: int | None
    source: str
    """How they were measured; empty: not yet."""
    start: float | None
    now: float | None
    low: float | None
    high: float | None
    delta: float | None
    """now less start; None: there are not two exams to compare."""
    reward: float | None
    sparkline: list[float]
    """The averages of these exams, oldest first, at most MAX_TREND."""


class RunCore(RunHead, frozen=True, kw_only=True):
    """What page and `codezero status` both show."""

    peer_id: str
    account: str
    stopped: str
    """Why it ended; empty: it runs, or was killed."""
    supervisor: str
    """Words of what keeps it alive: when it is started again, or that it is given up. Empty: nothing."""
    began: float | None
    round: int | None
    level: int | None
    reward: float | None
    limit_seconds: float
    """A last step older than this is a stall, of a run that is running."""
    stand_ins: str
    """What stands in for sources of problems, or for the exam or the canaries, and why; empty: nothing."""
    attempts: str
    """What became of the newest own ones, for people; empty: not known."""
    hindrance: str
    """What keeps it from learning, and the setting that mends it; empty: nothing."""
    facts: dict[str, str]
    """What stays the same: models, problems, the kind of swarm."""
    tolerated: dict[str, int]
    """Errors that the run survived, by kind."""


class RunView(RunCore, frozen=True, kw_only=True):
    """Everything the dashboard shows, but for attempts and the leaderboard."""

    seconds_per_iteration: float | None
    """Median of the last ones, without exams."""
    tokens_per_second: float | None
    series: dict[str, Series]
    """Those of run_state.CURVES that have values."""
    latest: dict[str, float]
    """The newest value of each series, not averaged."""
    exams: list[ExamView]
    difficulty: list[LevelSkill]
    judge: JudgeBelief
    peers: list[Peer]
    network: NetworkView | None
    """None: no network, as in a swarm of one."""
    rounds: list[Round]
    outbox: OutboxView | None
    """None: this run counts no points on a chain."""


class Runs(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of this folder, the one written last first."""

    runs: list[RunSummary]


class RolloutLine(msgspec.Struct, frozen=True, kw_only=True):
    """A group of attempts at one problem, in a list."""

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
    older: int | None
    """Ask with `before` this id for more; None: there are no more."""


class ShownVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt and what was decided about it."""

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
    cut: bool
    """`text` is only its beginning."""


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    line: RolloutLine
    problem_id: str
    question: str
    tests: list[str]
    attempts: list[ShownVerdict]


class PeerPoints(msgspec.Struct, forbid_unknown_fields=True):
    """One peer's, counted from the chain's events."""

    owner: str = ""
    """Account that registered it; empty: nobody has."""
    points: int = 0
    rounds: int = 0
    """In which it submitted a reward."""
    votes: int = 0
    """Received."""
    last_round: int = -1


class BoardLine(PeerPoints, kw_only=True):
    peer_id: str
    name: str
    own: bool = msgspec.field(name="mine")


class Leaderboard(msgspec.Struct, frozen=True, kw_only=True):
    """Who earned what, read from the chain."""

    chain_id: int | None
    contract: str
    round: int | None
    peers: list[BoardLine]
    """Most points first, at most MAX_PEERS."""
    problem: str


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """`/healthz`: HTTP 200 when `healthy`, else 503."""

    healthy: bool
    run: str
    running: bool
    iteration: int | None
    seconds_since_step: float | None
    limit_seconds: float
    problem: str
