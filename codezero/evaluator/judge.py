"""A frozen language model in this process as judge: the likelihood of a program, and answers to questions about it.

By likelihood (teacher forcing) a program pays for every token that the model would not have written itself, which a
policy can exploit much less than a yes/no question; the price is that a correct but unusual program scores low.
Questions are follow-ups of the same conversation, so question and code are read once (`models/likelihood.py`).

A likelihood belongs to one spelling. A small judge therefore writes a few solutions of its own for each question, and
reads one of them in the place of every program that `code/agreement` finds to return the same. Whether a program agrees
is a score of its own. About a program that it cannot follow, though it follows a solution of its own, it says nothing.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import enum
import logging
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from codezero.code.parsing import fence
from codezero.code.report import StaticRequest
from codezero.code.worker import StaticGuard
from codezero.errors import EvaluatorError, translated
from codezero.evaluator import judge_prompts as prompts
from codezero.evaluator.judge_prompts import SCORES, FollowUp
from codezero.evaluator.probe import Probe
from codezero.evaluator.types import Program, Reading
from codezero.models.chat import Conversation, encode_completions, encode_prompts
from codezero.models.generation import OwnLoop
from codezero.models.likelihood import Ask, AskScores, Ids, PrefixReader, PrefixRow, RowScores, TokenScores
from codezero.models.load import TINY_PARAMETERS, LoadedModel, as_loaded
from codezero.stats import Array

logger = logging.getLogger(__name__)

CACHED_READINGS = 65_536
MOST_WRITTEN = 192  # tokens of an answer of its own
NO_MEMORY = "the judge ran out of memory; lower evaluator.batch_rows"
WRITTEN_AT = (0.01, 0.7, 0.7, 0.7)  # temperatures of its own answers; the first is all but greedy
_Sheets = Sequence[Sequence[FollowUp]]  # of each program, what is asked about it
_Answers = dict[str, list[AskScores | None]]  # by question; None where a follow-up was too long to read


class _Reply(NamedTuple):
    code: TokenScores | None  # as `_code_scores` has them
    state: Tensor | None  # [L, D] mean over the code's tokens, after each layer that was asked for
    answers: _Answers

    def features(self) -> Array | None:
        """[L, D + 1] what a probe weighs: the state, and the mean log-probability of the code's tokens in nats."""
        if self.code is None or self.state is None:
            return None
        mean = self.code.logprob.clamp(min=prompts.FLOOR).double().mean()
        return np.column_stack([self.state.double().numpy(), np.full(len(self.state), float(mean))])


