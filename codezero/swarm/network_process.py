"""The network process of a node: a training step would delay every answer to a peer.

It ends when the pipe to the trainer breaks, when its daemon dies, or at an unexpected error; `supervisor.py` then
restarts it as the same peer."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false, reportPrivateUsage=false

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from codezero.config import SwarmConfig
from codezero.errors import SwarmError
from codezero.swarm import supervisor
from codezero.swarm.identity import AllowList, Identity, open_to_all
from codezero.swarm.network_status import port_of
from codezero.swarm.records import PeerRecordValidator
from codezero.swarm.supervisor import Message, MessagePipe
from codezero.swarm.trust import PeerTrust
from codezero.system.child import Channel, parent_channel

if TYPE_CHECKING:
    from hivemind.p2p import P2P

    from codezero.swarm.exchange import Exchange
    from codezero.swarm.network_monitor import FounderServicer, PeerStore

POLL_SECONDS = 120.0  # Most that one poll may take; its parts have deadlines of their own
LAST_SECONDS = 2.0  # Between the end of the pipe and the end of the process
LOGGED_MESSAGES = 200


def main() -> None:
    """Entry point of the process. The first message: the settings, and the folder for what outlives it."""
    channel = parent_channel()
    settings, state = channel.receive(tuple[SwarmConfig, str])
    node = NetworkNode(channel, settings, Path(state))
    logging.basicConfig(level=logging.WARNING, handlers=[TrainerLog(node.pipe)], force=True)
    code = 0
    try:
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(node.run())
    except Exception as error:  # noqa: BLE001 - the process ends; the supervisor reports and restarts
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        node.pipe.send(supervisor.Failed(f"{type(error).__name__}: {error}"[:500]))
        code = 1
    node.pipe.flush(LAST_SECONDS)
    sys.stdout.flush()
    os._exit(code)  # torch, loaded by hivemind, takes its time to leave


class TrainerLog(logging.Handler):
    """Sends the first LOGGED_MESSAGES warnings to the trainer's log: peers cause most of them."""

    def __init__(self, pipe: MessagePipe) -> None:
        super().__init__(logging.WARNING)
        self._pipe, self._left = pipe, LOGGED_MESSAGES

    def emit(self, record: logging.LogRecord) -> None:
        if self._left > 0:
            self._left -= 1
            self._pipe.send(supervisor.Logged(record.levelno, f"{record.name}: {record.getMessage()}"[:1000]))


