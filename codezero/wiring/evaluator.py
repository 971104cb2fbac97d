"""Config -> evaluator: which judge, which canaries, which sandbox, or execution instead of a judge."""

import hashlib
import json
import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from codezero.config import EvaluatorConfig, NodeConfig
from codezero.config.contradictions import JUDGES
from codezero.config.learning import source_weights
from codezero.environment import Environment
from codezero.environments.tasks import TaskEnvironment
from codezero.errors import ConfigError, ProblemError, translated
from codezero.evaluator.canaries import CanaryLibrary, proven
from codezero.evaluator.own import OwnJudge, OwnReward
from codezero.plugins import file_of
from codezero.problems.dedup import Novelty
from codezero.problems.held_back import canary_rows, digest
from codezero.problems.stream import SYNTHETIC
from codezero.problems.synthetic.programs import parse_question
from codezero.problems.synthetic.tasks import worked
from codezero.protocols import Evaluator
from codezero.system.files import read_bounded
from codezero.types import REHEARSAL, Problem, Style, Worked
from codezero.wiring.models import FrozenModels, Say

if TYPE_CHECKING:
    from codezero.code.worker import StaticGuard
    from codezero.evaluator.probe import Probe
    from codezero.evaluator.types import Judge
    from codezero.models.load import LoadedModel
    from codezero.sandbox.base import Sandbox

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Canaries:
    """Where solutions with a known truth come from."""

    name: str
    draw: Callable[[Random], Worked]
    styles: frozenset[Style]
    """Of the problems of data sets among them."""
    embedded: bool
    """Are problems of the embedded family among them?"""

    def cover(self, problem: Problem) -> bool:
        """Do the judge's figures say anything about such a problem?"""
        return problem.style in self.styles or (self.embedded and parse_question(problem.question) is not None)


EMBEDDED = Canaries("the embedded synthetic problems", worked, frozenset(), embedded=True)


def build_evaluator(
    config: NodeConfig,
    canaries: Canaries,
    stack: ExitStack,
    say: Say,
    models: FrozenModels | None = None,
    environment: Environment | None = None,
    own: str = "",
) -> Evaluator:
    """The frozen judge, calibrated on canaries that no solver sees; or execution, where the settings ask for it.
    `models`: those that a judge may share; None: it has its own. `environment`: whose own rule decides, where it has
    one. `own`: the peer id of this node.

    Raises ModelError, EvaluatorError, SandboxError and ProblemError.
    """
    if isinstance(environment, TaskEnvironment):
        from codezero.evaluator.scored import ScoredEvaluator

        return ScoredEvaluator(environment)
    from codezero.code.worker import StaticGuard

    settings, function = config.evaluator, config.reward.function
    rewarded = OwnReward(function, own) if function else None
    guard = stack.enter_context(StaticGuard())
    if config.reward.mode == "rlvr":
        from codezero.evaluator.executed import ExecutedEvaluator

        sandbox = build_sandbox(config, stack)
        executed = ExecutedEvaluator(guard, sandbox, weights=config.reward, block=config.answer.block)
        executed.rewarded = rewarded or executed.rewarded
        return executed
    from codezero.evaluator.audit import Auditor
    from codezero.evaluator.evaluator import FrozenEvaluator
    from codezero.evaluator.reliability import Watch

    judge, audit = build_judge(config, stack, say, models or FrozenModels(config, say), guard), config.audit
    auditor = None  # by default nothing of what is trained on is ever executed
    if audit.share and config.reward.mode == "judge":
        auditor = Auditor(build_sandbox(config, stack), share=audit.share, seed=config.seed, own=own)
    logger.info("judge: canaries are drawn from %s", canaries.name)
    identity = judge_identity(settings, config.model.quantize)
    watch = Watch(judge, guard, canaries.draw, settings, identity=identity, seed=config.seed, auditor=auditor, tell=say)
    watch.alone = config.reward.mode == "judge" and rewarded is None
    weights, block = config.reward, config.answer.block
    if config.reward.mode == "hybrid":
        from codezero.evaluator.executed import HybridEvaluator

        evaluator = HybridEvaluator(watch, build_sandbox(config, stack), weights=weights, block=block, seed=config.seed)
    else:
        evaluator = FrozenEvaluator(watch, weights=weights, block=block)
    evaluator.rewarded = rewarded or evaluator.rewarded
    say(f"calibrating the judge on {settings.canaries} solutions known to be right or wrong")
    evaluator.calibrate()
    return evaluator


def build_sandbox(config: NodeConfig, stack: ExitStack) -> "Sandbox":
    """Raises SandboxError and ConfigError."""
    from codezero.sandbox.bubblewrap import open_sandbox

    which, reward, workers = config.audit.sandbox, config.reward, config.reward.workers or (os.cpu_count() or 1) // 4
    limits = {"seconds": reward.test_seconds, "total_seconds": reward.program_seconds}
    packages = config.audit.packages
    return stack.enter_context(open_sandbox(which, **limits, workers=max(1, workers), packages=packages))


