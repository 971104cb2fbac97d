"""Tensors between the ranks of a node: summed over all, or copied from rank 0. By NCCL on cards, else by gloo.

Both over loopback alone. Micro-batches are uneven from rank to rank, so there is no wrapper around the model that
would count on as many backward passes everywhere: who needs a sum asks for it.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateImportUsage=false

import os
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor
from torch import distributed as dist

BUCKET = 2**24
"""Numbers in one sum of small tensors (64 MiB in float32); a larger tensor is summed where it lies."""


class Group:
    """All ranks; making it waits for every one of them. What it is asked raises RuntimeError when one is gone."""

    def __init__(
        self, rank: int, size: int, device: torch.device, meeting: Path, *, seconds: float, backend: str = ""
    ) -> None:
        """`meeting`: a file that all can write; `seconds`: how long one rank waits for the others."""
        self.rank, self.size, self.device = rank, size, device
        loopback = "lo0" if sys.platform == "darwin" else "lo"
        os.environ |= {"GLOO_SOCKET_IFNAME": loopback, "NCCL_SOCKET_IFNAME": loopback}
        dist.init_process_group(
            backend or ("nccl" if device.type == "cuda" else "gloo"),
            store=dist.FileStore(str(meeting), size),
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=seconds),
        )

    def add(self, tensors: Sequence[Tensor]) -> None:
        """In place, of one type: each becomes the sum over all ranks, the same to the bit everywhere."""
        for bucket in _buckets(tensors):
            if len(bucket) == 1:
                dist.all_reduce(bucket[0])
                continue
            flat = torch.cat([one.reshape(-1) for one in bucket])
            dist.all_reduce(flat)
            parts = flat.split([one.numel() for one in bucket])
            for one, part in zip(bucket, parts, strict=True):
                one.copy_(part.view_as(one))

    def copy(self, tensors: Sequence[Tensor]) -> None:
        """In place: each becomes what it is on rank 0."""
        for one in tensors:
            dist.broadcast(one, 0)

    def close(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    for one in tensors:
        if bucket and sum(other.numel() for other in bucket) + one.numel() > BUCKET:
            yield bucket
            bucket = []
        bucket.append(one)
    if bucket:
        yield bucket
