"""What a thousand validators in one process share: a record that one of them accepted need not be taken apart again."""

from collections import OrderedDict
from collections.abc import Callable

import msgspec

from codezero.swarm.identity import Identity
from codezero.swarm.records import DHTRecord, Envelope, PeerRecordValidator, RecordPlace, parse_key
from codezero.swarm.schema import WireRefusal

ACCEPTED = 1 << 16
"""Records remembered."""


class Accepted:
    """Records that some node's validator accepted, and where each lies. Only what all nodes agree on is remembered."""

    def __init__(self) -> None:
        self.places: OrderedDict[DHTRecord, tuple[RecordPlace, str]] = OrderedDict()


class SharedValidator(PeerRecordValidator):
    """The real rules; format, key, owner and signature of one record are checked by the first node that sees it.

    The clock, the open round and the members differ between nodes and are checked by each. What was
    refused is not remembered: a forgery costs everybody the whole check.
    """

    def __init__(self, identity: Identity, swarm: str, *, clock: Callable[[], float], accepted: Accepted) -> None:
        super().__init__(identity, swarm, clock=clock)
        self._accepted = accepted.places

    def _check(self, record: DHTRecord) -> None:
        known = self._accepted.get(record)
        if known is None:
            super()._check(record)
            self._remember(record)
            return
        place, peer = known
        self._check_expiry(record.expiration_time)
        if not self.member(peer):
            raise WireRefusal("member")
        self._check_round(place.round)

    def _remember(self, record: DHTRecord) -> None:
        envelope = msgspec.msgpack.decode(msgspec.msgpack.decode(record.value, type=bytes), type=Envelope)
        self._accepted[record] = parse_key(envelope.key), msgspec.msgpack.decode(record.subkey, type=str)
        while len(self._accepted) > ACCEPTED:
            self._accepted.popitem(last=False)
