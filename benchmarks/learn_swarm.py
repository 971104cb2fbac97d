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

GROUP = 8
EXAM = (40, 8)
"""Held-out problems and attempts at each: an exam's average@8 is of 320 executed attempts."""
COLLAPSED = 0.5
"""A node whose last exam is below this share of its first has collapsed."""
POISONED = 3
"""Of the nodes, where there are such."""
RUBBISH = "I will not answer."


@dataclass(frozen=True)
class Case:
    """What one run is."""

    scenario: str = "same"
    """same, specialists, sparse, strong, poisoned or absent; gym: specialists on tasks of reasoning-gym."""
    own: int = 8
    """Problems that a node attempts in a round, GROUP times each."""
    others: int = 0
    """Most of the others' groups in its update."""
    policy: str = "positives"
    gate: bool = True
    seed: int = 0
    nodes: int = 8
    rounds: int = 100
    every: int = 20
    """Rounds between two exams."""


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
    from simulation.hub import LocalHub

    began, hub, judge = time.monotonic(), LocalHub(), Scoring() if case.scenario == "gym" else Remembering()
    honest = case.nodes - (POISONED if case.scenario in ("poisoned", "absent") else 0)
    nodes = [make_node(case, i, hub, judge, starts) for i in range(honest)]
    liars = [liar(case, i, hub) for i in range(honest, case.nodes) if case.scenario == "poisoned"]
    curve, used = [look(0, nodes)], 0.0
    if not curve[0][1]:
        raise SystemExit(f"{case.scenario}: the start solves nothing, and so nothing can be learned from it")
    for number in range(1, case.rounds + 1):
        scored = [publish(node, case.own, number, judge) for node in nodes]
        for lie in liars:
            lie(number)
        for node, own in zip(nodes, scored, strict=True):
            told = node.solver.step(own, judge.score(node.swarm.gather(number)))
            used += told["swarm/external_groups"]
        if number % case.every == 0 or number == case.rounds:
            curve.append(look(number, nodes))
            say(f"{json.dumps(dataclasses.asdict(case))}: round {number}, {100 * curve[-1][1]:.1f} %")
    return {
        **dataclasses.asdict(case),
        "curve": curve,
        "own_completions": case.own * GROUP * case.rounds,
        "external_groups_per_round": round(used / case.rounds / len(nodes), 2),
        "collapsed_nodes": sum(last < COLLAPSED * first for first, last in zip(curve[0][2], curve[-1][2], strict=True)),
        "seconds": round(time.monotonic() - began),
    }


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
    settings = SolverConfig(
        problems_per_iteration=case.own, refill=1.0, group_size=GROUP, settle_steps=60, kl_beta=0.01
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


def liar(case: Case, index: int, hub: Any) -> Callable[[int], None]:
    """Publishes groups in which the best attempt is a wrong program: half near misses, half rubbish."""
    from simulation.hub import HubSwarm

    from codezero.code.parsing import fence
    from codezero.problems.synthetic.tasks import make_task, mutants
    from codezero.types import Completion, RolloutGroup, ScoredGroup, Status, Verdict

    swarm = HubSwarm(peer_id(index), hub)
    chance = Random(f"liar {case.seed} {index}")
    sure = Verdict(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, Status.JUDGED)

    def tell(number: int) -> None:
        for _ in range(max(case.own, 1)):
            task = make_task(chance)
            wrong = [fence(code) for code in mutants(task, chance, GROUP // 2)]
            texts = (wrong + [RUBBISH] * GROUP)[:GROUP]
            rows = tuple(Completion(text, (1, 2), (-0.01, -0.01), True) for text in texts)
            group = RolloutGroup(task.problem, rows, swarm.peer_id, number, number)
            swarm.publish([ScoredGroup(group, (sure,) * GROUP)], number)
        swarm.gather(number)

    return tell


class Remembering:
    """Exact reward by execution; each attempt is looked at once, whoever asks."""

    def __init__(self) -> None:
        from codezero.code.worker import StaticGuard
        from codezero.environments.code import CodeEnvironment
        from codezero.evaluator.executed import ExecutedEvaluator
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
        from codezero.types import ScoredGroup, Status, Verdict

        unknown = Verdict(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, Status.UNAVAILABLE)

        class Nobody:
            def score(self, groups: Sequence[Any]) -> list[Any]:
                return [ScoredGroup(group, (unknown,) * len(group.completions)) for group in groups]

            def witness(self, executed: object) -> None: ...

        return Nobody()


class Scoring:
    """Exact reward by the library's own score; each node attempts one kind of task, and the exam asks all kinds."""

    def __init__(self) -> None:
        from codezero.environments.reasoning_gym import DEFAULT_TASKS, ReasoningGym
        from codezero.environments.tasks import TaskEnvironment
        from codezero.evaluator.scored import ScoredEvaluator

        self.kinds, self.environment = len(DEFAULT_TASKS), TaskEnvironment(ReasoningGym())
        self.evaluator = ScoredEvaluator(self.environment)
        self.score = self.evaluator.score

    def grader(self) -> Any:
        from codezero.evals.grading import ScoreGrader

        return ScoreGrader(self.evaluator)

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
    return weights_directory("gym" if case.scenario == "gym" else "solver")


def main(argv: Sequence[str]) -> None:
    import torch

    torch.set_num_threads(1)
    case = Case(**json.loads(argv[0]))
    starts = Path(argv[1]) if len(argv) > 1 else Path()
    print(json.dumps(run(case, starts, lambda text: print(text, file=sys.stderr, flush=True))))


if __name__ == "__main__":
    main(sys.argv[1:])
