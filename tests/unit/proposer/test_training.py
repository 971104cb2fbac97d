"""Proposals that are learned from: what they earn, what is masked, and that a policy follows its reward.

Does not show: that training on a real judge's verdicts makes a real solver better.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
import torch
from builders.models import tiny_policy

from codezero.config import ProposerConfig, SolverConfig
from codezero.environments.code import CodeEnvironment
from codezero.errors import CheckpointError, ConfigError
from codezero.models.generation import Sampler
from codezero.problems.filters import Screen
from codezero.problems.synthetic.tasks import make_task
from codezero.proposer.training import TrainedProposer, groups_per_round, judged_learnability, learnability
from codezero.protocols import Proposer
from codezero.settings import compose
from codezero.solver.learner import TrlLearner
from codezero.types import (
    Completion,
    Metrics,
    Problem,
    RewardedGroup,
    RolloutGroup,
    ScoredGroup,
    Screened,
    Source,
    Status,
    Verdict,
)

ATTEMPTS = 8


def attempts(problem: Problem, successes: int, *, status: Status = Status.JUDGED, of: int = ATTEMPTS) -> ScoredGroup:
    completion = Completion("", (1,), (-1.0,), True)
    verdicts = [
        Verdict(right, right, 1.0, 1.0, 1.0, 1.0, status) for right in [1.0] * successes + [0.0] * (of - successes)
    ]
    return ScoredGroup(RolloutGroup(problem, (completion,) * of, "me", 0, 0), tuple(verdicts))


def written(number: int, does: str = "plus") -> str:
    """A proposal; each number's is another one."""
    tests = [f"assert f{number}({n}) == {n + number}" for n in range(3)]
    question = f"Write a function f{number}(x) that takes x away and gives back x {does} {number} more of it."
    return f"```json\n{json.dumps({'question': question, 'tests': tests})}\n```"


