"""What a start says before it takes long: only then, and with a setting that is short enough."""

from dataclasses import replace
from pathlib import Path

import pytest
from builders.models import byte_tokenizer, tiny_policy

from codezero.settings import compose
from codezero.wiring import foresight
from codezero.wiring.foresight import EXAM_SECONDS, ITERATION_SECONDS, advice, foreseen, start_advice

HALF_A_BILLION, JUDGE = 494_032_768, 1_543_714_304
TWO_CORES = 410e9  # measured on an EPYC with AVX512-BF16


def test_the_laptop_profile_needs_no_advice_on_two_cores_that_multiply_in_bfloat16() -> None:
    config = compose(["profile=laptop"])
    expected = foreseen(config, HALF_A_BILLION, JUDGE, TWO_CORES)
    assert 0 < expected.exam < EXAM_SECONDS and 0 < expected.iteration < ITERATION_SECONDS
    assert advice(config, expected) == []


def test_on_a_slower_machine_the_settings_that_are_named_are_short_enough() -> None:
    config, slow = compose(["profile=laptop"]), TWO_CORES / 1.3
    exam, iteration = advice(config, foreseen(config, HALF_A_BILLION, JUDGE, slow))
    assert "evals.problems=" in exam and "solver.problems_per_iteration=" in iteration
    words = [word for line in (exam, iteration) for word in line.split() if "=" in word]
    shorter = compose(["profile=laptop", *words])
    assert len(words) == 3 and advice(shorter, foreseen(shorter, HALF_A_BILLION, JUDGE, slow)) == []
    assert "smaller models" in advice(config, foreseen(config, HALF_A_BILLION, 100 * HALF_A_BILLION, slow))[0]
    unexamined = replace(config, evals=replace(config.evals, every=0))
    assert foreseen(unexamined, HALF_A_BILLION, 0, slow).exam == 0


def test_embedded_models_are_not_measured_and_real_ones_on_a_cpu_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tiny_policy()
    policy.model.save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    monkeypatch.setattr(foresight, "measured_flops", lambda half: pytest.fail("measured"))
    assert start_advice(compose([])) == []
    monkeypatch.setattr(foresight, "measured_flops", lambda half: 1.0)
    assert len(start_advice(compose([f"model.solver={tmp_path}", "model.device=cpu"]))) == 2
