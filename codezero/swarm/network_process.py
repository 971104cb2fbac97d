"""The network process: one for each node, started before CUDA, and gone as soon as its trainer is.

Lives apart from the trainer because a training step would hold up every peer that asks for something. It ends on its
own when the pipe to the trainer breaks, when its daemon dies, or when anything unforeseen happens; the trainer's side
(`supervisor.py`) starts it anew with the same identity.
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportOptionalMemberAccess=false, reportAttributeAccessIssue=false

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from codezero.errors import SwarmError
from codezero.swarm.identity import Identity
from codezero.swarm.members import AllowList, open_to_all
from codezero.swarm.messages import (
    Counted,
    Failed,
    Link,
    Logged,
    Message,
    Playing,
    Publish,
    Ready,
    Settings,
    Stop,
    Tell,
    port_of,
)
from codezero.swarm.records import PeerRecordValidator
from codezero.swarm.trust import Trust

if TYPE_CHECKING:
    from hivemind.p2p import P2P

    from codezero.swarm.exchange import Exchange
    from codezero.swarm.peer_store import Neighbourhood

REJOIN_SECONDS = 5.0
ALONE_SECONDS = 1.0
"""Between two rounds of dialling while there is no neighbour."""
WATCH_SECONDS = 0.5
LOOK_SECONDS = 120.0
"""Most that one look may take; its parts have deadlines of their own."""
LAST_SECONDS = 2.0
"""Between the end of the pipe and the end of the process."""
LOGGED_MESSAGES = 200


class Stopped(Exception):
    """The trainer said so, or is gone."""


def run(connection: Connection, settings: bytes) -> None:
    """Entry point of the process. `settings` is an encoded `Settings`."""
    os.setpgid(0, 0)  # Ctrl-C is for the trainer, which finishes its iteration
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    inbox = Inbox()
    link = Link(connection, inbox.put, inbox.trainer_is_gone)
    link.start()
    logging.basicConfig(level=logging.WARNING, handlers=[LinkHandler(link)], force=True)
    code = 0
    try:
        asyncio.run(Network(link, inbox, msgspec.msgpack.decode(settings, type=Settings)).run())
    except* Stopped:
        pass
    except* Exception as errors:  # noqa: BLE001 - the last words of a process; the supervisor reports and restarts
        link.send(Failed(_innermost(errors)))
        code = 1
    link.flush(LAST_SECONDS)
    sys.stdout.flush()
    os._exit(code)  # torch, loaded by hivemind, takes its time to leave


def _innermost(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:500]


class Inbox:
    """Messages of the trainer, from the reading thread to the event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._early: list[Message] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self.stop = asyncio.Event()
        self.messages: asyncio.Queue[Message] = asyncio.Queue()

    def put(self, message: Message) -> None:
        """Called in the reading thread."""
        with self._lock:
            if self._loop is None:
                self._early.append(message)
            else:
                self._loop.call_soon_threadsafe(self._deliver, message)

    def trainer_is_gone(self) -> None:
        """Called in the reading thread: end in good order if there is time, and end in any case."""
        threading.Timer(LAST_SECONDS, os._exit, (1,)).start()
        self.put(Stop())

    def attach(self) -> None:
        """From now on messages arrive in the running loop, those that came before it first."""
        with self._lock:
            self._loop = asyncio.get_running_loop()
            for message in self._early:
                self._deliver(message)

    def _deliver(self, message: Message) -> None:
        if isinstance(message, Stop):
            self.stop.set()
        else:
            self.messages.put_nowait(message)


class LinkHandler(logging.Handler):
    """Sends warnings to the trainer's log, a limited number of them: peers cause most."""

    def __init__(self, link: Link) -> None:
        super().__init__(logging.WARNING)
        self._link, self._left = link, LOGGED_MESSAGES

    def emit(self, record: logging.LogRecord) -> None:
        if self._left > 0:
            self._left -= 1
            self._link.send(Logged(record.levelno, f"{record.name}: {record.getMessage()}"[:1000]))


