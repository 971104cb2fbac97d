"""Peer rollouts: which of the peers' groups the policy learns from, and how.

A peer's text is encoded with the own tokenizer and judged by the own judge; its rewards and log-probabilities are never
used. Rows are pushed as if the own policy had written them (ratio 1 at first), by
default only upwards: pushing down pulls unboundedly on tokens that this policy would never write. All groups at one
problem are one group. The peer filter lets the node learn from peers whose completions its own judge finds no worse
than its own.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, NamedTuple, cast

import msgspec
from msgspec import Meta
from transformers import PreTrainedTokenizerBase

from codezero.config import ExternalConfig, SolverConfig
from codezero.models.chat import completion_offsets, encode_completions, encode_prompts
from codezero.solver.advantages import counts, joint_advantages, merged_advantages
from codezero.solver.batch import TrainingRow
from codezero.solver.row_limits import OwnMeasure, limited_weights, program_weights
from codezero.system.state import StateFile
from codezero.types import Completion, Problem, ScoredGroup, Verdict, mean

LEAST_ROWS = 4
"""Judged attempts at a problem; the mean of fewer says too little."""
PEERS_FOR_CAP = 4
"""From this many peers on, one peer gives at most a PEERS_FOR_CAP-th of the groups."""
MAX_PEERS = 32
"""In the figures of an update; those of whom most was chosen."""
SAPO, OFF = "sapo", "off"
MEMORY = 0.9
"""Weight of the earlier mean at the next group."""
PROBE = 0.1
"""Chance that a peer that does not pass is learned from in an iteration all the same."""
MARGIN = 0.1
"""How far a lead may be below 0. For a peer as good as this node it varies by about .08: a group's mean reward varies
by .35, and the moving mean leaves sqrt(.1 / 1.9) of that."""
STORED_PEERS = 1024
"""In the peer filter; the peer that was compared longest ago is dropped first."""

Ids = tuple[int, ...]
Candidate = tuple[ScoredGroup, Ids]
"""A group that may be chosen, and its prompt."""


@dataclass(frozen=True, slots=True)
class External:
    """The peers' part of an update."""

    rows: tuple[TrainingRow, ...] = ()
    """Those that push."""
    idle_tokens: int = 0
    """Of rows of chosen groups that do not push; they count in the loss's mean, as in an own group."""
    chosen: tuple[ScoredGroup, ...] = ()
    refused: tuple[tuple[str, int], ...] = ()
    """Groups and rows left out, by reason."""
    peers: tuple[tuple[str, int, int], ...] = ()
    """(peer id, its groups, those of them that were chosen), at most MAX_PEERS."""


