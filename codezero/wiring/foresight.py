"""How long a start will take on a CPU, said before it begins, with the setting that shortens it.

From numbers of parameters and this machine's products of matrices, measured for a moment. Legend: n parameters, F
operations a second; a token costs 2 n / F forwards, and a share of F is reached that was measured with 0.5 billion
parameters on two cores.
"""

import time
from dataclasses import dataclass

from codezero.config import NodeConfig
from codezero.monitor.text import duration
from codezero.wiring.hardware import recomputes, source_of

EXAM_SECONDS, ITERATION_SECONDS = 300.0, 180.0
"""What takes longer is said."""
DECODED, READ, LEARNED = 0.3, 0.5, 0.5
"""Shares of F: in steps of some 64 rows, in reading, and in an update."""
WRITTEN = 0.45
"""Tokens of an attempt, as a share of the most."""
ASKED = 150
"""Tokens of a problem."""
JUDGED = 110
"""Tokens that the judge reads for an attempt, shared beginnings counted once."""
LEAST_PROBLEMS, LEAST_CANARIES = 5, 80
"""That the settings allow."""
SIZE = 1024
"""Rows and columns of the matrices."""


@dataclass(frozen=True, slots=True)
class Foresight:
    """Seconds."""

    exam: float
    """From the models' loading to the first exam figure, the judge's calibration included."""
    calibration: float
    """Of these."""
    iteration: float


def foreseen(config: NodeConfig, solver: int, judge: int, flops: float) -> Foresight:
    """solver, judge: parameters, 0 for no judge. flops: operations a second in the computing precision."""
    solves, evals = config.solver, config.evals
    tokens = WRITTEN * solves.max_new_tokens
    attempt = 2 * solver * tokens / (DECODED * flops)
    verdict = 2 * judge * JUDGED / (READ * flops)
    prompt = 2 * solver * ASKED / (READ * flops)
    calibration = config.evaluator.canaries * verdict if judge else 0.0
    exam = (evals.problems + evals.controls) * (prompt + evals.attempts * (attempt + verdict)) if evals.every else 0.0
    groups = solves.problems_per_iteration * (1 + solves.refill) / 2  # about half of the groups teach nothing at first
    passes = (2 if config.model.train == "lora" else 3) + recomputes(config, solver)
    learned = solves.problems_per_iteration * (ASKED + solves.group_size * tokens)
    update = 2 * solver * passes * learned / (LEARNED * flops)
    return Foresight(
        exam=calibration + exam,
        calibration=calibration,
        iteration=groups * (prompt + solves.group_size * (attempt + verdict)) + update,
    )


def advice(config: NodeConfig, foresight: Foresight) -> list[str]:
    """Lines about what takes too long, each with the setting that shortens it; empty: nothing does."""
    lines = list[str]()
    if foresight.exam > EXAM_SECONDS:
        canaries = max(LEAST_CANARIES, int(config.evaluator.canaries * EXAM_SECONDS / foresight.exam))
        calibration = foresight.calibration * canaries / config.evaluator.canaries
        attempted = max(1.0, foresight.exam - foresight.calibration)
        problems = int(config.evals.problems * (EXAM_SECONDS - calibration) / attempted)
        setting = "smaller models"
        if problems >= LEAST_PROBLEMS:
            setting = f"evals.problems={problems}" + (f" evaluator.canaries={canaries}" if calibration else "")
        lines.append(f"the first exam figure comes after about {duration(foresight.exam)}; {setting} shortens it")
    if foresight.iteration > ITERATION_SECONDS:
        fits = int(config.solver.problems_per_iteration * ITERATION_SECONDS / foresight.iteration)
        setting = f"solver.problems_per_iteration={fits}" if fits else "a smaller solver.group_size"
        lines.append(f"an iteration takes about {duration(foresight.iteration)}; {setting} shortens it")
    return lines


def start_advice(config: NodeConfig) -> list[str]:
    """Of a node whose own real model computes on a CPU; empty for others. Raises ModelError."""
    solver = source_of(config.model.solver, "solver")
    if solver != config.model.solver or config.rollout.has_servers or config.trainer.ranks:
        return []
    from codezero.models.device import choose_device
    from codezero.models.memory import shape_of

    if choose_device(config.model.device, "solver").type != "cpu":
        return []
    shape = shape_of(solver, "solver")
    judges = config.evaluator.kind == "local" and config.reward.mode != "rlvr"
    judge = shape_of(source_of(config.evaluator.model, "judge"), "judge").parameters if judges else 0
    flops = measured_flops(half=config.model.precision == "auto" and shape.half)
    return advice(config, foreseen(config, shape.parameters, judge, flops))


def measured_flops(half: bool) -> float:
    """Operations a second of products of matrices. half: in bfloat16 where this CPU computes in it."""
    import torch

    from codezero.models.device import computes_bfloat16

    dtype = torch.bfloat16 if half and computes_bfloat16() else torch.float32
    one, seconds = torch.ones(SIZE, SIZE, dtype=dtype), list[float]()
    for _ in range(4):  # the first warms up
        began = time.perf_counter()
        torch.mm(one, one)
        seconds.append(time.perf_counter() - began)
    return 2 * SIZE**3 / min(seconds[1:])
