"""G2, G3 and G5: tokens a second of learner and sampler, verdicts a second of a judge, beside what the card can do.

A learner's operations for a token are 6 for each number of the body and of the head where a completion needs it, and
6 x layers x (heads x head size) x length for attention over the tokens before it; what checkpointing computes again
does not count. MFU is by the data sheet's peak, which only known cards have; `share_of_matmul` by this card's own
products of matrices."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import torch
from judge_cost import material
from model import Shape
from torch.nn.functional import scaled_dot_product_attention

from card_parts.memory import timed, within_memory
from card_parts.roofline import bandwidth, best, decode_bytes, matmul_flops, update_flops
from card_parts.workload import GROUP, Bench, Report, batch, free, prompts
from codezero.config import SolverConfig
from codezero.evaluator.judge import LikelihoodJudge
from codezero.evaluator.judge_prompts import LIKELIHOOD, SCORES
from codezero.models import decoders
from codezero.models.generation import OwnLoop, quick_copy
from codezero.models.load import LoadedModel
from codezero.solver.learner import TrlLearner

PEAKS = {"H100": 989.4e12, "H200": 989.4e12, "A100": 312e12, "L40S": 362e12, "4090": 165.2e12}
"""Dense bfloat16 operations a second by the makers' data sheets, for cards whose name holds the word."""
PASSES = (4096, 16_384)
"""Most tokens of a forward pass."""
ROWS = (32, 1024, 384)
"""Of an update, in groups; tokens of a prompt and of a completion."""
BATCHES = (64, 256, 1024)
TEXT = 192
"""Tokens asked and sampled."""


def machine(bench: Bench) -> Report:
    """What everything else is a share of."""
    import transformers
    import trl

    device, size = bench.device, 8192 if bench.on_card else 512
    formats = {"bfloat16": torch.bfloat16, "float32": torch.float32}
    name = torch.cuda.get_device_name(device) if bench.on_card else "cpu"
    return {
        "device": name,
        "memory_gib": round(torch.cuda.mem_get_info()[1] / 2**30, 1) if bench.on_card else None,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "trl": trl.__version__,
        "precision": str(bench.precision).removeprefix("torch."),
        "data_sheet_flops": next((peak for word, peak in PEAKS.items() if word in name), None),
        "matmul_flops": {key: matmul_flops(device, dtype, bench.repeats, size) for key, dtype in formats.items()},
        "bandwidth_bytes": bandwidth(device, bench.repeats, 4096 if bench.on_card else 64),
    }


def learning(bench: Bench, name: str, train: str, limits: Report) -> Report:
    cases: Report = {}
    for tokens in PASSES:
        for checkpointing in (True, False):
            free()
            act = partial(one_speed, bench, name, train, tokens, checkpointing, limits)
            cases[f"{tokens} tokens a pass, {'recomputed' if checkpointing else 'kept'}"] = within_memory(act)
    return cases