def build_judge(config: NodeConfig, stack: ExitStack, say: Say, models: FrozenModels, guard: "StaticGuard") -> "Judge":
    """In this process, or behind an endpoint that answers. Raises ModelError, ConfigError and EvaluatorError."""
    settings = config.evaluator
    if settings.kind == "local":
        from codezero.evaluator.agreeing import with_own_solutions
        from codezero.evaluator.judge import LikelihoodJudge

        loaded = models.load(settings.model, "judge")
        probe = find_probe(loaded, settings.probe)
        judge = LikelihoodJudge(loaded, questions=settings.questions, probe=probe, batch_rows=settings.batch_rows)
        judge.reader.progress = models.read
        if probe:
            logger.info("judge: a probe at layer %d of %d, fitted on %s", probe.layer, probe.layers, probe.fitted_on)
        if judge.unused:
            logger.info("judge: %s", judge.unused)
        return with_own_solutions(judge, guard)
    if settings.kind == "custom":
        return OwnJudge(settings.object)
    from codezero.evaluator.openai_judge import endpoint_judge

    say(f"asking the judge at {settings.url}")
    judge = stack.enter_context(endpoint_judge(settings))
    judge.check()
    return judge


def find_probe(loaded: "LoadedModel", setting: str) -> "Probe | None":
    """As evaluator.probe says. Raises ConfigError for a file that cannot be used, or of another judge."""
    from codezero.evaluator.probe import SHIPPED, read_probe

    if setting == "none":
        return None
    found = [read_probe(path) for path in ([Path(setting)] if setting != "auto" else sorted(SHIPPED.glob("*.json")))]
    probe = next((each for each in found if each.is_of(loaded)), None)
    if probe is None and setting != "auto":
        mend = "train one with `codezero judge train`, or set evaluator.probe=none"
        raise ConfigError(f"evaluator.probe={setting} is of {found[0].judge}, not of {loaded.name}; {mend}")
    return probe


def build_canaries(
    config: NodeConfig, withheld: Novelty, stack: ExitStack, say: Say, environment: Environment | None = None
) -> Canaries:
    """Solutions to problems of the sources that are learned from, or of `evaluator.canaries_from`.

    References and their mutants were executed here, and count as what they turned out to be: they are nobody's
    attempts. Embedded ones where nothing of a set can be read, and none where an environment's own rule decides.
    Raises ProblemError for a file that cannot be used.
    """
    if isinstance(environment, TaskEnvironment):
        return replace(EMBEDDED, name=f"none: the rule of {environment.name} decides", embedded=False)
    file, weights = config.evaluator.canaries_from, source_weights(config.data.sources)
    sources = {file: 1.0} if file else {name: weight for name, weight in weights.items() if name != SYNTHETIC}
    if not sources or config.reward.mode == "rlvr":
        return EMBEDDED
    from codezero.sandbox.monty import MontySandbox  # decides 86 of MBPP's 94; the others are not worth the time

    sandbox, libraries, lost = stack.enter_context(MontySandbox()), dict[str, CanaryLibrary](), list[str]()
    for name in sources:
        say(f"finding right and wrong solutions to measure the judge on: {name}")
        try:
            rows = canary_rows(name, withheld=withheld, seconds=config.data.wait_seconds, whole=bool(file))
            libraries[name] = CanaryLibrary(proven(rows, sandbox))
        except ProblemError as error:
            if file:
                raise
            lost.append(str(error))
    if not libraries:
        return Canaries(f"{REHEARSAL}: {'; '.join(lost)}", worked, frozenset(), embedded=True)
    draws: list[Callable[[Random], Worked]] = list(libraries.values())
    shares, embedded = [sources[name] for name in libraries], not file and SYNTHETIC in weights
    if embedded:
        draws, shares = [*draws, worked], [*shares, weights[SYNTHETIC]]
    names = [f"{name}, {library}, {digest(library.problems)}" for name, library in libraries.items()]
    return Canaries(
        "; ".join(names + [EMBEDDED.name] * embedded + lost),
        lambda random: random.choices(draws, shares)[0](random),
        frozenset(problem.style for library in libraries.values() for problem in library.problems),
        embedded=embedded,
    )


def judge_identity(settings: EvaluatorConfig, quantize: str = "none") -> str:
    """16 hex digits, the same wherever the same judge is asked the same: to compare rewards, and to know it again."""
    from codezero.evaluator.judge_prompts import PROMPT_VERSION

    files: list[object] = []
    if settings.kind == "custom":
        path = file_of(settings.object, "evaluator.object", JUDGES)
        files = [[settings.object, hashlib.sha256(path.read_bytes()).hexdigest()]]
    elif (folder := Path(os.path.expanduser(settings.model))).is_dir():
        files = [[path.name, path.stat().st_size] for path in sorted(folder.iterdir())]
    parts = [settings.kind, settings.model, settings.url, sorted(settings.questions), 0]  # 0: a removed setting
    parts += [quantize] if quantize != "none" and settings.kind == "local" else []
    if settings.kind == "local" and settings.probe not in ("auto", "none"):
        from codezero.evaluator.probe import MOST_BYTES

        with translated(ConfigError, f"evaluator.probe={settings.probe} cannot be used", OSError, ValueError):
            parts.append(hashlib.sha256(read_bounded(Path(settings.probe), MOST_BYTES)).hexdigest())
    elif settings.probe == "none":
        parts.append(settings.probe)
    return hashlib.sha256(json.dumps([*parts, PROMPT_VERSION, files]).encode()).hexdigest()[:16]
