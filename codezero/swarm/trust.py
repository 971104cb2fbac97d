"""A node's trust in each peer: allowances, penalties and quarantines, kept in a bounded, schema-checked file.

A fresh id begins clean, but with a small share of what is pulled, which grows with bodies that were fine: however many
ids somebody invents, they crowd out nobody who earned trust. `identity.py` decides who may have an id at all."""

import contextlib
import logging
import math
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from codezero.swarm.identity import Members
from codezero.swarm.network_status import DIRECT, PeerLine, replace_file
from codezero.swarm.wire import Digest
from codezero.system.files import PeerId, read_json
from codezero.system.state import Newest

logger = logging.getLogger(__name__)

MAX_PEERS, MAX_DIGESTS, MAX_FILE = 1 << 14, 1 << 16, 16 << 20  # In a file, and its bytes: more than these can take
CLOCK_ERROR = 300.0  # Seconds by which a file may be ahead of the clock
PRAISE_SECONDS = 60.0  # A delivered body makes penalties fade as if this much time had passed
# In thresholds: the largest penalty, the penalty left when a quarantine begins, the most that timeouts add up to.
CEILING, PROBATION, MOST_BY_TIMEOUTS = 2.0, 0.5, 0.4
EARNED = 16  # Fine bodies of a peer with a whole share


class Offence(StrEnum):
    """FORGED: a body is not what its header says. SILENT: it was not served. DUPLICATE: in older files alone."""

    FORGED = "forged"
    DIGEST = "false digest"
    MALFORMED = "malformed"
    DUPLICATE = "duplicate"
    SILENT = "silent"
    TIMEOUT = "timeout"


