"""G1: what the preflight says a node needs, and what the card's allocator saw it take.

`ratio` is the estimate, without the process itself, by the peak of `torch.cuda.max_memory_allocated`; `reserved` is
what the allocator held for it. Without a card nobody counts, and both are null."""

import time
from collections.abc import Callable, Collection
from itertools import product

import torch
from judge_cost import material

from card_parts.workload import Bench, Report, batch, free, peak, prompts
from codezero.config import NodeConfig
from codezero.errors import CodeZeroError
from codezero.evaluator.judge import LikelihoodJudge
from codezero.models.generation import OwnLoop
from codezero.models.hardware import recomputes, weigh
from codezero.models.memory import MARGIN
from codezero.settings import compose
from codezero.solver.learner import TrlLearner

ALONE = ("reward.mode=rlvr", "proposer.model=off")
"""No judge and no proposer."""
ROWS = (4, 16)
SMALL_TEXTS = ("solver.max_prompt_tokens=16", "solver.max_new_tokens=8", "proposer.max_new_tokens=16")


def updates(bench: Bench, name: str, train: str) -> Report:
    """The learner alone, by checkpointing and rows of a micro-batch."""
    cases: Report = {}
    for checkpointing, rows in product(("on", "off"), ROWS[: 1 if bench.tiny else None]):
        words = [f"model.train={train}", f"model.activation_checkpointing={checkpointing}"]
        config = node(bench, [*ALONE, *words, f"solver.micro_batch_rows={rows}", "solver.kl_beta=0"], name)
        free()
        cases[f"checkpointing {checkpointing}, {rows} rows"] = within_memory(
            lambda config=config, rows=rows: one_update(bench, config, name, rows)
        )
    return cases


def one_update(bench: Bench, config: NodeConfig, name: str, rows: int) -> Report:
    learner = learns(bench, config, name)
    free()
    asked, written = config.solver.max_prompt_tokens, config.solver.max_new_tokens
    given = batch(bench.shape(name), rows, asked, written)
    for _ in range(2):  # the optimiser's moments are there from the second step on
        learner.update(given)
    return compared(config, {"update"}) | {"tokens_per_pass": learner.tokens_per_pass}


def whole_node(bench: Bench, profile: str, solver: str, judge: str) -> Report:
    """Solver, judge and proposer of a profile, one after the other doing an iteration's work."""
    places = [f"evaluator.model={bench.place(judge)}", f"proposer.model={bench.place(judge)}"]
    config = node(bench, [f"profile={profile}", *places], solver)
    shape, settings = bench.shape(solver), config.solver
    learner, reader, proposer = learns(bench, config, solver), bench.frozen(judge), bench.frozen(judge)
    judged = LikelihoodJudge(reader, questions=config.evaluator.questions, batch_rows=config.evaluator.batch_rows)
    attempts = settings.problems_per_iteration * settings.group_size
    programs = material(reader, attempts)
    asked, wanted = prompts(shape, settings.problems_per_iteration, settings.max_prompt_tokens), frozenset(judged.names)
    rows = batch(shape, attempts, settings.max_prompt_tokens, settings.max_new_tokens)
    free()
    sampler, writer = OwnLoop(learner.policy), OwnLoop(proposer)
    steps: dict[str, Callable[[], object]] = {
        "sampling": lambda: sampler.draw(asked, settings.group_size, settings.max_new_tokens, 1.0, 0),
        "judging": lambda: judged.read(programs, wanted),
        "proposing": lambda: writer.draw(asked[:1], 1, config.proposer.max_new_tokens, 1.0, 0),
        "update": lambda: learner.update(rows),
    }
    seconds = {what: timed(bench, act) for what, act in steps.items()}
    iteration = seconds["sampling"] + seconds["judging"] + seconds["update"]
    report = compared(config, set(steps)) | {"tokens_per_pass": learner.tokens_per_pass, "seconds": seconds}
    return report | {"judging_share_of_iteration": round(seconds["judging"] / iteration, 3), "attempts": attempts}


def node(bench: Bench, overrides: list[str], solver: str) -> NodeConfig:
    device = f"model.device={bench.device.type}"
    texts = SMALL_TEXTS if bench.tiny else ("solver.max_prompt_tokens=1024", "solver.max_new_tokens=384")
    few = ("solver.problems_per_iteration=1", "solver.micro_batch_rows=4") if bench.tiny else ()
    profile = [word for word in overrides if word.startswith("profile=")]
    others = [word for word in overrides if word not in profile]
    return compose([*profile, f"model.solver={bench.place(solver)}", "evals.every=0", device, *texts, *few, *others])


def learns(bench: Bench, config: NodeConfig, name: str) -> TrlLearner:
    policy = bench.load(name, lora=config.model.train == "lora")
    checkpointing = recomputes(config, policy.model.num_parameters())
    return TrlLearner(policy, config.solver, activation_checkpointing=checkpointing)


def compared(config: NodeConfig, happened: Collection[str]) -> Report:
    """The estimate for what happened, beside the peak."""
    need = weigh(config)[0]
    assert need is not None
    busiest = max(size for what, size in need.at_times if what in happened)
    estimate, measured = MARGIN * (sum(size for _, size in need.always) + busiest), peak()
    return {
        "estimate_gib": round(estimate / 2**30, 3),
        "measured_gib": None if measured is None else round(measured / 2**30, 3),
        "reserved_gib": None if measured is None else round(torch.cuda.max_memory_reserved() / 2**30, 3),
        "ratio": None if measured is None else round(estimate / measured, 3),
    }


def within_memory(act: Callable[[], Report]) -> Report:
    """A case that is too large for this card is a result, not the end of the part."""
    try:
        return act()
    except (RuntimeError, CodeZeroError) as error:  # memory that runs out is both
        return {"error": str(error).splitlines()[0][:200]}


def timed(bench: Bench, act: Callable[[], object]) -> float:
    settle(bench)
    began = time.perf_counter()
    act()
    settle(bench)
    return round(time.perf_counter() - began, 3)


def settle(bench: Bench) -> None:
    if bench.on_card:
        torch.cuda.synchronize()
