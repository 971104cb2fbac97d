"""`codezero judge serve`, `verify` and `train`: the judge, its exact reader, what one reading settles, and its probe.

What a probe is fitted on are a policy's attempts at problems, executed once and kept in a file."""

import hashlib
import importlib.metadata
import json
import secrets
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from codezero.code.answer import read_answer
from codezero.code.assertions import MbppRow, as_problem
from codezero.code.worker import StaticGuard
from codezero.config import NodeConfig
from codezero.environments.code import CodeEnvironment, solver_prompt
from codezero.errors import ConfigError, EvaluatorError, ProblemError, translated
from codezero.evaluator.build import build_canaries, build_evaluator
from codezero.evaluator.evaluator import FrozenEvaluator
from codezero.evaluator.evidence import within_metrics
from codezero.evaluator.judge import LikelihoodJudge, with_own_solutions
from codezero.evaluator.judge_prompts import LIKELIHOOD, PROMPT_VERSION
from codezero.evaluator.probe import (
    LEAST_GROUPS,
    Attempted,
    Probe,
    depth_of,
    fit,
    last_norm,
    left_out,
    set_name,
    unseen,
)
from codezero.evaluator.types import Judge, Program, program, request
from codezero.market.judge_service import GRID, BatchRequest, Card, JudgeParts, SignedReceipt, as_group
from codezero.models.build import FrozenModels, Say, load, source_of
from codezero.models.digest import weights_digest
from codezero.models.generation import Sampler
from codezero.models.load import LoadedModel, load_model
from codezero.problems.filters import Novelty
from codezero.problems.rows import MAX_ROW, read_row
from codezero.problems.stream import SYNTHETIC, MixedStream
from codezero.problems.synthetic.tasks import held_out
from codezero.sandbox.base import TRUTH, Execution, Job, Outcome, Sandbox
from codezero.sandbox.build import build_sandbox
from codezero.stats import WithinGroups
from codezero.swarm.identity import Identity, peer_id_of
from codezero.swarm.identity import verify as holds
from codezero.system.files import BadRows, decode_row, json_lines, read_json
from codezero.system.signals import Share
from codezero.types import Problem, RolloutGroup, Style

AHEAD, BATCHES = 16, 8  # questions drawn together, and how often for one that the judge can say anything about
MAX_FILE = 4 << 20  # bytes of a receipt, or of the items that it is about
RECHECKED = 0.02  # of a receipt's programs; one at least
ROWS_AT_ONCE = 64  # attempts that are sampled and executed before they are written to the file
LAYERS = (0.6, 0.7, 0.75, 0.8)  # of a judge's depth; earlier and later layers order worse (measured)
VERSIONS = ("codezero", "torch", "transformers")
T = TypeVar("T")


class ExactReader:
    """Reads one program at a time, by a float64 forward pass on the CPU, up to the grid of a receipt."""

    def __init__(self, config: NodeConfig, guard: StaticGuard, say: Say) -> None:
        """Raises ConfigError for another kind of judge, and ModelError."""
        if (kind := config.evaluator.kind) != "local":
            mend = "give --no-receipts, or set evaluator.kind=local"
            raise ConfigError(f"evaluator.kind={kind} signs no receipts; {mend}")
        name = source_of(config.evaluator.model, "judge")
        say("loading the judge in float64, for receipts")
        loaded = load_model(name, device="cpu", precision="float32", role="judge")
        loaded.model.double()
        self._reader = LikelihoodJudge(loaded, questions=[LIKELIHOOD], batch_rows=1, share_prefix=False)
        self._judge: Judge = with_own_solutions(self._reader, guard)
        self._guard, self._block = guard, config.answer.block
        self.weights = weights_digest(name)
        parts = [self.weights, PROMPT_VERSION, LIKELIHOOD, GRID, self._block]
        self.identity = hashlib.sha256(msgspec.json.encode(parts)).hexdigest()

    def read(self, groups: Sequence[RolloutGroup]) -> list[tuple[int, ...] | None]:
        """Read each group's one completion; None where the static pass leaves nothing to read."""
        attempts = [(group.problem, group.completions[0].text) for group in groups]
        reports = self._guard.check_many([request(problem, text, self._block) for problem, text in attempts])
        read = list[tuple[int, ...] | None]()
        for (problem, _), report in zip(attempts, reports, strict=True):
            code = program(problem, report)
            scores = self._judge.read([code], frozenset(self._judge.names))[0].scores if code else None
            self._reader.forget()  # own solutions stay: a question is written to alone, always with the same result
            read.append(None if scores is None else tuple(round(GRID * (score or 0.0)) for score in scores))
        return read


