"""Config -> the exchange with peers."""

import contextlib
import dataclasses
from pathlib import Path

from codezero.config import NodeConfig
from codezero.protocols import Swarm
from codezero.runs import RunFolder
from codezero.swarm.hivemind_swarm import HivemindSwarm
from codezero.swarm.identity import Identity
from codezero.swarm.identity_lock import IdentityLock
from codezero.swarm.network_status import ADDRESSES, FOLDER, remembered_port
from codezero.swarm.proposals import LocalSwarm

REGISTRY = "registry"
"""The word for the peers that are registered on the chain."""


def members_file(folder: RunFolder) -> Path:
    return folder.path / FOLDER / "members.txt"


def build_swarm(config: NodeConfig, identity: Identity, folder: RunFolder, stack: contextlib.ExitStack) -> Swarm:
    """The exchange, starting; its addresses come when it is ready.

    Raises IdentityError when a living node is this peer.
    """
    if config.swarm.kind == "local":
        lock = IdentityLock(Path(config.swarm.identity), None)
        lock.take()
        stack.callback(lock.release)
        return LocalSwarm(identity.peer_id)
    settings = dataclasses.replace(config.swarm, pull_groups=pulled_groups(config))
    if settings.members == REGISTRY:
        from codezero.chain.registry import write_members

        write_members(members_file(folder), [identity.peer_id])
        settings = dataclasses.replace(settings, members=str(members_file(folder)))
    port = settings.port or remembered_port(folder.path / ADDRESSES, settings.host)
    swarm = HivemindSwarm(dataclasses.replace(settings, port=port), identity, state=folder.path / FOLDER)
    swarm.start()
    return swarm


def pulled_groups(config: NodeConfig) -> int:
    """Peers' groups that are asked for; none where nobody would learn from them."""
    wanted = config.role == "node" and config.external.policy != "off" and config.external.groups > 0
    return config.swarm.pull_groups if wanted else 0
