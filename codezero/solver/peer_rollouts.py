"""Peer rollouts: which of the peers' groups the policy learns from, how, and how far a peer's row may push.

A peer's text is encoded with the own tokenizer and judged by the own judge; its rewards and log-probabilities are never
used. Rows are pushed as if the own policy had written them (ratio 1 at first), by default only upwards: pushing down
pulls unboundedly on tokens that this policy would never write. All groups at one problem are one group. The peer filter
lets the node learn from peers whose completions its own judge finds no worse than its own.

Whoever sends right code can dress it in anything: words around it, comments, names, a style, length. Text that the
judge did not read has no weight (`Verdict.program`). Text that it did read has none where the own policy finds it next
to impossible, and a row with an unlikely stretch, by the measure of the own attempts, does not push at all: a mean over
the row hides a slogan in easy code (arXiv 2511.09780, "Hail to the Thief")."""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, chain
from typing import Annotated, NamedTuple, cast

import msgspec
from msgspec import Meta
from transformers import PreTrainedTokenizerBase

from codezero.config import ExternalConfig, SolverConfig
from codezero.models.chat import completion_offsets, encode_completions, encode_prompts, ids_before
from codezero.solver.batch import TrainingRow, counts, has_spread, merged_advantages
from codezero.system.state import StateFile
from codezero.types import Completion, Problem, ScoredGroup, Verdict, mean

Weights = tuple[float, ...]  # [T] factors of the advantage at each token
Spans = Sequence[tuple[int, int]]  # [start, end) of characters
LEAST_MEAN_LOGPROB = -4.0  # nats per token; a less likely row is not the policy's language, and a push would be a jolt
LEAST_LOGPROB = -5.0  # nats of a token that is pushed; a less likely one (1 in 150) is taken for a mark
WINDOW = 16  # tokens of the stretch in which a row is least likely
UNLIKELY, LONG = 0.05, 0.95  # quantiles of the own attempts


class OwnMeasure(NamedTuple):
    """Bounds taken from the own attempts of an update."""

    least_window: float = LEAST_MEAN_LOGPROB  # nats per token: the least likely stretch of one own attempt in twenty
    longest: float = math.inf  # tokens: one own attempt in twenty is longer

    @classmethod
    def of(cls, local: Sequence[ScoredGroup]) -> "OwnMeasure":
        rows = [each.logprobs for scored in local for each in scored.group.completions if each.logprobs]
        if not rows:
            return cls()
        windows, lengths = sorted(map(least_window, rows)), sorted(map(len, rows))
        return cls(max(LEAST_MEAN_LOGPROB, windows[int(UNLIKELY * len(rows))]), lengths[int(LONG * (len(rows) - 1))])


def least_window(logprobs: Sequence[float]) -> float:
    """Least mean of WINDOW neighbours, nats per token; of all where there are fewer."""
    if len(logprobs) <= WINDOW:
        return math.fsum(logprobs) / len(logprobs)
    sums = list(accumulate(logprobs, initial=0.0))
    return min(end - start for start, end in zip(sums, sums[WINDOW:], strict=False)) / WINDOW


def program_weights(spans: Spans | None, offsets: Spans, finished: bool) -> Weights:
    """1 for the tokens that lie in the program, and for EOS behind one where the attempt is `finished`; else 0.

    spans: see `Verdict.program`; None: every token counts. offsets: [T] the characters of each token, [start, end)."""
    inside = [1.0] * len(offsets)
    if spans is not None:
        program = bytearray(max((end for _, end in (*offsets, *spans)), default=0))
        for start, end in spans:
            program[start:end] = b"\1" * (end - start)
        counts = list(accumulate(program, initial=0))
        inside = [float(start < end and counts[end] - counts[start] == end - start) for start, end in offsets]
    return (*inside, float(any(inside))) if finished else tuple(inside)


