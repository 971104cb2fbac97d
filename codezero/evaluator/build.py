"""Config -> evaluator: which judge, which canaries, which sandbox, or execution instead of a judge."""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from codezero.config import JUDGES, EvaluatorConfig, NodeConfig
from codezero.config.learning import source_weights
from codezero.environment import Environment, ScoredEnvironment
from codezero.errors import ConfigError, ProblemError, translated
from codezero.evaluator.base import Evaluator, ScoredEvaluator
from codezero.evaluator.calibration import CanaryLibrary, proven
from codezero.evaluator.judge_prompts import PROBE
from codezero.evaluator.own import OwnJudge, OwnReward
from codezero.models.build import FrozenModels, Say, load
from codezero.problems.filters import Novelty
from codezero.problems.sources import canary_rows, digest
from codezero.problems.stream import SYNTHETIC
from codezero.problems.synthetic.tasks import parse_question, worked
from codezero.sandbox.build import build_sandbox
from codezero.system.files import read_bounded
from codezero.system.plugins import file_of
from codezero.types import REHEARSAL, Problem, Style, Worked

if TYPE_CHECKING:
    from codezero.code.worker import StaticGuard
    from codezero.evaluator.probe import Probe
    from codezero.evaluator.types import Judge
    from codezero.models.load import LoadedModel

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Canaries:
    """A source of solutions with a known truth."""

    name: str
    draw: Callable[[Random], Worked]
    styles: frozenset[Style]  # of the problems of data sets among them
    embedded: bool  # are problems of the embedded family among them?

    def cover(self, problem: Problem) -> bool:
        """True if the judge's figures say anything about such a problem."""
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
    one. `own`: the peer id of this node. Raises ModelError, EvaluatorError, SandboxError and ProblemError."""
    if isinstance(environment, ScoredEnvironment):
        return ScoredEvaluator(environment)
    from codezero.code.worker import StaticGuard
    from codezero.evaluator.evaluator import ExecutedEvaluator, FrozenEvaluator, HybridEvaluator
    from codezero.evaluator.evidence import Auditor
    from codezero.evaluator.reliability import ReliabilityMonitor
    from codezero.evaluator.reward import Rules

    settings, weights = config.evaluator, config.reward
    reward = OwnReward(weights.function, own) if weights.function else None
    rules = Rules(weights, config.answer.block, reward)
    guard = stack.enter_context(StaticGuard())
    if config.reward.mode == "rlvr":
        return ExecutedEvaluator(guard, build_sandbox(config, stack), rules)
    models, sources = models or FrozenModels(config, say), [*source_weights(config.data.sources)]
    judge, audit = build_judge(config, stack, say, models, guard, sources), config.audit
    auditor = None  # by default nothing of what is trained on is ever executed
    if audit.share and config.reward.mode == "judge":
        auditor = Auditor(build_sandbox(config, stack), share=audit.share, seed=config.seed, own=own)
    logger.info("judge: canaries are drawn from %s", canaries.name)
    identity, seed = judge_identity(settings, config.model.quantize), config.seed
    alone = weights.mode == "judge" and reward is None
    monitor = ReliabilityMonitor(
        judge, guard, canaries.draw, settings, identity=identity, seed=seed, auditor=auditor, alone=alone, progress=say
    )
    if weights.mode == "hybrid":
        evaluator = HybridEvaluator(monitor, build_sandbox(config, stack), rules, seed=seed)
    else:
        evaluator = FrozenEvaluator(monitor, rules)
    say(f"calibrating the judge on {settings.canaries} solutions known to be right or wrong")
    monitor.calibrated()
    return evaluator


def build_judge(
    config: NodeConfig,
    stack: ExitStack,
    say: Say,
    models: FrozenModels,
    guard: "StaticGuard",
    sources: Sequence[str] = (),
) -> "Judge":
    """In this process, or behind an endpoint that answers. sources: of the problems, where attempts at them are still
    to come; a probe of other problems is told of. Raises ModelError, ConfigError and EvaluatorError."""
    settings = config.evaluator
    if settings.kind == "local":
        from codezero.evaluator.judge import LikelihoodJudge, with_own_solutions

        loaded = models.load(settings.model, "judge")
        probe = find_probe(loaded, settings.probe)
        judge = LikelihoodJudge(
            loaded, questions=settings.questions, probe=probe, batch_rows=settings.batch_rows, progress=models.read
        )
        if probe:
            logger.info("judge: a probe at layer %d of %d, fitted on %s", probe.layer, probe.layers, probe.fitted_on)
            if PROBE in settings.questions and sources and (doubt := probe.doubt(sources)):
                logger.warning("the judge: %s", doubt)
        if judge.unused:
            logger.info("judge: %s", judge.unused)
        return with_own_solutions(judge, guard)
    if settings.kind == "reward_model":
        from codezero.evaluator.reward_model import RewardModelJudge

        loaded = load(config, settings.model, "judge", say, scores=True)
        return RewardModelJudge(loaded, settings.system, settings.batch_rows, models.read)
    if settings.kind == "custom":
        return OwnJudge(settings.object)
    from codezero.evaluator.openai_judge import ENDPOINT_JUDGES

    say(f"asking the judge at {settings.url}")
    judge = stack.enter_context(ENDPOINT_JUDGES[settings.kind](settings))
    judge.check()
    return judge


def find_probe(loaded: "LoadedModel", setting: str) -> "Probe | None":
    """As evaluator.probe says. Raises ConfigError for a file that cannot be used, or of another judge."""
    from codezero.evaluator.probe import SHIPPED, read_probe

    if setting == "none":
        return None
    probes = [read_probe(path) for path in ([Path(setting)] if setting != "auto" else sorted(SHIPPED.glob("*.json")))]
    probe = next((each for each in probes if each.is_of(loaded)), None)
    if probe is None and setting != "auto":
        mend = "train one with `codezero judge train`, or set evaluator.probe=none"
        raise ConfigError(f"evaluator.probe={setting} is of {probes[0].judge}, not of {loaded.name}; {mend}")
    return probe


def build_canaries(
    config: NodeConfig, withheld: Novelty, stack: ExitStack, say: Say, environment: Environment | None = None
) -> Canaries:
    """Solutions to problems of the sources that are learned from, or of `evaluator.canaries_from`. References and their
    mutants were executed here, and count as what they turned out to be: they are nobody's attempts. Embedded ones where
    nothing of a set can be read, and none where an environment's own rule decides. Raises ProblemError for a file that
    cannot be used."""
    if isinstance(environment, ScoredEnvironment):
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
    parts = [settings.kind, settings.model, settings.url, sorted(settings.questions)]
    parts += [quantize] if quantize != "none" and settings.in_process else []
    parts += [settings.system] if settings.system else []
    if settings.kind == "local" and settings.probe not in ("auto", "none"):
        from codezero.evaluator.probe import MOST_BYTES

        with translated(ConfigError, f"evaluator.probe={settings.probe} cannot be used", OSError, ValueError):
            parts.append(hashlib.sha256(read_bounded(Path(settings.probe), MOST_BYTES)).hexdigest())
    elif settings.probe == "none":
        parts.append(settings.probe)
    return hashlib.sha256(json.dumps([*parts, PROMPT_VERSION, files]).encode()).hexdigest()[:16]
