"""One copy of the weights for several roles: who gets it, that a judge cannot tell, that the policy stays as it is."""

from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from builders.models import random_rows, saved, tiny_policy

from codezero.code.worker import StaticGuard
from codezero.config import NodeConfig
from codezero.evaluator.build import build_judge
from codezero.evaluator.judge import LikelihoodJudge
from codezero.evaluator.types import Judge, Program
from codezero.models import likelihood
from codezero.models.build import FrozenModels
from codezero.models.generation import OwnLoop, Sampler
from codezero.models.hardware import estimate
from codezero.models.load import LoadedModel
from codezero.settings import compose
from codezero.solver.batch import Batch
from codezero.solver.build import build_learner, load_policy
from codezero.solver.learner import TrlLearner

PROGRAMS = [Program("Return x.", "def f(x):\n    return x\n"), Program("Return 1.", "def f(x):\n    return 1\n")]


def settings(solver: Path, judge: Path | str, writer: Path | str, *words: str) -> NodeConfig:
    models = [f"model.solver={solver}", f"evaluator.model={judge}", f"proposer.model={writer}"]
    rates = ["solver.learning_rate=0.05", "solver.kl_beta=0", "evaluator.questions=[likelihood]"]
    return compose(["model.device=cpu", *models, *rates, *words])


def quiet(_: str) -> None:
    pass


class Shared:
    """A judge that reads the base of a policy, and the policy's learner."""

    def __init__(self, base: Path):
        config = settings(base, base, base, "model.train=lora")
        self.policy = load_policy(config, quiet)
        self.models = FrozenModels(config, quiet, self.policy)
        with ExitStack() as stack:
            guard = stack.enter_context(StaticGuard())
            self.judge = build_judge(config, stack, quiet, self.models, guard)
            own = build_judge(config, stack, quiet, FrozenModels(config, quiet), guard)
        self.own = own
        self.learner: TrlLearner = build_learner(config, self.policy)

    def learn(self) -> None:
        assert self.learner.update(Batch(tuple(random_rows(8)))).grad_norm

    def logprobs(self) -> list[tuple[float, ...]]:
        rows = random_rows(4, seed=5)
        return self.learner.logprobs([row.prompt_ids for row in rows], [row.completion_ids for row in rows])


def scores(judge: Judge) -> list[tuple[float | None, ...] | None]:
    judge.forget()
    return [reading.scores for reading in judge.read(PROGRAMS, frozenset(judge.names))]


def test_a_judge_on_the_base_scores_as_one_of_its_own_to_the_bit_while_the_policy_learns(base: Path) -> None:
    node = Shared(base)
    expected, first = scores(node.own), node.logprobs()
    assert scores(node.judge) == expected and None not in expected
    for _ in range(3):
        node.learn()
        before = node.logprobs()
        assert scores(node.judge) == expected == scores(node.own)
        assert node.logprobs() == before != first
    assert scores(LikelihoodJudge(node.policy, questions=["likelihood"])) != expected  # with the adapter it is another


def test_a_judge_on_the_base_does_not_see_what_a_learner_wrapped(base: Path) -> None:
    """As accelerate does on a card, for mixed precision."""
    node = Shared(base)
    expected, model = scores(node.own), node.policy.model
    plain = model.forward

    def wrapped(*args: object, **options: object) -> object:
        output = plain(*args, **options)
        output.logits = output.logits * 2
        return output

    model.forward = wrapped
    assert scores(node.judge) == expected
    assert model.forward is wrapped


def test_after_a_reading_that_fails_the_adapter_is_on_and_learns(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Shared(base)
    node.learn()
    before = node.logprobs()

    def fail(*_: object) -> None:
        raise RuntimeError("a kernel failed")

    with monkeypatch.context() as patch:
        patch.setattr(likelihood, "score_asks", fail)
        node.judge.forget()
        with pytest.raises(RuntimeError, match="a kernel failed"):
            node.judge.read(PROGRAMS, frozenset(node.judge.names))
    assert node.logprobs() == before
    node.learn()
    assert node.logprobs() != before


def test_a_proposer_on_the_base_writes_what_it_would_write_alone(base: Path) -> None:
    node = Shared(base)
    for _ in range(3):
        node.learn()
    shared = node.models.load(str(base), "proposer")
    alone = OwnLoop(FrozenModels(settings(base, base, base), quiet).load(str(base), "proposer"))
    sampled = [Sampler(loaded, loop).sample(["Write one."], group_size=8, max_new_tokens=8, temperature=1.0,
        generator_seed=1) for loaded, loop in ((shared, OwnLoop(shared)), (alone.loaded, alone))]  # fmt: skip
    assert sampled[0] == sampled[1]
    drawn = Sampler(node.policy).sample(
        ["Write one."], group_size=8, max_new_tokens=8, temperature=1.0, generator_seed=1
    )
    assert drawn != sampled[0]


@pytest.mark.slow
@pytest.mark.parametrize("train", ["lora", "full"])
@pytest.mark.parametrize("judge", ["base", "other", "off"])
@pytest.mark.parametrize("writer", ["base", "other", "off"])
def test_the_estimate_counts_the_copies_that_there_are(train: str, judge: str, writer: str, tmp_path: Path) -> None:
    """`other` once by a name that leads there through a link: what counts is the place."""
    places = {"base": saved(tiny_policy(0), tmp_path / "base"), "other": saved(tiny_policy(1), tmp_path / "other")}
    (tmp_path / "link").symlink_to(tmp_path / "other")
    names = {name: str(folder) for name, folder in places.items()} | {"off": "off"}
    writes = names[writer] if writer != "other" else str(tmp_path / "link")
    executed = ["reward.mode=rlvr"] if judge == "off" else []
    config = settings(places["base"], names[judge], writes, f"model.train={train}", *executed)
    policy = load_policy(config, quiet)
    models, weights, shared = FrozenModels(config, quiet, policy), {id(policy.model)}, set[str]()
    frozen = {"judge": names[judge], "proposer": writes}
    for role, name in frozen.items():
        if name != "off":
            loaded: LoadedModel = models.load(name, role)
            shared |= {role} if id(loaded.model) in weights else set()
            weights.add(id(loaded.model))
            assert loaded.adapter_off == (loaded.model is policy.model)
    need = estimate(config, "cpu", 4)
    assert need is not None
    counted = {name for name, _ in need.always}
    assert {role for role, name in frozen.items() if name != "off"} - counted == shared
    assert (train == "full") <= (id(policy.model) not in {id(m.model) for m in models._loaded})
    assert torch.equal(policy.model.get_input_embeddings().weight, tiny_policy(0).model.get_input_embeddings().weight)


def test_a_tiny_judge_alone_takes_one_thread_and_beside_a_larger_solver_none_from_it() -> None:
    before = torch.get_num_threads()
    try:
        for solver, threads in (("nano", 1), ("larger/one", 2)):
            torch.set_num_threads(2)
            FrozenModels(compose([f"model.solver={solver}"]), quiet).load("nano", "judge")
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
