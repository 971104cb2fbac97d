"""Three ways to bet, the same agents: which price is best, who earns, what does an attack cost?

Four answers, evidence in four steps. An agent of skill U(.2, 1.6) has a private signal whose noise it shares in part
with all others (models make the same mistakes), and reports a log-blend of its own posterior and the last price. The
ways: Hanson's market maker with trades in random order (`lmsr`; `adding`: an ideal crowd that adds each signal once), a
parimutuel weighted by time (`pool`; `best odds`: everybody bets where the odds are best), what the original did
(`original`: balance / steps left on the likeliest answer), and step scoring, whose pay, records and prices are those of
the package.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codezero.market.games import NONE, ONE, STEPS, Game, GameKind
from codezero.market.payout import MOST, POINT, STAKE, START, Position, pay
from codezero.market.pricing import NEWCOMER, Record, Score, best_power, clip, gain, price, record, robust, skilled
from codezero.stats import Array, mean_interval

ANSWERS = 4
SHARED = 0.3
"""Of the variance of private signals."""
PUBLIC = 0.7
"""Strength of the evidence of one step."""
LEAST = 0.005
ATTACKED = 0.1
"""Share of the games in which sleepers lie."""
DECAY = (1.0, 0.75, 0.5, 0.25)
"""Weights by step of the parimutuel."""
FIT_EVERY = 10
GAME = Game(GameKind.VALUE, "benchmark", "", 0, "", "", ("f()",), ("1", "2", "3", NONE), commitment=b"0" * 32)
OPENERS = [f"opener {number}" for number in range(10)]
Flags = NDArray[np.bool_]


@dataclass
class Draw:
    """One game in each of R populations of N agents."""

    truth: NDArray[np.int64]
    settled: NDArray[np.int64]
    """[R] As the judge says."""
    private: Array
    """[R, N, K] Log-likelihoods."""
    evidence: Array
    """[STEPS, R, K]"""
    lie: NDArray[np.int64]
    """[R] What attackers want to be believed."""
    attacked: Flags
    """[R] Do sleepers attack this game?"""


def softmax(logits: Array) -> Array:
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


class World:
    """`kinds`: of the agents, the same in each population."""

    def __init__(self, kinds: list[str], runs: int, seed: int, judge_error: float = 0.0) -> None:
        self.chance, self.runs, self.kind = np.random.default_rng(seed), runs, np.array(kinds)
        self.skill = self.chance.uniform(0.2, 1.6, (runs, len(kinds)))
        self.skill[:, np.isin(self.kind, ["noisy", "copier", "mirror"])] = 0.0
        self.judge_error = judge_error

    def draw(self) -> Draw:
        chance, (runs, agents) = self.chance, self.skill.shape
        truth = chance.integers(0, ANSWERS, runs)
        hot = np.eye(ANSWERS)[truth]
        shared, own = chance.normal(size=(runs, 1, ANSWERS)), chance.normal(size=(runs, agents, ANSWERS))
        signal = self.skill[..., None] * hot[:, None] + np.sqrt(SHARED) * shared + np.sqrt(1 - SHARED) * own
        private = self.skill[..., None] * signal
        noisy = self.kind == "noisy"
        private[:, noisy] = 1.5 * chance.normal(size=(runs, int(noisy.sum()), ANSWERS))
        evidence = PUBLIC * (PUBLIC * hot[None] + chance.normal(size=(STEPS, runs, ANSWERS)))
        evidence[0] = 0.0
        others = (truth + chance.integers(1, ANSWERS, (2, runs))) % ANSWERS
        wrong = chance.random(runs) < self.judge_error
        attacked = chance.random(runs) < ATTACKED
        return Draw(truth, np.where(wrong, others[0], truth), private, evidence, others[1], attacked)

    def reports(self, draw: Draw, step: int, price: Array, agents: slice = slice(None)) -> tuple[Array, Flags]:
        """[R, N, K] what each reports, and [R, N] whether it does. price: [R, K] with the step's evidence."""
        kinds = self.kind[agents]
        own = np.log(clip(softmax(draw.private[:, agents] + draw.evidence[: step + 1].sum(0)[:, None]), LEAST))
        q = softmax(0.5 * own + 0.5 * np.log(price)[:, None]) if step else softmax(own)
        present, late = np.ones(q.shape[:2], bool), step == STEPS - 1
        attack = (kinds == "colluder")[None] | ((kinds == "sleeper")[None] & draw.attacked[:, None])
        q = np.where(attack[..., None], np.eye(ANSWERS)[draw.lie][:, None], q)
        for kind, copied in (("copier", np.eye(ANSWERS)[price.argmax(-1)]), ("mirror", price)):
            q = np.where((kinds == kind)[None, :, None], copied[:, None], q)
        present[:, np.isin(kinds, ["copier", "withholder"])] = late
        present[:, kinds == "mirror"] = step > 0
        return clip(q, LEAST), present


