"""The best checkpoint is kept beside the newest, ends a run, and is what others begin with."""

from pathlib import Path
from typing import Any

import pytest
from builders.parts import Parts

from codezero.attempts import InStep
from codezero.config import ProposerConfig, RunConfig
from codezero.monitor.monitor import RunMonitor
from codezero.node import Node, train
from codezero.run import Run
from codezero.runs import CHECKPOINTS
from codezero.solver.checkpoint import BEST, CheckpointStore, best_or_newest, check_files, copy_best, read_manifest


class Examined(Parts):
    """A node whose exams come out as given; late: so many iterations after they began."""

    def __init__(self, lows: dict[int, float], late: int = 0) -> None:
        super().__init__()
        self.lows, self.late, self.iteration = lows, late, 0
        self.pushed: list[str] = []

    def push(self, checkpoint: Path, round_number: int) -> None:
        assert (checkpoint / "manifest.json").is_file()
        self.pushed.append(f"{checkpoint.parent.name}/{checkpoint.name}")

    def step(self, *groups: Any) -> dict[str, Any]:
        self.iteration += 1
        return super().step(*groups)

    def begin(self, iteration: int) -> bool:
        if self.exam:
            return False
        low = self.lows[iteration]
        figures = {"eval/average_at_8": low + 0.1, "eval/ci_low": low, "eval/ci_high": low + 0.2}
        self.exam = {"eval/source": "executed", "eval/iteration": iteration, **figures}
        return True

    def results(self, *, wait: bool) -> dict[str, Any]:
        begun = self.exam.get("eval/iteration", 0)
        return super().results(wait=wait) if wait or self.iteration >= begun + self.late else {}


def play(folder: Path, parts: Examined, **settings: Any) -> Run:
    whole: Any = parts
    node = Node(
        proposing=ProposerConfig(problems_per_iteration=0), most_failures=3, problems=whole,
        attempts=InStep(whole, whole, whole), evaluator=whole, swarm=whole, market=None, solver=whole,
        difficulty=whole, proposer=whole, outbox=whole, exam=whole,
    )  # fmt: skip
    folder.mkdir(exist_ok=True)
    limits = {"max_iterations": 10, "keep_checkpoints": 1, **settings}
    monitor = RunMonitor(folder=folder, view="off", identity="", facts={})
    store = CheckpointStore(folder / CHECKPOINTS, int(limits["keep_checkpoints"]))
    store.flush_seconds = 0.0  # else the last flushed one stays too
    run = Run(RunConfig(**limits), monitor, store, whole, {"part": whole}, pushes=whole)
    train(run, node)
    return run


def kept(folder: Path) -> tuple[list[str], list[str]]:
    """Names of the newest checkpoints, and of the best."""
    place = folder / CHECKPOINTS
    newest = sorted(path.name for path in place.iterdir() if path.name != BEST)
    return newest, sorted(path.name for path in (place / BEST).iterdir()) if (place / BEST).exists() else []


RISING_AND_FALLING = {0: 0.1, 2: 0.2, 4: 0.4, 6: 0.3, 8: 0.35, 10: 0.2}


@pytest.mark.parametrize(("late", "best"), [(0, 4), (1, 4), (3, 6)])  # at 4 the exam of 2 is under way then
def test_the_checkpoint_of_the_best_exam_stays(tmp_path: Path, late: int, best: int) -> None:
    run = play(tmp_path, Examined(RISING_AND_FALLING, late), checkpoint_seconds=3600.0)
    assert run.monitor.fold.best is not None and run.monitor.fold.best.iteration == best
    assert kept(tmp_path)[1] == [f"{best:08d}"]
    chosen = best_or_newest(tmp_path / CHECKPOINTS, lambda folder: check_files(folder, read_manifest(folder)))
    assert chosen.parent.name == BEST


def test_a_policy_that_only_fell_has_no_best_checkpoint(tmp_path: Path) -> None:
    play(tmp_path, Examined({each: 0.5 - each / 100 for each in range(11)}))
    assert kept(tmp_path) == (["00000010"], [])


def test_newest_alone_keeps_no_other(tmp_path: Path) -> None:
    play(tmp_path, Examined(RISING_AND_FALLING), keep="newest")
    assert kept(tmp_path) == (["00000010"], [])


def test_a_run_ends_when_it_is_good_enough(tmp_path: Path) -> None:
    run = play(tmp_path, Examined(RISING_AND_FALLING), stop_at=0.4)
    assert run.reason == "stop_at reached by the policy of iteration 4, executed average@8 50.0 % [40.0, 60.0]"
    assert kept(tmp_path) == (["00000004"], ["00000004"])
    again = play(tmp_path, Examined(RISING_AND_FALLING), stop_at=0.4)
    assert again.reason == run.reason and again.kept == 4, "what was reached is not learned again"


def test_a_run_ends_when_it_no_longer_rises(tmp_path: Path) -> None:
    run = play(tmp_path, Examined(RISING_AND_FALLING), patience=2)
    assert run.kept == 8 and run.reason.startswith("patience reached: no exam in 2 was better than that of iteration 4")
    on = Examined(RISING_AND_FALLING)
    on.iteration = 8
    assert play(tmp_path, on, patience=3).kept == 10, "patience may be raised"
    assert kept(tmp_path)[1] == ["00000004"]


def test_a_run_taken_up_again_remembers_its_best(tmp_path: Path) -> None:
    play(tmp_path, Examined(RISING_AND_FALLING | {5: 0.1}), max_iterations=5)
    parts = Examined(RISING_AND_FALLING | {5: 0.1})
    parts.iteration = 5
    play(tmp_path, parts)
    assert kept(tmp_path) == (["00000010"], ["00000004"])


def test_what_is_pushed_is_the_best_once_there_is_one(tmp_path: Path) -> None:
    parts = Examined(RISING_AND_FALLING)
    play(tmp_path, parts)
    assert parts.pushed[0] == "checkpoints/00000001" and parts.pushed[3:] == ["best/00000004"] * 7


def test_a_damaged_best_is_passed_over(tmp_path: Path) -> None:
    play(tmp_path, Examined(RISING_AND_FALLING))
    target = tmp_path / "other"
    assert copy_best(tmp_path / CHECKPOINTS, target) == "best/00000004" and (target / "00000004").is_dir()
    (tmp_path / CHECKPOINTS / BEST / "00000004" / "manifest.json").write_text("{")
    assert copy_best(tmp_path / CHECKPOINTS, tmp_path / "third") == "00000010"
