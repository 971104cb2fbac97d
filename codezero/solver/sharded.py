"""One rank of a trainer: the policy lies in shards on all ranks (FSDP2), and each computes a part of the rows.

A layer is gathered where it computes and dropped again, and gradients are summed over the ranks. These are collectives,
so every rank makes the same number of passes in the same order; one that has no rows left computes a row of weight 0.
"""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportPrivateImportUsage=false

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from codezero.errors import CheckpointError, ModelError, RankMemoryError
from codezero.models.device import ran_out_of_memory
from codezero.solver.batch import Pair, Rows, TrainingRow, collate, packed, split
from codezero.solver.learner import TOO_LONG, TrlLearner
from codezero.solver.policy_files import MODEL, MOMENTS, LearnerCounters, moments, read_weights, trained

T = TypeVar("T")


class ShardedLearner(TrlLearner):
    """A `TrlLearner` whose methods every rank calls alike; `logprobs` and the figures of `update` are those of all.

    The process group exists. Computes in bfloat16 where the policy has it, with float32 weights, gradients and moments.
    Memory that does not suffice ends this rank: the others wait in a collective, where nothing can be tried again."""

    def __init__(self, *given: Any, tokens_per_pass: int, **options: Any) -> None:
        """tokens_per_pass: most tokens, padding included, in a pass of this rank, unless one row has more."""
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._alone = False  # is every row of the newest passes the only one of its pass?
        super().__init__(*given, **options)
        self.tokens_per_pass = tokens_per_pass
        self._model.eval()  # made at its first use, and sharded then

    def whole_weights(self, dtype: torch.dtype) -> dict[str, Tensor]:
        """Each weight by name, tied ones once, on the host, for rank 0; the others only help to gather it."""
        gathered = ((name, _whole(weight.detach())) for name, weight in self.policy.model.named_parameters())
        return {name: tensor.to("cpu", dtype) for name, tensor in gathered if self.rank == 0}

    def save(self, folder: Path) -> None:
        """Save as `TrlLearner.save`, the moments in shards; only rank 0 writes the model."""
        if state := moments(self._optimizer):
            writer = HuggingFaceStorageWriter(str(folder / MOMENTS), save_distributed=True)
            dcp.save(state, storage_writer=writer)
        weights = self.whole_weights(torch.float32)
        if self.rank == 0:
            self.policy.model.save_pretrained(folder / MODEL, state_dict=weights)
            self.policy.tokenizer.save_pretrained(folder / MODEL)
            LearnerCounters(self.steps, self.skipped, self.updates).write(folder)
        dist.barrier()

    def load(self, folder: Path) -> None:
        """Become bit for bit what as many ranks saved; what others saved is computed in another order from here on."""
        counters = LearnerCounters.read(folder)
        weights: dict[str, Any] = {}
        if self.rank == 0:
            weights |= read_weights(self.policy.model, folder / MODEL)
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(self.policy.model, weights, options=options)
        self._optimizer.state.clear()
        if counters.steps:
            if not (folder / MOMENTS).is_dir():
                raise CheckpointError(f"{folder} was saved by a single process; set trainer.ranks=0")
            for weight in trained(self._optimizer):  # NaN is overwritten, or the checkpoint lacks it
                both = {name: torch.full_like(weight, math.nan) for name in ("exp_avg", "exp_avg_sq")}
                self._optimizer.state[weight] = {"step": torch.tensor(math.nan), **both}
            dcp.load(moments(self._optimizer), storage_reader=HuggingFaceStorageReader(str(folder / MOMENTS)))
        self.steps, self.skipped, self.updates = counters.steps, counters.skipped, counters.updates

    def _prepare(self, half: torch.dtype) -> tuple[Any, Any]:
        self._packed = self._pieces = False  # both read weights beside the modules, where they lie in shards
        self._quick &= self.policy.device.type == "cpu"
        mesh = init_device_mesh(self.policy.device.type, (self.size,))
        for model in filter(None, (self.policy.model, self._reference)):
            _shard(model, mesh, half)
        return self.policy.model, self._trainer.create_optimizer()

    def _passes(self, rows: Rows) -> Iterator[list[TrainingRow]]:
        """This rank's rows of each pass, none where only others have some left."""
        plans = [packed(share, self.tokens_per_pass) for share in split(rows, self.size)]
        self._alone = all(len(part) == 1 for plan in plans for part in plan)
        for parts in zip_longest(*plans, fillvalue=list[TrainingRow]()):
            yield parts[self.rank]

    def _within_memory(self, work: Callable[[], T], rows: Rows) -> T:
        try:
            return work()
        except RuntimeError as error:
            if not ran_out_of_memory(error):
                raise
            if self._alone:
                raise ModelError(f"{TOO_LONG} ({str(error).splitlines()[0][:200]})") from error
            raise RankMemoryError(f"out of memory with up to {self.tokens_per_pass} tokens a pass") from error

    def _scores(self, rows: Rows) -> Tensor:
        return super()._scores(rows) if rows else self._accompany().new_zeros(0)

    def _gathered(self, scores: Sequence[Tensor]) -> list[tuple[float, ...]]:
        self._model.reshard()  # what a pass without a backward one leaves gathered
        flat = torch.cat([torch.zeros(1), *scores])
        dist.all_reduce(flat)  # each row was scored by one rank, and is 0 elsewhere
        return super()._gathered(flat[1:].split([len(line) for line in scores]))

    def _sums(self, loss: float, clipped: float) -> tuple[float, float]:
        both = torch.tensor([loss, clipped], dtype=torch.float64)
        dist.all_reduce(both)
        return both[0].item(), both[1].item()

    def _clip_gradients(self) -> float:
        return float(_whole(nn.utils.clip_grad_norm_(self._model.parameters(), self.config.grad_clip)))

    def _backward(self, rows: Rows, share_tokens: float, pairs: dict[int, Pair]) -> tuple[float, float]:
        if rows:
            return super()._backward(rows, share_tokens, pairs)
        (self._accompany() * 0).backward()
        return 0.0, 0.0

    def _accompany(self) -> Tensor:
        """A pass over one token, because the other ranks make one."""
        row = TrainingRow((self.policy.pad_id,), (self.policy.pad_id,), (0.0,), 0.0)
        inputs = collate([row], self.policy.pad_id, self.policy.device)
        if torch.is_grad_enabled() and self._reference is not None:
            with torch.no_grad():
                self._reference_logprobs([row], inputs)
        return self._forward(self._model, [row], inputs).sum()


def _shard(model: Any, mesh: DeviceMesh, half: torch.dtype) -> None:
    """Layer by layer; the rest (embedding, last norm, head) belongs to the root."""
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    policy = mixed if half == torch.bfloat16 else MixedPrecisionPolicy()
    for layer in next(module for module in model.modules() if isinstance(module, nn.ModuleList)):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)  # a sum: the loss is divided by the whole batch's counts already
            module.set_force_sum_reduction_for_comms(True)


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
