"""Which of the peers' groups push the own policy, and how.

A stranger's text is read again with the own tokenizer and judged by the own judge; its rewards and log-probabilities
are never used. Rows are pushed as if the own policy had written them (ratio 1 at first sight), and by default only
upwards: pushing down what another policy wrote pulls unboundedly on tokens that this one would never write. Groups at
one problem are one group, whoever sampled them. Does not judge or fetch.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from codezero.solver.advantages import joint_advantages
from codezero.solver.batch import Row
from codezero.types import Completion, Problem, ScoredGroup

LEAST_MEAN_LOGPROB = -4.0
"""Nats per token. What the policy finds less likely is not its language, and a push would be a jolt."""
LEAST_ROWS = 4
"""Judged attempts at a problem; the mean of fewer says too little."""
PEERS_FOR_CAP = 4
"""From this many peers on, one peer gives at most a PEERS_FOR_CAP-th of the groups."""
MAX_PEERS = 32
"""Whose part is told after an update; those of whom most was chosen."""
SAPO, OFF = "sapo", "off"

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reader:
    """How text becomes the own policy's tokens. Made of the own tokenizer, prompt and model."""

    prompt_ids: Callable[[Sequence[Problem]], list[Ids]]
    """The whole prompts, however long."""
    completion_ids: Callable[[Sequence[Completion]], list[Ids]]
    """The texts' ids, followed by EOS where the completion is finished."""
    logprobs: Callable[[Sequence[Ids], Sequence[Ids]], list[tuple[float, ...]]]
    """Nats of completions after prompts, under the own policy at the training temperature."""
    max_prompt_tokens: int
    max_new_tokens: int


@dataclass(frozen=True, slots=True)
class Rules:
    """What may be learned of peers in one update."""

    own_peer_id: str
    policy: str
    """positives, sapo or off."""
    max_groups: int
    max_rows: int
    scale: str
    """As `grpo.advantages` has it."""
    passing: Callable[[Sequence[str]], set[str]] = set
    """Which of these peers may be learned from; all."""
    least_rows: int = LEAST_ROWS


