"""Config -> a further rank of a node: what it answers when rank 0 asks."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from codezero.config import NodeConfig
from codezero.models.dealt import SAMPLE, Share, draw_share
from codezero.models.generation import OwnLoop
from codezero.models.group import Group
from codezero.models.load import LoadedModel
from codezero.solver.batch import Batch
from codezero.solver.parallel import ALIGN, LEARN, ParallelLearner, State
from codezero.wiring.hardware import fit
from codezero.wiring.models import BEGIN, JOIN, Beginning, join_group, learner_of, load_policy, use_share_of_threads


class Rank:
    """What this process has, from the first message on."""

    told: Beginning
    policy: LoadedModel
    decoder: OwnLoop
    learner: ParallelLearner

    @property
    def handlers(self) -> dict[str, Callable[[bytes], object]]:
        return {BEGIN: self.begin, JOIN: self.join, SAMPLE: self.sample, ALIGN: self.align, LEARN: self.learn}

    def begin(self, body: bytes) -> None:
        """Load the model. On a card of its own it first has to fit there; rank 0 has weighed a shared memory."""
        self.told = msgspec.msgpack.decode(body, type=Beginning)
        config = without_other_models(self.told.config)
        if os.environ.get("CUDA_VISIBLE_DEVICES"):
            fit(config, [], Path())
        self.policy = load_policy(config, lambda _: None)
        use_share_of_threads(config, self.policy, self.told.size)
        self.decoder = OwnLoop(self.policy)

    def join(self, _: bytes) -> None:
        def group() -> Group:
            return join_group(self.told, self.policy.device)

        self.learner = learner_of(self.told.config, self.policy, group)

    def sample(self, body: bytes) -> object:
        return draw_share(self.decoder, msgspec.msgpack.decode(body, type=Share))

    def align(self, body: bytes) -> None:
        self.learner.become(msgspec.msgpack.decode(body, type=State))

    def learn(self, body: bytes) -> int:
        self.learner.update(msgspec.msgpack.decode(body, type=Batch))
        return self.learner.fingerprint()


def without_other_models(config: NodeConfig) -> NodeConfig:
    """Judge and proposer are on rank 0 alone."""
    return dataclasses.replace(
        config,
        evaluator=dataclasses.replace(config.evaluator, model="off"),
        proposer=dataclasses.replace(config.proposer, model="off"),
    )