@dataclass(frozen=True)
class PeerReader:
    """Turns the peers' groups into rows of the own policy. `rows` returns those of one update."""

    tokenizer: PreTrainedTokenizerBase
    prompt: Callable[[Problem], str]
    logprobs: Callable[[Sequence[Ids], Sequence[Ids]], list[tuple[float, ...]]]
    """Nats of completions after prompts, under the own policy at the training temperature."""
    own_peer_id: str
    config: SolverConfig
    external: ExternalConfig
    least_rows: int = LEAST_ROWS

    def prompt_ids(self, problems: Sequence[Problem]) -> list[Ids]:
        return [tuple(ids) for ids in encode_prompts(self.tokenizer, [*map(self.prompt, problems)])]

    def completion_ids(self, completions: Sequence[Completion]) -> list[Ids]:
        """The texts' ids, followed by EOS where the completion is finished."""
        rows = encode_completions(self.tokenizer, [completion.text for completion in completions])
        eos = cast(int, self.tokenizer.eos_token_id)
        return [
            (*ids, eos) if completion.finished else tuple(ids)
            for ids, completion in zip(rows, completions, strict=True)
        ]

    def offsets(self, completions: Sequence[Completion]) -> list[list[tuple[int, int]]]:
        """[start, end) of the characters of each id, without EOS's."""
        return completion_offsets(self.tokenizer, [completion.text for completion in completions])

    def rows(
        self,
        peers: Sequence[ScoredGroup],
        local: Sequence[ScoredGroup],
        max_rows: int,
        passing: Callable[[Sequence[str]], set[str]],
        chance: random.Random,
    ) -> External:
        """At most `external.groups` of the peers' groups, with at most `max_rows` rows in all.

        local: the own groups, which share their mean with peers' at the same problem. passing: whom to learn from.
        """
        refused: Counter[str] = Counter()
        strangers = [scored for scored in peers if scored.group.peer_id != self.own_peer_id]
        refused["own"] = len(peers) - len(strangers)
        own = {scored.group.problem.id: scored for scored in local}
        candidates = list(self._candidates(strangers, own, passing, refused))
        chosen = choose(candidates, self.external.groups, max_rows, chance)
        refused["not_needed"] = len(candidates) - len(chosen)
        rows, idle_tokens = self._pushing(chosen, own, refused)
        groups = tuple(scored for scored, _ in chosen)
        return External(rows, idle_tokens, groups, tuple((+refused).items()), _parts(strangers, groups))

    def _candidates(
        self,
        groups: Sequence[ScoredGroup],
        own: Mapping[str, ScoredGroup],
        passing: Callable[[Sequence[str]], set[str]],
        refused: Counter[str],
    ) -> Iterator[Candidate]:
        if self.external.policy == OFF:
            refused["off"] = len(groups)
            return
        passed = passing([scored.group.peer_id for scored in groups])
        prompts = self.prompt_ids([scored.group.problem for scored in groups])
        for scored, prompt in zip(groups, prompts, strict=True):
            local = own.get(scored.group.problem.id)
            together = [scored] if local is None else [scored, local]
            if len(prompt) > self.config.max_prompt_tokens:
                refused["long_prompt"] += 1
            elif scored.group.peer_id not in passed:
                refused["gate"] += 1
            elif joint_advantages(together, self.config.scale_rewards) is None:
                refused["no_spread"] += 1
            elif sum(len(each.trainable) for each in together) < self.least_rows:
                refused["few_rows"] += 1
            else:
                yield scored, prompt

    def _pushing(
        self, chosen: Sequence[Candidate], own: Mapping[str, ScoredGroup], refused: Counter[str]
    ) -> tuple[tuple[TrainingRow, ...], int]:
        """The rows that push, and how many tokens of the chosen groups do not.

        Each attempt is measured against all attempts at its problem, the own ones too.
        """
        attempts = [_Attempt(at, prompt, *row) for at, (scored, prompt) in enumerate(chosen) for row in _rows(scored)]
        ids = self.completion_ids([attempt.completion for attempt in attempts])
        weights = merged_advantages((*own.values(), *(scored for scored, _ in chosen)), self.config.scale_rewards)
        advantages = chain.from_iterable(weights[id(scored)] for scored, _ in chosen)
        longest = self.config.max_new_tokens
        first: dict[tuple[Ids, str], int] = {}
        """By question and answer: the first group with it. A group's own repetitions all count."""
        pushing: list[tuple[_Attempt, Ids, float]] = []
        for attempt, tokens, advantage in zip(attempts, ids, advantages, strict=True):
            if not advantage or (advantage < 0 and self.external.policy != SAPO):
                continue
            if not 0 < len(tokens) <= longest:
                refused["row_length"] += 1
            elif first.setdefault(attempt.said, attempt.group) != attempt.group:
                refused["row_duplicate"] += 1
            else:
                pushing.append((attempt, tokens, advantage))
        rows = tuple(self._limited(pushing, OwnMeasure.of(list(own.values())), refused))
        token_count = sum(min(len(tokens), longest) for tokens in ids)
        return rows, token_count - sum(len(row.completion_ids) for row in rows)

    def _limited(
        self, pushing: "Sequence[tuple[_Attempt, Ids, float]]", own: OwnMeasure, refused: Counter[str]
    ) -> Iterator[TrainingRow]:
        """Rows with the weight of each token; see `row_limits`."""
        scores = self.logprobs([attempt.prompt for attempt, _, _ in pushing], [tokens for _, tokens, _ in pushing])
        offsets = self.offsets([attempt.completion for attempt, _, _ in pushing])
        for (attempt, tokens, advantage), logprobs, places in zip(pushing, scores, offsets, strict=True):
            program = program_weights(attempt.verdict.program, places, attempt.completion.finished)
            weights = limited_weights(program, logprobs, own)
            if not weights:
                refused["row_unlikely"] += 1
            else:
                yield TrainingRow(attempt.prompt, tokens, logprobs, advantage, weights)


