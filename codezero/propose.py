"""`role=proposer`: it only writes problems, so that one strong machine serves a swarm of laptops.

It learns their difficulty from peers' feedback: propose -> rest -> feedback -> difficulty. Points it earns come from
others' votes; it submits none itself."""

import signal
import time
from collections.abc import Sequence

from codezero.chain.build import start_chain
from codezero.config import NodeConfig
from codezero.environments.build import build_environment
from codezero.errors import ProposalError, SwarmError
from codezero.fitting import fit
from codezero.login.page_process import announce, start_page
from codezero.models.build import FrozenModels
from codezero.monitor.build import models_of, record_settings
from codezero.monitor.terminal import Screen
from codezero.proposer.base import Proposer
from codezero.proposer.build import build_proposer
from codezero.proposer.difficulty import BandTS
from codezero.run import Run, starting
from codezero.runs import RunFolder
from codezero.solver.build import build_checkpoints
from codezero.swarm.base import Swarm
from codezero.swarm.build import build_swarm, start_network, visit_through
from codezero.types import Feedback, Metrics, Problem


def run_proposer(
    composed: NodeConfig, folder: RunFolder, overrides: Sequence[str] = (), view: Screen | None = None
) -> bool:
    """Make a proposer's service and run it until a limit or a signal. True when SIGINT ended it. See `run_node`."""
    with starting(composed, folder.path, view) as (monitor, stack, peer_id):
        environment = build_environment(composed)
        config = fit(composed, environment, overrides, folder.path)
        monitor.add_facts(**models_of(config))
        monitor.busy("preparing the parts")
        page = start_page(config, overrides, stack)
        network = start_network(config, peer_id, folder.path, stack)
        serve = network.serve if network else None
        chain_started = start_chain(config, peer_id, folder.path, stack, visit_through(network), serve)
        monitor.busy("waiting for the chain")
        chain = chain_started()  # before models
        if network is not None:
            network.follow(chain.coordinator.current_round)
        proposer = build_proposer(config, environment, peer_id, FrozenModels(config, monitor.busy), stack)
        swarm = build_swarm(network, environment, peer_id, folder.path)
        difficulty = BandTS(seed=config.seed, only_feedback=True)
        checkpoints = build_checkpoints(config, folder.checkpoints, environment)
        saved = {"difficulty": difficulty, "proposer": proposer, "swarm": swarm}
        run = Run(config.run, monitor, checkpoints, chain.coordinator, saved)
        record_settings(folder.path, composed, config, overrides)
        folder.record_start()
        announce(page)
        propose(run, config, swarm, difficulty, proposer)
    return run.stop.received is signal.SIGINT


def propose(run: Run, config: NodeConfig, swarm: Swarm, difficulty: BandTS, proposer: Proposer) -> None:
    """Offer a batch of problems at the levels that peers' feedback calls for, then rest, until a limit or a signal."""
    settings = config.proposer
    with run:
        for step in run.steps():
            began = time.monotonic()
            feedback: list[Feedback] = []
            with run.tolerate(SwarmError, then="no feedback this iteration"):
                feedback = swarm.feedback()
                difficulty.hear(feedback)
            written: list[Problem] = []
            with run.tolerate(ProposalError, then="nothing proposed this iteration", most=config.run.max_failures):
                written = proposer.propose(difficulty.draw(settings.problems_per_iteration))
            with run.tolerate(SwarmError, then="nothing offered this iteration"):
                swarm.offer(written, run.open_round())
            row: Metrics = {"iteration": step.iteration, "round": step.round, "seconds": time.monotonic() - began}
            row |= {"proposer/feedback": len(feedback), "difficulty/level": difficulty.level}
            row |= swarm.metrics() | difficulty.metrics() | proposer.metrics()
            run.stop.wait(max(0.0, began + settings.rest_seconds - time.monotonic()))
            run.is_last(step)
            run.record(step, row, [], useful=bool(feedback or written))
            run.save(step)
