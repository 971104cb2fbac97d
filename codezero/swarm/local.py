"""The swarm without a network: alone, or several in one process around a hub. Deterministic and instant.

What crosses the hub went through the wire format, so a local swarm refuses what a real one would.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from codezero.swarm.offers import WITHDRAWAL_COUNTS, Kept, Offers, OwnOffers, read_kept, write_kept
from codezero.swarm.schema import MAX_ITEMS, Refusal
from codezero.swarm.wire import (
    claimed,
    decode_body,
    decode_feedback,
    decode_withdrawals,
    encode_body,
    encode_feedback,
    encode_withdrawals,
    own_offer,
)
from codezero.types import Feedback, Metrics, Problem, RolloutGroup, ScoredGroup


class LocalHub:
    """Where the LocalSwarms of one process meet."""

    def __init__(self) -> None:
        self.members: dict[str, LocalSwarm] = {}

    def others(self, peer: str) -> list["LocalSwarm"]:
        """Everybody but `peer`, in the order they came."""
        return [swarm for name, swarm in self.members.items() if name != peer]


class LocalSwarm:
    """The in-memory twin of HivemindSwarm: own offers come back as proposals; without a hub there are no peers."""

    def __init__(self, peer_id: str, hub: LocalHub | None = None) -> None:
        self.peer_id = peer_id
        self._hub = hub if hub is not None else LocalHub()
        self._hub.members[peer_id] = self
        self._inbox: list[RolloutGroup] = []
        self._offers = Offers(peer_id)
        self._own = OwnOffers()
        self._told: list[Feedback] = []
        self._counts: Counter[str] = Counter()
        self._heard: set[str] = set()

    def proposals(self, round_number: int) -> list[Problem]:
        """Everybody's proposals, newest first."""
        return self._offers.newest_first()

    def publish(self, groups: Sequence[ScoredGroup], round_number: int) -> None:
        """Every group reaches every other member at once."""
        others = self._hub.others(self.peer_id)
        for scored in groups if others else ():
            if self._offers.is_withdrawn(scored.group.problem):
                continue
            try:
                body = encode_body([scored.group], peer=self.peer_id, round_number=round_number)
            except Refusal:
                self._counts["unpublished"] += 1
                continue
            self._counts["bytes_out"] += len(body) * len(others)
            for other in others:
                other.hear(body)

            proposer = self._hub.members.get(scored.group.problem.proposer or "")
            if proposer is not None and proposer is not self and scored.success is not None:
                proposer.hear_feedback(self.peer_id, encode_feedback([scored], round_number=round_number))

    def hear_feedback(self, peer: str, data: bytes) -> None:
        """Take in what a peer says of this node's problems."""
        for outcome in decode_feedback(data).outcomes:
            problem = self._own.heard(outcome.problem.hex(), peer)
            if problem is not None:
                self._told.append(Feedback(peer, problem.id, problem.level, outcome.attempts, outcome.success))

    def feedback(self) -> list[Feedback]:
        """What peers said since the last call of this node's problems."""
        told, self._told = self._told, []
        return told

    def hear(self, body: bytes) -> None:
        """Take a peer's body in."""
        groups = decode_body(body)
        self._counts["bytes_in"] += len(body)
        self._heard.add(groups[0].peer_id)
        self._inbox.extend(groups)

    def gather(self, round_number: int) -> list[RolloutGroup]:
        """Peers' groups since the last call; those of rounds before the last one are dropped."""
        arrived, self._inbox = self._inbox, []
        recent = [group for group in arrived if group.round >= round_number - 1]
        fresh = [group for group in recent if not self._offers.is_withdrawn(group.problem)]
        self._counts["refused_stale"] += len(arrived) - len(recent)
        self._counts["refused_withdrawn"] += len(recent) - len(fresh)
        self._counts["groups_received"] += len(fresh)
        return fresh

    def offer(self, problems: Sequence[Problem], round_number: int) -> None:
        """Every member, this one too, finds the problems among its proposals, without their references."""
        good = self._offers.still_good(problems)[:MAX_ITEMS]
        self._own.add(good)
        for problem in good:
            for member in self._hub.members.values():
                mine = member is self
                member.keep_offer((own_offer if mine else claimed)(problem, self.peer_id))

    def keep_offer(self, problem: Problem) -> None:
        """Remember a proposal; the oldest are forgotten."""
        self._counts["refused_withdrawn"] += self._offers.keep([problem])

    def withdraw(self, problem_ids: Sequence[str], round_number: int) -> None:
        """Every member, this one too, drops these problems of this one's."""
        news, _ = self._offers.withdraw(self.peer_id, problem_ids)
        self._counts["withdrawn"] += news
        for start in range(0, len(problem_ids), MAX_ITEMS):
            some = problem_ids[start : start + MAX_ITEMS]
            body = encode_withdrawals(some, peer=self.peer_id, round_number=round_number)
            for other in self._hub.others(self.peer_id):
                other.hear_withdrawals(body)

    def hear_withdrawals(self, body: bytes) -> None:
        """Take in what a peer says of its own problems."""
        author, _, problem_ids = decode_withdrawals(body)
        news, dropped = self._offers.withdraw(author, problem_ids)
        self._counts["withdrawals_heard"] += news
        self._counts["offers_withdrawn"] += dropped

    def metrics(self) -> Metrics:
        """`swarm/...`, the names of the real swarm."""
        names = ("groups_received", "bytes_in", "bytes_out", *WITHDRAWAL_COUNTS)
        refused = self._counts["refused_stale"] + self._counts["refused_withdrawn"]
        counted: Metrics = {f"swarm/{name}": self._counts[name] for name in names}
        return {"swarm/peers": len(self._heard), "swarm/refused": refused} | counted

    def save(self, folder: Path) -> None:
        """All but what has arrived since the last `gather`."""
        offers, withdrawn = self._offers.state()
        own, heard, counts = self._own.state(), sorted(self._heard), dict(self._counts)
        write_kept(folder, Kept(offers=offers, own=own, withdrawn=withdrawn, heard=heard, counts=counts))

    def load(self, folder: Path) -> None:
        """Raises CheckpointError."""
        kept = read_kept(folder)
        self._offers.become(kept.offers, kept.withdrawn)
        self._own.become(kept.own)
        self._heard, self._counts = set(kept.heard), Counter(kept.counts)

    def close(self) -> None:
        """Leave the hub."""
        self._hub.members.pop(self.peer_id, None)
