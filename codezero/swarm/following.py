"""Pulling the versions of a peer's policy: what the trainer asks for, and how the network process gets it.

All of it is data of a stranger, bounded in size and time. What is in the files is checked by `weights.versions`.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from codezero.errors import SwarmError, UnreachableError, WeightsError
from codezero.swarm.hivemind_swarm import HivemindSwarm
from codezero.swarm.listener import Listener
from codezero.swarm.messages import Fetch, Fetched
from codezero.swarm.records import ROUNDS_BEHIND, PeerRecordValidator, versions_place
from codezero.swarm.schema import VERSIONS, WireRefusal
from codezero.swarm.serving import ChunkRequest
from codezero.swarm.transport import UNANSWERED, Transport
from codezero.swarm.trust import PeerTrust
from codezero.swarm.wire import decode_header, decode_versions
from codezero.weights import MANIFEST

LOOK_SECONDS = 3.0
"""Between two looks for a peer that announces no versions yet."""
FIRST_SECONDS, LEAST_RATE = 30.0, 1 << 18
"""A file may take so long, and a second more for every so many bytes."""
SILENCE_SECONDS, RETRY_SECONDS = 20.0, 0.5
"""Without a piece of a file, after which its holder is given up, and until it is asked again: an empty answer may mean
that the allowance is used up."""


class SwarmSource:
    """One peer's versions, as `weights.versions.VersionSource` wants them."""

    def __init__(self, swarm: HivemindSwarm, peer: str, say: Callable[[str], None], patience: float = 0.0) -> None:
        """patience: seconds to wait for a manifest."""
        self.peer, self._swarm, self._say, self._patience = peer, swarm, say, patience

    @contextmanager
    def file(self, name: str, most: int) -> Generator[Path]:
        with tempfile.TemporaryDirectory(prefix="codezero-versions-") as folder:
            yield self._fetched(name, most, Path(folder))

    def _fetched(self, name: str, most: int, folder: Path) -> Path:
        digest = None if name == MANIFEST else bytes.fromhex(name.partition(".")[0])
        deadline = time.monotonic() + (0.0 if digest else self._patience)
        if digest:
            self._say(f"pulling {name[:12]} of {self.peer}, {most / 1e6:.1f} MB")
        while True:
            path = folder / str(time.monotonic_ns())  # of this try alone: an answer to the one before may be late
            try:
                self._swarm.fetch(self.peer, digest, most, path, FIRST_SECONDS + most / LEAST_RATE)
                return path
            except SwarmError as error:
                if (left := deadline - time.monotonic()) <= 0:
                    raise WeightsError(str(error)) from error
                self._say(f"waiting up to {left:.0f} s for the policy of {self.peer}: {error}")
                time.sleep(min(left, LOOK_SECONDS))


class VersionPuller:
    """The network's side of a `SwarmSource`. What breaks a rule is counted and costs the peer some trust."""

    def __init__(
        self, transport: Transport, validator: PeerRecordValidator, trust: PeerTrust, listener: Listener
    ) -> None:
        self._transport, self._validator, self._trust, self._listener = transport, validator, trust, listener

    async def fetch(self, request: Fetch) -> Fetched:
        """Raises nothing for what a peer does."""
        failure = ""
        try:
            if reason := self._trust.refusal(request.peer):
                raise UnreachableError(f"{request.peer} is {reason}")
            async with asyncio.timeout(request.seconds):
                await (self._manifest(request) if request.digest is None else self._file(request, request.digest))
        except WireRefusal as refusal:
            self._listener.refuse(request.peer, refusal)
            failure = f"{request.peer} is not believed: {refusal}"
        except (UnreachableError, OSError) as error:
            failure = str(error) or f"{request.peer} is too slow: {request.size} bytes in {request.seconds:.0f} s"
        return Fetched(request.path, failure)

    async def _manifest(self, request: Fetch) -> None:
        peer, open_round = request.peer, self._validator.round
        if open_round is None:
            raise UnreachableError("no round is known yet")
        rounds = range(open_round + 1, max(-1, open_round - ROUNDS_BEHIND - 1), -1)
        places = [versions_place(self._validator.swarm, number, peer) for number in rounds]
        records = await self._transport.headers(places, thorough=True)
        place = next((place for place in places if peer in records.get(place, {})), None)
        if place is None:
            raise UnreachableError(f"{peer} announces no versions of a policy")
        header = decode_header(records[place][peer])
        if (header.kind, header.round) != (VERSIONS, place.round):
            raise WireRefusal("header", "not about the place it lies in")
        if header.tokenizer != request.tokenizer:
            raise UnreachableError(f"the policy of {peer} has another tokenizer")
        body = await self._listener.body(peer, header)
        if body is None:
            raise UnreachableError(f"{peer} does not answer")
        _, _, (manifest,) = decode_versions(self._listener.checked(peer, header, body, 1).body)
        Path(request.path).write_bytes(manifest)

    async def _file(self, request: Fetch, digest: bytes) -> None:
        last = time.monotonic()
        with Path(request.path).open("wb") as file:
            while (received := file.tell()) < request.size:
                call, piece = msgspec.msgpack.encode(ChunkRequest(digest, received)), b""
                with suppress(*UNANSWERED):
                    piece = await self._transport.ask(request.peer, "chunk", call)
                if len(piece) > request.size - received:
                    raise WireRefusal("size", "more of a file than was published")
                self._listener.counts["bytes_in"] += file.write(piece)
                if piece:
                    last = time.monotonic()
                elif time.monotonic() - last > SILENCE_SECONDS:
                    raise UnreachableError(f"{request.peer} sends nothing of a file that it announced")
                else:
                    await asyncio.sleep(RETRY_SECONDS)
