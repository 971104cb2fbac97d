"""The judge as a service, for rl-swarm's unchanged JudgeClient and for whoever wants verdicts with a receipt.

Nothing that is sent is executed. Web pages are refused; so are other machines without the token, but for the first
three routes where the service is open. A judge that cannot answer is a 503, never a score of 0.

A receipt is what the judge read, signed, so that anybody with its weights can redo one reading of a batch: each
program's scores as whole numbers of 1/GRID nats, read alone by a float64 forward pass on a CPU, which is the same on
every kernel set that was tried. A lie is refuted by reading one program (refereed delegation, arXiv 2502.19405)."""

import asyncio
import hashlib
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, TypeVar

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from msgspec import Meta

from codezero.code.assertions import as_problem
from codezero.errors import CodeZeroError, EvaluatorError, HttpRefusal, ProblemError
from codezero.system.files import Hex
from codezero.system.state import Newest
from codezero.system.web import RateLimit, answer, check_bearer, error, read_body, refuse
from codezero.types import Completion, Problem, RolloutGroup, ScoredGroup, Status, Verdict

MAX_BODY, MAX_ANSWER, MAX_ITEMS = 256 << 10, 64 << 10, 64  # bytes, characters, items of a batch
MAX_SESSIONS, SESSION_SECONDS = 10_000, 3600.0
MAX_WAITING = 8  # requests for the judge, which reads one after another
QUESTIONS, BATCHES = (30, 2.0), (10, 6.0)  # of an address: at once, and seconds until one more
MAX_CALLERS, ALL = 4096, 10  # addresses that are remembered; times as much for all of them together
GRID = 10_000  # steps of a nat; honest readings are at most one step apart
CONTEXT = b"cz1-judge"  # before what is signed: the signature is good for nothing else
TURN = re.compile(r"\s*(?:<\|?(?:im_end|eot_id|end_of_turn|im_start|start_of_turn)\|?>\s*)*(?:assistant|model)\b:?|"
                  r"\s*\[/INST\]")  # fmt: skip  # what chat templates put between a question and its answer
# The game that is open, as the client asks for it: no node opens one here, so none is.
NO_GAME = {"game_id": -1, "clue_id": -1, "rounds_remaining": -1, "clue": "", "choices": ()}
CLIENT_ROUTES = ("/request-question", "/submit-answer", "/current_clue")
T = TypeVar("T")
Name = Annotated[str, Meta(max_length=256)]
Text = Annotated[str, Meta(max_length=1 << 16)]
HexBytes = Annotated[str, Meta(pattern=r"^(?:[0-9a-f]{2}){1,1024}\Z")]
Scores = Annotated[tuple[Annotated[int, Meta(ge=-(1 << 40), le=1 << 40)], ...], Meta(max_length=8)]


class ReceiptItem(msgspec.Struct, frozen=True):
    """A program to judge. entry_point: None is read off the tests; empty: it reads stdin and writes stdout."""

    question: Annotated[str, Meta(min_length=1, max_length=1 << 16)]
    tests: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=MAX_ITEMS)]
    completion: Text
    entry_point: Annotated[str, Meta(max_length=128)] | None = None

    @property
    def digest(self) -> str:
        """64 hex digits."""
        return hashlib.sha256(canonical(self)).hexdigest()


class ProgramReading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The judge's reading of one item. scores: in steps of 1/GRID nats; None where it read nothing."""

    item: Hex
    scores: Scores | None
    status: Status

    def agrees(self, scores: Sequence[int] | None) -> bool:
        """Are they one reading, up to a step of the grid?"""
        if self.scores is None or scores is None:
            return self.scores is scores
        near = (abs(a - b) <= 1 for a, b in zip(self.scores, scores, strict=True))
        return len(self.scores) == len(scores) and all(near)


class Receipt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that is signed. judge: digest of weights, prompts and grid."""

    judge: Hex
    readings: Annotated[tuple[ProgramReading, ...], Meta(min_length=1, max_length=MAX_ITEMS)]
    v: Literal[2] = 2


class SignedReceipt(msgspec.Struct, frozen=True):
    """A receipt in the answer of `/v1/verdicts`. public_key: libp2p's `PublicKey` message."""

    receipt: Receipt
    public_key: HexBytes
    signature: HexBytes

    def check(self, items: Sequence[ReceiptItem], verify: Callable[[bytes, bytes, bytes], bool]) -> None:
        """Raises EvaluatorError, unless it is signed, and of these items.

        verify: does (public key, signature, message) hold?"""
        key, signature = bytes.fromhex(self.public_key), bytes.fromhex(self.signature)
        if not verify(key, signature, signed_bytes(self.receipt)):
            raise EvaluatorError("the signature is not of this receipt and key")
        if [reading.item for reading in self.receipt.readings] != [item.digest for item in items]:
            raise EvaluatorError("the receipt is of other items than these")


