"""How near sampling and updating come to what this machine can do: its matrix products and its memory.

Limits, measured here, the best of several tries: `matmul_flops`, floating-point operations a second of a product of two
square matrices, 2 n^3 for each (by number format); `bandwidth_bytes`, bytes a second read by a product of a matrix,
larger than any cache, with a vector, which is what decoding one row is.

A decode step cannot take less time than reading what it needs once:

    weights + rows x (tokens so far) x 2 x layers x key heads x head size x bytes a number

so `sample_share_of_bandwidth` is the sum of this over the steps, divided by their time and by the bandwidth. The time
is that of a whole call less that of a call for one token, which is the reading of prompts.

An update multiplies and adds once for each weight and token forwards, and twice backwards (Kaplan et al. 2020, section
2.1); one more pass forwards where activations are checkpointed. Every prompt has to be read once and every completion
once, and only completions need the output head:

    F x (body x (prompt + completion tokens) + head x completion tokens)        F = 6, or 8 with checkpointing

so `update_share_of_matmul` is this divided by the time of the update, optimiser steps included, and by `matmul_flops`
of the format that is computed in. Attention is left out, so the share is a little too small. Random weights.

Prints JSON. Usage: python benchmarks/roofline.py --json [--shapes nano] [--threads 1]
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "rollout_ways"))

import torch
from model import NANO, QWEN, Shape, make_model, make_prompts

from codezero.config import SolverConfig
from codezero.models.chat import encode_prompts
from codezero.models.generation import Drawn, OwnLoop
from codezero.models.load import LoadedModel, load_model
from codezero.solver.batch import Batch, TrainingRow
from codezero.solver.learner import TrlLearner

SHAPES = {"nano": NANO, "qwen2.5-0.5b": QWEN}
PATIENCE_SECONDS = 20.0
Report = dict[str, Any]


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


def measure(shape: Shape, limits: Report, options: argparse.Namespace, device: torch.device) -> Report:
    with tempfile.TemporaryDirectory() as folder:
        parameters = make_model(Path(folder), shape)
        loaded = load_model(folder, device=device.type, role="benchmark", for_training=True)
    computed_in = str(loaded.model.dtype).removeprefix("torch.")
    config = SolverConfig(group_size=shape.group_size, max_new_tokens=shape.new_tokens, learning_rate=1e-6)
    checkpointed = options.checkpointing
    learner = TrlLearner(loaded, config, activation_checkpointing=checkpointed)  # lifts the weights to float32
    prompts = encode_prompts(loaded.tokenizer, make_prompts(shape))
    drawn = sample(loaded, prompts, shape, shape.new_tokens)
    rows = batch(prompts, drawn, shape.group_size)
    whole = best(lambda: sample(loaded, prompts, shape, shape.new_tokens), options.repeats, device)
    reading = best(lambda: sample(loaded, prompts, shape, 1), options.repeats, device)
    updating = best(lambda: learner.update(rows), options.repeats, device)
    lengths = [len(prompt) for prompt in prompts]
    moved = decode_bytes(shape, parameters, loaded.model.dtype.itemsize, lengths)
    head = shape.vocabulary * shape.hidden
    completions = sum(len(draw.ids) for draw in drawn)
    flops = update_flops(parameters - head, head, sum(lengths), completions, 8 if checkpointed else 6)
    return {
        "parameters": parameters,
        "rows": len(drawn),
        "new_tokens": shape.new_tokens,
        "computed_in": computed_in,
        "step_seconds": (whole - reading) / (shape.new_tokens - 1),
        "update_seconds": updating,
        "sample_share_of_bandwidth": round(moved / (whole - reading) / limits["bandwidth_bytes"], 4),
        "update_share_of_matmul": round(flops / updating / limits["matmul_flops"][computed_in], 4),
    }


def sample(loaded: LoadedModel, prompts: list[list[int]], shape: Shape, new_tokens: int) -> list[Drawn]:
    return OwnLoop(loaded).draw(prompts, shape.group_size, new_tokens, 1.0, seed=0)


def batch(prompts: list[list[int]], drawn: list[Drawn], group_size: int) -> Batch:
    """Every row carries gradient."""
    advantages = [(2 * place + 1) / group_size - 1 for place in range(group_size)]
    return Batch(
        tuple(
            TrainingRow(tuple(prompts[at // group_size]), tuple(ids), tuple(logprobs), advantages[at % group_size])
            for at, (ids, logprobs, _) in enumerate(drawn)
        )
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # pyright: ignore[reportOptionalMemberAccess]
    parser.add_argument("--json", action="store_true", help="one line instead of many")
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--layers", type=int, default=0, help="of every shape, instead of its own")
    parser.add_argument("--tokens", type=int, default=0, help="new ones of each completion, instead of the shape's own")
    parser.add_argument("--repeats", type=int, default=3, help="tries, of which the quickest counts")
    parser.add_argument("--threads", type=int, default=0, help="of torch; 0: its own choice")
    parser.add_argument("--size", type=int, default=0, help="n of the matrices; 0: 2048, on CUDA 8192")
    parser.add_argument("--mebibytes", type=int, default=512, help="of the matrix that is read")
    parser.add_argument("--checkpointing", action="store_true", help="of activations, in updates")
    options = parser.parse_args(argv)
    if options.threads:
        torch.set_num_threads(options.threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    size = options.size or (8192 if device.type == "cuda" else 2048)
    formats = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    report: Report = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "matmul_flops": {name: matmul_flops(device, dtype, options.repeats, size) for name, dtype in formats.items()},
        "bandwidth_bytes": bandwidth(device, options.repeats, options.mebibytes),
    }
    changes = {key: value for key, value in (("layers", options.layers), ("new_tokens", options.tokens)) if value}
    report["shapes"] = {
        name: measure(replace(SHAPES[name], **changes), report, options, device) for name in options.shapes
    }
    print(json.dumps(report, indent=None if options.json else 1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
