"""Config -> evaluator: which judge, which canaries, which sandbox, or execution instead of a judge."""

import hashlib
import json
import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from codezero.config import EvaluatorConfig, NodeConfig
from codezero.problems.rows import read_rows
from codezero.problems.synthetic.programs import parse_question
from codezero.problems.synthetic.tasks import worked
from codezero.protocols import Evaluator
from codezero.types import Problem, Worked
from codezero.wiring.models import Say, load

if TYPE_CHECKING:
    from codezero.evaluator.types import Judge
    from codezero.sandbox.base import Sandbox

logger = logging.getLogger(__name__)


def build_evaluator(config: NodeConfig, stack: ExitStack, say: Say) -> Evaluator:
    """The frozen judge, calibrated on canaries that no solver sees; or execution, where the settings ask for it.

    Raises ModelError, EvaluatorError, SandboxError and ProblemError.
    """
    from codezero.code.worker import StaticGuard

    settings = config.evaluator
    guard = stack.enter_context(StaticGuard(seconds=settings.guard_seconds, memory_mib=settings.guard_memory_mib))
    if config.reward.mode == "rlvr":
        from codezero.evaluator.executed import ExecutedEvaluator

        return ExecutedEvaluator(guard, build_sandbox(config, stack), weights=config.reward)
    from codezero.evaluator.audit import Auditor
    from codezero.evaluator.canaries import CanaryLibrary
    from codezero.evaluator.evaluator import FrozenEvaluator
    from codezero.evaluator.reliability import Watch

    judge, audit = build_judge(config, stack, say), config.audit
    auditor = None  # by default nothing of what is trained on is ever executed
    if audit.share:
        sandbox = build_sandbox(config, stack)
        auditor = Auditor(sandbox, share=audit.share, window=audit.window, seed=config.seed)
    canaries: Callable[[Random], Worked] = worked
    if settings.canaries_from:
        library = CanaryLibrary(read_rows(Path(settings.canaries_from)))
        logger.info("judge: canaries are drawn from %d problems of %s", len(library), settings.canaries_from)
        canaries = library
    identity = judge_identity(settings)
    watch = Watch(judge, guard, canaries, settings, identity=identity, seed=config.seed, auditor=auditor, tell=say)
    evaluator = FrozenEvaluator(judge, guard, watch, weights=config.reward)
    say(f"calibrating the judge on {settings.canaries} solutions known to be right or wrong")
    evaluator.calibrate()
    return evaluator


def build_sandbox(config: NodeConfig, stack: ExitStack) -> "Sandbox":
    """Raises SandboxError."""
    from codezero.sandbox.bubblewrap import open_sandbox

    return stack.enter_context(open_sandbox(config.audit.sandbox))


def build_judge(config: NodeConfig, stack: ExitStack, say: Say) -> "Judge":
    """In this process, or behind an endpoint that answers. Raises ModelError and EvaluatorError."""
    settings = config.evaluator
    if settings.kind == "local":
        from codezero.evaluator.judge import LikelihoodJudge

        loaded = load(config, settings.model, "judge", say)
        judge = LikelihoodJudge(loaded, questions=settings.questions, batch_rows=settings.batch_rows)
        if judge.unused:
            logger.info("judge: %s", judge.unused)
        return judge
    from codezero.evaluator.openai_judge import endpoint_judge

    say(f"asking the judge at {settings.url}")
    judge = stack.enter_context(endpoint_judge(settings))
    judge.check()
    return judge


def calibration_family(settings: EvaluatorConfig) -> tuple[str, Callable[[Problem], bool]]:
    """The name of the canaries' family, and whether a problem is of it; of others a judge's figures say nothing.

    A file's family are the problems of the style that its rows have. Raises ProblemError.
    """
    path = settings.canaries_from
    if not path:
        return "the embedded synthetic problems", lambda problem: parse_question(problem.question) is not None
    styles = {row.problem.style for row in read_rows(Path(path))}
    return f"the problems of {path}", lambda problem: problem.style in styles


def judge_identity(settings: EvaluatorConfig) -> str:
    """16 hex digits, the same wherever the same judge is asked the same: to compare rewards, and to know it again."""
    from codezero.evaluator.judge_prompts import PROMPT_VERSION

    files: list[object] = []
    if os.path.isdir(settings.model):
        files = [[path.name, path.stat().st_size] for path in sorted(Path(settings.model).iterdir())]
    parts = [settings.kind, settings.model, settings.url, sorted(settings.questions), 0]  # 0: a removed setting
    return hashlib.sha256(json.dumps([*parts, PROMPT_VERSION, files]).encode()).hexdigest()[:16]