def limited_weights(weights: Weights, logprobs: Sequence[float], own: OwnMeasure) -> Weights:
    """`weights` without the tokens that are next to impossible, and less for a row longer than the own ones; empty
    for a row that does not push. logprobs: [T] nats under the own policy."""
    nats = [logprob for logprob, weight in zip(logprobs, weights, strict=True) if weight]
    if not nats or math.fsum(nats) / len(nats) < LEAST_MEAN_LOGPROB or least_window(nats) < own.least_window:
        return ()
    scale = min(1.0, own.longest / len(nats))
    return tuple(
        scale * weight if logprob >= LEAST_LOGPROB else 0.0 for logprob, weight in zip(logprobs, weights, strict=True)
    )


def weights_to_the_end(tokenizer: PreTrainedTokenizerBase, attempt: Completion, verdict: Verdict) -> Weights:
    """Weights of an own attempt: 0 for the words after its program, which did not earn its reward; what stands before
    it may have led to it. Empty where all tokens count."""
    end, ids = verdict.program[-1][1] if verdict.program else len(attempt.text), attempt.token_ids
    if not attempt.text[end:].strip():
        return ()
    count, eos = ids_before(tokenizer, ids, end), len(ids) - 1 if attempt.finished else -1
    return tuple(float(at < count or at == eos) for at in range(len(ids)))


LEAST_ROWS = 4  # judged attempts at a problem; the mean of fewer says too little
PEERS_FOR_CAP = 4  # from this many peers on, one peer gives at most a PEERS_FOR_CAP-th of the groups
MAX_PEERS = 32  # in the figures of an update; those of whom most was chosen
SAPO, OFF = "sapo", "off"
MEMORY = 0.9  # weight of the earlier mean at the next group
PROBE = 0.1  # chance that a peer that does not pass is learned from in an iteration all the same
MARGIN = 0.1
"""A lead may be so far below 0. For a peer as good as this node it varies by about .08: a group's mean reward varies
by .35, and the moving mean leaves sqrt(.1 / 1.9) of that."""
STORED_PEERS = 1024  # in the peer filter; the peer that was compared longest ago is dropped first

Ids = tuple[int, ...]
Candidate = tuple[ScoredGroup, Ids]  # A group that may be chosen, and its prompt


class External(NamedTuple):
    """The peers' part of an update."""

    rows: tuple[TrainingRow, ...] = ()  # those that push
    idle_tokens: int = 0  # of rows of chosen groups that do not push; they count in the loss's mean, as in an own group
    chosen: tuple[ScoredGroup, ...] = ()
    refused: tuple[tuple[str, int], ...] = ()  # groups and rows left out, by reason
    peers: tuple[tuple[str, int, int], ...] = ()  # (peer id, its groups, those chosen), at most MAX_PEERS