class NetworkNode:
    """The daemon, the DHT node and the exchange, from start to end."""

    def __init__(self, channel: Channel, settings: SwarmConfig, state: Path) -> None:
        self.pipe = MessagePipe(channel, self._on_message, self._on_trainer_gone)
        self._settings, self._state = settings, state
        self._loop: asyncio.AbstractEventLoop | None = None
        self._messages: asyncio.Queue[Message] = asyncio.Queue()

    async def run(self) -> None:
        """Raises CancelledError at SIGTERM: the trainer asked for the end, or is gone."""
        self._loop = asyncio.get_running_loop()
        living = self._loop.create_task(self._live())
        self._loop.add_signal_handler(signal.SIGTERM, lambda: living.cancelling() or living.cancel())
        self.pipe.start()
        _load_hivemind()
        await living

    def _on_message(self, message: Message) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._messages.put_nowait, message)

    def _on_trainer_gone(self) -> None:
        """End in good order if there is time, and in any case. Called in the reading thread."""
        threading.Timer(LAST_SECONDS, os._exit, (1,)).start()
        os.kill(os.getpid(), signal.SIGTERM)

    async def _live(self) -> None:
        from codezero.swarm.hivemind_dht import start_daemon

        daemon = await start_daemon(self._settings)
        try:
            if self._settings.kind == "hivemind":
                await self._serve(daemon)
            else:  # asks nodes only, as a member of no swarm
                await self._send_ready(daemon)
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._receive(daemon))
                    tasks.create_task(_raise_when_dead(daemon))
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_SECONDS):
                    await daemon.shutdown()
            if daemon._child.returncode is None:
                daemon._child.kill()

    async def _serve(self, daemon: "P2P") -> None:
        from codezero.swarm.exchange import Exchange
        from codezero.swarm.hivemind_dht import HivemindTransport, create_node, serve, take_part
        from codezero.swarm.network_monitor import FounderServicer, NetworkMonitor, PeerStore, ReachServicer

        settings = self._settings
        members = AllowList(Path(settings.members)) if settings.members else open_to_all
        validator = PeerRecordValidator(Identity.load(Path(settings.identity)), settings.name, member=members)
        trust = PeerTrust(members)
        node = await create_node(daemon, validator, trust.knows)
        await take_part(node.protocol, serving=settings.reachable != "no")
        exchange = Exchange(
            HivemindTransport(node, validator),
            validator,
            trust,
            pull_groups=settings.pull_groups,
            relay=settings.relay,
            on_body=self.pipe.send,
            on_feedback=self.pipe.send,
        )
        peer_store = PeerStore(node, settings.bootstrap)
        monitor = NetworkMonitor(node, exchange, peer_store, trust, settings, self._state)
        await exchange.start()
        await serve(ReachServicer(daemon, trust), daemon, settings.name)
        founder = FounderServicer(node.peer_id.to_base58(), self.pipe.send)
        if settings.invitation:
            await serve(founder, daemon)
        await peer_store.rejoin()
        addresses = await self._send_ready(daemon)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._receive(daemon, exchange, founder))
                tasks.create_task(self._poll(exchange, peer_store))
                tasks.create_task(_rejoin(peer_store))
                tasks.create_task(_raise_when_dead(daemon))
                tasks.create_task(monitor.tend(addresses, port_of(*addresses) or settings.port))
        finally:
            monitor.save()

    async def _send_ready(self, daemon: "P2P") -> list[str]:
        async with asyncio.timeout(LAST_SECONDS):
            addresses = [str(address) for address in await daemon.get_visible_maddrs(latest=True)]
        sockets = [str(path["unix"]) for path in (daemon._daemon_listen_maddr, daemon._client_listen_maddr)]
        self.pipe.send(supervisor.NetworkReady(addresses=addresses, daemon=daemon._child.pid, sockets=sockets))
        return addresses

    async def _receive(
        self, daemon: "P2P", exchange: "Exchange | None" = None, founder: "FounderServicer | None" = None
    ) -> None:
        """Do what the trainer's messages say; without an exchange, ask nodes only."""
        from codezero.swarm.network_monitor import ask_founder

        async def ask(question: supervisor.Question) -> None:
            self.pipe.send(await ask_founder(daemon, question))

        async with asyncio.TaskGroup() as tasks:
            while True:
                match await self._messages.get():
                    case supervisor.Question() as message:
                        tasks.create_task(ask(message))
                    case supervisor.OpenRound(round=round_number, hungry=hungry, environment=environment) if exchange:
                        exchange.open_round(round_number, hungry=hungry, environment=environment)
                    case supervisor.Publish() as message if exchange:
                        exchange.publish(message)
                    case supervisor.PeerFeedback() as message if exchange:
                        exchange.feedback.add(message)
                    case supervisor.Answered() as message if founder:
                        founder.take(message)
                    case unexpected:
                        raise TypeError(f"the trainer sent {type(unexpected).__name__}")

    async def _poll(self, exchange: "Exchange", peer_store: "PeerStore") -> None:
        while True:
            async with asyncio.timeout(POLL_SECONDS):
                await exchange.poll()
            self.pipe.send(supervisor.Counted(exchange.take_counts(), peer_store.size))
            await asyncio.sleep(exchange.listener.pause(self._settings.poll_seconds))


async def _rejoin(peer_store: "PeerStore") -> None:
    while True:
        await asyncio.sleep(5.0 if peer_store.size else 1.0)
        await peer_store.rejoin()


async def _raise_when_dead(daemon: "P2P") -> None:
    """hivemind does not notice a dead daemon: its stores go on returning True."""
    while daemon._child.returncode is None:
        await asyncio.sleep(0.5)
    raise SwarmError(f"the peer-to-peer daemon ended with code {daemon._child.returncode}")


def _load_hivemind() -> None:
    """Quietly, with one CPU thread and no accelerator: it imports torch, which is not used here."""
    multiprocessing.set_start_method("fork", force=True)  # else hivemind's locks outlive a killed process
    os.environ.update(HIVEMIND_LOGLEVEL="WARNING", OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from hivemind.utils.logging import use_hivemind_log_handler
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    use_hivemind_log_handler("nowhere")


if __name__ == "__main__":
    main()
