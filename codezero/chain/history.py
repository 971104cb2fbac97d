"""What happened on the contract, read from its events in ranges of blocks; a scan can be interrupted and resumed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codezero.chain.codec import Event, decode_event, event_topic
from codezero.chain.contract import Coordinator
from codezero.chain.errors import ChainUnreachableError, RpcError
from codezero.chain.rpc import Question, read_logs

FIRST_SPAN = 1000
"""Blocks asked about at once at first; many endpoints refuse much more."""
LARGEST_SPAN = 100_000
GOAL = 500
"""Events in one answer above which the next range does not grow."""


@dataclass(frozen=True, slots=True)
class Page:
    """The events of some blocks, in order."""

    events: tuple[Event, ...]
    cursor: int
    """The first block that was not read: where to go on from, also another day."""
    head: int
    """The newest block when the scan began; the scan is over when `cursor` has passed it."""


def history(coordinator: Coordinator, since: int = 0, names: Sequence[str] = ()) -> Iterator[Page]:
    """Pages from block `since` to the newest; `names` of events, all when empty. An empty page tells of progress.

    A range that an endpoint refuses or answers too fully is halved. Raises ChainError.
    """
    topics = [[event_topic(name) for name in names]] if names else []
    head, span, cursor = coordinator.head(), FIRST_SPAN, since
    while cursor <= head:
        last = min(cursor + span - 1, head)
        wanted = {"address": coordinator.contract, "fromBlock": hex(cursor), "toBlock": hex(last), "topics": topics}
        try:
            logs = coordinator.rpc.ask(Question("eth_getLogs", [wanted], read_logs))
        except (RpcError, ChainUnreachableError):
            if span == 1:
                raise
            span = max(1, span // 4)
            continue
        own = [log for log in logs if log.address.lower() == coordinator.contract.lower()]
        found = [event for log in own if (event := decode_event(log)) and cursor <= event.block <= last]
        cursor = last + 1
        yield Page(tuple(sorted(found, key=lambda event: (event.block, event.index))), cursor, head)
        if len(logs) < GOAL:
            span = min(2 * span, LARGEST_SPAN)