# What an offence adds to the penalty, where it is not 1.
WEIGHTS = {Offence.FORGED: 6.0, Offence.DIGEST: 6.0, Offence.MALFORMED: 4.0, Offence.TIMEOUT: 0.25}


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one peer, all above zero. A burst is 32 of the largest bodies, with retries."""

    requests_per_second: float = 8.0
    requests_burst: float = 256.0
    bytes_per_second: float = 512.0 * 1024
    bytes_burst: float = 64.0 * 1024 * 1024
    half_life_seconds: float = 600.0
    threshold: float = 10.0  # The penalty at which a quarantine begins; it halves in `half_life_seconds`
    quarantine_seconds: float = 120.0  # The first one; each repetition doubles it
    longest_quarantine_seconds: float = 6 * 3600.0
    forgiven_seconds: float = 24 * 3600.0  # So long after the end of a quarantine the next one counts as the first
    peers: int = 2048  # Peers remembered, MAX_PEERS if that is less
    digests: int = 8192  # Bodies remembered as used, MAX_DIGESTS if that is less


Time = Annotated[float, Meta(ge=0, le=2**53)]  # Seconds since 1970, so that a penalty fades while the node is down
Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]


class PeerRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, rename={"seen": "heard"}):
    """All that is remembered of one peer, as it is saved. Written in place."""

    peer: PeerId
    seen: Time
    settled: Time  # When `penalty` had its value; it fades from there
    penalty: Annotated[float, Meta(ge=0, le=2**53)] = 0.0
    until: Time = 0.0  # End of the last quarantine, which `cause` brought about
    cause: Offence | None = None
    quarantines: Count = 0
    bodies: Count = 0
    groups: Count = 0
    size: Count = 0
    failures: dict[Offence, Count] = {}
    full: dict[Literal["serving"], tuple[Time, Time]] = {}  # When its allowances of requests and bytes are full again


class Saved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):  # the file
    v: Literal[1]
    saved: Time
    peers: Annotated[list[PeerRecord], Meta(max_length=MAX_PEERS)]
    digests: Annotated[list[Digest], Meta(max_length=MAX_DIGESTS)]


class PeerTrust:
    """All peers' records. Used from one thread.

    member: whether a peer id belongs to the swarm; others are refused and take no memory.
    clock: seconds since 1970. Set back, it prolongs a quarantine, or ends it where that would be absurd.
    Ids must be proven by the transport or a signature, else one peer could blame another."""

    def __init__(self, member: Members, clock: Callable[[], float] = time.time, limits: Limits | None = None) -> None:
        self._member, self._clock, self._limits = member, clock, limits or Limits()
        self._records: dict[str, PeerRecord] = {}
        self.read = Newest[bytes, None](min(self._limits.digests, MAX_DIGESTS))  # Bodies proven to be their senders'
        # As `spend`, of an allowance that the peer shares with others.
        self.shared: Callable[[str, int, int], bool] = lambda _peer, _requests, _size: True

    def refusal(self, peer: str) -> str:
        """Say why `peer` is neither served nor pulled from; empty when it is not refused."""
        if not self._member(peer):
            return "not a member of this swarm"
        record, now = self._records.get(peer), self._clock()
        if record is None or not self._is_quarantined(record, now):
            return ""
        minutes = math.ceil((record.until - now) / 60)
        return f"quarantined for another {minutes} min: {record.cause} (quarantine number {record.quarantines})"

    def spend(self, peer: str, requests: int = 1, size: int = 0) -> bool:
        """Take of the peer's allowance; below zero: give back. False: too little is left, or the peer is refused."""
        if self.refusal(peer):
            return False
        limits, now = self._limits, self._clock()
        record = self._remember(peer, now)
        by_requests, by_bytes = record.full.get("serving", (now, now))
        by_requests = _pay(by_requests, requests, limits.requests_per_second, limits.requests_burst, now)
        by_bytes = _pay(by_bytes, size, limits.bytes_per_second, limits.bytes_burst, now)
        if math.inf in (by_requests, by_bytes) or not self.shared(peer, requests, size):
            return False
        record.full["serving"] = by_requests, by_bytes
        record.seen = now
        return True

    def blame(self, peer: str, offence: Offence) -> None:
        """Note an offence; at the threshold a quarantine begins. Timeouts never lead to one."""
        if not self._member(peer):
            return
        now, threshold, weight = self._clock(), self._limits.threshold, WEIGHTS.get(offence, 1.0)
        record = self._remember(peer, now)
        penalty, on_purpose = self._penalty(record, now), offence is not Offence.TIMEOUT
        if on_purpose:
            record.seen = now
        else:
            weight = max(0.0, min(weight, MOST_BY_TIMEOUTS * threshold - penalty))
        record.penalty, record.settled = min(CEILING * threshold, penalty + weight), now
        record.failures[offence] = record.failures.get(offence, 0) + 1
        if on_purpose and record.penalty >= threshold and not self._is_quarantined(record, now):
            before = self._repetitions(record, now)
            seconds = self._limits.quarantine_seconds * 2.0 ** min(before, 60)
            record.until = now + min(seconds, self._limits.longest_quarantine_seconds)
            record.quarantines, record.cause, record.penalty = before + 1, offence, PROBATION * threshold

    def praise(self, peer: str, *, groups: int = 0, size: int = 0) -> None:
        """Note a valid body of `size` bytes. Penalties fade by PRAISE_SECONDS more; none is made up for in advance."""
        if not self._member(peer):
            return
        now = self._clock()
        record = self._remember(peer, now)
        record.penalty, record.settled, record.seen = self._penalty(record, now + PRAISE_SECONDS), now, now
        record.bodies, record.groups, record.size = record.bodies + 1, record.groups + groups, record.size + size

    def knows(self, peer: str) -> bool:
        """Tell whether `peer` sent a fine body and is not refused."""
        record = self._records.get(peer)
        return record is not None and record.bodies > 0 and not self.refusal(peer)

    def chance(self, peer: str) -> float:
        """Weigh draws among peers: 1 for one without penalty, least, but above 0, for one that is refused."""
        record = self._records.get(peer)
        penalty = self._penalty(record, self._clock()) if record else 0.0
        return 1 / (1 + (CEILING * self._limits.threshold if self.refusal(peer) else penalty))

    def shares(self, peers: Collection[str]) -> dict[str, float]:
        """Weigh draws among these peers, above 0: `chance`, as far as it is earned. All who never sent a fine body
        weigh together at most a third of those who did."""
        records = {peer: self._records.get(peer) for peer in peers}
        earned = {peer: min(1.0, kept.bodies / EARNED) for peer, kept in records.items() if kept and kept.bodies}
        shares = {peer: self.chance(peer) * earned.get(peer, 1 / EARNED) for peer in records}
        known = sum(shares[peer] for peer in earned)
        fresh = sum(shares.values()) - known
        scale = min(1.0, known / (3 * fresh)) if earned and fresh > 0 else 1.0
        return {peer: share if peer in earned else share * scale for peer, share in shares.items()}

    def report(self, ways: Mapping[str, str] = {}) -> list[PeerLine]:
        """List every remembered peer that belongs to the swarm, the latest first; ways: who brought its last body."""
        now = self._clock()
        records = [record for record in self._records.values() if self._member(record.peer)]
        return [
            PeerLine(
                **{name: getattr(record, name) for name in ("peer", "bodies", "groups", "size", "failures")},
                heard_seconds_ago=max(0.0, now - record.seen),
                penalty=self._penalty(record, now),
                state="quarantined" if (reason := self.refusal(record.peer)) else "ok",
                reason=reason,
                way=DIRECT if (way := ways.get(record.peer, "")) == record.peer else way,
            )
            for record in sorted(records, key=lambda record: (-record.seen, record.peer))
        ]

    def save(self, path: Path) -> None:
        """Write the state to `path`, all or nothing, readable by its owner alone. A failure is a warning."""
        raw = msgspec.json.encode(Saved(1, self._clock(), list(self._records.values()), list(self.read)))
        replace_file(path, raw, private=True)

    def load(self, path: Path) -> None:
        """Become what `save` wrote, if anything. A file that is broken or of the future becomes NAME.broken."""
        try:
            saved = read_json(path, Saved, MAX_FILE)
            if saved.saved > self._clock() + CLOCK_ERROR:
                raise ValueError("from the future; is the clock of this machine right?")
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:  # msgspec raises nothing but ValueError
            aside = path.with_name(f"{path.name}.broken")
            logger.warning("%s cannot be used and goes to %s; every peer begins anew: %s", path, aside.name, error)
            with contextlib.suppress(OSError):
                os.replace(path, aside)
            return
        self._records = {record.peer: record for record in saved.peers}
        self.read.clear()
        self.read.update(dict.fromkeys(saved.digests))
        while len(self._records) > self._limits.peers:
            self._forget_some(self._clock())

    def _remember(self, peer: str, now: float) -> PeerRecord:
        if peer not in self._records and len(self._records) >= min(self._limits.peers, MAX_PEERS):
            self._forget_some(now)
        return self._records.setdefault(peer, PeerRecord(peer, now, now))

    def _forget_some(self, now: float) -> None:
        """Forget an eighth, the least guilty first, then the longest silent. Quarantined peers go one by one and only
        when all are, so that fresh ids cannot wash them out."""

        def guilt(record: PeerRecord) -> tuple[bool, int, int, float]:
            penalty = int(self._penalty(record, now))  # less than one light offence is innocence
            worth = max(penalty, min(record.bodies, EARNED))  # nor do fresh ids wash out who earned trust
            return self._is_quarantined(record, now), self._repetitions(record, now), worth, record.seen

        ranked = sorted(self._records.values(), key=guilt)
        free = sum(not self._is_quarantined(record, now) for record in ranked)
        for record in ranked[: max(1, min(len(ranked) // 8, free))]:
            del self._records[record.peer]

    def _penalty(self, record: PeerRecord, now: float) -> float:
        return record.penalty * 0.5 ** (max(0.0, now - record.settled) / self._limits.half_life_seconds)

    def _is_quarantined(self, record: PeerRecord, now: float) -> bool:
        return 0 < record.until - now < 2 * self._limits.longest_quarantine_seconds

    def _repetitions(self, record: PeerRecord, now: float) -> int:
        return 0 if now - record.until > self._limits.forgiven_seconds else record.quarantines


def _pay(full: float, cost: float, rate: float, burst: float, now: float) -> float:
    """Return when the allowance is full again after `cost`; infinity when that is too much."""
    empty = now + burst / rate
    # Further ahead than an empty one: the clock was set back, and the peer must not be locked out until it catches up.
    full = (full if now < full <= empty else now) + cost / rate
    return full if full <= empty else math.inf