class Scripted:
    """Writes what it is told, as if token ids had been drawn."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)

    def sample(self, prompts: Sequence[str], *, group_size: int, **_: object) -> list[list[Completion]]:
        return [
            [Completion(self.texts.pop(0), (7,), (-1.0,), True) for _ in range(group_size)] for _ in range(len(prompts))
        ]


class Taught:
    """A learner that notes what it was given."""

    def __init__(self) -> None:
        self.rewards: list[tuple[float | None, ...]] = []

    def learn(self, groups: Sequence[RewardedGroup]) -> Metrics:
        self.rewards += [one.rewards for one in groups]
        return {"steps": len(self.rewards)}

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...


def scripted(*texts: str, size: int = 4, most: int = 1, wait: int = 3) -> tuple[TrainedProposer, Taught]:
    learner = Taught()
    made = TrainedProposer(
        Scripted(*texts),
        ProposerConfig(group_size=size, wait=wait, max_new_tokens=64, taken=0),
        learner=learner,
        screen=Screen(CodeEnvironment()),
        most_groups=most,
        peer_id="me",
        seed=0,
    )
    return made, learner


@pytest.mark.parametrize(
    ("successes", "of", "wanted"), [(4, 8, 1.0), (0, 8, 0.36), (8, 8, 0.36), (0, 2, 0.75), (1, 8, 0.64), (1, 1, 8 / 9)]
)
def test_learnability_is_that_of_the_shrunk_share(successes: int, of: int, wanted: float) -> None:
    assert learnability(successes, of) == pytest.approx(wanted)


def test_what_could_not_be_judged_counts_neither_way() -> None:
    problem = make_task(Random(0)).problem
    mixed = [attempts(problem, 4, status=Status.UNAVAILABLE), attempts(problem, 0, of=2)]
    assert judged_learnability(mixed) == pytest.approx(0.75)
    assert judged_learnability(mixed[:1]) is None and judged_learnability([]) is None


def test_a_judge_that_cannot_tell_earns_a_proposer_nothing() -> None:
    """Every attempt at one half is not half of the attempts: it says the same of all of them."""
    problem = make_task(Random(0)).problem
    sure, unsure = attempts(problem, 4), attempts(problem, 8)
    unsure = dataclasses.replace(
        unsure, verdicts=tuple(dataclasses.replace(one, correctness=0.5) for one in unsure.verdicts)
    )
    assert judged_learnability([sure]) == 1.0 and judged_learnability([unsure]) == pytest.approx(0.36)


def test_a_group_is_rewarded_when_all_of_it_is_known() -> None:
    node, learner = scripted(written(1), "nothing", written(2), written(1))
    made: Proposer = node
    first, second = made.propose([2, 2])
    assert (first.level, first.proposer) == (2, "me")
    told = made.metrics()
    assert (told["proposer/written"], told["proposer/validity"]) == (2, 0.75)
    assert told["proposer/novelty"] == pytest.approx(2 / 3)
    done = made.learn([attempts(first, 4)])
    assert (done["proposer/learnability"], done["proposer/waiting_groups"], learner.rewards) == (1.0, 1, [])
    assert made.metrics()["proposer/validity"] is None, "nothing was written in this iteration"
    done = made.learn([attempts(second, 8)])
    assert (done["proposer/waiting_groups"], done["proposer/train_steps"]) == (0, 1)
    assert learner.rewards == [(1.0, 0.0, pytest.approx(0.36), 0.0)]


def test_a_proposal_that_nobody_attempted_is_unknown_and_not_worthless() -> None:
    node, learner = scripted(*map(written, range(4)), wait=3)
    problems = node.propose([1])
    stranger = dataclasses.replace(problems[1], proposer="other")
    node.learn([attempts(problems[0], 4), attempts(stranger, 4), attempts(problems[2], 4, status=Status.UNAVAILABLE)])
    node.learn([])
    assert not learner.rewards
    assert node.learn([])["proposer/learnability"] is None
    assert learner.rewards == [(1.0, None, None, None)]


def asks_for_one(_: Screen, problem: Problem) -> bool:
    return "plus 1 " in problem.question


def test_a_question_of_the_exam_is_neither_offered_nor_held_against_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Screen, "withholds", asks_for_one)
    node, learner = scripted(written(1), written(2), "nothing", written(3))
    problems = node.propose([1])
    assert len(problems) == 2
    node.learn([attempts(one, 4) for one in problems])
    assert learner.rewards == [(None, 1.0, 0.0, 1.0)]


def test_no_more_groups_are_written_than_can_be_attempted() -> None:
    assert [groups_per_round(places, 4, 8, 32) for places in (1, 4, 8, 100)] == [1, 2, 4, 4]
    node, _ = scripted(*map(written, range(8)), most=2)
    assert {one.level for one in node.propose([2, 3, 2, 4])} == {2, 3}


def real_learner(*, kl_beta: float = 0.0, rate: float = 3e-3, seed: int = 0) -> TrlLearner:
    settings = SolverConfig(minibatches=1, max_new_tokens=1, learning_rate=rate, kl_beta=kl_beta)
    return TrlLearner(tiny_policy(seed), settings)


def weights(learner: TrlLearner) -> list[torch.Tensor]:
    return [one.detach().clone() for one in learner.policy.model.parameters()]


def same(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def drawn(*rewards: float | None) -> RewardedGroup:
    completions = tuple(Completion("", (40 + place,), (-3.0,), True) for place in range(len(rewards)))
    return RewardedGroup("Write", completions, rewards)


@pytest.mark.parametrize("kl_beta", [0.0, 0.1])
@pytest.mark.parametrize("flat", [(0.5, 0.5, 0.5), (0.0, None, 0.0), (None, 0.4, None), (None, None, float("nan"))])
def test_a_group_without_spread_teaches_nothing(flat: tuple[float | None, ...], kl_beta: float) -> None:
    learner = real_learner(kl_beta=kl_beta)
    before = weights(learner)
    assert learner.learn([drawn(*flat)])["rows"] == 0
    assert same(weights(learner), before) and learner.steps == 0


def test_an_unknown_reward_pushes_as_if_it_had_not_been_written() -> None:
    with_unknown, without = real_learner(), real_learner()
    assert with_unknown.learn([drawn(1.0, 0.0, None)])["rows"] == 2
    without.learn([drawn(1.0, 0.0)])
    assert same(weights(with_unknown), weights(without))
    as_zero = real_learner()
    as_zero.learn([drawn(1.0, 0.0, 0.0)])
    assert not same(weights(as_zero), weights(without))


class Translated:
    """A real policy of one token, whose parity is read as one of two kinds of problem: the ids stay its own."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler, self.number = sampler, 0

    def sample(self, prompts: Sequence[str], **told: object) -> list[list[Completion]]:
        groups = self.sampler.sample(prompts, **told)  # pyright: ignore[reportArgumentType]
        return [[self.translated(one) for one in group] for group in groups]

    def translated(self, one: Completion) -> Completion:
        self.number += 1
        return dataclasses.replace(one, text=written(self.number, "plus" if one.token_ids[0] % 2 else "minus"))


