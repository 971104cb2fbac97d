"""One swarm of embedded solvers in one process, for `learn.py`: real policies, learners and wire format, exact reward.

Every node has a policy, an optimiser and a problem stream of its own; what nodes tell each other crosses the wire
format. The reward is the outcome of running the tests, so that nothing but the sharing differs. Prints one JSON line.

    python benchmarks/learn_swarm.py '{"scenario": "same", "own": 4, "others": 4}'
"""

import dataclasses
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from learn_liars import GROUP, disarm, liar, shares

EXAM = (40, 8)  # Held-out problems and attempts at each: an exam's average@8 is of 320 executed attempts
MIXED = ("", "small", "large", "other")
"""Starts that nodes take turns in: the shipped one, models of other sizes, and one with another tokenizer."""
STILL = 48  # Groups of a node that does not learn: it samples them once and publishes some in each round
COLLAPSED = 0.5  # A node whose last exam is below this share of its first has collapsed


@dataclass(frozen=True)
class Case:
    """What one run is."""

    scenario: str = "same"
    """same, specialists, sparse, strong, mixed, poisoned, absent or marked; gym: specialists on reasoning-gym."""
    own: int = 8  # Problems that a node attempts in a round, GROUP times each
    others: int = 0  # Most of the others' groups in its update
    policy: str = "positives"
    gate: bool = True
    seed: int = 0
    nodes: int = 8
    rounds: int = 100
    every: int = 20  # Rounds between two exams
    liars: int = 0  # Of the nodes; in the scenario `absent` they say nothing
    defended: bool = True  # Do the others learn of peers' rows only what `solver.peer_rollouts` lets them?
    mark: str = ""  # In the scenario `marked`, which of MARKS
    learners: int = 8  # Most honest nodes that learn and are examined; the others publish, and stay as they began


@dataclass
class Node:
    """One node's own things."""

    name: str
    solver: Any
    exam: Any
    swarm: Any
    problems: Iterator[Any]


