"""`value` games of the embedded models: tests of real proposals, real attempts, executed truth, and what peers report.

A game is one test of one proposal. Its answers are the claimed value, the values that most attempts return, and none of
these; its truth is what the program returns that the question describes. A peer has eight attempts of its own, of which
1, 2, 4 and 8 are done at the steps: it reports how often each value came back, weighed by its judge's probability where
it has one, with a floor and a power that were best on its settled games.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from codezero.code.answer import read_answer
from codezero.code.worker import StaticGuard
from codezero.config import ProposerConfig
from codezero.environments.code import CodeEnvironment, solver_prompt
from codezero.errors import ProposalError
from codezero.evaluator.judge import LikelihoodJudge
from codezero.evaluator.judge_prompts import LIKELIHOOD
from codezero.evaluator.types import Program, request
from codezero.market.games import NONE, ONE, Game, GameKind
from codezero.market.pricing import clip
from codezero.models.generation import OwnLoop, Sampler
from codezero.models.load import load_model
from codezero.nano import weights_directory
from codezero.problems.filters import PROPOSED, Screen, inspect
from codezero.problems.synthetic.programs import parse_question, render
from codezero.problems.synthetic.tasks import LEVELS
from codezero.proposer.parsing import parse_proposal, proposal_prompt
from codezero.sandbox.base import MAX_OUTPUT_BYTES
from codezero.sandbox.monty import MontySandbox
from codezero.settings import compose
from codezero.stats import Array
from codezero.types import Completion, Problem
from codezero.wiring.evaluator import EMBEDDED, build_evaluator
from codezero.wiring.proposer import structure_for

ATTEMPTS = (1, 2, 4, 8)
"""Of a peer, by step."""
MOST_VALUES = 6
"""Answers of a game beside the claim and none of these."""
UNJUDGED, UNREAD = 0.35, 0.02
"""What an attempt counts for without a judge, and with one that could not read it."""
SHAPES = [(floor, power) for floor in (0.02, 0.05, 0.1, 0.2, 0.4) for power in (0.5, 1.0, 1.5, 2.0, 3.0)]
PER_PROPOSAL = 2.0
"""Games that one proposal asked for gives at least, on average."""
_TEST = re.compile(r"assert (.+) == (.+)", re.DOTALL)
Say = Callable[[str], None]


@dataclass(frozen=True)
class Tried:
    """One game with the attempts of all peers."""

    game: Game
    problem: str
    truth: int
    """Which answer is right."""
    true: str
    values: list[list[str | None]]
    """[peers][8] What each attempt returns; None: nothing."""
    programs: list[list[str | None]]
    """[peers][8] The attempts' code."""
    beliefs: Array
    """[peers, 8] The judge's probability."""

    def opinion(self, peer: int, step: int, judged: bool) -> Array:
        """[K] How much of its attempts stands behind each answer."""
        answers = {value: at for at, value in enumerate(self.game.answers)}
        weights = np.zeros(len(answers))
        for value, belief in list(zip(self.values[peer], self.beliefs[peer], strict=True))[: ATTEMPTS[step]]:
            if value is not None:
                weights[answers.get(value, answers[NONE])] += belief if judged else UNJUDGED
        return weights

    def different(self, peer: int) -> list[str | None]:
        """What its different programs return."""
        return list(dict(zip(self.programs[peer], self.values[peer], strict=True)).values())