def canonical(value: object) -> bytes:
    """JSON without white space, keys in order."""
    return msgspec.json.encode(value, order="sorted")


def signed_bytes(value: msgspec.Struct, context: bytes = CONTEXT) -> bytes:
    return context + canonical(value)


class QuestionRequest(msgspec.Struct):
    user_id: Name
    round_number: int
    model_name: Name


class AnswerRequest(msgspec.Struct):
    session_id: Annotated[str, Meta(max_length=64)]
    round_number: int
    user_answer: str


class BatchRequest(msgspec.Struct):
    items: Annotated[list[ReceiptItem], Meta(min_length=1, max_length=MAX_ITEMS)]
    receipt: bool = True


class Card(msgspec.Struct, frozen=True):
    """Who the judge is, and how far it can be believed. judge: see `Receipt`; empty: it signs no receipts."""

    judge: str
    weights: str
    prompts: str
    questions: tuple[str, ...]
    grid: int
    versions: dict[str, str]
    calibration: dict[str, float | int | str | None]


@dataclass(frozen=True, kw_only=True)
class JudgeParts:
    """Parts that the service calls; `score` and `read` are called from one thread at a time."""

    draw: Callable[[], Problem]
    score: Callable[[Sequence[RolloutGroup]], list[ScoredGroup]]
    # scores of each group's one completion, alone, in steps of the grid; None: no receipts are signed
    read: Callable[[Sequence[RolloutGroup]], list[tuple[int, ...] | None]] | None
    sign: Callable[[bytes], bytes]
    public_key: bytes
    card: Card


