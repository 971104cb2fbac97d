"""Config -> the swarm: a process of its own on the network, or a swarm of one."""

import dataclasses
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from codezero.config import MEMBERS, REGISTRY, NodeConfig, SwarmConfig
from codezero.environment import Environment
from codezero.swarm.base import Swarm
from codezero.swarm.hivemind_swarm import NO_TOKENIZER, READY_SECONDS, HivemindSwarm
from codezero.swarm.identity import Identity
from codezero.swarm.network_status import ADDRESSES, FOLDER, remembered_port
from codezero.swarm.supervisor import IdentityLock, NetworkProcess, network_settings
from codezero.system.files import write_atomic


def start_network(config: NodeConfig, peer_id: str, folder: Path, stack: ExitStack) -> NetworkProcess | None:
    """The process that speaks to peers, starting; None: the swarm is this node alone. Raises IdentityError where this
    peer runs already."""
    if config.swarm.kind == "local":
        lock = IdentityLock(Path(config.swarm.identity), folder / FOLDER)
        lock.take()
        stack.callback(lock.release)
        return None
    port = config.swarm.port or remembered_port(folder / ADDRESSES, config.swarm.host)
    settings = dataclasses.replace(config.swarm, pull_groups=pulled_groups(config), port=port)
    if settings.members == REGISTRY:
        settings.members = str(folder / MEMBERS)
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)
        write_atomic(folder / MEMBERS, f"{peer_id}\n")
    network = NetworkProcess(network_settings(settings), folder / FOLDER)
    stack.callback(network.close)  # after the outbox, whose last points may go through it
    network.start()
    return network


def build_swarm(
    network: NetworkProcess | None, environment: Environment, peer_id: str, folder: Path, tokenizer: str = NO_TOKENIZER
) -> Swarm:
    """The exchange; writes the addresses that others join with, once the network is ready. Raises SwarmError."""
    if network is None:
        return Swarm(peer_id)
    swarm = HivemindSwarm(network, environment, peer_id, tokenizer)
    (folder / ADDRESSES).write_text("".join(f"{address}\n" for address in swarm.addresses))
    return swarm


def visit_through(network: NetworkProcess | None) -> Callable[[ExitStack], Callable[[str, bytes, float], bytes]]:
    """The way to ask other nodes: by the own network process, or as a visitor where there is none."""
    return (lambda _: network.ask) if network else visitor


def visitor(stack: ExitStack) -> Callable[[str, bytes, float], bytes]:
    """`NetworkProcess.ask` for whoever runs no node, as a peer of the moment, until `stack` is closed. Raises
    SwarmError."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="codezero-visitor-")))
    settings = network_settings(SwarmConfig(kind="local", identity=str(folder / "visitor.pem")))
    Identity.load_or_create(Path(settings.identity))
    network = NetworkProcess(settings, folder)
    network.start()
    stack.callback(network.close)
    network.wait_ready(READY_SECONDS)
    return network.ask


def pulled_groups(config: NodeConfig) -> int:
    """Peers' groups that are asked for; none where nobody would learn from them."""
    wanted = config.role == "node" and config.external.policy != "off" and config.external.groups > 0
    return config.swarm.pull_groups if wanted else 0