@dataclass
class Played:
    profit: Array
    """[R, N] Milli-points."""
    prices: list[Array]
    """[STEPS][R, K]"""


Way = Callable[[World, Draw, Array], Played]
"""stakes: [R, N] milli-points."""


def pool(world: World, draw: Draw, stakes: Array, *, way: str) -> Played:
    current = np.full((world.runs, ANSWERS), 1 / ANSWERS)
    bets, weighted, spent, prices = 0.0, 0.0, np.zeros_like(stakes), list[Array]()
    for step in range(STEPS):
        known = softmax(np.log(current) + draw.evidence[step])
        q, present = world.reports(draw, step, known)
        on = {"spread": q, "argmax": np.eye(ANSWERS)[q.argmax(-1)]}.get(way)
        on = np.eye(ANSWERS)[(q / current[:, None]).argmax(-1)] if on is None else on
        amount = np.where(present, (stakes - spent) / (STEPS - step), 0.0)
        bets, weighted, spent = (
            bets + amount[..., None] * on,
            weighted + DECAY[step] * amount[..., None] * on,
            spent + amount,
        )
        current = clip(clip(np.asarray(bets).sum(1) + 1e-3, 0.0), LEAST)
        prices.append(current)
    right = np.eye(ANSWERS)[draw.settled][:, None]
    own, placed = (weighted * right).sum(-1), np.asarray(bets).sum(-1)
    winners = own.sum(1, keepdims=True)
    paid = np.where(winners > 1e-9, placed.sum(1, keepdims=True) * own / np.maximum(winners, 1e-9), placed)
    return Played(paid - placed, prices)


def lmsr(world: World, draw: Draw, stakes: Array, *, adding: bool) -> Played:
    """b: the mean stake. Each agent trades towards its belief as far as its stake goes."""
    depth, current = stakes.mean(1), np.full((world.runs, ANSWERS), 1 / ANSWERS)
    owned, prices = np.zeros((*stakes.shape, ANSWERS)), list[Array]()
    for step in range(STEPS):
        for turn, agent in enumerate(world.chance.permutation(len(world.kind))):
            known = softmax(np.log(current) + (0.0 if turn else draw.evidence[step]))
            q, present = (each[:, 0] for each in world.reports(draw, step, known, slice(agent, agent + 1)))
            if adding and world.kind[agent] in ("honest", "withholder", "noisy"):
                first = step == 0 or world.kind[agent] == "withholder"
                q = clip(softmax(np.log(known) + (0.25 * draw.private[:, agent] if first else 0.0)), LEAST)
            direction = np.log(q) - np.log(current)
            low, high = np.zeros(world.runs), present.astype(float)
            for trial in range(13):
                at = high if not trial else (low + high) / 2
                moved = softmax(np.log(current) + at[:, None] * direction)
                held = owned[:, agent] + depth[:, None] * (np.log(moved) - np.log(current))
                fits = held.min(-1) >= -stakes[:, agent]
                low, high = np.where(fits, at, low), np.where(fits, high, at)
            moved = softmax(np.log(current) + low[:, None] * direction)
            owned[:, agent] += depth[:, None] * (np.log(moved) - np.log(current))
            current = clip(moved, 1e-4)
        prices.append(current)
    return Played((owned * np.eye(ANSWERS)[draw.settled][:, None]).sum(-1), prices)


