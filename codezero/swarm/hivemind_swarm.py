"""The swarm as the round loop sees it: publish, gather, offer, proposals. The network is in another process.

That process refuses what breaks a bound (`listener.py`, `records.py`); bodies are decoded once more here.

Nothing here blocks. A peer's token ids pass only when they are of the own tokenizer, and its problems are claims.
"""

import functools
import hashlib
import statistics
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, cast

from codezero.config import SwarmConfig
from codezero.environment import Environment, ScoredEnvironment
from codezero.errors import ProblemError
from codezero.swarm.identity import Identity
from codezero.swarm.messages import OpenRound, Publish, SendFeedback, network_settings
from codezero.swarm.proposals import ProposalStore
from codezero.swarm.schema import GROUPS, MARKET, MAX_ITEMS, PROPOSALS
from codezero.swarm.supervisor import NetworkProcess
from codezero.swarm.wire import DECODE, ENCODE, encode_body, encode_feedback, encode_proposals, largest
from codezero.system.state import Newest
from codezero.types import Feedback, Metrics, Post, Problem, RolloutGroup, ScoredGroup, Source, Standing, mean

READY_SECONDS = 90.0
ROUNDS_KEPT = 1
"""A group this many rounds old is still of use."""
ARRIVED_GROUPS = 1024
"""Groups that wait for the next `gather`; the oldest are dropped."""
WAITING_POSTS = 256
"""Peers' posts that wait for the next `posts`; the oldest are dropped."""
PEER_SECONDS = 300.0
"""How long a peer counts after its last body."""
UNKNOWN_TOKENIZER = "0" * 64
Message = TypeVar("Message")