class Network:
    """The daemon, the DHT node and the exchange, from start to end."""

    def __init__(self, link: Link, inbox: Inbox, settings: Settings) -> None:
        self._link, self._inbox, self._settings = link, inbox, settings

    async def run(self) -> None:
        """Raises `Stopped`, in an exception group with what else went wrong."""
        self._inbox.attach()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._inbox.stop.set)
        _load_hivemind()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._until_stopped())
            tasks.create_task(self._live())

    async def _until_stopped(self) -> None:
        await self._inbox.stop.wait()
        raise Stopped

    async def _live(self) -> None:
        from codezero.swarm.hivemind_dht import start_daemon

        told = self._settings
        daemon = await start_daemon(
            Path(told.identity),
            told.host,
            told.port,
            announce=told.announce,
            reachable=told.reachable,
            relay=told.relay,
        )
        try:
            await self._serve(daemon)
        finally:
            await _end(daemon)

    async def _serve(self, daemon: "P2P") -> None:
        from codezero.swarm.exchange import Exchange
        from codezero.swarm.hivemind_dht import create_node
        from codezero.swarm.hivemind_transport import HivemindTransport
        from codezero.swarm.network_monitor import Caretaker
        from codezero.swarm.peer_store import Neighbourhood

        told = self._settings
        members = AllowList(Path(told.members)) if told.members else open_to_all()
        validator = PeerRecordValidator(Identity.load(Path(told.identity)), told.swarm, member=members)
        trust = Trust(members)
        node = await create_node(daemon, validator)
        exchange = Exchange(
            HivemindTransport(node, validator, told.swarm),
            validator,
            trust,
            swarm=told.swarm,
            pull_groups=told.pull_groups,
            on_heard=self._link.send,
            on_told=self._link.send,
        )
        neighbourhood = Neighbourhood(node, told.bootstrap)
        caretaker = Caretaker(
            node,
            exchange,
            neighbourhood,
            trust,
            swarm=told.swarm,
            folder=Path(told.state) if told.state else None,
            reachable=told.reachable,
        )
        caretaker.load()
        await exchange.start()
        await caretaker.serve()
        await neighbourhood.rejoin()
        addresses = await self._say_ready(daemon)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._obey(exchange))
                tasks.create_task(self._look(exchange, neighbourhood))
                tasks.create_task(_rejoin(neighbourhood))
                tasks.create_task(_watch(daemon))
                tasks.create_task(caretaker.tend(addresses, port_of(addresses) or told.port))
        finally:
            caretaker.save()

    async def _say_ready(self, daemon: "P2P") -> list[str]:
        async with asyncio.timeout(LAST_SECONDS):
            addresses = [str(address) for address in await daemon.get_visible_maddrs(latest=True)]
        sockets = [str(path["unix"]) for path in (daemon._daemon_listen_maddr, daemon._client_listen_maddr)]
        self._link.send(Ready(addresses=addresses, daemon=daemon._child.pid, sockets=sockets))
        return addresses

    async def _obey(self, exchange: "Exchange") -> None:
        while True:
            match await self._inbox.messages.get():
                case Playing(round=round_number, hungry=hungry):
                    exchange.play(round_number, hungry=hungry)
                case Publish() as message:
                    exchange.publish(message)
                case Tell() as message:
                    exchange.tell(message)
                case unexpected:
                    raise TypeError(f"the trainer sent {type(unexpected).__name__}")

    async def _look(self, exchange: "Exchange", neighbourhood: "Neighbourhood") -> None:
        while True:
            async with asyncio.timeout(LOOK_SECONDS):
                await exchange.look()
            self._link.send(Counted(exchange.take_counts(), neighbourhood.size))
            await asyncio.sleep(exchange.pause(self._settings.poll_seconds))


async def _rejoin(neighbourhood: "Neighbourhood") -> None:
    while True:
        await asyncio.sleep(REJOIN_SECONDS if neighbourhood.size else ALONE_SECONDS)
        await neighbourhood.rejoin()


async def _watch(daemon: "P2P") -> None:
    """hivemind does not notice a dead daemon: stores go on to return True."""
    while daemon._child.returncode is None:
        await asyncio.sleep(WATCH_SECONDS)
    raise SwarmError(f"the peer-to-peer daemon ended with code {daemon._child.returncode}")


async def _end(daemon: "P2P") -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LAST_SECONDS):
            await daemon.shutdown()
    if daemon._child.returncode is None:
        daemon._child.kill()


def _load_hivemind() -> None:
    """Quietly, on one CPU thread, and blind to accelerators: it brings torch along and has no use for it here."""
    multiprocessing.set_start_method("fork", force=True)  # else hivemind's locks outlive a killed process
    os.environ.update(HIVEMIND_LOGLEVEL="WARNING", OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from hivemind.utils.logging import use_hivemind_log_handler
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    use_hivemind_log_handler("nowhere")