class PeerReader(NamedTuple):
    """Turns the peers' groups into rows of the own policy. `rows` returns those of one update."""

    tokenizer: PreTrainedTokenizerBase
    prompt: Callable[[Problem], str]
    logprobs: Callable[[Sequence[Ids], Sequence[Ids]], list[tuple[float, ...]]]
    # nats of completions after prompts, under the own policy at the training temperature
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

    def rows(
        self,
        peers: Sequence[ScoredGroup],
        local: Sequence[ScoredGroup],
        max_rows: int,
        passing: Callable[[Sequence[str]], set[str]],
        chance: random.Random,
    ) -> External:
        """At most `external.groups` of the peers' groups, with at most `max_rows` rows in all.

        local: the own groups, which share their mean with peers' at the same problem. passing: whom to learn from."""
        refused: Counter[str] = Counter()
        others = [scored for scored in peers if scored.group.peer_id != self.own_peer_id]
        refused["own"] = len(peers) - len(others)
        own = {scored.group.problem.id: scored for scored in local}
        candidates: list[Candidate] = []
        wanted = [] if self.external.policy == OFF else others
        refused["off"] = len(others) - len(wanted)
        passed = passing([scored.group.peer_id for scored in wanted])
        for scored, prompt in zip(wanted, self.prompt_ids([scored.group.problem for scored in wanted]), strict=True):
            same = own.get(scored.group.problem.id)
            together = [scored] if same is None else [scored, same]
            if len(prompt) > self.config.max_prompt_tokens:
                refused["long_prompt"] += 1
            elif scored.group.peer_id not in passed:
                refused["gate"] += 1
            elif not has_spread(together, self.config.scale_rewards):
                refused["no_spread"] += 1
            elif sum(len(each.trainable) for each in together) < self.least_rows:
                refused["few_rows"] += 1
            else:
                candidates.append((scored, prompt))
        chosen = choose(candidates, self.external.groups, max_rows, chance)
        refused["not_needed"] = len(candidates) - len(chosen)
        rows, idle_tokens = self._pushing(chosen, own, refused)
        groups = tuple(scored for scored, _ in chosen)
        sent, used = (Counter(scored.group.peer_id for scored in some) for some in (others, groups))
        first = sorted(sent, key=lambda peer: (-used[peer], -sent[peer], peer))[:MAX_PEERS]
        shares = tuple((peer, sent[peer], used[peer]) for peer in first)
        return External(rows, idle_tokens, groups, tuple((+refused).items()), shares)

    def _pushing(
        self, chosen: Sequence[Candidate], own: Mapping[str, ScoredGroup], refused: Counter[str]
    ) -> tuple[tuple[TrainingRow, ...], int]:
        """The rows that push, by all attempts at their problem, and how many tokens of the chosen groups do not."""
        attempts = [
            (group, prompt, *attempt)
            for group, (scored, prompt) in enumerate(chosen)
            for attempt in zip(scored.group.completions, scored.verdicts, strict=True)
        ]
        ids = self.completion_ids([completion for _, _, completion, _ in attempts])
        advantages = merged_advantages((*own.values(), *(scored for scored, _ in chosen)), self.config.scale_rewards)
        pushes = chain.from_iterable(advantages[id(scored)] for scored, _ in chosen)
        longest = self.config.max_new_tokens
        first: dict[tuple[Ids, str], int] = {}  # the first group with a question and answer; own repetitions count
        pushing: list[tuple[Ids, Ids, float, Completion, Verdict]] = []
        for (group, prompt, completion, verdict), tokens, advantage in zip(attempts, ids, pushes, strict=True):
            if not advantage or (advantage < 0 and self.external.policy != SAPO):
                continue
            if not 0 < len(tokens) <= longest:
                refused["row_length"] += 1
            elif first.setdefault((prompt, " ".join(completion.text.split())), group) != group:
                refused["row_duplicate"] += 1
            else:
                pushing.append((prompt, tokens, advantage, completion, verdict))
        scores = self.logprobs([row[0] for row in pushing], [row[1] for row in pushing])
        offsets = completion_offsets(self.tokenizer, [row[3].text for row in pushing])
        rows, measure = list[TrainingRow](), OwnMeasure.of(list(own.values()))
        for (prompt, tokens, push, completion, verdict), nats, places in zip(pushing, scores, offsets, strict=True):
            weights = program_weights(verdict.program, places, completion.finished)
            if weights := limited_weights(weights, nats, measure):
                rows.append(TrainingRow(prompt, tokens, nats, push, weights))
            else:
                refused["row_unlikely"] += 1
        token_count = sum(min(len(tokens), longest) for tokens in ids)
        return tuple(rows), token_count - sum(len(row.completion_ids) for row in rows)


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


_Real = Annotated[float, Meta(ge=-1.0, le=1.0)]


class _State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    own: Annotated[dict[str, _Real], Meta(max_length=64)]  # by level: moving mean of the own groups' rewards
    # by peer id, the peer compared last at the end
    leads: Annotated[dict[Annotated[str, Meta(max_length=128)], _Real], Meta(max_length=STORED_PEERS)]


class PeerFilter(StateFile[_State], file="gate.json", schema=_State):
    """A peer's lead: how much more than this node it earns on problems of the same level, both by the own judge. lead
    <- 0.9 lead + 0.1 (its group's mean reward - own mean reward at that level), from 0 on; passes from -MARGIN on."""

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
        """The peers to learn from in this iteration; a peer that was never compared passes."""
        return {peer for peer in dict.fromkeys(peers) if chance.random() < PROBE or self.lead(peer) >= -MARGIN}

    def lead(self, peer: str) -> float:
        """The peer's lead in [-1, 1]; 0 before any comparison."""
        return self.memory.leads.get(peer, 0.0)


def _mean_reward(scored: ScoredGroup) -> float | None:
    return mean(verdict.reward for verdict in scored.verdicts if counts(verdict))
