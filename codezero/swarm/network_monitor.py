"""What the network process does beside gossiping: tells people how it stands, finds out whether others can reach it,
and writes down what it has learned, so that a restart does not forget a quarantine or the way back in.
"""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportUnknownVariableType=false

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import Path

from hivemind.dht.node import DHTNode

from codezero.swarm.exchange import Exchange
from codezero.swarm.network_status import MAX_PEERS, NetworkStatus, PeerLine, write_status
from codezero.swarm.peer_store import Neighbourhood
from codezero.swarm.reachability import ReachServicer, is_reachable
from codezero.swarm.transport import within
from codezero.swarm.trust import PeerReport, Trust

logger = logging.getLogger(__name__)

STATUS_SECONDS = 5.0
SAVE_SECONDS = 60.0
REACH_SECONDS = 600.0
"""Between two self-tests whose result was clear; STATUS_SECONDS while nobody could tell."""
SERVE_SECONDS = 10.0
TRUST, NEIGHBOURS = "trust.json", "neighbours.json"


class Caretaker:
    """`load` before the exchange starts, `tend` beside it, `save` at the end. Without a folder nothing is written."""

    def __init__(
        self,
        node: DHTNode,
        exchange: Exchange,
        neighbourhood: Neighbourhood,
        trust: Trust,
        *,
        swarm: str,
        folder: Path | None,
        reachable: str,
    ) -> None:
        """`reachable`: yes, no, or auto to find out."""
        self._node, self._exchange, self._neighbourhood, self._trust = node, exchange, neighbourhood, trust
        self._swarm, self._folder = swarm, folder
        self._wanted = reachable
        self.reachable: bool | None = {"yes": True, "no": False}.get(reachable)
        exchange.announcer.reachable = reachable != "no"

    def load(self) -> None:
        """What an earlier process of this node learned."""
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._trust.load(self._folder / TRUST)
            self._neighbourhood.recall(self._folder / NEIGHBOURS)

    def save(self) -> None:
        if self._folder is not None:
            self._trust.save(self._folder / TRUST)
            self._neighbourhood.remember(self._folder / NEIGHBOURS)

    async def serve(self) -> None:
        """Begin to dial back for others."""
        servicer = ReachServicer(self._node.p2p, lambda peer, cost: self._trust.spend(peer, cost))
        await within(SERVE_SECONDS, servicer.add_p2p_handlers(self._node.p2p, namespace=self._swarm))

    async def tend(self, addresses: Sequence[str], port: int) -> None:
        """Until it is cancelled."""
        tested = saved = 0.0
        while True:
            now = time.monotonic()
            if self._wanted == "auto" and (self.reachable is None or now - tested >= REACH_SECONDS):
                tested = now
                self._found(await is_reachable(self._node, self._swarm, port), port)
            if now - saved >= SAVE_SECONDS:
                saved = now
                self.save()
            self._tell(addresses, port)
            await asyncio.sleep(STATUS_SECONDS)

    def _found(self, reachable: bool | None, port: int) -> None:
        if reachable is False and self.reachable is not False:
            logger.warning("%s", _words(False, self._wanted, port))
        if reachable is not None:
            self.reachable = reachable
            self._exchange.announcer.reachable = reachable

    def _tell(self, addresses: Sequence[str], port: int) -> None:
        if self._folder is None:
            return
        write_status(
            self._folder,
            NetworkStatus(
                time=time.time(),
                me=self._node.peer_id.to_base58(),
                addresses=list(addresses),
                neighbours=self._neighbourhood.size,
                round=self._exchange.round,
                shards=self._exchange.crowd.shards,
                reachable=self.reachable,
                reachability=_words(self.reachable, self._wanted, port),
                peers=[_line(one) for one in self._trust.report()[:MAX_PEERS]],
            ),
        )


def _words(reachable: bool | None, wanted: str, port: int) -> str:
    if wanted != "auto":
        return f"as set: swarm.reachable={wanted}"
    if reachable is None:
        return "no neighbour could tell yet"
    if reachable:
        return f"others reach TCP port {port}"
    return (
        f"others cannot reach TCP port {port}: open or forward it, or set swarm.reachable=no to be relayed; until then "
        "own rollouts are left in the DHT, once a minute and 64 KiB at most"
    )


def _line(report: PeerReport) -> PeerLine:
    return PeerLine(
        peer=report.peer,
        heard_seconds_ago=report.heard_seconds_ago,
        bodies=report.bodies,
        groups=report.groups,
        size=report.size,
        failures={offence.value: count for offence, count in report.failures.items()},
        penalty=report.penalty,
        state=report.state,
        reason=report.reason,
    )
