"""Config -> the swarm: a process of its own on the network, or a swarm of one."""

import dataclasses
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from codezero.config import NodeConfig, SwarmConfig
from codezero.environment import Environment
from codezero.protocols import Swarm
from codezero.runs import RunFolder
from codezero.swarm.hivemind_swarm import READY_SECONDS, HivemindSwarm
from codezero.swarm.identity import Identity
from codezero.swarm.messages import network_settings
from codezero.swarm.network_status import ADDRESSES, FOLDER, remembered_port
from codezero.swarm.proposals import LocalSwarm
from codezero.swarm.supervisor import IdentityLock, NetworkProcess

REGISTRY = "registry"
"""The word for the peers that are registered on the chain; a run's folder keeps them in MEMBERS."""
MEMBERS = f"{FOLDER}/members.txt"


def build_swarm(
    config: NodeConfig, environment: Environment, identity: Identity, folder: RunFolder, stack: ExitStack
) -> Swarm:
    """The exchange, starting; its addresses come when it is ready. Raises IdentityError where this peer runs."""
    if config.swarm.kind == "local":
        lock = IdentityLock(Path(config.swarm.identity), folder.path / FOLDER)
        lock.take()
        stack.callback(lock.release)
        return LocalSwarm(identity.peer_id)
    port = config.swarm.port or remembered_port(folder.path / ADDRESSES, config.swarm.host)
    settings = dataclasses.replace(config.swarm, pull_groups=pulled_groups(config), port=port)
    if settings.members == REGISTRY:
        from codezero.chain.upkeep import write_members

        settings.members = str(folder.path / MEMBERS)
        write_members(folder.path / MEMBERS, [identity.peer_id])
    swarm = HivemindSwarm(settings, folder.path / FOLDER, environment)
    swarm.start()
    return swarm


def visitor(stack: ExitStack) -> Callable[[str, bytes, float], bytes]:
    """`NetworkProcess.ask` for whoever runs no node, as a peer of the moment, until `stack` is closed.

    Raises SwarmError.
    """
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
