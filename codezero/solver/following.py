"""A policy that follows another's versions instead of learning: no optimiser, no gradients."""

from collections.abc import Callable, Sequence
from pathlib import Path

from codezero.errors import SwarmError, WeightsError
from codezero.models.load import LoadedModel
from codezero.solver.batch import Batch, Update
from codezero.solver.policy_files import LearnerCounters, load_policy, save_policy
from codezero.weights.state import layout_of
from codezero.weights.versions import HostCopy, VersionSource


class FollowingLearner:
    """Has what the solver needs of a `TrlLearner`; an update brings the policy to the newest version of the source."""

    halvings = skipped = 0

    def __init__(self, policy: LoadedModel, source: VersionSource) -> None:
        self.policy, self._parameters = policy, dict(policy.model.named_parameters())
        self._copy = HostCopy(source, layout_of(self._parameters))
        self._state = ""
        """Of the version that the policy is; empty: of none that is known."""
        self.steps = self.updates = 0
        """Both: the number of the version."""
        self.changed: Callable[[], object] = lambda: None
        """Called when the policy has changed."""

    def update(self, batch: Batch) -> Update:
        """Nothing is learned from the batch. Raises SwarmError: the policy stays as it is."""
        try:
            weights, version = self._copy.newest()
        except WeightsError as error:
            raise SwarmError(f"no newer version can be followed: {error}") from error
        self.steps = self.updates = version.number
        if version.state != self._state:
            weights.copy_to(self._parameters)
            self._state = version.state
            self.changed()
        return Update(loss=None, grad_norm=None, clip_share=None, rows=0, skipped=0)

    def logprobs(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]
    ) -> list[tuple[float, ...]]:
        """None: no row is weighed, as nothing is learned."""
        return [() for _ in completions]

    def save(self, folder: Path) -> None:
        save_policy(self.policy, None, LearnerCounters(self.steps, self.skipped, self.updates), folder)

    def load(self, folder: Path) -> None:
        """The version that was saved, until the next update. Raises CheckpointError."""
        self._state, counters = "", load_policy(self.policy, None, folder)
        self.steps, self.updates = counters.steps, counters.updates
        self.changed()
