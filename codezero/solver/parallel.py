"""The learner on several ranks: each computes the gradient of whole groups, and takes the step of all.

Every rank is given the same rows and deals them the same way, adds its gradient to the others' and steps its own copy
of the optimiser. As sums are the same to the bit everywhere, so are the weights; each update is held to that.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
import torch
from torch import Tensor

from codezero.config import SolverConfig
from codezero.errors import RankError
from codezero.models.group import Group
from codezero.models.load import LoadedModel
from codezero.solver.batch import Batch, Row
from codezero.solver.learner import TrlLearner

LEARN, ALIGN = "learn", "align"

T = TypeVar("T")


class Others(Protocol):
    """The further ranks, for rank 0 (see `ranks.Crew`)."""

    def tell(self, what: str, *bodies: object) -> None: ...

    def hear(self, kind: type[T]) -> list[T]: ...

    def failure(self, error: Exception) -> RankError: ...


class State(msgspec.Struct, frozen=True):
    """What a rank has to know before tensors are copied to it."""

    counters: tuple[int, int, int]
    """steps, skipped, updates"""
    moments: list[tuple[int, float]]
    """(parameter, steps it took) of those that the optimiser has moments of"""


class ParallelLearner(TrlLearner):
    """One rank's part. Rank 0 has `others`, which do what it does; what it loads, they become."""

    def __init__(
        self,
        policy: LoadedModel,
        config: SolverConfig,
        join: Callable[[], Group],
        others: Others | None = None,
        *,
        activation_checkpointing: bool = False,
    ) -> None:
        """`join` waits for all ranks. It is called when the rest is made, which libraries do differently in a group."""
        super().__init__(policy, config, activation_checkpointing=activation_checkpointing)
        self._others = others
        self.group = join()
        if others is not None:
            self._align(others)

    def update(self, batch: Batch) -> Any:
        if self._others is None:
            return super().update(batch)
        self._others.tell(LEARN, batch)
        done = super().update(batch)
        if any(told != self.fingerprint() for told in self._others.hear(int)):
            raise RankError("the ranks' weights have drifted apart; use cards of one kind, or model.gpus=1")
        return done

    def load(self, folder: Path) -> None:
        super().load(folder)
        if self._others is not None:
            self._align(self._others)

    def become(self, told: State) -> None:
        """On a further rank: take rank 0's weights, moments and counters."""
        self.steps, self.skipped, self.updates = told.counters
        parameters = self._trained()
        state = {
            i: {
                "step": torch.tensor(step),
                "exp_avg": torch.zeros_like(parameters[i]),
                "exp_avg_sq": torch.zeros_like(parameters[i]),
            }
            for i, step in told.moments
        }
        self.group.copy(_tensors(parameters, state))
        self._optimizer.load_state_dict(self._optimizer.state_dict() | {"state": state})

    def fingerprint(self) -> int:
        """Of every trained weight's bits."""
        bits = [one.detach().contiguous().view(torch.int32).sum(dtype=torch.int64) for one in self._trained()]
        return int(torch.stack(bits).sum())

    def _align(self, others: Others) -> None:
        state: dict[int, dict[str, Tensor]] = self._optimizer.state_dict()["state"]
        moments = [(i, float(one["step"])) for i, one in state.items()]
        others.tell(ALIGN, State((self.steps, self.skipped, self.updates), moments))
        try:
            self.group.copy(_tensors(self._trained(), state))
        except RuntimeError as error:
            raise others.failure(error) from error
        others.hear(type(None))

    def _share(self, rows: Sequence[Row]) -> Sequence[Row]:
        return deal(rows, self.group.size)[self.group.rank]

    def _summed(self, loss: float, clipped: float) -> tuple[float, float]:
        parameters = self._trained()
        touched = [float(one.grad is not None) for one in parameters]
        counts = torch.tensor([loss, clipped, *touched], dtype=torch.float64, device=self.policy.device)
        try:
            self.group.add([counts])
            loss, clipped, *anywhere = counts.tolist()
            used = [one for one, ranks in zip(parameters, anywhere, strict=True) if ranks]
            for one in used:
                if one.grad is None:
                    one.grad = torch.zeros_like(one)
            self.group.add([one.grad for one in used if one.grad is not None])
        except RuntimeError as error:
            raise self._others.failure(error) if self._others else RankError(f"another rank: {error}") from error
        return loss, clipped

    def _trained(self) -> list[Tensor]:
        return [one for group in self._optimizer.param_groups for one in group["params"]]


def deal(rows: Sequence[Row], ranks: int) -> list[list[Row]]:
    """Whole groups, the largest first to who has least to read; the same wherever it is asked."""
    groups: dict[tuple[int, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(row.prompt_ids, []).append(row)
    shares: list[list[Row]] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    for work, group in sorted(((_work(group), group) for group in groups.values()), key=lambda one: -one[0]):
        least = loads.index(min(loads))
        shares[least] += group
        loads[least] += work
    return shares


def _work(group: Sequence[Row]) -> int:
    return sum(len(row.prompt_ids) + len(row.completion_ids) for row in group)


def _tensors(parameters: Sequence[Tensor], state: dict[int, dict[str, Tensor]]) -> list[Tensor]:
    """What is copied, in an order that every rank knows."""
    moments = [one[name] for _, one in sorted(state.items()) for name in ("exp_avg", "exp_avg_sq")]
    return [*(one.detach() for one in parameters), *moments]
