"""Which of the peers' groups push the own policy, and how.

A stranger's text is read again with the own tokenizer and judged by the own judge; its token ids, log-probabilities
and rewards are never used. Rows are pushed as if the own policy had written them (ratio 1 at first sight), and only
upwards: pushing down what another policy wrote pulls unboundedly on tokens this one would never write, and destroyed
nodes in every experiment where peers were half of a batch. Does not judge, and does not fetch.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from codezero.solver.batch import Row
from codezero.solver.grpo import group_advantages
from codezero.types import Completion, Problem, ScoredGroup

LEAST_MEAN_LOGPROB = -4.0
"""Nats per token. What the policy finds less likely is not its language, and a push would be a jolt."""
PEERS_FOR_CAP = 4
"""From this many peers on, one peer gives at most a PEERS_FOR_CAP-th of the groups."""
MAX_PEERS = 32
"""Whose part is told after an update; those of whom most was chosen."""

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
class External:
    """The peers' part of an update."""

    rows: tuple[Row, ...] = ()
    """Those that push: their advantage is positive."""
    idle_rows: int = 0
    idle_tokens: int = 0
    """Rows of chosen groups that do not push; they count in the loss's mean as they do in an own group."""
    groups: int = 0
    """Chosen."""
    refused: tuple[tuple[str, int], ...] = ()
    """Groups and rows left out, by reason."""
    peers: tuple[tuple[str, int, int], ...] = ()
    """(peer id, its groups, those of them that were chosen), at most MAX_PEERS."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A group that could be taught from. G rows."""

    group: ScoredGroup
    prompt: Ids
    advantages: tuple[float, ...]
    """(G,)"""


def external(
    peers: Sequence[ScoredGroup],
    reader: Reader,
    *,
    own_peer_id: str,
    max_groups: int,
    max_rows: int,
    scale: str,
    chance: random.Random,
) -> External:
    """At most `max_groups` of the peers' groups with at most `max_rows` rows in all, as rows to learn from."""
    refused: Counter[str] = Counter()
    strangers = [one for one in peers if one.group.peer_id != own_peer_id]
    refused["own"] = len(peers) - len(strangers)
    candidates = list(_candidates(strangers, reader, scale, refused))
    chosen = choose(candidates, max_groups, max_rows, chance)
    refused["not_needed"] = len(candidates) - len(chosen)
    rows, idle_rows, idle_tokens = _rows(chosen, reader, refused)
    parts = _parts(strangers, chosen)
    return External(rows, idle_rows, idle_tokens, len(chosen), tuple((+refused).items()), parts)


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
        room = max_rows - sum(len(other.advantages) for other in chosen)
        if len(chosen) < max_groups and len(one.advantages) <= room:
            chosen.append(one)
    return chosen


def _parts(strangers: Sequence[ScoredGroup], chosen: Sequence[Candidate]) -> tuple[tuple[str, int, int], ...]:
    groups = Counter(one.group.peer_id for one in strangers)
    used = Counter(one.group.group.peer_id for one in chosen)
    first = sorted(groups, key=lambda peer: (-used[peer], -groups[peer], peer))[:MAX_PEERS]
    return tuple((peer, groups[peer], used[peer]) for peer in first)


def _candidates(
    groups: Sequence[ScoredGroup], reader: Reader, scale: str, refused: Counter[str]
) -> Iterator[Candidate]:
    prompts = reader.prompt_ids([one.group.problem for one in groups])
    for one, prompt in zip(groups, prompts, strict=True):
        weights = group_advantages(one, scale)
        if len(prompt) > reader.max_prompt_tokens:
            refused["long_prompt"] += 1
        elif weights is None:
            refused["no_spread"] += 1
        else:
            yield Candidate(one, prompt, tuple(weights))


def _rows(chosen: Sequence[Candidate], reader: Reader, refused: Counter[str]) -> tuple[tuple[Row, ...], int, int]:
    """The rows that push, and how many rows and tokens of the chosen groups do not."""
    attempts = [
        (one, completion, weight)
        for one in chosen
        for completion, weight in zip(one.group.group.completions, one.advantages, strict=True)
    ]
    ids = reader.completion_ids([completion for _, completion, _ in attempts])
    seen: set[tuple[str, str]] = set()
    pushing: list[tuple[Ids, Ids, float]] = []
    for (one, completion, weight), tokens in zip(attempts, ids, strict=True):
        key = (one.group.group.problem.id, completion.text)
        if weight <= 0:
            continue
        if not 0 < len(tokens) <= reader.max_new_tokens:
            refused["row_length"] += 1
        elif key in seen:
            refused["row_duplicate"] += 1
        else:
            seen.add(key)
            pushing.append((one.prompt, tokens, weight))
    rows = tuple(_likely(pushing, reader, refused))
    tokens_in_all = sum(min(len(tokens), reader.max_new_tokens) for tokens in ids)
    idle_tokens = tokens_in_all - sum(len(row.completion_ids) for row in rows)
    return rows, len(attempts) - len(rows), idle_tokens


def _likely(pushing: Sequence[tuple[Ids, Ids, float]], reader: Reader, refused: Counter[str]) -> Iterable[Row]:
    """Rows whose text the own policy could have written."""
    scores = reader.logprobs([prompt for prompt, _, _ in pushing], [tokens for _, tokens, _ in pushing])
    for (prompt, tokens, weight), logprobs in zip(pushing, scores, strict=True):
        if math.fsum(logprobs) / len(logprobs) >= LEAST_MEAN_LOGPROB:
            yield Row(prompt, tokens, logprobs, weight)
        else:
            refused["row_unlikely"] += 1
