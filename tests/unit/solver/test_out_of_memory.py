"""Memory that runs out costs a detour and no gradient; where it cannot suffice, what to lower is named."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from builders.models import random_rows, tiny_policy
from unit.solver.test_learner import Recorder, furthest, gradients

from codezero.config import SolverConfig
from codezero.errors import ModelError
from codezero.models.device import ran_out_of_memory
from codezero.solver.batch import Batch
from codezero.solver.learner import TrlLearner

MESSAGES = {
    "cuda": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
    "cpu": lambda: RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"),
    "mps": lambda: RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"),
}


def make(**config: Any) -> TrlLearner:
    learner = TrlLearner(tiny_policy(), SolverConfig(**({"minibatches": 1, "grad_clip": 1e9} | config)))
    learner._packed = False  # a row of the batch is a row of the forward pass
    return learner


def small_card(learner: TrlLearner, most: int, error: Callable[[], Exception], *, backward: bool = False) -> list[int]:
    """The model's backbone fails above `most` rows, on the way there or on the way back; returns what was tried."""
    tried: list[int] = []

    def fail(_: object) -> None:
        raise error()

    def watch(_module: object, _arguments: object, output: Any) -> None:
        rows = len(output.last_hidden_state)
        tried.append(rows)
        if rows > most:
            output.last_hidden_state.register_hook(fail) if backward else fail(None)

    learner.policy.model.base_model.register_forward_hook(watch)
    return tried


@pytest.mark.slow
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("device", MESSAGES)
def test_the_gradient_is_that_of_an_undisturbed_step(device: str, backward: bool, caplog: pytest.LogCaptureFixture):
    batch = Batch(tuple(random_rows(16)))  # of which 12 have an advantage
    loss, (undisturbed,) = gradients(make(), batch)
    learner = make()
    tried = small_card(learner, 3, MESSAGES[device], backward=backward)
    with caplog.at_level(logging.WARNING):
        found_loss, (found,) = gradients(learner, batch)
    assert found_loss == pytest.approx(loss, abs=1e-5)
    assert furthest(found, undisturbed) < 1e-6 * max(1, *(float(g.abs().max()) for g in undisturbed))
    failed = [rows for rows in tried if rows > 3]
    assert (
        failed[0] == 12 and failed == sorted(failed, reverse=True) and sum(tried[tried.index(failed[-1]) + 1 :]) == 12
    )
    halvings = [record.args for record in caplog.records if record.args]
    assert len(halvings) == len(failed) and halvings[-1] == (2 * learner.tokens_per_pass, learner.tokens_per_pass)


def test_a_later_micro_batch_that_fails_leaves_no_gradient_twice():
    batch = Batch(tuple(random_rows(16)))
    loss, (undisturbed,) = gradients(make(), batch)
    learner = make()
    learner.tokens_per_pass = 80
    calls: list[int] = []

    def third_fails(_module: object, _arguments: object, output: Any) -> None:
        calls.append(len(output.last_hidden_state))
        if len(calls) == 3:
            raise MESSAGES["cuda"]()

    learner.policy.model.base_model.register_forward_hook(third_fails)
    found_loss, (found,) = gradients(learner, batch)
    assert sum(calls[3:]) == 12 and len(calls[3:]) > 3
    assert found_loss == pytest.approx(loss, abs=1e-5)
    assert furthest(found, undisturbed) < 1e-6 * max(1, *(float(g.abs().max()) for g in undisturbed))


@pytest.mark.slow
def test_fewer_rows_stay_for_the_rest_of_the_run_and_for_scoring():
    learner = make()
    tried = small_card(learner, 5, MESSAGES["cuda"])
    learner.update(Batch(tuple(random_rows(16))))
    del tried[:]
    rows = random_rows(9, seed=2)
    told = learner.logprobs([row.prompt_ids for row in rows], [row.completion_ids for row in rows])
    assert (
        sum(tried) == 9
        and max(tried) <= 5
        and all(len(one) == len(row.completion_ids) for one, row in zip(told, rows, strict=True))
    )


def test_a_single_row_that_does_not_fit_names_what_to_lower():
    learner = make()
    small_card(learner, 0, MESSAGES["cuda"])
    with pytest.raises(ModelError, match=r"single row; lower solver\.max_prompt_tokens .* model\.train=lora"):
        learner.update(Batch(tuple(random_rows(4))))


def test_other_errors_are_not_taken_for_it():
    assert not ran_out_of_memory(RuntimeError("size mismatch")) and not ran_out_of_memory(ValueError("out of memory"))
    learner = make()
    small_card(learner, 0, lambda: RuntimeError("a bug"))
    learner._optimizer = Recorder(learner)
    with pytest.raises(RuntimeError, match="a bug"):
        learner.update(Batch(tuple(random_rows(4))))
