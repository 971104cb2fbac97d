"""Config -> evaluator: which judge, which canaries, which sandbox, or execution instead of a judge."""

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from codezero.config import EvaluatorConfig, NodeConfig
from codezero.problems.rows import read_rows
from codezero.problems.synthetic.tasks import parse_question, worked
from codezero.protocols import Evaluator
from codezero.types import Problem, Worked

if TYPE_CHECKING:
    from codezero.evaluator.audit import Auditor
    from codezero.evaluator.types import Judge
    from codezero.models.load import LoadedModel

logger = logging.getLogger(__name__)

Say = Callable[[str], None]
"""Tells a person what takes its time."""
_ROWS = 1_000
"""Of a file, looked at for the style of its problems."""
LoadJudge = Callable[[], "LoadedModel"]


def build_evaluator(config: NodeConfig, stack: contextlib.ExitStack, say: Say, load: LoadJudge) -> Evaluator:
    """The frozen judge, calibrated on canaries that no solver sees; or execution, where the settings ask for it.

    Raises ModelError, EvaluatorError, SandboxError and ProblemError.
    """
    from codezero.code.worker import StaticGuard

    settings = config.evaluator
    guard = stack.enter_context(StaticGuard(seconds=settings.guard_seconds, memory_mib=settings.guard_memory_mib))
    if config.reward.mode == "rlvr":
        from codezero.evaluator.executed import ExecutedEvaluator
        from codezero.sandbox.bubblewrap import open_sandbox

        return ExecutedEvaluator(guard, stack.enter_context(open_sandbox(config.audit.sandbox)), weights=config.reward)
    from codezero.evaluator.evaluator import FrozenEvaluator
    from codezero.evaluator.reliability import Watch

    judge = build_judge(settings, stack, say, load)
    watch = Watch(
        judge,
        guard,
        canary_problems(settings),
        settings,
        identity=judge_identity(settings),
        seed=config.seed,
        auditor=build_auditor(config, stack),
        tell=say,
    )
    evaluator = FrozenEvaluator(judge, guard, watch, weights=config.reward)
    say(f"calibrating the judge on {settings.canaries} solutions known to be right or wrong")
    evaluator.calibrate()
    return evaluator


def build_judge(settings: EvaluatorConfig, stack: contextlib.ExitStack, say: Say, load: LoadJudge) -> "Judge":
    """In this process, or behind an endpoint that answers. Raises ModelError and EvaluatorError."""
    if settings.kind == "local":
        from codezero.evaluator.judge import LikelihoodJudge

        judge = LikelihoodJudge(load(), questions=settings.questions, batch_rows=settings.batch_rows)
        if judge.unused:
            logger.info("judge: %s", judge.unused)
        return judge
    from codezero.evaluator.openai_judge import endpoint_judge

    say(f"asking the judge at {settings.url}")
    judge = stack.enter_context(endpoint_judge(settings))
    judge.check()
    return judge


def canary_problems(settings: EvaluatorConfig) -> Callable[[Random], Worked]:
    """Synthetic problems and their mutants, or a file of MBPP or CodeContests rows. Raises ProblemError."""
    from codezero.evaluator.canaries import CanaryLibrary

    if not settings.canaries_from:
        return worked
    library = CanaryLibrary(read_rows(Path(settings.canaries_from)))
    logger.info("judge: canaries are drawn from %d problems of %s", len(library), settings.canaries_from)
    return library


@dataclass(frozen=True, slots=True)
class CalibrationFamily:
    """The problems on which a judge was calibrated; of others its figures say nothing."""

    name: str
    holds: Callable[[Problem], bool]


def calibration_family(settings: EvaluatorConfig) -> CalibrationFamily:
    """Of the canaries. A file's family are the problems of the style that its rows have. Raises ProblemError."""
    if not settings.canaries_from:
        return CalibrationFamily(
            "the embedded synthetic problems", lambda problem: parse_question(problem.question) is not None
        )
    styles = {row.problem.style for row in islice(read_rows(Path(settings.canaries_from)), _ROWS)}
    return CalibrationFamily(f"the problems of {settings.canaries_from}", lambda problem: problem.style in styles)


def build_auditor(config: NodeConfig, stack: contextlib.ExitStack) -> "Auditor | None":
    """None unless asked for: by default nothing of what is trained on is ever executed. Raises SandboxError."""
    if not config.audit.share:
        return None
    from codezero.evaluator.audit import Auditor
    from codezero.sandbox.bubblewrap import open_sandbox

    sandbox = stack.enter_context(open_sandbox(config.audit.sandbox))
    return Auditor(sandbox, share=config.audit.share, window=config.audit.window, seed=config.seed)


def judge_identity(settings: EvaluatorConfig) -> str:
    """16 hex digits, the same wherever the same judge is asked the same: to compare rewards, and to know it again."""
    from codezero.evaluator.judge_prompts import PROMPT_VERSION

    files: list[object] = []
    if os.path.isdir(settings.model):
        files = [[path.name, path.stat().st_size] for path in sorted(Path(settings.model).iterdir())]
    parts = [settings.kind, settings.model, settings.url, sorted(settings.questions), 0]  # 0: a removed setting
    return hashlib.sha256(json.dumps([*parts, PROMPT_VERSION, files]).encode()).hexdigest()[:16]