class JudgeService:
    def __init__(
        self, parts: JudgeParts, *, token: str, is_open: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """token: of callers; empty: this machine's need none. is_open: the client's routes need none anyway."""
        self._parts, self._token, self._open, self._clock = parts, token, is_open, clock
        self._sessions = Newest[str, tuple[Problem, int, float]](MAX_SESSIONS)  # problem, round, until when
        self._limits = Newest[tuple[str, str], RateLimit](MAX_CALLERS)
        self._turn, self._waiting = asyncio.Lock(), 0
        self.counts = Counter[str]()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY, middlewares=[self._guard])
        posts = {"/request-question": self._question, "/submit-answer": self._answer, "/v1/verdicts": self._verdicts}
        gets = {
            "/current_clue": self._clue,
            "/v1/card": self._card,
            "/healthz": self._health,
            "/metrics": self._metrics,
        }
        for method, handlers in (("POST", posts), ("GET", gets)):
            for path, handler in handlers.items():
                app.router.add_route(method, path, handler)
                app.router.add_route(method, f"{path}/", handler)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        path = request.path.rstrip("/")
        try:
            if "Origin" in request.headers or "Sec-Fetch-Site" in request.headers:
                raise HttpRefusal(403, "this is for programs and not for web pages")
            if request.method == "POST" and request.content_type != "application/json":
                raise HttpRefusal(415, "only application/json is read here")
            if path != "/healthz" and not (self._open and path in CLIENT_ROUTES):
                check_bearer(request, self._token)
            if request.match_info.http_exception is None:
                self.counts[path] += 1
            return await handler(request)
        except (HttpRefusal, web.HTTPException) as failure:
            self.counts[f"{failure.status}"] += 1
            return refuse(failure)
        except CodeZeroError as failure:
            self.counts["503"] += 1
            return error(503, f"the judge cannot answer: {failure}", **{"Retry-After": "10"})

    def _take(self, request: web.Request, kind: str, burst: int, seconds: float) -> None:
        """Take one request from the address's allowance and from everybody's. Raises HttpRefusal."""
        for who, times in ((str(request.remote), 1), ("", ALL)):
            limit = self._limits.get((who, kind)) or RateLimit(burst * times, seconds / times, self._clock)
            self._limits[who, kind] = limit
            limit.take()

    async def _in_turn(self, work: Callable[[], T]) -> T:
        """Have the judge work, for one request after another. Raises HttpRefusal where too many wait."""
        if self._waiting >= MAX_WAITING:
            raise HttpRefusal(503, "too many requests wait for the judge", retry_after=10)
        self._waiting += 1
        try:
            async with self._turn:
                return await asyncio.to_thread(work)
        finally:
            self._waiting -= 1

    async def _question(self, request: web.Request) -> web.Response:
        self._take(request, "question", *QUESTIONS)
        body = await read_body(request, QuestionRequest)
        problem = await self._in_turn(self._parts.draw)
        now, session = self._clock(), secrets.token_urlsafe(24)
        self._sessions[session] = problem, body.round_number, now + SESSION_SECONDS
        place = {"session_id": session, "round_number": body.round_number, "expires_in": SESSION_SECONDS}
        return answer(place | {"question": problem.question})

    async def _answer(self, request: web.Request) -> web.Response:
        """A session's only answer, whether the judge can read it or not."""
        self._take(request, "answer", *QUESTIONS)
        body = await read_body(request, AnswerRequest)
        if len(body.user_answer) > MAX_ANSWER:
            raise HttpRefusal(413, f"an answer has at most {MAX_ANSWER} characters")
        problem, round_number, until = self._sessions.get(body.session_id) or (None, 0, 0.0)
        if problem is None or until <= self._clock():
            raise HttpRefusal(404, "there is no such session; ask for a question first")
        if round_number != body.round_number:
            raise HttpRefusal(409, "the question was asked in another round")
        del self._sessions[body.session_id]
        text = without_prompt(problem.question, body.user_answer)
        (scored,) = await self._in_turn(partial(self._parts.score, [_group(problem, text)]))
        verdict = scored.verdicts[0]
        if verdict.status is Status.UNAVAILABLE:
            raise HttpRefusal(503, "; ".join(verdict.reasons))
        removed = text != body.user_answer
        return answer({"score": verdict.reward, "verdict": shown(verdict), "prompt_removed": removed})

    async def _verdicts(self, request: web.Request) -> web.Response:
        """An item that cannot be read is unavailable, and the others stand."""
        self._take(request, "batch", *BATCHES)
        batch = await read_body(request, BatchRequest)
        groups = [as_group(item) for item in batch.items]
        usable = [group for group in groups if isinstance(group, RolloutGroup)]
        reader = self._parts.read if batch.receipt else None
        judged, exact = await self._in_turn(lambda: (self._parts.score(usable), reader(usable) if reader else []))
        scored, read = iter(judged), iter(exact)
        verdicts = [
            Verdict(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, Status.UNAVAILABLE, (group,))  # why it cannot be read
            if isinstance(group, str)
            else next(scored).verdicts[0]
            for group in groups
        ]
        result = {"verdicts": list(map(shown, verdicts)), "calibration": self._parts.card.calibration}
        if reader is None:
            return answer(result)
        readings = tuple(
            ProgramReading(item.digest, next(read) if isinstance(group, RolloutGroup) else None, verdict.status)
            for item, group, verdict in zip(batch.items, groups, verdicts, strict=True)
        )
        receipt = Receipt(self._parts.card.judge, readings)
        signature = await asyncio.to_thread(self._parts.sign, signed_bytes(receipt))
        signed = SignedReceipt(receipt, self._parts.public_key.hex(), signature.hex())
        return answer(result | msgspec.structs.asdict(signed))

    async def _clue(self, _: web.Request) -> web.Response:
        return answer(NO_GAME)

    async def _card(self, _: web.Request) -> web.Response:
        card = self._parts.card
        signature = await asyncio.to_thread(self._parts.sign, signed_bytes(card, b"cz1-card"))
        return answer({"card": card, "public_key": self._parts.public_key.hex(), "signature": signature.hex()})

    async def _health(self, _: web.Request) -> web.Response:
        return answer({"status": "ok", "waiting": self._waiting})

    async def _metrics(self, _: web.Request) -> web.Response:
        name = "codezero_judge_requests_total"
        lines = [f"# TYPE {name} counter", *(f'{name}{{kind="{kind}"}} {n}' for kind, n in self.counts.items())]
        return web.Response(text="\n".join([*lines, ""]))


def without_prompt(question: str, text: str) -> str:
    """Remove the prompt that came along with an answer: return the text behind the first occurrence of the question.

    White space counts for nothing. A text that does not repeat the question is taken whole; one that quotes it once
    more keeps the quotation."""
    places = [at for at, character in enumerate(text) if not character.isspace()]
    prompt = "".join(question.split())
    at = "".join(text[place] for place in places).find(prompt)
    if not prompt or at < 0:
        return text
    rest = text[places[at + len(prompt) - 1] + 1 :]
    turn = TURN.match(rest)
    return rest[turn.end() if turn else 0 :].strip()


def shown(verdict: Verdict) -> dict[str, object]:
    return {name: getattr(verdict, name) for name in ("reward", "correctness", "status", "reasons")}


def as_group(item: ReceiptItem) -> RolloutGroup | str:
    """Convert an item to a rollout group, or say why its tests cannot be read."""
    try:
        return _group(as_problem(item.question, item.tests, item.entry_point), item.completion)
    except ProblemError as failure:
        return str(failure)


def _group(problem: Problem, text: str) -> RolloutGroup:
    return RolloutGroup(problem, (Completion(text, (), (), finished=True),), peer_id="client", round=0, policy_step=0)
