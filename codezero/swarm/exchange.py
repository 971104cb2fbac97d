"""One node's part in the gossip, over any transport: announce own bodies, pull others'."""

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random

from codezero.swarm.announcer import Announcer
from codezero.swarm.listener import Listener
from codezero.swarm.messages import ReceivedBody, ReceivedFeedback
from codezero.swarm.records import PeerRecordValidator
from codezero.swarm.serving import BodyServer, FeedbackExchange
from codezero.swarm.sharding import ShardEstimate
from codezero.swarm.transport import Call, Transport
from codezero.swarm.trust import PeerTrust


class Exchange:
    """`publish` and `send_feedback` queue, `poll` is one turn, `pause` the time to the next. For one event loop."""

    def __init__(
        self,
        transport: Transport,
        validator: PeerRecordValidator,
        trust: PeerTrust,
        *,
        pull_groups: int,
        on_body: Callable[[ReceivedBody], None],
        on_feedback: Callable[[ReceivedFeedback], None] = lambda _: None,
        random: Random | None = None,
    ) -> None:
        """`on_body` gets peers' bodies, `on_feedback` their feedback. `random` decides what is read first."""
        random, swarm = random or Random(), validator.swarm
        self._transport, self._validator = transport, validator
        self.sharding = ShardEstimate(random)
        self.server = BodyServer(trust)
        self.feedback = FeedbackExchange(transport, trust, on_feedback=on_feedback)
        self.announcer = Announcer(
            transport, self.server, swarm=swarm, clock=validator.clock, shards=lambda: self.sharding.shards
        )
        self.listener = Listener(
            transport, self.sharding, trust, swarm=swarm, pull_groups=pull_groups, on_body=on_body, random=random
        )
        self.publish, self.send_feedback, self.pause = self.announcer.add, self.feedback.add, self.listener.pause

    async def start(self) -> None:
        """Begin to serve. Raises UnreachableError."""
        await self._transport.serve(self._answer)

    @property
    def round(self) -> int | None:
        """The round that is open; None: not known yet."""
        return self._validator.round

    def open_round(self, round_number: int, *, hungry: bool = True) -> None:
        """The round that is open now; older ones but the last are forgotten. `hungry`: refill the pull budget."""
        if round_number != self._validator.round:
            self.listener.idle = 0
        self._validator.round = round_number
        self.announcer.forget(before=round_number - 1)
        if hungry:
            self.listener.refill()

    async def poll(self) -> None:
        """Announce what is new or about to expire, then pull what peers announced and send them feedback."""
        await self.announcer.announce()
        if self._validator.round is not None:
            await asyncio.gather(self.listener.poll(self._validator.round), self.feedback.send())

    def _answer(self, call: Call, peer: str, request: bytes) -> bytes:
        """Implements `transport.Answer`."""
        return self.feedback.take(peer, request) if call == "feedback" else self.server.answer(peer, request)

    def take_counts(self) -> dict[str, int]:
        """Everything counted since the last call, the validator's refusals included."""
        taken = Counter({f"refused_{reason}": count for reason, count in self._validator.refused.items()})
        self._validator.refused.clear()
        for part in (self.announcer, self.listener, self.server, self.feedback):
            taken.update(part.counts)
            part.counts.clear()
        return dict(taken)
