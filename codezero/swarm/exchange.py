"""One node's part in the gossip, over whichever transport: announce own bodies, hear of others'. No network here.

The same logic runs in the network process over hivemind, in memory, and at a thousand nodes in a simulation.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from random import Random

from codezero.swarm.announcer import Announcer
from codezero.swarm.listener import Listener
from codezero.swarm.messages import Heard, Publish, Tell, Told
from codezero.swarm.records import PeerRecordValidator
from codezero.swarm.serving import Feedback, Server
from codezero.swarm.sharding import Crowd
from codezero.swarm.transport import Call, Transport
from codezero.swarm.trust import Trust


class Exchange:
    """`look` is one turn. Used from one event loop."""

    def __init__(
        self,
        transport: Transport,
        validator: PeerRecordValidator,
        trust: Trust,
        *,
        swarm: str,
        pull_groups: int,
        on_heard: Callable[[Heard], None],
        on_told: Callable[[Told], None] = lambda _told: None,
        clock: Callable[[], float] = time.time,
        random: Random | None = None,
    ) -> None:
        """`on_heard` gets peers' bodies, `on_told` their feedback. `clock`: seconds since 1970.

        `random` decides what is read and pulled first.
        """
        random = random or Random()
        self._transport, self._validator, self._trust = transport, validator, trust
        self.crowd = Crowd(random)
        self.server = Server(trust)
        self.feedback = Feedback(transport, trust, on_told=on_told)
        self.announcer = Announcer(transport, self.server, swarm=swarm, clock=clock, shards=lambda: self.crowd.shards)
        self.listener = Listener(
            transport, self.crowd, trust, swarm=swarm, pull_groups=pull_groups, on_heard=on_heard, random=random
        )

    async def start(self) -> None:
        """Begin to serve. Raises UnreachableError."""
        await self._transport.serve(self._answer)

    @property
    def round(self) -> int | None:
        """The round that is open; None: not told yet."""
        return self._validator.round

    def play(self, round_number: int, *, hungry: bool = True) -> None:
        """The round that is open now; older ones but the last are forgotten. `hungry`: what was heard was taken."""
        if round_number != self._validator.round:
            self.listener.awake()
        self._validator.round = round_number
        self.announcer.forget(before=round_number - 1)
        if hungry:
            self.listener.feed()

    def pause(self, seconds: float) -> float:
        """How long to wait for the next look: `seconds`, and longer while nothing is new."""
        return self.listener.pause(seconds)

    def publish(self, message: Publish) -> None:
        """Queue own groups or problems for the next look."""
        self.announcer.pending.add(message)

    def tell(self, message: Tell) -> None:
        """Queue feedback to a peer for the next look."""
        self.feedback.add(message)

    async def look(self) -> None:
        """Announce what is new or about to expire, then hear what peers announced, and tell them what became of it."""
        await self.announcer.announce()
        if self._validator.round is not None:
            await asyncio.gather(self.listener.look(self._validator.round), self.feedback.send())

    def _answer(self, call: Call, peer: str, request: bytes) -> bytes:
        """Implements `transport.Answer`."""
        return self.feedback.take(peer, request) if call == "feedback" else self.server.answer(call, peer, request)

    def take_counts(self) -> dict[str, int]:
        """Everything counted since the last call, the validator's refusals included."""
        counters = (self.announcer.counts, self.listener.counts, self.server.counts, self.feedback.counts)
        taken: Counter[str] = Counter()
        for counter in counters:
            taken.update(counter)
            counter.clear()
        taken.update({f"refused_{reason}": count for reason, count in self._validator.refused.items()})
        self._validator.refused.clear()
        return dict(taken)
