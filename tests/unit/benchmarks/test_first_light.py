"""The bench of the start says what a process and its children took, and fails where a run does."""

import sys
from pathlib import Path

import first_light
import pytest


def test_a_process_costs_what_its_children_cost() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    assert first_light.cost(["-c", child])["cpu_seconds"] >= 0.3


def test_a_run_that_ends_before_its_exam_is_no_figure(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="ended with 3 before its first exam"):
        first_light.watch([sys.executable, "-c", "raise SystemExit(3)"], tmp_path)
