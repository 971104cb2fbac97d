"""G2, G3 and G5: tokens a second of learner and sampler, verdicts a second of a judge, beside what the card can do.

A learner's operations for a token are 6 for each number of the body and of the head where a completion needs it, and
6 x layers x (heads x head size) x length for attention over the tokens before it; what checkpointing computes again
does not count. MFU is by the data sheet's peak, which only known cards have; `share_of_matmul` by this card's own
products of matrices.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median

import torch
from judge_cost import material
from model import Shape

from card_parts.memory import timed, within_memory
from card_parts.roofline import bandwidth, best, decode_bytes, matmul_flops, update_flops
from card_parts.workload import Bench, Report, batch, free, prompts
from codezero.config import SolverConfig
from codezero.evaluator.judge import LikelihoodJudge
from codezero.evaluator.judge_prompts import SCORES, YES_NO
from codezero.models.generation import OwnLoop
from codezero.models.load import LoadedModel
from codezero.solver.learner import TrlLearner

PEAKS = {"H100": 989.4e12, "H200": 989.4e12, "A100": 312e12, "L40S": 362e12, "4090": 165.2e12}
"""Dense bfloat16 operations a second by the makers' data sheets, for cards whose name holds the word."""
PASSES = {"1.4k tokens a pass": (12, 1, 1024, 384), "17k tokens a pass": (12, 12, 1024, 384),
          "a row of 16k": (1, 1, 1024, 15_360)}  # fmt: skip
"""Rows of an update, rows of a forward pass, tokens of a prompt and of a completion."""
BATCHES = (32, 128, 512, 1024)
GROUP = 8


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
    for what, sizes in PASSES.items():
        for checkpointing in (True, False):
            free()
            act = partial(one_speed, bench, name, train, sizes, checkpointing, limits)
            cases[f"{what}, {'recomputed' if checkpointing else 'kept'}"] = within_memory(act)
    return cases


def one_speed(
    bench: Bench, name: str, train: str, sizes: tuple[int, int, int, int], checkpointing: bool, limits: Report
) -> Report:
    (rows, at_once), (prompt, completion) = map(bench.rows, sizes[:2]), map(bench.tokens, sizes[2:])
    policy, shape = bench.load(name, lora=train == "lora"), bench.shape(name)
    config = SolverConfig(minibatches=1, micro_batch_rows=at_once, max_new_tokens=completion, learning_rate=1e-6)
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
    """From the learner's weights, as a node samples, and from frozen ones in the computing precision."""
    cases: Report = {}
    new, asked = bench.tokens(64), bench.tokens(64)
    for owner in ("learner", "frozen"):
        free()
        policy = bench.load(name)
        if owner == "learner":
            TrlLearner(policy, SolverConfig(max_new_tokens=new))
        for rows in BATCHES[: 1 if bench.tiny else None]:
            act = partial(one_sampling, bench, policy, name, rows, asked, new, limits)
            cases[f"{owner}, {rows} rows"] = within_memory(act)
    return cases


def one_sampling(
    bench: Bench, policy: LoadedModel, name: str, rows: int, asked: int, new: int, limits: Report
) -> Report:
    shape, loop = bench.shape(name), OwnLoop(policy)
    given = prompts(shape, rows // GROUP, asked)

    def draw(tokens: int) -> float:
        return best(lambda: loop.draw(given, GROUP, tokens, 1.0, 0), 1, bench.device)

    whole, reading = draw(new), draw(1)
    sized = replace(shape, group_size=GROUP, new_tokens=new)
    moved = decode_bytes(sized, policy.model.num_parameters(), policy.model.dtype.itemsize, [asked] * len(given))
    return {
        "tokens_per_second": round(rows * new / whole, 1),
        "step_ms": round(1e3 * (whole - reading) / (new - 1), 3),
        "share_of_bandwidth": round(moved / (whole - reading) / limits["bandwidth_bytes"], 4),
        "weights": str(policy.model.dtype).removeprefix("torch."),
        "most_rows": loop.most_rows,
    }


def judging(bench: Bench, name: str) -> Report:
    """A new judge each time has nothing cached; of several readings the median."""
    loaded, count = bench.frozen(name), 8 if bench.tiny else 64
    programs = material(loaded, count)
    cases: Report = {}
    for what, questions in {"all questions": list(SCORES), "yes or no alone": [YES_NO]}.items():

        def read(questions: list[str] = questions) -> None:
            judge = LikelihoodJudge(loaded, questions=questions, batch_rows=32)
            judge.read(programs, frozenset(judge.names))

        def rate(read: Callable[[], None] = read) -> Report:
            return {"verdicts_per_second": round(count / median(timed(bench, read) for _ in range(bench.repeats)), 2)}

        cases[what] = within_memory(rate)
    tokens = loaded.tokenizer([programs[0].question, programs[0].code], add_special_tokens=False)["input_ids"]
    unused = LikelihoodJudge(loaded, questions=list(SCORES)).unused or None
    return cases | {"problem_tokens": len(tokens[0]), "solution_tokens": len(tokens[1]), "unasked": unused}