@dataclass(frozen=True, slots=True)
class External:
    """The peers' part of an update."""

    rows: tuple[Row, ...] = ()
    """Those that push."""
    idle_rows: int = 0
    idle_tokens: int = 0
    """Rows of chosen groups that do not push; they count in the loss's mean as they do in an own group."""
    chosen: tuple[ScoredGroup, ...] = ()
    refused: tuple[tuple[str, int], ...] = ()
    """Groups and rows left out, by reason."""
    peers: tuple[tuple[str, int, int], ...] = ()
    """(peer id, its groups, those of them that were chosen), at most MAX_PEERS."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A group that could be taught from. G rows."""

    group: ScoredGroup
    prompt: Ids

    @property
    def rows(self) -> int:
        return len(self.group.verdicts)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a chosen group. T tokens."""

    group: int
    """Place of its group among the chosen."""
    prompt: Ids
    tokens: Ids
    """(T,) by the own tokenizer."""
    said: str
    """Its text, however it is spaced."""
    advantage: float


def external(
    peers: Sequence[ScoredGroup], local: Sequence[ScoredGroup], reader: Reader, rules: Rules, chance: random.Random
) -> External:
    """At most `max_groups` of the peers' groups with at most `max_rows` rows in all, as rows to learn from.

    `local` are the own groups, which share their mean with peers' groups at the same problem.
    """
    refused: Counter[str] = Counter()
    strangers = [one for one in peers if one.group.peer_id != rules.own_peer_id]
    refused["own"] = len(peers) - len(strangers)
    own = {one.group.problem.id: one for one in local}
    candidates = list(_candidates(strangers, own, reader, rules, refused))
    chosen = choose(candidates, rules.max_groups, rules.max_rows, chance)
    refused["not_needed"] = len(candidates) - len(chosen)
    rows, idle_rows, idle_tokens = _rows(chosen, own, reader, rules, refused)
    groups = tuple(one.group for one in chosen)
    return External(rows, idle_rows, idle_tokens, groups, tuple((+refused).items()), _parts(strangers, groups))


def choose(candidates: Sequence[Candidate], max_groups: int, max_rows: int, chance: random.Random) -> list[Candidate]:
    """Peers take turns in random order, each giving its groups in random order, so that nobody crowds others out."""
    by_peer: dict[str, list[Candidate]] = {}
    for one in chance.sample(list(candidates), len(candidates)):
        by_peer.setdefault(one.group.group.peer_id, []).append(one)
    budget = min(max_groups, len(candidates))
    cap = max(1, budget // PEERS_FOR_CAP) if len(by_peer) >= PEERS_FOR_CAP else budget
    turns = [mine[turn] for turn in range(cap) for mine in by_peer.values() if turn < len(mine)]
    chosen: list[Candidate] = []
    for one in turns:
        room = max_rows - sum(other.rows for other in chosen)
        if len(chosen) < max_groups and one.rows <= room:
            chosen.append(one)
    return chosen


def merged_advantages(
    foreign: Sequence[ScoredGroup], local: Sequence[ScoredGroup], scale: str
) -> dict[int, list[float]]:
    """By id() of each group, [G]: advantages over all these attempts at its problem; zeros without spread."""
    together: dict[str, list[ScoredGroup]] = {}
    for one in (*local, *foreign):
        together.setdefault(one.group.problem.id, []).append(one)
    weights = {id(one): [0.0] * len(one.verdicts) for one in (*local, *foreign)}
    for groups in together.values():
        joint = joint_advantages(groups, scale) or []
        weights |= {id(one): mine for one, mine in zip(groups, joint, strict=False)}
    return weights


def _parts(strangers: Sequence[ScoredGroup], chosen: Sequence[ScoredGroup]) -> tuple[tuple[str, int, int], ...]:
    groups = Counter(one.group.peer_id for one in strangers)
    used = Counter(one.group.peer_id for one in chosen)
    first = sorted(groups, key=lambda peer: (-used[peer], -groups[peer], peer))[:MAX_PEERS]
    return tuple((peer, groups[peer], used[peer]) for peer in first)


def _candidates(
    groups: Sequence[ScoredGroup], own: dict[str, ScoredGroup], reader: Reader, rules: Rules, refused: Counter[str]
) -> Iterator[Candidate]:
    if rules.policy == OFF:
        refused["off"] = len(groups)
        return
    passing = rules.passing([one.group.peer_id for one in groups])
    prompts = reader.prompt_ids([one.group.problem for one in groups])
    for one, prompt in zip(groups, prompts, strict=True):
        mine = own.get(one.group.problem.id)
        together = [one] if mine is None else [one, mine]
        judged = sum(verdict.trainable for each in together for verdict in each.verdicts)
        if len(prompt) > reader.max_prompt_tokens:
            refused["long_prompt"] += 1
        elif one.group.peer_id not in passing:
            refused["gate"] += 1
        elif joint_advantages(together, rules.scale) is None:
            refused["no_spread"] += 1
        elif judged < rules.least_rows:
            refused["few_rows"] += 1
        else:
            yield Candidate(one, prompt)


def _rows(
    chosen: Sequence[Candidate], own: dict[str, ScoredGroup], reader: Reader, rules: Rules, refused: Counter[str]
) -> tuple[tuple[Row, ...], int, int]:
    """The rows that push, and how many rows and tokens of the chosen groups do not."""
    attempts = list(_attempts(chosen, own, reader, rules.scale))
    first: dict[tuple[Ids, str], int] = {}
    """By question and answer: the group that said it first. What a group repeats counts as often as it was sampled."""
    pushing: list[Attempt] = []
    for one in attempts:
        if not one.advantage or (one.advantage < 0 and rules.policy != SAPO):
            continue
        if not 0 < len(one.tokens) <= reader.max_new_tokens:
            refused["row_length"] += 1
        elif first.setdefault((one.prompt, one.said), one.group) != one.group:
            refused["row_duplicate"] += 1
        else:
            pushing.append(one)
    rows = tuple(_likely(pushing, reader, refused))
    tokens_in_all = sum(min(len(one.tokens), reader.max_new_tokens) for one in attempts)
    idle_tokens = tokens_in_all - sum(len(row.completion_ids) for row in rows)
    return rows, len(attempts) - len(rows), idle_tokens


def _attempts(
    chosen: Sequence[Candidate], own: dict[str, ScoredGroup], reader: Reader, scale: str
) -> Iterator[Attempt]:
    """Every attempt of the chosen groups, measured against all attempts at its problem, the own ones too."""
    ids = iter(reader.completion_ids([each for one in chosen for each in one.group.group.completions]))
    weights = merged_advantages([one.group for one in chosen], list(own.values()), scale)
    for at, one in enumerate(chosen):
        for completion, weight in zip(one.group.group.completions, weights[id(one.group)], strict=True):
            tokens = next(ids)
            yield Attempt(at, one.prompt, tokens, " ".join(completion.text.split()), weight)


def _likely(pushing: Sequence[Attempt], reader: Reader, refused: Counter[str]) -> Iterable[Row]:
    """Rows whose text the own policy could have written."""
    scores = reader.logprobs([one.prompt for one in pushing], [one.tokens for one in pushing])
    for one, logprobs in zip(pushing, scores, strict=True):
        if math.fsum(logprobs) / len(logprobs) < LEAST_MEAN_LOGPROB:
            refused["row_unlikely"] += 1
        else:
            yield Row(one.prompt, one.tokens, logprobs, one.advantage)