def build_parts(config: NodeConfig, identity: Identity, receipts: bool, say: Say, stack: ExitStack) -> JudgeParts:
    """Raises ConfigError, ModelError, EvaluatorError and ProblemError."""
    if config.reward.mode != "judge":
        raise ConfigError(f"reward.mode={config.reward.mode} would execute what is sent; serve a judge without it")
    canaries = build_canaries(config, Novelty(), stack, say)
    evaluator = build_evaluator(config, canaries, stack, say, FrozenModels(config, say))
    assert isinstance(evaluator, FrozenEvaluator)
    settings = config.evaluator
    reader = ExactReader(config, stack.enter_context(StaticGuard()), say) if receipts else None
    stream = MixedStream(
        CodeEnvironment(), config.data, seed=secrets.randbits(32), peer_id=identity.peer_id, batch=AHEAD
    )
    drawn = deque[Problem]()

    def draw() -> Problem:
        for _ in range(BATCHES):
            if not drawn:
                batch = stream.next_batch([])
                unlike = evaluator.monitor.limits(batch)
                drawn.extend(problem for problem in batch if problem.id not in unlike)
            if drawn:
                return drawn.popleft()
        raise EvaluatorError(f"{AHEAD * BATCHES} questions of data.sources are all unlike what it was measured on")

    skill = evaluator.monitor.calibrated()
    card = Card(
        judge=reader.identity if reader else "",
        weights=reader.weights if reader else settings.model,
        prompts=PROMPT_VERSION,
        questions=tuple(settings.questions),
        grid=GRID,
        versions={name: importlib.metadata.version(name) for name in VERSIONS},
        calibration={"auroc": skill.auroc, "auroc_low": skill.auroc_low, "brier": skill.brier, "ece": skill.ece,
                     "canaries": skill.canaries, "calibrated_on": canaries.name,
                     **within_metrics("within_auroc", skill.within)},
    )  # fmt: skip
    read, key = reader.read if reader else None, identity.public_key_bytes
    return JudgeParts(draw=draw, score=evaluator.score, read=read, sign=identity.sign, public_key=key, card=card)


class RereadReceipt(msgspec.Struct, frozen=True):
    """signer: peer id. By item, in steps of the grid: read: scores that are as signed; refuted: those that are not."""

    signer: str
    read: dict[int, tuple[int, ...] | None]
    refuted: dict[int, tuple[int, ...] | None]

    def lines(self) -> Iterator[str]:
        yield f"signed by {self.signer}, and of these items"
        for item, scores in self.read.items():
            yield f"item {item} reads {scores}, as was signed"
        for item, scores in self.refuted.items():
            yield f"REFUTED: item {item} reads {scores}, and something else was signed"