class LikelihoodJudge:
    """Scores of a program by one model; `judge_prompts.SCORES` lists those of each question."""

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        questions: Collection[str] = (prompts.LIKELIHOOD, prompts.YES_NO),
        probe: Probe | None = None,
        batch_rows: int = 128,
        share_prefix: bool = True,
        progress: Callable[[int, int], object] = lambda done, of: None,
    ) -> None:
        """Ask the probe alone where there is one among the questions: likelihood is a part of it, and the others order
        attempts worse. `share_prefix` False reads every prompt in full."""
        ids = encode_completions(loaded.tokenizer, list(chain(*prompts.YES_NO_WORDS)))
        spelled = [(yes[0], no[0]) for yes, no in zip(ids[::2], ids[1::2], strict=True) if len(yes) == len(no) == 1]
        self._yes_no = [(yes, no) for yes, no in spelled if yes != no]  # of every spelling that is one token in both
        mute = {prompts.YES_NO, prompts.PER_TEST} & set(questions) if not self._yes_no else set[str]()
        self.unused = "the tokenizer has no single tokens for Yes and No" if mute else ""
        mute |= set() if probe else {prompts.PROBE}
        self._probe = probe
        wanted = {prompts.PROBE} if probe and prompts.PROBE in questions else set(questions) - mute
        self._questions = tuple(question for question in SCORES if question in wanted)
        self.names = tuple(name for question in self._questions for name in SCORES[question])
        self._most_tokens: float = getattr(loaded.model.config, "max_position_embeddings", None) or math.inf
        self._tokenizer, self._conversation = loaded.tokenizer, Conversation(loaded.tokenizer)
        self._loaded, self.parameters = loaded, loaded.model.num_parameters()
        self._reader = PrefixReader(
            loaded.model, loaded.pad_id, batch_rows=batch_rows, share=share_prefix, progress=progress
        )
        self._end = loaded.stop_ids[0]
        self._opening = self._ids([fence("").partition("\n")[0] + "\n"])[0]
        self._cache: dict[tuple[Program, frozenset[str]], Reading] = {}
        if why := self._conversation.why_not or (self._reader.why_not if share_prefix else ""):
            logger.info("the judge reads every prompt in full: %s", why)

    def read(self, programs: Sequence[Program], wanted: frozenset[str]) -> list[Reading]:
        """The same reading for the same program until `forget`. Raises EvaluatorError when memory runs out."""
        if len(self._cache) > CACHED_READINGS:
            self._cache.clear()
        missing = [program for program in dict.fromkeys(programs) if (program, wanted) not in self._cache]
        with translated(EvaluatorError, NO_MEMORY, torch.OutOfMemoryError, reason=False), as_loaded(self._loaded):
            readings = self._read(missing, wanted) if missing else []
        self._cache |= {(program, wanted): reading for program, reading in zip(missing, readings, strict=True)}
        return [self._cache[program, wanted] for program in programs]

    def forget(self) -> None:
        """Rows of one batch are padded to one length, which changes the last digits of a score."""
        self._cache.clear()

    def features(self, programs: Sequence[Program], layers: Sequence[int]) -> list[Array | None]:
        """[L, D + 1] of each program, what a probe is fitted on; None: too long to read. Raises EvaluatorError when
        memory runs out."""
        with translated(EvaluatorError, NO_MEMORY, torch.OutOfMemoryError, reason=False), as_loaded(self._loaded):
            replies = self._ask(programs, [()] * len(programs), score_code=True, layers=layers)
        return [reply and reply.features() for reply in replies]

    def write(self, questions: Sequence[str]) -> list[list[str]]:
        """Own answers to each question, one for each of WRITTEN_AT; cut off where they grow long, none where there is
        no room for one. Raises EvaluatorError when memory runs out."""
        heads = encode_prompts(self._tokenizer, list(questions))
        fits = [at for at, ids in enumerate(heads) if len(ids) + MOST_WRITTEN <= self._most_tokens]
        answers: list[list[str]] = [[] for _ in questions]
        with translated(EvaluatorError, NO_MEMORY, torch.OutOfMemoryError, reason=False):
            for seed, temperature in enumerate(WRITTEN_AT if fits else ()):
                drawn = OwnLoop(self._loaded).draw([heads[at] for at in fits], 1, MOST_WRITTEN, temperature, seed)
                for at, draw in zip(fits, drawn, strict=True):
                    answers[at].append(str(self._tokenizer.decode(draw.ids, skip_special_tokens=True)))
        return answers

    def _read(self, programs: Sequence[Program], wanted: frozenset[str]) -> list[Reading]:
        needed = {question for question in self._questions if wanted & set(SCORES[question])}
        if not needed:
            return [Reading((None,) * len(self.names))] * len(programs)
        of_task = {prompts.task(program): program for program in programs} if prompts.YES_NO in needed else {}
        empty = [replace(program, code=code) for program in of_task.values() for code in prompts.CONTENT_FREE]
        sheets = [prompts.follow_ups(program, needed) for program in programs]
        sheets += [prompts.follow_ups(program, {prompts.YES_NO}) for program in empty]
        layers = (self._probe.layer,) if self._probe and prompts.PROBE in needed else ()
        replies = self._ask([*programs, *empty], sheets, bool(needed & {prompts.LIKELIHOOD, prompts.PROBE}), layers)
        biases = [
            None if reply is None else prompts.mean_of_all(self._next_token_margins(reply.answers[prompts.YES_NO]))
            for reply in replies[len(programs) :]
        ]
        each = len(prompts.CONTENT_FREE)
        priors = {task: prompts.mean_of_all(biases[at * each :][:each]) for at, task in enumerate(of_task)}
        pairs = zip(programs, replies, strict=False)
        return [self._reading(reply, priors.get(prompts.task(program))) for program, reply in pairs]

    def _ask(
        self, programs: Sequence[Program], sheets: _Sheets, score_code: bool, layers: Sequence[int] = ()
    ) -> list[_Reply | None]:
        """The model's scores of each program and of each follow-up on its sheet; None: too long to read."""
        heads = encode_prompts(self._tokenizer, [prompts.task(program) for program in programs])
        codes = self._ids([fence(program.code) for program in programs])
        choices = list(chain(*zip(*self._yes_no, strict=True)))
        rows: list[PrefixRow] = []
        fits: list[list[bool] | None] = []
        for head, code, asks in zip(heads, codes, self._asks(programs, sheets), strict=True):
            length = len(head) + len(code)
            if length + 1 > self._most_tokens:
                fits.append(None)
                continue
            lengths = [(len(prompt) or length) + len(ask.ids) + len(ask.answer) for prompt, ask in asks]
            fits.append([total <= self._most_tokens for total in lengths])
            fitting = [pair for pair, total in zip(asks, lengths, strict=True) if total <= self._most_tokens]
            rows.append(PrefixRow(tuple(head), code, tuple(ask for prompt, ask in fitting if not prompt)))
            rows += [PrefixRow(prompt, (), (ask,)) for prompt, ask in fitting if prompt]
        scores = self._reader.read(rows, end=self._end if score_code else None, choices=choices, layers=layers)
        replies, read = list[_Reply | None](), iter(scores)
        for code, sheet, fit in zip(codes, sheets, fits, strict=True):
            if fit is None:
                replies.append(None)
                continue
            own = next(read)
            shared = iter(own.asks)  # all follow the code, or none does
            answers: _Answers = {follow_up.question: [] for follow_up in sheet}
            for follow_up, is_read in zip(sheet, fit, strict=True):
                answer = (next(shared) if own.asks else next(read).asks[0]) if is_read else None
                answers[follow_up.question].append(answer)
            replies.append(_Reply(self._code_scores(own, code), own.state, answers))
        return replies

    def _asks(self, programs: Sequence[Program], sheets: _Sheets) -> list[list[tuple[Ids, Ask]]]:
        """Each follow-up as (a prompt of its own, empty where it follows the code; ask)."""
        distinct = list(dict.fromkeys(chain(*sheets)))
        begun = dict(zip(distinct, self._ids([follow_up.begun for follow_up in distinct]), strict=True))
        answer = dict(zip(distinct, self._ids([follow_up.answer for follow_up in distinct]), strict=True))
        if not self._conversation.why_not:
            turns = self._conversation.follow_ups([follow_up.ask for follow_up in distinct])
            asks = {item: Ask((*turn, *begun[item]), answer[item]) for item, turn in zip(distinct, turns, strict=True)}
            return [[((), asks[item]) for item in sheet] for sheet in sheets]
        pairs = zip(programs, sheets, strict=True)
        texts = [prompts.alone(program, item.ask) for program, sheet in pairs for item in sheet]
        own = iter(encode_prompts(self._tokenizer, texts))
        return [[(tuple(next(own)), Ask(begun[item], answer[item])) for item in sheet] for sheet in sheets]

    def _ids(self, texts: Sequence[str]) -> list[Ids]:
        return [tuple(ids) for ids in encode_completions(self._tokenizer, texts)]

    def _code_scores(self, row: RowScores, code: Ids) -> TokenScores | None:
        """Score the code, its fence and the end of the answer, without the opening fence, which all programs share."""
        if row.body is None:
            return None
        pairs = enumerate(zip((*code, self._end), self._opening, strict=False))
        skip = next((at for at, (own, opening) in pairs if own != opening), len(self._opening))
        return TokenScores(row.body.logprob[skip:], row.body.gap[skip:])

    def _reading(self, reply: _Reply | None, prior: float | None) -> Reading:
        if reply is None:
            return Reading(None, "longer than the judge can read")
        scores: dict[str, float | None] = {}
        answers, features = reply.answers, reply.features()
        if reply.code is not None:
            gaps = reply.code.gap.clamp(min=prompts.FLOOR)
            if not bool(torch.isfinite(reply.code.gap).all()):
                return Reading(None, "the judge's scores are not finite")
            scores |= zip(SCORES[prompts.LIKELIHOOD], (float(gaps.min()), float(gaps.mean())), strict=True)
        if self._probe and features is not None:
            score = self._probe.score(features[0])
            scores[prompts.PROBE] = score if math.isfinite(score) else None
        if prompts.YES_NO in answers:
            margin = prompts.mean_of_all(self._next_token_margins(answers[prompts.YES_NO]))
            scores[prompts.YES_MARGIN] = None if margin is None or prior is None else margin - prior
        if prompts.PER_TEST in answers:
            margins = self._next_token_margins(answers[prompts.PER_TEST])
            scores |= zip(SCORES[prompts.PER_TEST], prompts.per_test_scores(margins), strict=True)
        if prompts.OUTPUT_MATCH in answers:
            scores |= zip(SCORES[prompts.OUTPUT_MATCH], _output_scores(answers[prompts.OUTPUT_MATCH]), strict=True)
        return Reading(tuple(scores.get(name) for name in self.names))

    def _next_token_margins(self, answers: Sequence[AskScores | None]) -> list[float | None]:
        """log p(Yes) - log p(No) where each answer begins; None where the model says neither, or could not read."""
        known = [answer.choices for answer in answers if answer is not None]
        if not known:
            return [None] * len(answers)
        yes, no = torch.stack(known).unflatten(-1, (2, -1)).logsumexp(-1).unbind(-1)
        says = (yes - no).isfinite() & (yes.exp() + no.exp() >= prompts.LEAST_MASS)
        margins = iter(zip((yes - no).tolist(), says.tolist(), strict=True))
        both = (None if answer is None else next(margins) for answer in answers)
        return [None if pair is None or not pair[1] else pair[0] for pair in both]