@dataclass
class StepScoring:
    """The package's rules, with what each population's reader remembers of settled games. capped: skilled prices; else
    robust ones."""

    capped: bool = True
    scores: dict[tuple[int, int], list[Score]] = field(default_factory=dict)
    pools: dict[int, list[tuple[Array, int]]] = field(default_factory=dict)
    powers: dict[int, float] = field(default_factory=dict)
    games: int = 0

    def __call__(self, world: World, draw: Draw, stakes: Array) -> Played:
        runs, agents = stakes.shape
        records = {
            (run, agent): record(self.scores.get((run, agent), [])) for run in range(runs) for agent in range(agents)
        }
        current, prices = np.full((runs, ANSWERS), 1 / ANSWERS), list[Array]()
        given: list[list[list[tuple[int, ...] | None]]] = [[[] for _ in range(agents)] for _ in range(runs)]
        for step in range(STEPS):
            q, present = world.reports(draw, step, softmax(np.log(current) + draw.evidence[step]))
            whole = whole_points(q)
            for run in range(runs):
                for agent in range(agents):
                    given[run][agent].append(tuple(whole[run, agent].tolist()) if present[run, agent] else None)
            current = np.array([self.priced(run, given[run], records) for run in range(runs)])
            prices.append(clip(current, LEAST))
        profit = np.array(
            [self.settled(run, given[run], stakes[run], int(draw.settled[run]), records) for run in range(runs)]
        )
        self.games += 1
        return Played(profit, prices)

    def priced(
        self, run: int, given: list[list[tuple[int, ...] | None]], records: dict[tuple[int, int], Record]
    ) -> Array:
        power = self.powers.get(run, 1.0)
        found = price(
            GAME, standing(given), {str(agent): records[run, agent] for agent in range(len(given))}, (power, power)
        )
        return found.skilled if self.capped else found.robust

    def settled(
        self,
        run: int,
        given: list[list[tuple[int, ...] | None]],
        stakes: Array,
        answer: int,
        records: dict[tuple[int, int], Record],
    ) -> list[int]:
        last = standing(given)
        voters = [agent for agent in last if records[run, int(agent)].vote]
        if voters:
            rows = np.array([last[agent] for agent in voters]) / ONE
            gains = [records[run, int(agent)].gain for agent in voters]
            pooled = skilled(rows, gains) if self.capped else robust(rows)
            self.pools.setdefault(run, []).append((pooled, answer))
            if not self.games % FIT_EVERY:
                self.powers[run] = best_power(self.pools[run])
        for agent, q in last.items():
            opener = OPENERS[self.games % len(OPENERS)]
            self.scores.setdefault((run, int(agent)), []).append(
                Score(opener, gain(given[int(agent)][0], answer), gain(q, answer))
            )
        positions = [Position(str(agent), int(stakes[agent]), tuple(reports)) for agent, reports in enumerate(given)]
        wins = pay(positions, answer)
        return [wins.get(str(agent), 0) for agent in range(len(given))]


def standing(given: list[list[tuple[int, ...] | None]]) -> dict[str, tuple[int, ...]]:
    """The last report of each agent that made one."""
    last = {str(agent): [q for q in reports if q is not None] for agent, reports in enumerate(given)}
    return {agent: reports[-1] for agent, reports in last.items() if reports}


def whole_points(q: Array) -> NDArray[np.int64]:
    whole = np.floor(q * ONE).astype(np.int64)
    np.put_along_axis(
        whole,
        q.argmax(-1)[..., None],
        np.take_along_axis(whole, q.argmax(-1)[..., None], -1) + (ONE - whole.sum(-1))[..., None],
        -1,
    )
    return whole