class HivemindSwarm(ProposalStore):
    """A node's handle on the gossip. Used from one thread. The totals of `metrics` are of a process, and not saved.

    `tokenizer_digest` (64 hex digits) names the tokenizer that makes our token ids; it may be set after the start.
    """

    def __init__(
        self, config: SwarmConfig, state: Path, environment: Environment, tokenizer_digest: str = UNKNOWN_TOKENIZER
    ) -> None:
        """`state`: folder for the network process's trust, peers and status. Raises ConfigError and IdentityError."""
        settings = network_settings(config)
        super().__init__(Identity.load(Path(settings.identity)).peer_id)
        self.tokenizer_digest, self._environment = tokenizer_digest, environment
        self._network = network = NetworkProcess(settings, state)
        self.start, self.close, self.ask, self.serve = network.start, network.close, network.ask, network.serve
        self._arrived: deque[RolloutGroup] = deque(maxlen=ARRIVED_GROUPS)
        self._posts = Newest[tuple[str, int], Post](WAITING_POSTS)
        """By author and round, so that nobody's many push out the others'."""
        self._last_received: dict[str, float] = {}
        self._counts: Counter[str] = Counter()

    @property
    def addresses(self) -> list[str]:
        """Multiaddresses that others can join with, once the network process is ready. Raises SwarmError."""
        return self._network.wait_ready(READY_SECONDS).addresses

    def publish(self, groups: Sequence[ScoredGroup], round_number: int) -> None:
        """Announce own groups, those whose rewards differ first. Raises SwarmError."""
        self.play(round_number)
        chosen = sorted(groups, key=_spread, reverse=True)[:MAX_ITEMS]

        def encode(some: Sequence[ScoredGroup]) -> bytes:
            return encode_body([scored.group for scored in some], peer=self.peer_id, round_number=round_number)

        sent, body = largest(chosen, encode)
        self._counts["unpublished"] += len(chosen) - len(sent)
        if sent:
            tokenizer, rewards = bytes.fromhex(self.tokenizer_digest), list(map(_mean_reward, sent))
            self._network.send(Publish(GROUPS, round_number, body, rewards, tokenizer))
        self._report(groups, round_number)

    def gather(self, round_number: int) -> list[RolloutGroup]:
        """Peers' groups that arrived since the last call. Raises SwarmError."""
        self.play(round_number, hungry=True)
        self._receive()
        fresh = [group for group in self._arrived if self._is_fresh(group, round_number)]
        self._arrived.clear()
        self._counts["groups_received"] += len(fresh)
        return fresh

    def offer(self, problems: Sequence[Problem], round_number: int) -> None:
        """Announce own proposals; they come back from `proposals` too. Raises SwarmError."""
        self.play(round_number)
        encode = functools.partial(encode_proposals, peer=self.peer_id, round_number=round_number)
        sent, body = largest(problems[:MAX_ITEMS], encode)
        self._counts["unpublished"] += len(problems[:MAX_ITEMS]) - len(sent)
        if sent:
            self.keep_own(sent)
            self._network.send(Publish(PROPOSALS, round_number, body, [], bytes.fromhex(UNKNOWN_TOKENIZER)))

    def feedback(self) -> list[Feedback]:
        """Peers' feedback since the last call on own problems, each peer's first on each. Raises SwarmError."""
        self._network.check()
        return [item for it in _taken(self._network.feedback) for item in self.reported(it.peer, it.feedback, it.trust)]

    def proposals(self, round_number: int) -> list[Problem]:
        """Everybody's proposals, newest first. Raises SwarmError."""
        self.play(round_number)
        self._receive()
        return self.newest_first()

    def post(self, payload: bytes, round_number: int) -> None:
        """Announce the own message to the market of a round; it replaces an earlier one. Raises SwarmError."""
        self._network.check()
        body = ENCODE[MARKET]([payload], peer=self.peer_id, round_number=round_number)
        self._network.send(Publish(MARKET, round_number, body, [], bytes.fromhex(UNKNOWN_TOKENIZER)))

    def posts(self) -> list[Post]:
        """Peers' messages to the market since the last call, each author's newest of a round. Raises SwarmError."""
        self._network.check()
        self._receive()
        return [self._posts.popitem(last=False)[1] for _ in range(len(self._posts))]

    def metrics(self) -> Metrics:
        """`swarm/...`: totals since the start, but for `peers` (heard in PEER_SECONDS) and `neighbours` (now)."""
        counts = self._network.counts + self._counts
        since = time.monotonic() - PEER_SECONDS
        self._last_received = {peer: at for peer, at in self._last_received.items() if at > since}
        metrics: Metrics = {
            "swarm/peers": len(self._last_received),
            "swarm/neighbours": self._network.neighbours,
            "swarm/network_restarts": self._network.restarts,
            "swarm/refused": sum(count for name, count in counts.items() if name.startswith("refused_")),
        }
        always = ("groups_received", "bytes_in", "bytes_out")
        return metrics | {f"swarm/{name}": counts[name] for name in (*always, *sorted(counts))}

    def play(self, round_number: int, *, hungry: bool = False) -> None:
        """The round that is open. Raises SwarmError."""
        self._network.check()
        self._network.send(OpenRound(round_number, hungry, bytes.fromhex(self._environment.digest)[:16]))

    def _report(self, groups: Sequence[ScoredGroup], round_number: int) -> None:
        by_proposer: dict[str, list[ScoredGroup]] = {}
        for scored in groups:
            proposer = scored.group.problem.proposer
            if proposer and proposer != self.peer_id and scored.success is not None:
                by_proposer.setdefault(proposer, []).append(scored)
        for proposer, some in by_proposer.items():
            self._network.send(SendFeedback(proposer, encode_feedback(some[:MAX_ITEMS], round_number=round_number)))

    def _receive(self) -> None:
        for message in _taken(self._network.bodies):
            self._last_received[message.peer] = time.monotonic()
            _, _, items = DECODE[message.kind](message.body)
            if message.kind == PROPOSALS:
                self.keep(problem for item in items if (problem := self._derived(item)))
            elif message.kind == MARKET:
                self._posts[message.peer, message.round] = Post(message.peer, message.round, *items)
            else:
                known = [(group, self._derived(group.problem)) for group in items]
                groups = [replace(group, problem=problem) for group, problem in known if problem]
                self._arrived.extend(self._distrusted(group, message.tokenizer) for group in groups)

    def _derived(self, problem: Problem) -> Problem | None:
        """A stranger's problem as this node derives it; None, and counted, where its place has another."""
        if problem.item is None:
            return problem
        try:
            derived = cast(ScoredEnvironment, self._environment).derive(problem.item)
        except ProblemError:
            derived = None
        if derived is None or derived.id != problem.id:
            self._counts["refused_item"] += 1
            return None
        return replace(derived, proposer=problem.proposer)

    def _distrusted(self, group: RolloutGroup, tokenizer: bytes) -> RolloutGroup:
        """A stranger's group without what is not proven."""
        problem = group.problem
        if problem.source is Source.PROPOSER or problem.standing is Standing.CONFIRMED:
            group = replace(group, problem=replace(problem, standing=Standing.CLAIMED))
        if self.tokenizer_digest == UNKNOWN_TOKENIZER or tokenizer.hex() != self.tokenizer_digest:
            bare = tuple(replace(completion, token_ids=(), logprobs=()) for completion in group.completions)
            group = replace(group, completions=bare)
        return group

    def _is_fresh(self, group: RolloutGroup, round_number: int) -> bool:
        """Whether it is neither own, nor too old, nor a duplicate; else counted."""
        own, stale = group.peer_id == self.peer_id, group.round < round_number - ROUNDS_KEPT
        fingerprint = _fingerprint(group)
        if own or stale or fingerprint in self._seen:
            self._counts[f"refused_{'own' if own else 'stale' if stale else 'duplicate'}"] += 1
            return False
        self._seen[fingerprint] = None
        return True


def _taken(waiting: deque[Message]) -> list[Message]:
    """What waits, oldest first. Another thread may append meanwhile."""
    return [waiting.popleft() for _ in range(len(waiting))]


def _mean_reward(group: ScoredGroup) -> float | None:
    """None where there is none, or none within the header's bounds."""
    reward = mean(verdict.reward for verdict in group.trainable)
    return reward if reward is not None and 0 <= reward <= 1 else None


def _spread(group: ScoredGroup) -> float:
    """Standard deviation of the rewards: a group of equal rewards teaches nothing."""
    rewards = [verdict.reward for verdict in group.trainable]
    return statistics.pstdev(rewards) if rewards else -1.0


def _fingerprint(group: RolloutGroup) -> bytes:
    """The same for the same completions of the same problem, whoever sends them."""
    hasher = hashlib.sha256(group.problem.id.encode())
    for completion in group.completions:
        hasher.update(hashlib.sha256(completion.text.encode()).digest())
    return hasher.digest()
