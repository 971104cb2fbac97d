"""What the network process is told at its start, made of checked settings."""

import ipaddress
import re
from pathlib import Path

import msgspec

from codezero.config import SwarmConfig
from codezero.errors import ConfigError
from codezero.swarm.members import AllowList

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
LISTENING = re.compile(r"/(ip4|ip6|dns|dns4|dns6)/[^/\s]{1,255}/tcp/[1-9][0-9]{0,4}")
ADDRESS = re.compile(r"/.+/p2p/[1-9A-HJ-NP-Za-km-z]{32,64}")


class Settings(msgspec.Struct, frozen=True):
    """Everything the process is told at its start."""

    identity: str
    swarm: str
    host: str
    port: int
    bootstrap: list[str]
    poll_seconds: float
    pull_groups: int
    members: str = ""
    """File of the peers that belong; empty: everybody does."""
    announce: list[str] = []
    reachable: str = "auto"
    relay: bool = True
    state: str = ""
    """Folder for what outlives the process; empty: none."""


def network_settings(config: SwarmConfig, state: Path | None, *, pull_groups: int | None = None) -> Settings:
    """Paths made absolute. `pull_groups` instead of the one in `config`.

    Raises ConfigError for a name, host, address or list of members that cannot be used.
    """
    _check(config)
    return Settings(
        identity=str(Path(config.identity).resolve()),
        swarm=config.name,
        host=config.host,
        port=config.port,
        bootstrap=list(config.bootstrap),
        poll_seconds=config.poll_seconds,
        pull_groups=config.pull_groups if pull_groups is None else pull_groups,
        members=str(Path(config.members).resolve()) if config.members else "",
        announce=list(config.announce),
        reachable=config.reachable,
        relay=config.relay,
        state=str(state.resolve()) if state else "",
    )


def _check(config: SwarmConfig) -> None:
    if not NAME.fullmatch(config.name):
        raise ConfigError(f"swarm.name={config.name} must be 1 to 64 letters, digits, '.', '_' or '-'")
    try:
        ipaddress.ip_address(config.host)
    except ValueError as error:
        raise ConfigError(f"swarm.host={config.host} must be an IP address of this machine, or 0.0.0.0") from error
    if config.members:
        AllowList(Path(config.members))
    for address in config.announce:
        if not LISTENING.fullmatch(address):
            raise ConfigError(f"swarm.announce: {address} is no address; write /ip4/HOST/tcp/PORT with a port above 0")
    for address in config.bootstrap:
        if not ADDRESS.fullmatch(address):
            raise ConfigError(f"swarm.bootstrap: {address} is no address; write /ip4/HOST/tcp/PORT/p2p/PEER_ID")
