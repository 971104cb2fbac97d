"""How near sampling and updating come to what this machine can do: its matrix products and its memory.

Limits, measured here, the best of several tries: `matmul_flops`, floating-point operations a second of a product of two
square matrices, 2 n^3 for each (by number format); `bandwidth_bytes`, bytes a second read by a product of a matrix,
larger than any cache, with a vector, which is what decoding one row is.

A decode step cannot take less time than reading what it needs once:

    weights + rows x (tokens so far) x 2 x layers x key heads x head size x bytes a number

so the share of the bandwidth is the sum of this over the steps, divided by their time and by the bandwidth.

An update multiplies and adds once for each weight and token forwards, and twice backwards (Kaplan et al. 2020, section
2.1); one more pass forwards where activations are checkpointed. Every prompt has to be read once and every completion
once, and only completions need the output head:

    F x (body x (prompt + completion tokens) + head x completion tokens)        F = 6, or 8 with checkpointing

so the share of the products is this divided by the time of the update, optimiser steps included, and by `matmul_flops`
of the format that is computed in. Attention is left out, so the share is a little too small."""

import time
from collections.abc import Callable

import torch
from model import Shape

PATIENCE_SECONDS = 20.0


def best(act: Callable[[], object], repeats: int, device: torch.device) -> float:
    """Seconds of the quickest of `repeats` tries, after one that warms up; of fewer when they take long."""
    took: list[float] = []
    while len(took) <= repeats and sum(took) < PATIENCE_SECONDS:
        settle(device)
        began = time.perf_counter()
        act()
        settle(device)
        took.append(time.perf_counter() - began)
    return min(took[1:] or took)


def settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def matmul_flops(device: torch.device, dtype: torch.dtype, repeats: int, size: int) -> float:
    """Operations a second: 2 n^3 for a product of two matrices of n x n."""
    one, other = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return 2 * size**3 / best(lambda: one @ other, repeats, device)


def bandwidth(device: torch.device, repeats: int, mebibytes: int) -> float:
    """Bytes a second read by a product of a float32 matrix of that many MiB with a vector."""
    matrix = torch.ones(mebibytes * 256, 1024, device=device)
    vector = torch.ones(1024, device=device)
    return matrix.numel() * matrix.itemsize / best(lambda: matrix @ vector, repeats, device)


def decode_bytes(shape: Shape, parameters: int, itemsize: int, prompt_tokens: list[int]) -> float:
    """Read by all steps but the first, which reads the prompts. `prompt_tokens`: of each prompt."""
    per_token = 2 * shape.layers * shape.kv_heads * (shape.head_size or shape.hidden // shape.heads) * itemsize
    total = 0.0
    for step in range(1, shape.new_tokens):
        seen = shape.group_size * sum(tokens + step for tokens in prompt_tokens)
        total += parameters * itemsize + seen * per_token
    return total


def update_flops(body: int, head: int, prompt_tokens: int, completion_tokens: int, factor: int) -> float:
    """`factor` 6, or 8 with checkpointing; `body` and `head` in parameters."""
    return factor * (body * (prompt_tokens + completion_tokens) + head * completion_tokens)