def verify(config: NodeConfig, items: Path, receipt: Path, number: int | None, say: Say) -> RereadReceipt:
    """Read again: item `number`, else some at random.

    Raises EvaluatorError for a receipt that does not hold, ConfigError where that cannot be told: other weights, a
    file that cannot be read."""
    batch, signed = _read(items, BatchRequest).items, _read(receipt, SignedReceipt)
    with translated(EvaluatorError, str(receipt), EvaluatorError):
        signed.check(batch, holds)
    if number is not None and not 0 <= number < len(batch):
        raise ConfigError(f"--item={number} is out of bounds; it must be 0 to {len(batch) - 1}")
    count = max(1, round(RECHECKED * len(batch)))
    numbers = secrets.SystemRandom().sample(range(len(batch)), count) if number is None else [number]
    result = RereadReceipt(peer_id_of(bytes.fromhex(signed.public_key)), {}, {})
    with ExitStack() as stack:
        reader = ExactReader(config, stack.enter_context(StaticGuard()), say)
        if signed.receipt.judge != reader.identity:
            raise ConfigError(f"{receipt} is of another judge than evaluator.model={config.evaluator.model}")
        for at in numbers:
            group = as_group(batch[at])
            (scores,) = reader.read([group]) if isinstance(group, RolloutGroup) else [None]
            (result.read if signed.receipt.readings[at].agrees(scores) else result.refuted)[at] = scores
    return result


def _read(path: Path, schema: type[T]) -> T:
    """Raises ConfigError."""
    with translated(ConfigError, f"{path} cannot be used", OSError, ValueError):
        return read_json(path, schema, MAX_FILE)


class KeptAttempts(msgspec.Struct, frozen=True):
    """A line of the file, which `codezero judge FILE` reads too: a problem, attempts at it, and what running showed."""

    question: str
    tests: list[str]
    completions: Annotated[list[str], Meta(min_length=1, max_length=1024)]
    passed: list[bool | None]  # [G] None: execution could not tell
    entry_point: str | None = None  # read off the tests when it is missing
    solver: str = ""  # who wrote them, at temperature 1

    def __post_init__(self) -> None:
        if len(self.completions) != len(self.passed):
            raise ValueError(f"{len(self.completions)} completions and {len(self.passed)} outcomes in `passed`")
        as_problem(self.question, self.tests, self.entry_point)

    @property
    def problem(self) -> Problem:
        return as_problem(self.question, self.tests, self.entry_point, None)


def read_attempts(path: Path, solver: str = "", option: str = "--attempts") -> list[KeptAttempts]:
    """solver: who must have written them; empty: anybody. Raises ConfigError, which names the option and the line."""
    kept, place = list[KeptAttempts](), ""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(json_lines(file, MAX_ROW), 1):
                place = f", line {number}"
                kept += [decode_row(line, KeptAttempts)] if line.strip() else []
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{option}={path}{place} cannot be used: {reason}") from error
    if other := [each.solver for each in kept if solver and each.solver != solver]:
        mend = f"give another file, or model.solver={json.dumps(other[0])}"
        raise ConfigError(f"{option}={path} is of the solver {other[0]}; {mend}")
    return kept


@dataclass(frozen=True, slots=True)
class Wanted:
    """The attempts that are asked for."""

    problems: str  # a number of held-out embedded ones, or a file of rows, of which unusable ones are left out
    rows: str = ""  # A-B of MBPP's task_id; empty: all
    samples: int = 8  # G: at each problem
    tokens: int = 384  # most, of an attempt
    seed: int = 20_000  # of embedded problems and of the sampling noise
    kept: Path | None = None  # the file that has some, and takes the others


def sampled(
    solver: LoadedModel, problems: Sequence[Problem], samples: int, tokens: int, seed: int
) -> list[RolloutGroup]:
    prompts = [solver_prompt(problem) for problem in problems]
    texts = Sampler(solver).sample(
        prompts, group_size=samples, max_new_tokens=tokens, temperature=1.0, generator_seed=seed
    )
    return [RolloutGroup(each, tuple(group), "attempts", 0, 0) for each, group in zip(problems, texts, strict=True)]


def executed(sandbox: Sandbox, groups: Sequence[RolloutGroup], block: str = "best") -> list[tuple[Execution, ...]]:
    """[groups][G]; an attempt without code fails without being run."""
    jobs = [
        [
            None if code is None else Job(code, group.problem.tests, group.problem.style is Style.STDIO)
            for completion in group.completions
            for code in [read_answer(completion.text, group.problem.entry_point, block).code]
        ]
        for group in groups
    ]
    known = sandbox.run_distinct(job for row in jobs for job in row if job is not None)
    without = Execution(Outcome.FAIL, "no code that could be run")
    return [tuple(without if job is None else known[job] for job in row) for row in jobs]


