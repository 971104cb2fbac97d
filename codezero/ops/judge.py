"""`codezero judge serve` and `codezero judge verify`: the judge, its exact reader, and what one reading settles."""

import hashlib
import importlib.metadata
import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from codezero.code.worker import StaticGuard
from codezero.config import NodeConfig
from codezero.environments.code import CodeEnvironment
from codezero.errors import ConfigError, EvaluatorError, translated
from codezero.evaluator.build import build_canaries, build_evaluator
from codezero.evaluator.evidence import within_metrics
from codezero.evaluator.judge_prompts import LIKELIHOOD, PROMPT_VERSION
from codezero.evaluator.types import Judge, program, request
from codezero.market.judge_service import GRID, BatchRequest, Card, JudgeParts, SignedReceipt, as_group
from codezero.models.build import FrozenModels, Say, source_of
from codezero.problems.filters import Novelty
from codezero.problems.stream import MixedStream
from codezero.system.files import read_json
from codezero.types import Problem, RolloutGroup

if TYPE_CHECKING:
    from codezero.swarm.identity import Identity

AHEAD, BATCHES = 16, 8  # questions drawn together, and how often for one that the judge can say anything about
MAX_FILE = 4 << 20  # bytes of a receipt, or of the items that it is about
RECHECKED = 0.02  # of a receipt's programs; one at least
VERSIONS = ("codezero", "torch", "transformers")
T = TypeVar("T")


class ExactReader:
    """Reads one program at a time, by a float64 forward pass on the CPU, up to the grid of a receipt."""

    def __init__(self, config: NodeConfig, guard: StaticGuard, say: Say) -> None:
        """Raises ConfigError for a judge behind an endpoint, and ModelError."""
        from codezero.evaluator.judge import LikelihoodJudge, with_own_solutions
        from codezero.models.digest import weights_digest
        from codezero.models.load import load_model

        if config.evaluator.kind != "local":
            raise ConfigError("a judge behind an endpoint signs no receipts; set evaluator.kind=local")
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


def build_parts(config: NodeConfig, identity: "Identity", receipts: bool, say: Say, stack: ExitStack) -> JudgeParts:
    """Raises ConfigError, ModelError, EvaluatorError and ProblemError."""
    from codezero.evaluator.evaluator import FrozenEvaluator

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
                drawn.extend(evaluator.covered(stream.next_batch([])))
            if drawn:
                return drawn.popleft()
        raise EvaluatorError(f"{AHEAD * BATCHES} questions of data.sources are all unlike what it was measured on")

    skill = evaluator.calibrate()
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
    file that cannot be read.
    """
    from codezero.swarm.identity import peer_id_of
    from codezero.swarm.identity import verify as holds

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