def names(peers: int) -> list[str]:
    return ["Qm" + "abcdefghijkmnopqrstuvwxyz"[number % 25] * (40 + number // 25) for number in range(peers)]


def shaped(weights: Array, floor: float, power: float) -> Array:
    return clip(clip((weights + floor) ** power, 0.0), 0.003)


def points(probabilities: Array) -> tuple[int, ...]:
    """A report: whole basis points, what is left on the likeliest."""
    whole = np.floor(probabilities * ONE).astype(int)
    whole[int(probabilities.argmax())] += ONE - int(whole.sum())
    return tuple(whole.tolist())


def played(games: Sequence[Tried], known: Sequence[bool], peer: int, step: int, judged: bool) -> list[Array]:
    """[games][K] A peer's reports at a step; its floor and power are those with the least log loss on known games."""
    weights = [each.opinion(peer, step, judged) for each in games]
    settled = [(w, each.truth) for w, each, yes in zip(weights, games, known, strict=True) if yes]
    best = min(SHAPES, key=lambda shape: -sum(np.log(shaped(w, *shape)[truth]) for w, truth in settled))
    return [shaped(w, *best) for w in weights]


def gather(count: int, peers: int, seed: int, say: Say) -> list[Tried]:
    """About `count` games."""
    proposed = proposals(ceil(count / PER_PROPOSAL), seed)
    say(f"seed {seed}: {len(proposed)} usable proposals; {len(proposed) * peers * ATTEMPTS[-1]} attempts")
    solver = load_model(str(weights_directory("solver")), device="cpu", role="solver")
    groups = Sampler(solver).sample(
        [solver_prompt(problem) for problem, _ in proposed],
        group_size=peers * ATTEMPTS[-1],
        max_new_tokens=48,
        temperature=1.0,
        generator_seed=seed + 1,
    )
    config = compose([f"evaluator.questions=[{LIKELIHOOD}]"])
    with contextlib.ExitStack() as stack:
        evaluator = build_evaluator(config, EMBEDDED, stack, say)
        guard, sandbox = stack.enter_context(StaticGuard()), stack.enter_context(MontySandbox())
        nano = load_model(str(weights_directory("judge")), device="cpu", role="judge")
        judge, calibration = LikelihoodJudge(nano, questions=[LIKELIHOOD]), evaluator.calibrate()
        games: list[Tried] = []
        for at, ((problem, reference), group) in enumerate(zip(proposed, groups, strict=True)):
            believed = beliefs(problem, group, guard, judge, calibration)
            opener = names(peers)[at % peers]
            games += tried(problem, reference, group, believed.reshape(peers, -1), sandbox, opener)
    say(f"seed {seed}: {len(games)} games")
    return games[:count]


def proposals(count: int, seed: int) -> list[tuple[Problem, str]]:
    """Usable ones, and the program that each describes; `count`: asked for, over all levels."""
    loaded = load_model(str(weights_directory("proposer")), device="cpu", role="proposer")
    asked = [LEVELS[at % len(LEVELS)] for at in range(count)]
    groups = Sampler(loaded, OwnLoop(loaded, structure_for(loaded))).sample(
        [proposal_prompt(level) for level in asked],
        group_size=1,
        max_new_tokens=ProposerConfig().max_new_tokens,
        temperature=1.0,
        generator_seed=seed,
    )
    found: dict[str, tuple[Problem, str]] = {}
    for (completion,), level in zip(groups, asked, strict=True):
        with contextlib.suppress(ProposalError):
            problem = parse_proposal(completion.text, level, "")
            parsed = parse_question(problem.question)
            if parsed and inspect(problem, PROPOSED) is None and not Screen(CodeEnvironment()).withholds(problem):
                found[problem.id] = problem, render(parsed[1], parsed[0])
    return list(found.values())


def beliefs(
    problem: Problem, group: Sequence[Completion], guard: StaticGuard, judge: LikelihoodJudge, calibration: object
) -> Array:
    """[attempts] The judge's calibrated probability."""
    reports = guard.check_many([request(problem, completion.text) for completion in group])
    programs = {report.canonical: Program(problem.question, report.canonical) for report in reports if report.canonical}
    readings = judge.read(list(programs.values()), frozenset(judge.names))
    known = {
        code: calibration.probability(reading.scores)  # pyright: ignore[reportAttributeAccessIssue]
        for code, reading in zip(programs, readings, strict=True)
        if reading.scores is not None
    }
    return np.array([known.get(report.canonical or "", UNREAD) for report in reports])


def tried(
    problem: Problem, reference: str, group: Sequence[Completion], believed: Array, sandbox: MontySandbox, opener: str
) -> list[Tried]:
    """The games about one proposal; those whose truth or claim cannot be executed are left out."""
    cases = [match.groups() for test in problem.tests if (match := _TEST.fullmatch(test))]
    calls = [call for call, _ in cases]
    codes = [read_answer(completion.text, problem.entry_point).code for completion in group]
    values = {code: returned(sandbox, code, calls) for code in dict.fromkeys(codes) if code}
    truths, claims = returned(sandbox, reference, calls), returned(sandbox, "", [claim for _, claim in cases])
    games: list[Tried] = []
    nothing: list[str | None] = [None] * len(calls)
    for at, (call, true, claim) in enumerate(zip(calls, truths, claims, strict=True)):
        if true is None or claim is None:
            continue
        own = [values.get(code or "", nothing)[at] for code in codes]
        counts = Counter(value for value in own if value not in (None, claim))
        often = [value for value, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
        answers = (claim, *(value for value in often[:MOST_VALUES] if value is not None), NONE)
        game = Game(
            GameKind.VALUE, "benchmark", opener, at, problem.question, "", (call,), answers, commitment=b"0" * 32
        )
        truth = answers.index(true if true in answers else NONE)
        games.append(Tried(game, problem.id, truth, true, by_peer(own), by_peer(codes), believed))
    return games


def by_peer(attempts: Sequence[str | None]) -> list[list[str | None]]:
    return [list(attempts[start : start + ATTEMPTS[-1]]) for start in range(0, len(attempts), ATTEMPTS[-1])]


def returned(sandbox: MontySandbox, code: str, calls: Sequence[str]) -> list[str | None]:
    """[calls] The text of each value; None: none, or none in time."""
    tries = "".join(f"try:\n    print(repr({call}))\nexcept Exception:\n    print()\n" for call in calls)
    (printed,) = sandbox.run_cases(f"{code}\n{tries}", [""], MAX_OUTPUT_BYTES, main=True)
    lines = printed.split("\n")[-len(calls) - 1 : -1] if isinstance(printed, str) else []
    return [line or None for line in lines] if len(lines) == len(calls) else [None] * len(calls)