def problems_of(wanted: Wanted, say: Say) -> list[Problem]:
    """Raises ConfigError."""
    source, rows = wanted.problems, wanted.rows
    if source.isdecimal():
        return held_out(int(source), wanted.seed)
    with translated(ConfigError, f"--rows={rows} is no range of task_id, as 601-974 is", ValueError, reason=False):
        first, last = (int(end) for end in rows.split("-")) if rows else (0, sys.maxsize)
    with translated(ConfigError, f"--problems={source} cannot be used", OSError, ValueError):
        with Path(source).open("rb") as file:
            lines = [line for line in json_lines(file, MAX_ROW) if line.strip()]
        if rows:
            lines = [line for line in lines if first <= decode_row(line, MbppRow).task_id <= last]
    problems, bad = list[Problem](), BadRows()
    for line in lines:
        try:
            problems.append(read_row(line).problem)
        except ProblemError as error:
            bad.add(error)
    if bad.count:
        say(f"{bad.count} rows of {source} are left out: {bad}")
    if not problems:
        raise ConfigError(f"--problems={source} has no usable row" + (f" of --rows={rows}" if rows else ""))
    return problems


def attempts_of(config: NodeConfig, wanted: Wanted, stack: ExitStack, say: Say) -> list[KeptAttempts]:
    """Those of the file, and those that it lacks, which are sampled, executed and added to it. Raises ConfigError, also
    for a file of another solver, ModelError and SandboxError."""
    path, name = wanted.kept, config.model.solver
    known = dict[str, KeptAttempts]()
    if path and path.exists():
        known = {each.problem.id: each for each in read_attempts(path, name)}
    problems = problems_of(wanted, say)
    missing = [problem for problem in problems if problem.id not in known]
    if not missing:
        return [known[problem.id] for problem in problems]
    solver, sandbox = load(config, name, "solver", say), build_sandbox(config, stack)
    step = max(1, ROWS_AT_ONCE // wanted.samples)
    for start in range(0, len(missing), step):
        say(Share("attempting and executing", start, len(missing), " problems"))
        groups = sampled(solver, missing[start : start + step], wanted.samples, wanted.tokens, wanted.seed + start)
        for group, row in zip(groups, executed(sandbox, groups), strict=True):
            each, texts = group.problem, [completion.text for completion in group.completions]
            passed = [TRUTH[each.outcome] for each in row]
            line = KeptAttempts(each.question, list(each.tests), texts, passed, each.entry_point, name)
            known[each.id] = line
            if path:
                with path.open("ab") as file:
                    file.write(msgspec.json.encode(line) + b"\n")
    return [known[problem.id] for problem in problems]


def readable(guard: StaticGuard, attempts: Sequence[KeptAttempts]) -> Iterator[tuple[int, Program, bool]]:
    """(group, program, passed) of the attempts that the static pass leaves to a judge, and that execution decided."""
    for number, each in enumerate(attempts):
        problem = each.problem
        reports = guard.check_many([request(problem, text) for text in each.completions])
        for report, passed in zip(reports, each.passed, strict=True):
            read = program(problem, report)
            if read is not None and passed is not None:
                yield number, read, passed


def train_probe(config: NodeConfig, wanted: Wanted, others: Sequence[Path], stack: ExitStack, say: Say) -> Probe:
    """At the layer that orders best, in folds, the attempts of groups that were not fitted on; with `others`, attempts
    at more sets of problems, those of whole sets. Raises ConfigError for a judge that is not local and for too few
    groups, and as `attempts_of`."""
    settings = config.evaluator
    if settings.kind != "local":
        raise ConfigError(f"evaluator.kind={settings.kind} shows no states to fit a probe on; set evaluator.kind=local")
    named = SYNTHETIC if wanted.problems.isdecimal() else set_name(wanted.problems)
    names = [*(set_name(str(path)) for path in others), named]
    if len({*names}) < len(names):
        raise ConfigError(f"--others: two sets are called the same; name the files apart: {', '.join(names)}")
    kept = [read_attempts(path, config.model.solver, "--others") for path in others]
    ids = [each.problem.id for its in kept for each in its]
    if others:  # before hours of sampling
        ids += {problem.id for problem in problems_of(wanted, lambda _: None)}
    if twice := len(ids) - len({*ids}):
        raise ConfigError(f"--others: {twice} problems are there again; sets that are left out in turn must share none")
    attempts = dict(zip(names, [*kept, attempts_of(config, wanted, stack, say)], strict=True))
    guard = stack.enter_context(StaticGuard())
    judge = load(config, settings.model, "judge", say)
    depth = depth_of(judge)
    layers = sorted({max(1, round(share * depth)) for share in LAYERS})
    sets = {name: read_groups(kept, guard, judge, layers, settings.batch_rows, say) for name, kept in attempts.items()}
    if others and (empty := [name for name, its in sets.items() if not its]):
        raise ConfigError(f"{empty[0]} has no problem with an attempt that passes and one that fails; leave it out")
    groups = [*chain(*sets.values())]
    if len(groups) < LEAST_GROUPS:
        few = f"only {len(groups)} problems have an attempt that passes and one that fails; {LEAST_GROUPS} are needed"
        raise ConfigError(f"{few}: give more problems, or more --samples")
    orders, elsewhere = list[WithinGroups](), list[dict[str, WithinGroups]]()
    for place, layer in enumerate(layers):
        say(f"fitting at layer {layer} of {depth}")
        order = unseen(groups, place)
        assert order is not None
        orders.append(order)
        elsewhere.append(left_out(sets, place) if others else {named: order})

    # over all pairs, of which a set of few says little; they are the same at each layer
    best = max(range(len(layers)), key=lambda at: sum(each.area * each.pairs for each in elsewhere[at].values()))
    order = orders[best]
    what = ", ".join([wanted.problems + (f" rows {wanted.rows}" if wanted.rows else ""), *map(str, others)])
    return Probe(
        judge=settings.model,
        layers=depth,
        layer=layers[best],
        state="mean",
        norm=last_norm(judge),
        direction=[float(f"{weight:.5g}") for weight in fit(groups, best)],
        fitted_on=f"attempts of {config.model.solver} at {what}"[:1000],
        within=[round(end, 4) for end in order[:3]],
        groups=order.groups,
        pairs=order.pairs,
        sets=[*sets],
        elsewhere={name: [round(end, 4) for end in known[:3]] for name, known in elsewhere[best].items() if others},
    )


def read_groups(
    attempts: Sequence[KeptAttempts],
    guard: StaticGuard,
    judge: LoadedModel,
    layers: Sequence[int],
    batch_rows: int,
    say: Say,
) -> list[Attempted]:
    """Those with an attempt that passed and one that did not. A program that was written twice counts twice."""
    reader = LikelihoodJudge(judge, questions=[LIKELIHOOD], batch_rows=batch_rows)
    items = [list(group) for _, group in groupby(readable(guard, attempts), lambda item: item[0])]
    mixed = [group for group in items if len({passed for _, _, passed in group}) == 2]
    groups = list[Attempted]()
    for number, group in enumerate(mixed):
        say(Share("reading", number, len(mixed), " problems"))
        programs: list[Program] = list(dict.fromkeys(read for _, read, _ in group))
        known = dict(zip(programs, reader.features(programs, layers), strict=True))
        seen = [(features, passed) for _, read, passed in group if (features := known[read]) is not None]
        if len({passed for _, passed in seen}) == 2:
            groups.append(Attempted(np.array([features for features, _ in seen]), [passed for _, passed in seen]))
    return groups