def run(case: Case, starts: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Play all rounds. `curve` is [round, mean executed average@8, of each honest node], before any training first."""
    from simulation.hub import HubSwarm, LocalHub

    began, hub, judge = time.monotonic(), LocalHub(), Scoring() if case.scenario == "gym" else Remembering()
    honest = case.nodes - case.liars
    nodes = [make_node(case, i, hub, judge, starts) for i in range(honest)]
    liars = [
        liar(HubSwarm(peer_id(i), hub), f"liar {case.seed} {i}", max(case.own, 1), case.mark)
        for i in range(honest, case.nodes)
        if case.scenario != "absent"
    ]
    if not case.defended:
        disarm()
    learners = nodes[: case.learners]
    still = {node.name: (node, publish(node, STILL, 0, judge), Random(node.name)) for node in nodes[case.learners :]}
    curve, used = [look(0, learners)], 0.0
    written = list[list[str]]()
    if not curve[0][1]:
        raise SystemExit(f"{case.scenario}: the start solves nothing, and so nothing can be learned from it")
    for number in range(1, case.rounds + 1):
        learned = [publish(node, case.own, number, judge) for node in learners]
        for node, groups, chance in still.values():
            node.swarm.publish([again(each, number) for each in chance.sample(groups, case.own)], number)
            node.swarm.gather(number)
        written.append([each.text for own in learned for group in own for each in group.group.completions])
        for lie in liars:
            lie(number)
        for node, own in zip(learners, learned, strict=True):
            told = node.solver.step(own, judge.score(node.swarm.gather(number)))
            used += told["swarm/external_groups"]
        if number % case.every == 0 or number == case.rounds:
            curve.append(look(number, learners))
            say(f"{json.dumps(dataclasses.asdict(case))}: round {number}, {100 * curve[-1][1]:.1f} %")
    return {
        **dataclasses.asdict(case),
        "curve": curve,
        "own_completions": case.own * GROUP * case.rounds,
        "external_groups_per_round": round(used / case.rounds / len(learners), 2),
        "collapsed_nodes": sum(last < COLLAPSED * first for first, last in zip(curve[0][2], curve[-1][2], strict=True)),
        "marks_before": shares(written[0]),
        "marks": shares([text for texts in written[-max(1, case.rounds // 4) :] for text in texts]),
        "seconds": round(time.monotonic() - began),
    }


def again(scored: Any, number: int) -> Any:
    """A group of an earlier round as one of this."""
    return dataclasses.replace(scored, group=dataclasses.replace(scored.group, round=number, policy_step=number))


def publish(node: Node, count: int, number: int, judge: "Remembering | Scoring") -> list[Any]:
    groups = node.solver.rollout(list(itertools.islice(node.problems, count)), number)
    scored = judge.score(groups)
    node.swarm.publish(scored, number)
    return scored


def look(number: int, nodes: Sequence[Node]) -> Any:
    for node in nodes:
        node.exam.begin(number)
    each = [round(node.exam.results(wait=True)["eval/average_at_8"], 4) for node in nodes]
    return [number, round(sum(each) / len(each), 4), each]


def make_node(case: Case, index: int, hub: Any, judge: "Remembering | Scoring", starts: Path) -> Node:
    from simulation.hub import HubSwarm

    from codezero.config import EvalsConfig, ExternalConfig, SolverConfig
    from codezero.evals.exam import HeldOutExam
    from codezero.evals.task import task_of
    from codezero.models.generation import Sampler
    from codezero.models.load import load_model
    from codezero.solver.learner import TrlLearner
    from codezero.solver.solver import GrpoSolver

    name = peer_id(index)
    settle = 400 if case.scenario == "marked" else 60  # an attack takes its time
    settings = SolverConfig(
        problems_per_iteration=case.own, refill=1.0, group_size=GROUP, settle_steps=settle, kl_beta=0.01
    )
    policy = load_model(str(start_of(case, index, starts)), device="cpu", role="solver", for_training=True)
    sampler = Sampler(policy)
    solver = GrpoSolver(
        settings,
        prompt=judge.environment.prompt,
        sampler=sampler,
        learner=TrlLearner(policy, settings),
        peer_id=name,
        seed=100 * case.seed + index,
        external=ExternalConfig(policy=case.policy, gate=case.gate, groups=case.others, share=0.95),
    )
    exam = HeldOutExam(
        EvalsConfig(samples=EXAM[1], seed=7),
        settings,
        "held-out problems",
        [task_of(problem, judge.environment.prompt) for problem in judge.environment.held_out(EXAM[0], 7)],
        [],
        sampler,
        judge.grader(),
        judge.unasked(),
    )
    swarm = HubSwarm(name, hub, judge.environment if isinstance(judge, Scoring) else None)
    problems = judge.specialty(case, index) if isinstance(judge, Scoring) else stream(case, index)
    return Node(name, solver, exam, swarm, problems)


def peer_id(index: int) -> str:
    """In the form of a real one."""
    return "Qm" + "123456789"[index] * 44


def stream(case: Case, index: int) -> Iterator[Any]:
    """Training problems without end; a specialist's are all of one level, and so of few forms of program."""
    from codezero.problems.synthetic.tasks import make_task

    level = index % 5 + 1 if case.scenario == "specialists" else None
    for number in itertools.count():
        yield make_task(Random(f"{case.seed} {index} {number}"), level).problem


class Remembering:
    """Exact reward by execution; each attempt is looked at once, whoever asks."""

    def __init__(self) -> None:
        from codezero.code.worker import StaticGuard
        from codezero.environments.code import CodeEnvironment
        from codezero.evaluator.evaluator import ExecutedEvaluator
        from codezero.sandbox.monty import MontySandbox

        self.evaluator, self.environment = (
            ExecutedEvaluator(StaticGuard(seconds=2.0, memory_mib=512), MontySandbox()),
            CodeEnvironment(),
        )
        self.known: dict[tuple[str, str], Any] = {}

    def score(self, groups: Sequence[Any]) -> list[Any]:
        from codezero.types import ScoredGroup

        fresh = {(g.problem.id, c.text): (g, c) for g in groups for c in g.completions}
        fresh = {key: both for key, both in fresh.items() if key not in self.known}
        asked = [dataclasses.replace(group, completions=(one,)) for group, one in fresh.values()]
        for key, scored in zip(fresh, self.evaluator.score(asked), strict=True):
            self.known[key] = scored.verdicts[0]
        judged = [ScoredGroup(g, tuple(self.known[g.problem.id, c.text] for c in g.completions)) for g in groups]
        while len(self.known) > 100_000:
            del self.known[next(iter(self.known))]
        return judged

    @staticmethod
    def grader() -> Any:
        """Of an exam."""
        from codezero.evals.grading import SandboxGrader
        from codezero.sandbox.monty import MontySandbox

        return SandboxGrader(MontySandbox())

    @staticmethod
    def unasked() -> Any:
        """For an exam, which executes by itself."""
        from codezero.types import Metrics, ScoredGroup, Status, Verdict

        unknown = Verdict(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, Status.UNAVAILABLE)

        class Nobody:
            def score(self, groups: Sequence[Any]) -> list[Any]:
                return [ScoredGroup(group, (unknown,) * len(group.completions)) for group in groups]

            def witness(self, scored: object, passed: object) -> Metrics:
                return {}

        return Nobody()


class Scoring:
    """Exact reward by the library's own score; each node attempts one kind of task, and the exam asks all kinds."""

    def __init__(self) -> None:
        from codezero.environments.reasoning_gym import DEFAULT_TASKS, ReasoningGym
        from codezero.environments.tasks import TaskEnvironment
        from codezero.evaluator.base import ScoredEvaluator

        self.kinds, self.environment = len(DEFAULT_TASKS), TaskEnvironment(ReasoningGym())
        self.evaluator = ScoredEvaluator(self.environment)
        self.score = self.evaluator.score

    def grader(self) -> Any:
        from codezero.evals.grading import EvaluatorGrader

        return EvaluatorGrader(self.evaluator)

    def unasked(self) -> None:
        """Nobody is held against a score."""

    def specialty(self, case: Case, index: int) -> Iterator[Any]:
        """Training problems without end, all of the node's own kind: the kinds take turns in the places."""
        for number in itertools.count():
            problem = self.environment.generate(f"{case.seed} {index} {number}")
            if problem.item.index % self.kinds == index % self.kinds:
                yield problem


def start_of(case: Case, index: int, starts: Path) -> Path:
    """The weights a node begins with; `learn.py` makes those that are not shipped."""
    from codezero.nano import weights_directory

    if case.scenario == "sparse":
        return starts / "weak"
    if case.scenario == "strong" and index == 0:
        return starts / "strong"
    if case.scenario == "mixed" and (kind := MIXED[index % len(MIXED)]):
        return starts / kind
    return weights_directory("gym" if case.scenario == "gym" else "solver")


def main(argv: Sequence[str]) -> None:
    import torch

    torch.set_num_threads(1)
    case = Case(**json.loads(argv[0]))
    starts = Path(argv[1]) if len(argv) > 1 else Path()
    print(json.dumps(run(case, starts, lambda text: print(text, file=sys.stderr, flush=True))))


if __name__ == "__main__":
    main(sys.argv[1:])