def one_speed(bench: Bench, name: str, train: str, at_once: int, checkpointing: bool, limits: Report) -> Report:
    rows, (prompt, completion) = bench.rows(ROWS[0]), map(bench.tokens, ROWS[1:])
    policy, shape = bench.load(name, lora=train == "lora"), bench.shape(name)
    config = SolverConfig(
        minibatches=1,
        micro_batch_rows=max(1, bench.rows(at_once // sum(ROWS[1:]))),
        max_prompt_tokens=prompt,
        max_new_tokens=completion,
        learning_rate=1e-6,
    )
    learner = TrlLearner(policy, config, activation_checkpointing=checkpointing)
    given = batch(shape, rows, prompt, completion)
    seconds = best(lambda: learner.update(given), bench.repeats, bench.device)
    tokens = rows * (prompt + completion)
    flops = operations(shape, policy, rows, prompt, completion)
    peak = limits["data_sheet_flops"]
    return {
        "tokens_per_second": round(tokens / seconds, 1),
        "mfu": round(flops / seconds / peak, 4) if peak else None,
        "share_of_matmul": round(flops / seconds / limits["matmul_flops"][limits["precision"]], 4),
        "seconds": round(seconds, 3),
        "tokens_per_pass": learner.tokens_per_pass,
    }


def operations(shape: Shape, policy: LoadedModel, rows: int, prompt: int, completion: int) -> float:
    """Of an update, whoever computes it: forwards and twice backwards."""
    head, length = shape.vocabulary * shape.hidden, prompt + completion
    body = policy.model.num_parameters() - head
    attention = 6 * shape.layers * shape.heads * (shape.head_size or shape.hidden // shape.heads) * length * length
    return update_flops(body, head, rows * prompt, rows * completion, 6) + rows * attention


def sampling(bench: Bench, name: str, limits: Report) -> Report:
    """As a node samples while it learns: from a copy of the learner's weights, by graphs; and without either."""
    cases: Report = {}
    for what, rows, lora, graphs in (
        ("graphs", BATCHES[1], False, True),
        ("plain step", BATCHES[1], False, False),
        ("adapter", BATCHES[1], True, True),
        ("graphs", BATCHES[0], False, True),
        ("graphs", BATCHES[2], False, True),
    ):
        free()
        policy = bench.load(name, lora=lora)
        TrlLearner(policy, SolverConfig(max_new_tokens=bench.tokens(TEXT)))
        act = partial(one_sampling, bench, policy, name, 16 if bench.tiny else rows, graphs, limits)
        cases[f"{rows} rows, {what}"] = within_memory(act)
    return cases


def one_sampling(bench: Bench, policy: LoadedModel, name: str, rows: int, graphs: bool, limits: Report) -> Report:
    shape, asked, kind = bench.shape(name), bench.tokens(TEXT), decoders.GRAPHS
    given, loop = prompts(shape, rows // GROUP, asked), OwnLoop(policy)

    def draw(tokens: int) -> float:
        return best(lambda: loop.draw(given, GROUP, tokens, 1.0, 0), 1, bench.device)

    decoders.GRAPHS = kind if graphs else "none"
    try:
        whole, reading = draw(asked), draw(1)
    finally:
        decoders.GRAPHS = kind
    sized, weights = replace(shape, group_size=GROUP, new_tokens=asked), quick_copy(policy)
    moved = decode_bytes(sized, weights.num_parameters(), weights.dtype.itemsize, [asked] * len(given))
    return {
        "tokens_per_second": round(rows * asked / whole, 1),
        "step_ms": round(1e3 * (whole - reading) / (asked - 1), 3),
        "reading_ms": round(1e3 * reading, 1),
        "share_of_bandwidth": round(moved / (whole - reading) / limits["bandwidth_bytes"], 4),
        "weights": str(weights.dtype).removeprefix("torch."),
        "most_rows": loop.most_rows,
    }


def attention(bench: Bench, name: str) -> Report:
    """One layer's attention of a step over 384 columns that all rows have filled: grouped, as the decoder does it, and
    torch's flash attention of variable length, which alone reads no more than there is."""
    shape = bench.shape(name)
    heads, pairs = shape.heads, shape.kv_heads
    size, width = shape.head_size or shape.hidden // heads, 2 * bench.tokens(TEXT)
    cases: Report = {}
    for rows in BATCHES:
        rows = bench.rows(rows)
        query = torch.randn(rows, heads, size, device=bench.device, dtype=bench.precision)
        keys, values = (torch.randn(rows, width, pairs, size).to(query) for _ in range(2))
        mask = query.new_zeros(rows, 1, heads // pairs, width)

        def grouped(query: torch.Tensor = query, mask: torch.Tensor = mask, both: Any = (keys, values)) -> torch.Tensor:
            asked = query.view(len(query), pairs, -1, size)
            return scaled_dot_product_attention(asked, *(each.transpose(1, 2) for each in both), attn_mask=mask)

        def flash(query: torch.Tensor = query, both: Any = (keys, values)) -> torch.Tensor:
            begins = torch.arange(len(query) + 1, dtype=torch.int32, device=query.device)
            flat = (each.view(-1, pairs, size) for each in both)
            used = torch.full_like(begins[1:], width)
            ends = begins * width
            return torch.ops.aten._flash_attention_forward(
                query, *flat, begins, ends, 1, width, 0.0, False, False, scale=None, seqused_k=used
            )[0]

        ways = {"grouped": grouped} | ({"flash": flash} if bench.on_card else {})
        cases |= {
            f"{rows} rows, {what}": within_memory(lambda act=act: {"ms": 1e3 * repeated(act, bench)})
            for what, act in ways.items()
        }
    return cases


def repeated(act: Callable[[], object], bench: Bench) -> float:
    """Seconds of one, of many in a row."""
    count = 100 if bench.on_card else 1
    return best(lambda: [act() for _ in range(count)], bench.repeats, bench.device) / count


def judging(bench: Bench, name: str) -> Report:
    """A new judge each time has nothing cached; of several readings the median."""
    loaded, count = bench.frozen(name), 8 if bench.tiny else 64
    programs = material(loaded, count)
    cases: Report = {}
    for rows, what, questions in (
        (32, "all questions", list(SCORES)), (8, "likelihood", [LIKELIHOOD]), (32, "likelihood", [LIKELIHOOD]),
        (128, "likelihood", [LIKELIHOOD]),
    ):  # fmt: skip

        def read(rows: int = rows, questions: list[str] = questions) -> None:
            judge = LikelihoodJudge(loaded, questions=questions, batch_rows=rows)
            judge.read(programs, frozenset(judge.names))

        def rate(read: Callable[[], None] = read) -> Report:
            return {"verdicts_per_second": round(count / median(timed(bench, read) for _ in range(bench.repeats)), 2)}

        cases[f"{rows} rows, {what}"] = within_memory(rate)
    tokens = loaded.tokenizer([programs[0].question, programs[0].code], add_special_tokens=False)["input_ids"]
    unused = LikelihoodJudge(loaded, questions=list(SCORES)).unused or None
    return cases | {"problem_tokens": len(tokens[0]), "solution_tokens": len(tokens[1]), "unasked": unused}