def _output_scores(answers: Sequence[AskScores | None]) -> tuple[float | None, float | None]:
    """(share of outputs whose every token is the likeliest, mean log-probability of all their tokens)."""
    known = [answer.answer for answer in answers if answer is not None]
    if not known or len(known) < len(answers) or not all(bool(torch.isfinite(scores.gap).all()) for scores in known):
        return None, None
    share = sum(bool((scores.gap >= 0).all()) for scores in known) / len(known)
    return share, float(torch.cat([scores.logprob for scores in known]).mean())


AGREEMENT = "agreement"  # 1: returns the same as an own solution; 0: differs from each; None: there is none

_Task = tuple[str, str]  # question and entry point


class _Other(enum.Enum):
    """A program that is not known to agree."""

    ALONE = enum.auto()
    APART = enum.auto()
    UNCLEAR = enum.auto()


def with_own_solutions(judge: LikelihoodJudge, guard: StaticGuard) -> "LikelihoodJudge | AgreeingJudge":
    """A small judge knows one spelling and writes in no time; a large one knows many, and would write for minutes."""
    return AgreeingJudge(judge, guard) if judge.parameters < TINY_PARAMETERS else judge


class AgreeingJudge:
    """Implements `types.Judge`."""

    def __init__(self, judge: LikelihoodJudge, guard: StaticGuard) -> None:
        self._judge, self._guard, self.names = judge, guard, (*judge.names, AGREEMENT)
        self._own: dict[_Task, list[str]] = {}  # distinct solutions in canonical code, the likeliest first
        self._agreeing: dict[Program, str | _Other] = {}  # the own solution that a program agrees with

    def read(self, programs: Sequence[Program], wanted: frozenset[str]) -> list[Reading]:
        pending = [each for each in dict.fromkeys(programs) if each.entry_point and each.kinds]
        self._solve([each for each in dict.fromkeys(map(_task_of, pending)) if each not in self._own])
        self._compare([each for each in pending if each not in self._agreeing])
        known = [self._agreeing.get(each, _Other.ALONE) for each in programs]
        pairs = [(each, own) for each, own in zip(programs, known, strict=True) if own is not _Other.UNCLEAR]
        spelled = [replace(each, code=own) if isinstance(own, str) else each for each, own in pairs]
        read = iter(self._judge.read(spelled, wanted))
        unclear = Reading(None, "written in a way that the judge cannot follow")
        return [unclear if own is _Other.UNCLEAR else _with_agreement(next(read), own) for own in known]

    def forget(self) -> None:
        """Drop own solutions too: they depend on the questions of the same batch, as readings do."""
        self._judge.forget()
        self._own.clear()
        self._agreeing.clear()

    def _compare(self, programs: Sequence[Program]) -> None:
        unclear = set[Program]()
        for each in programs:
            own = self._own[_task_of(each)]
            self._agreeing[each] = each.code if each.code in own else _Other.APART if own else _Other.ALONE
        for place in range(len(WRITTEN_AT)):
            left = [each for each in self._apart(programs) if place < len(self._own[_task_of(each)])]
            for each, agrees in zip(left, self._answers(left, place), strict=True):
                if agrees:
                    self._agreeing[each] = self._own[_task_of(each)][place]
                elif agrees is None:
                    unclear.add(each)
        left = self._apart(unclear)
        own = [replace(each, code=self._own[_task_of(each)][0]) for each in left]
        for each, follows in zip(left, self._answers(own, 0), strict=True):
            self._agreeing[each] = _Other.UNCLEAR if follows else _Other.ALONE

    def _apart(self, programs: Iterable[Program]) -> list[Program]:
        return [each for each in programs if self._agreeing[each] is _Other.APART]

    def _answers(self, programs: Sequence[Program], place: int) -> list[bool | None]:
        """Say of each whether it does the same as the judge's own solution at this place."""
        return self._guard.agree_many(
            [(each.code, self._own[_task_of(each)][place], each.entry_point, each.kinds) for each in programs]
        )

    def _solve(self, pending: Sequence[_Task]) -> None:
        written = self._judge.write([question for question, _ in pending]) if pending else []
        requests = [
            [StaticRequest(text, (), entry, question) for text in texts]
            for texts, (question, entry) in zip(written, pending, strict=True)
        ]
        reports = iter(self._guard.check_many(list(chain(*requests))))
        for each, texts in zip(pending, requests, strict=True):
            checked = [report for _, report in zip(texts, reports, strict=False)]
            usable = [it for it in checked if not (it.unavailable or it.quarantine or it.certain_failure)]
            self._own[each] = [code for code in dict.fromkeys(it.canonical for it in usable) if code is not None]


def _task_of(program: Program) -> _Task:
    return program.question, program.entry_point


def _with_agreement(reading: Reading, own: str | _Other) -> Reading:
    if reading.scores is None:
        return reading
    return Reading((*reading.scores, None if own is _Other.ALONE else float(isinstance(own, str))))
