"""The swarm on a network, which a process of its own speaks to."""

import functools
import hashlib
import statistics
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from codezero.environment import Environment, ScoredEnvironment
from codezero.errors import ProblemError
from codezero.swarm import wire
from codezero.swarm.base import Swarm
from codezero.swarm.supervisor import NetworkProcess, OpenRound, PeerFeedback, Publish
from codezero.swarm.wire import GROUPS, MARKET, MAX_ITEMS, PROPOSALS
from codezero.system.state import Newest
from codezero.types import Feedback, Metrics, Post, Problem, RolloutGroup, ScoredGroup, Source, Standing, mean

READY_SECONDS = 90.0
WAITING_POSTS = 256  # Peers' posts that wait for the next `posts`; the oldest are dropped
PEER_SECONDS = 300.0  # How long a peer counts after its last body
NO_TOKENIZER = "0" * 64


class HivemindSwarm(Swarm):
    """On a network, which another process speaks to. Used from one thread. The totals of `metrics` are not saved.

    That process refuses what breaks a bound (`exchange.py`, `records.py`); bodies are decoded once more here. Token ids
    of a peer pass only when they are of the own tokenizer, and its problems are claims.

    `tokenizer_digest` (64 hex digits) names the tokenizer that makes our token ids."""

    def __init__(
        self, network: NetworkProcess, environment: Environment, peer_id: str, tokenizer_digest: str = NO_TOKENIZER
    ) -> None:
        super().__init__(peer_id)
        self.network, self._environment, self._tokenizer_digest = network, environment, tokenizer_digest
        self._arrived: deque[RolloutGroup] = deque(maxlen=1024)
        self._posts = Newest[tuple[str, int], Post](WAITING_POSTS)  # By author and round: many push out no one else's
        self._last_received: dict[str, float] = {}
        self._counts: Counter[str] = Counter()

    @property
    def addresses(self) -> list[str]:
        """Multiaddresses that others can join with, once the network process is ready. Raises SwarmError."""
        return self.network.wait_ready(READY_SECONDS).addresses

    def play(self, round_number: int, *, hungry: bool = False) -> None:
        """Open a round."""
        self.network.check()
        self.network.send(OpenRound(round_number, hungry, bytes.fromhex(self._environment.digest)[:16]))

    def publish(self, groups: Sequence[ScoredGroup], round_number: int) -> None:
        """Announce own groups, those whose rewards differ first, and report on their problems to the proposers."""
        self.play(round_number)
        chosen = sorted(groups, key=_spread, reverse=True)[:MAX_ITEMS]
        encode = functools.partial(wire.encode_body, peer=self.peer_id, round_number=round_number)
        sent, body = wire.largest(chosen, lambda some: encode([scored.group for scored in some]))
        self._counts["unpublished"] += len(chosen) - len(sent)
        if sent:
            means = [mean(verdict.reward for verdict in each.trainable) for each in sent]
            # as a header has them
            rewards = [reward if reward is not None and 0 <= reward <= 1 else None for reward in means]
            self.network.send(Publish(GROUPS, round_number, body, rewards, bytes.fromhex(self._tokenizer_digest)))
        by_proposer: dict[str, list[ScoredGroup]] = {}
        for scored in groups:
            proposer = scored.group.problem.proposer
            if proposer and proposer != self.peer_id and scored.success is not None:
                by_proposer.setdefault(proposer, []).append(scored)
        for proposer, some in by_proposer.items():
            self.network.send(PeerFeedback(proposer, wire.encode_feedback(some[:MAX_ITEMS], round_number=round_number)))

    def gather(self, round_number: int) -> list[RolloutGroup]:
        self.play(round_number, hungry=True)
        self._receive()
        fresh = [group for group in self._arrived if self._is_fresh(group)]
        self._arrived.clear()
        self._counts["groups_received"] += len(fresh)
        return fresh

    def offer(self, problems: Sequence[Problem], round_number: int) -> None:
        self.play(round_number)
        encode = functools.partial(wire.encode_proposals, peer=self.peer_id, round_number=round_number)
        sent, body = wire.largest(problems[:MAX_ITEMS], encode)
        self._counts["unpublished"] += len(problems[:MAX_ITEMS]) - len(sent)
        if sent:
            super().offer(sent, round_number)
            self.network.send(Publish(PROPOSALS, round_number, body))

    def feedback(self) -> list[Feedback]:
        self.network.check()
        waiting = [self.network.feedback.popleft() for _ in range(len(self.network.feedback))]
        return [item for it in waiting for item in self.reported(it.peer, it.feedback, it.trust)]

    def proposals(self, round_number: int) -> list[Problem]:
        self.play(round_number)
        self._receive()
        return super().proposals(round_number)

    def post(self, payload: bytes, round_number: int) -> None:
        self.network.check()
        body = wire.ENCODE[MARKET]([payload], peer=self.peer_id, round_number=round_number)
        self.network.send(Publish(MARKET, round_number, body))

    def posts(self) -> list[Post]:
        self.network.check()
        self._receive()
        return [self._posts.popitem(last=False)[1] for _ in range(len(self._posts))]

    def metrics(self) -> Metrics:
        """Return totals since the start, but for `peers` (those of PEER_SECONDS) and `neighbours` (now)."""
        counts = self.network.counts + self._counts
        since = time.monotonic() - PEER_SECONDS
        self._last_received = {peer: at for peer, at in self._last_received.items() if at > since}
        metrics: Metrics = {
            "swarm/peers": len(self._last_received),
            "swarm/neighbours": self.network.neighbours,
            "swarm/network_restarts": self.network.restarts,
            "swarm/refused": sum(count for name, count in counts.items() if name.startswith("refused_")),
        }
        always = ("groups_received", "bytes_in", "bytes_out")
        return metrics | {f"swarm/{name}": counts[name] for name in (*always, *sorted(counts))}

    def close(self) -> None:
        self.network.close()

    def _receive(self) -> None:
        for _ in range(len(self.network.bodies)):  # another thread may append meanwhile
            message = self.network.bodies.popleft()
            self._last_received[message.peer] = time.monotonic()
            _, _, items = wire.DECODE[message.kind](message.body)
            if message.kind == PROPOSALS:
                self.keep(problem for item in items if (problem := self._derived(item)))
            elif message.kind == MARKET:
                self._posts[message.peer, message.round] = Post(message.peer, message.round, *items)
            else:
                known = [(group, self._derived(group.problem)) for group in items]
                groups = [replace(group, problem=problem) for group, problem in known if problem]
                self._arrived.extend(self._distrusted(group, message.tokenizer) for group in groups)

    def _derived(self, problem: Problem) -> Problem | None:
        """A peer's problem as this node derives it; None, and counted, where its place has another."""
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
        """A peer's group without what is not proven."""
        problem = group.problem
        if problem.source is Source.PROPOSER or problem.standing is Standing.CONFIRMED:
            group = replace(group, problem=replace(problem, standing=Standing.CLAIMED))
        if self._tokenizer_digest == NO_TOKENIZER or tokenizer.hex() != self._tokenizer_digest:
            bare = tuple(replace(completion, token_ids=(), logprobs=()) for completion in group.completions)
            group = replace(group, completions=bare)
        return group

    def _is_fresh(self, group: RolloutGroup) -> bool:
        """Count the same completions of a problem again, whoever sends them. The other process refuses what is own, or
        too old when it comes; an iteration may outlast many rounds."""
        hasher = hashlib.sha256(group.problem.id.encode())
        for completion in group.completions:
            hasher.update(hashlib.sha256(completion.text.encode()).digest())
        seen = hasher.digest() in self._seen
        self._counts["refused_duplicate"] += seen
        self._seen[hasher.digest()] = None
        return not seen


def _spread(group: ScoredGroup) -> float:
    """Standard deviation of the rewards: a group of equal rewards teaches nothing."""
    rewards = [verdict.reward for verdict in group.trainable]
    return statistics.pstdev(rewards) if rewards else -1.0
