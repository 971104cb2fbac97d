"""`codezero swarm bootnode`: a way into the swarm that is always there.

It holds records and names neighbours; it has no models, trains nothing and publishes nothing.
"""

import time
from pathlib import Path

from codezero.config import NodeConfig
from codezero.errors import SwarmError
from codezero.monitor.plain import print_flushed
from codezero.monitor.text import count
from codezero.swarm.identity import Identity
from codezero.swarm.messages import network_settings
from codezero.swarm.supervisor import NetworkProcess
from codezero.system.signals import Stop

READY_SECONDS = 90.0
LINE_SECONDS = 60.0
STATE = "bootnode"
"""Folder below `run.directory`."""


def run_bootnode(config: NodeConfig) -> None:
    """Until SIGINT or SIGTERM. The network process is supervised: it comes back by itself, with the same identity.

    Raises ConfigError, IdentityError and SwarmError (it never came up).
    """
    network = NetworkProcess(network_settings(config.swarm, Path(config.run.directory) / STATE, pull_groups=0))
    Identity.load_or_create(Path(config.swarm.identity))
    stop = Stop()
    with stop.on_signals():
        network.start()
        try:
            for address in network.wait_ready(READY_SECONDS).addresses:
                print_flushed(address)
            _watch(network, stop)
        finally:
            network.close()


def _watch(network: NetworkProcess, stop: Stop) -> None:
    """A line a minute, and one when the network process died."""
    told = -LINE_SECONDS
    while not stop:
        try:
            network.check()
        except SwarmError as error:
            print_flushed(f"codezero: {error}")
        if time.monotonic() - told >= LINE_SECONDS:
            told = time.monotonic()
            print_flushed(f"codezero: {count(network.neighbours, 'neighbour')}")
        time.sleep(0.2)
