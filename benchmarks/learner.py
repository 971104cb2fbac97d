"""One GRPO update of the embedded model's size, side by side: what the node does, TRL alone, and the plain objective.

Prints JSON: milliseconds (median) of each way, and how many times the node's way is faster. All take the same 128
rows (16 groups of 8, half of the groups without spread, prompts of 40-80 and completions of 20-40 tokens), compute the
same gradient and take the same two optimiser steps. Usage: python benchmarks/learner.py [--threads 1] [--repeats 10]
"""

import argparse
import copy
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import torch
from builders.models import EOS, PAD, tiny_policy
from oracles.grpo_loss import policy_loss, token_logprobs

from codezero.config import SolverConfig
from codezero.solver.batch import Batch, TrainingRow, collate
from codezero.solver.learner import TrlLearner

GROUPS, GROUP_SIZE, MINIBATCHES = 16, 8, 2


def nano_policy() -> Any:
    """0.38 M parameters: the embedded model's shape, random weights."""
    return tiny_policy(hidden=96, layers=3, scale=0.02, vocab=768)


def rows() -> list[TrainingRow]:
    chance = random.Random(0)
    made: list[TrainingRow] = []
    for group in range(GROUPS):
        prompt = tuple(chance.randrange(256) for _ in range(chance.randint(40, 80)))
        for _ in range(GROUP_SIZE):
            ids = (*(chance.randrange(256) for _ in range(chance.randint(19, 39))), EOS)
            made.append(TrainingRow(prompt, ids, (-6.6,) * len(ids), chance.uniform(-1, 1) if group % 2 else 0.0))
    return made


def step(learner: TrlLearner) -> None:
    learner._accelerator.clip_grad_norm_(learner._model.parameters(), 1.0)
    learner._optimizer.step()
    learner._optimizer.zero_grad()


def ours(learner: TrlLearner, given: list[TrainingRow]) -> None:
    learner.update(Batch(tuple(given)))


def trl_alone(learner: TrlLearner, given: list[TrainingRow]) -> None:
    """`compute_loss` on every row, padded, the model itself scored: how the library would be used as it is."""
    trainer = learner._trainer
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    for part in range(MINIBATCHES):
        inputs = collate(given[part::MINIBATCHES], PAD, torch.device("cpu"))
        inputs["num_items_in_batch"] = inputs["completion_mask"].sum()
        trainer.compute_loss(learner._model, inputs).backward()
        step(learner)
    trainer._metrics["train"].clear()
    trainer.model.eval()


def objective(learner: TrlLearner, given: list[TrainingRow]) -> None:
    """`policy_loss` on every row, padded, whole logits: nothing of TRL."""
    config = learner.config
    for part in range(MINIBATCHES):
        inputs = collate(given[part::MINIBATCHES], PAD, torch.device("cpu"))
        policy_loss(
            config.loss,
            token_logprobs(learner.policy.model, inputs, config.temperature),
            inputs["old_per_token_logps"],
            inputs["advantages"],
            inputs["completion_mask"],
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            rows=len(given) / MINIBATCHES,
            tokens=float(inputs["completion_mask"].sum()),
            max_length=config.max_new_tokens,
        ).backward()
        step(learner)


def trl_loss_alone(learner: TrlLearner, given: list[TrainingRow]) -> None:
    """TRL's loss, metrics and backward on log-probabilities that cost nothing: what the library adds to ours."""
    trainer = learner._trainer
    live = [row for row in given if row.advantage]
    for part in range(MINIBATCHES):
        inputs = collate(live[part::MINIBATCHES], PAD, torch.device("cpu"))
        inputs["num_items_in_batch"] = inputs["completion_mask"].sum()
        logprobs = inputs["old_per_token_logps"].clone().requires_grad_()
        zeros = torch.zeros_like(logprobs)
        trainer.current_gradient_accumulation_steps = 1
        trainer.compute_loss(lambda **_: SimpleNamespace(log_probs=logprobs, entropy=zeros), inputs).backward()  # noqa: B023
    trainer._metrics["train"].clear()


def timed(act: Callable[[], None]) -> float:
    began = time.perf_counter()
    act()
    return 1e3 * (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="as always; here so that every benchmark takes it")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    policy, given = nano_policy(), rows()
    config = SolverConfig(minibatches=MINIBATCHES)
    began = time.perf_counter()
    learner = TrlLearner(policy, config)
    construct = time.perf_counter() - began
    start = copy.deepcopy(policy.model.state_dict())
    ways = {"ours": ours, "trl_alone": trl_alone, "objective": objective, "trl_loss_alone": trl_loss_alone}
    took: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(options.repeats + 1):
        for name, way in ways.items():
            policy.model.load_state_dict(start)
            milliseconds = timed(lambda way=way: way(learner, given))
            if repeat:  # the first warms up
                took[name].append(milliseconds)
    median = {name: statistics.median(values) for name, values in took.items()}
    report = {
        "parameters": policy.model.num_parameters(),
        "threads": options.threads,
        "construct_ms": round(1e3 * construct, 1),
        "update_ms": {name: round(value, 1) for name, value in median.items()},
        "best_ms": {name: round(min(values), 1) for name, values in took.items()},
        "times_faster_than_trl_alone": round(median["trl_alone"] / median["ours"], 2),
        "times_faster_than_objective": round(median["objective"] / median["ours"], 2),
        "share_of_ours_that_is_trl": round(median["trl_loss_alone"] / median["ours"], 3),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