class Life:
    """A real proposer with a scripted judge: the solver solves half of what `liked` says, and all of the rest."""

    def __init__(self, liked: Callable[[Problem], bool] = lambda problem: "plus" in problem.question) -> None:
        self.liked = liked
        self.learner = real_learner(kl_beta=0.001, rate=1e-2)
        self.sampler = Translated(Sampler(self.learner.policy))
        self.node = TrainedProposer(
            self.sampler,
            ProposerConfig(group_size=16, wait=2, max_new_tokens=1, taken=0),
            learner=self.learner,
            screen=Screen(CodeEnvironment()),
            most_groups=1,
            peer_id="me",
            seed=5,
        )
        self.open: list[Problem] = []

    def iterate(self) -> float | None:
        """Attempt twelve of the newest proposals, learn, and propose."""
        told = self.node.learn([attempts(one, 4 if self.liked(one) else 8) for one in self.open[:12]])
        self.open = self.node.propose([3])
        value = told["proposer/learnability"]
        assert not isinstance(value, str)
        return value


def test_a_policy_comes_to_write_what_can_be_learned_from() -> None:
    life = Life()
    seen = [value for _ in range(31) if (value := life.iterate()) is not None]
    first, last = sum(seen[:5]) / 5, sum(seen[-5:]) / 5
    assert first < 0.8 and last > 0.92, (first, last)


def test_saved_loaded_and_gone_on_is_the_same_bit_for_bit(tmp_path: Path) -> None:
    whole, cut = Life(), Life()
    for _ in range(9):
        whole.iterate()
    for _ in range(5):
        cut.iterate()
    (tmp_path / "proposer").mkdir()
    cut.node.save(tmp_path / "proposer")
    again = Life()
    again.node.load(tmp_path / "proposer")
    again.sampler.number, again.open = cut.sampler.number, cut.open
    for _ in range(4):
        again.iterate()
    for name, life in (("whole", whole), ("again", again)):
        (tmp_path / name).mkdir()
        life.node.save(tmp_path / name)
    wanted = {path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*") if path.is_file()}
    assert {str(one) for one in wanted} >= {"pending.json", "learner/optimizer.safetensors", "screen/screen.json"}
    for path in wanted:
        assert (tmp_path / "again" / path).read_bytes() == (tmp_path / "whole" / path).read_bytes(), path
    assert again.learner.steps == whole.learner.steps > 0
    assert json.loads((tmp_path / "whole" / "pending.json").read_text()), "no group waited, so none was resumed"


@pytest.mark.parametrize("content", [None, "{}", '[{"prompt":"","completions":[],"problems":["x"],"rewards":[]}]'])
def test_broken_groups_are_named(tmp_path: Path, content: str | None) -> None:
    node, _ = scripted()
    node.save(tmp_path)
    (tmp_path / "pending.json").unlink()
    if content is not None:
        (tmp_path / "pending.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"pending\.json"):
        node.load(tmp_path)


@pytest.mark.parametrize(
    ("also", "said"),
    [
        (["proposer.kind=openai", "proposer.url=http://127.0.0.1:1"], "proposer.kind=openai is behind an endpoint"),
        (["proposer.model='off'"], "proposer.model=off has nothing to train"),
        (["proposer.problems_per_iteration=0"], "proposer.problems_per_iteration=0 has nothing to train"),
        (["data.proposer_share=0"], "raise data.proposer_share"),
        (["solver.problems_per_iteration=4", "proposer.every=1"], "two proposals attempted"),
        (["proposer.group_size=1"], "proposer.group_size=1 is out of bounds"),
    ],
)
def test_what_cannot_be_trained_is_one_line(also: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(["proposer.train=true", *also])
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_it_is_off_unless_it_is_asked_for() -> None:
    assert not compose().proposer.train and compose(["proposer.train=true"]).proposer.train


def test_a_proposal_from_the_embedded_family_is_usable_once() -> None:
    problem = dataclasses.replace(make_task(Random(4)).problem, source=Source.PROPOSER, proposer="me", reference=None)
    screen = Screen(CodeEnvironment())
    assert [screen.screen(problem), screen.screen(problem)] == [Screened.USABLE, Screened.REPEATED]
    assert Screen(CodeEnvironment(), lambda one: False).screen(problem) is Screened.BROKEN