class _Attempt(NamedTuple):
    """One row of a chosen group."""

    group: int
    prompt: Ids
    completion: Completion
    verdict: Verdict

    @property
    def said(self) -> tuple[Ids, str]:
        return self.prompt, " ".join(self.completion.text.split())


def _rows(scored: ScoredGroup) -> Iterator[tuple[Completion, Verdict]]:
    return zip(scored.group.completions, scored.verdicts, strict=True)


def choose(candidates: Sequence[Candidate], max_groups: int, max_rows: int, chance: random.Random) -> list[Candidate]:
    """Peers take turns in random order, each giving its groups in random order, so that nobody crowds others out."""
    by_peer: dict[str, list[Candidate]] = {}
    for candidate in chance.sample(list(candidates), len(candidates)):
        by_peer.setdefault(candidate[0].group.peer_id, []).append(candidate)
    budget = min(max_groups, len(candidates))
    cap = max(1, budget // PEERS_FOR_CAP) if len(by_peer) >= PEERS_FOR_CAP else budget
    turns = [groups[turn] for turn in range(cap) for groups in by_peer.values() if turn < len(groups)]
    chosen: list[Candidate] = []
    for scored, prompt in turns:
        room = max_rows - sum(len(other.verdicts) for other, _ in chosen)
        if len(chosen) < max_groups and len(scored.verdicts) <= room:
            chosen.append((scored, prompt))
    return chosen


def _parts(strangers: Sequence[ScoredGroup], chosen: Sequence[ScoredGroup]) -> tuple[tuple[str, int, int], ...]:
    groups = Counter(scored.group.peer_id for scored in strangers)
    used = Counter(scored.group.peer_id for scored in chosen)
    first = sorted(groups, key=lambda peer: (-used[peer], -groups[peer], peer))[:MAX_PEERS]
    return tuple((peer, groups[peer], used[peer]) for peer in first)


_Real = Annotated[float, Meta(ge=-1.0, le=1.0)]


class _State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    own: Annotated[dict[str, _Real], Meta(max_length=64)]
    """By level: moving mean of the own groups' rewards."""
    leads: Annotated[dict[Annotated[str, Meta(max_length=128)], _Real], Meta(max_length=STORED_PEERS)]
    """By peer id, the peer compared last at the end."""


class PeerFilter(StateFile[_State], file="gate.json", schema=_State):
    """A peer's lead: how much more than this node it earns on problems of the same level, both by the own judge.

    lead <- 0.9 lead + 0.1 (its group's mean reward - own mean reward at that level), from 0 on; passes from -MARGIN on.
    """

    def __init__(self) -> None:
        self.memory = _State({}, {})

    def observe(self, local: Sequence[ScoredGroup], peers: Sequence[ScoredGroup]) -> None:
        """Update the means with the judged groups of one iteration."""
        means, leads = self.memory.own, self.memory.leads
        for scored in local:
            reward, level = _mean_reward(scored), str(scored.group.problem.level)
            if reward is not None:
                means[level] = MEMORY * means.get(level, reward) + (1 - MEMORY) * reward
        for scored in peers:
            reward, own = _mean_reward(scored), means.get(str(scored.group.problem.level))
            if reward is not None and own is not None:
                lead = leads.pop(scored.group.peer_id, 0.0)
                leads[scored.group.peer_id] = MEMORY * lead + (1 - MEMORY) * (reward - own)
        while len(leads) > STORED_PEERS:
            del leads[next(iter(leads))]

    def passing(self, peers: Sequence[str], chance: random.Random) -> set[str]:
        """Those of `peers` to learn from in this iteration; a peer that was never compared passes."""
        return {peer for peer in dict.fromkeys(peers) if chance.random() < PROBE or self.lead(peer) >= -MARGIN}

    def lead(self, peer: str) -> float:
        """In [-1, 1]; 0 before any comparison."""
        return self.memory.leads.get(peer, 0.0)


def _mean_reward(scored: ScoredGroup) -> float | None:
    return mean(verdict.reward for verdict in scored.verdicts if counts(verdict))
