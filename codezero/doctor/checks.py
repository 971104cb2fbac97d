"""Which checks there are."""

from collections.abc import Sequence
from pathlib import Path

from codezero.config import NodeConfig
from codezero.doctor import machine, network, services
from codezero.doctor.finding import Check, Finding


def checks(config: NodeConfig, overrides: Sequence[str]) -> list[Check]:
    """For a node of this config, which was composed of `overrides`; in the order in which people read them."""

    def clock() -> Finding:
        return machine.clock(services.block_time(config.chain), config.chain.round_seconds)

    return [
        Check("python", machine.python),
        Check("hardware", lambda: machine.hardware(overrides), machine.HARDWARE_SECONDS + 1, machine.HARDWARE),
        Check("disk", lambda: machine.disk(Path(config.run.directory))),
        Check("clock", clock, services.CHAIN_SECONDS + 2),
        Check("page port", lambda: network.page_port(config)),
        Check("p2p port", lambda: network.p2p_port(config.swarm, network.running_network(config))),
        Check("ways in", lambda: network.ways_in(config.swarm), 3 * network.DIAL_SECONDS),
        Check("reach", lambda: network.reach(config.swarm, network.running_network(config)), 20.0),
        Check("chain", lambda: services.chain(config.chain), services.CHAIN_SECONDS + 2),
        Check("judge", lambda: services.judge(config.evaluator), services.JUDGE_SECONDS + 5),
        Check("hub", lambda: services.hub(config), services.HUB_SECONDS + 9),
        Check("identity", lambda: services.identity(Path(config.swarm.identity))),
        Check("login", lambda: services.login(config)),
    ]