WAYS: dict[str, Callable[[], Way]] = {
    "lmsr": lambda: lambda *a: lmsr(*a, adding=False),
    "lmsr, adding": lambda: lambda *a: lmsr(*a, adding=True),
    "pool": lambda: lambda *a: pool(*a, way="spread"),
    "pool, best odds": lambda: lambda *a: pool(*a, way="odds"),
    "original": lambda: lambda *a: pool(*a, way="argmax"),
    "step scoring": StepScoring,
    "step scoring, robust": lambda: StepScoring(capped=False),
}
SCENES: dict[str, dict[str, int]] = {
    "honest": {"honest": 20},
    "6 of 20 noisy": {"honest": 14, "noisy": 6},
    "5 of 20 copiers": {"honest": 15, "copier": 5},
    "5 of 20 mirrors": {"honest": 15, "mirror": 5},
    "5 of 20 withholders": {"honest": 15, "withholder": 5},
    "10 % colluders": {"honest": 18, "colluder": 2},
    "40 % colluders": {"honest": 12, "colluder": 8},
    "20 % sleepers": {"honest": 16, "sleeper": 4},
    "40 % sleepers": {"honest": 12, "sleeper": 8},
    "judge wrong in 10 %": {"honest": 20},
}


def run(way: str, scene: str, runs: int, games: int, seed: int = 1) -> dict[str, Any]:
    """Figures of the second half, but for returns and balances."""
    kinds = [kind for kind, count in SCENES[scene].items() for _ in range(count)]
    world = World(kinds, runs, seed, judge_error=0.1 if scene.startswith("judge") else 0.0)
    played, balance = WAYS[way](), np.full((runs, len(kinds)), float(START))
    staked, won = np.zeros_like(balance), np.zeros_like(balance)
    early: list[tuple[Array, int]] = []
    rows: list[tuple[Array, Array, Flags]] = []
    errors: list[Array] = []
    for number in range(games):
        draw = world.draw()
        stakes = np.array([[min(b // 10, STAKE) if b >= POINT else 0 for b in row] for row in balance], float)
        seen = played(world, draw, stakes)
        balance = np.clip(balance + seen.profit, POINT, MOST)
        staked, won = staked + stakes, won + seen.profit
        final, hot = seen.prices[-1], np.eye(ANSWERS)[draw.truth]
        if NEWCOMER <= number < games // 2:
            early += zip(final, draw.truth.tolist(), strict=True)
        elif number >= games // 2:
            rows.append((final, hot, draw.attacked))
            errors.append(np.array([((q - hot) ** 2).sum(-1) for q in seen.prices]))
    power = best_power(early[:: max(1, len(early) // 400)])
    by_step = np.array(errors)
    sharper = [clip(clip(q**power, 0.0), 1e-3) for q, _, _ in rows]
    again = np.array([((q - hot) ** 2).sum(-1) for q, (_, hot, _) in zip(sharper, rows, strict=True)])
    hits = np.array([attacked for _, _, attacked in rows])
    kind = np.array(kinds)
    report: dict[str, Any] = {
        "brier": interval(by_step[:, -1].mean(0)),
        "brier_by_step": [round(float(each), 4) for each in by_step.mean((0, 2))],
        "brier_recalibrated": round(float(again.mean()), 4),
        "return_per_stake": {
            each: interval(won[:, kind == each].sum(1) / staked[:, kind == each].sum(1))
            for each in dict.fromkeys(kinds)
        },
        "minted_per_stake": round(float(won.sum() / staked.sum()), 4),
        "best_third_ends_with_points": round(
            float(balance[(world.skill > 1.25) & (kind == "honest")].mean()) / POINT, 1
        ),
    }
    if "sleeper" in kinds:
        report["brier_of_attacked"] = round(float(by_step[:, -1][hits].mean()), 4) if hits.any() else None
    return report


def interval(per_population: Array) -> list[float]:
    """Mean with its interval of 95 % over populations."""
    return [round(each, 4) for each in mean_interval(per_population)]
