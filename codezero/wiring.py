"""Config -> Node: the only file that names concrete classes.

Heavy libraries load inside the functions, in the order that wastes least time: the network process first, because it
starts in parallel and must exist before CUDA does.
"""

import contextlib
import dataclasses
import logging
import re
import signal
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

from codezero.chain.late import LateChain
from codezero.config import NodeConfig
from codezero.fleet import ADDRESSES
from codezero.known_round import KnownRound
from codezero.monitor.monitor import RunMonitor, setup_logging
from codezero.node import Node
from codezero.page import Page, announce, wanted
from codezero.problems.stream import SyntheticStream
from codezero.problems.synthetic import held_out
from codezero.profiles import fit
from codezero.proposer.difficulty import BandTS
from codezero.protocols import Evaluator, Exam, GroupSampler, Proposer, Swarm
from codezero.run_folder import RunFolder
from codezero.stopping import end_with_parent
from codezero.swarm.gossip import HivemindSwarm
from codezero.swarm.identity import Identity
from codezero.swarm.local import LocalSwarm
from codezero.swarm.status import FOLDER
from codezero.types import Metrics
from codezero.wiring_chain import ChainParts, build_chain, throws_away, with_login
from codezero.wiring_evaluator import Say, build_evaluator
from codezero.wiring_models import build_learner, load, load_judge, load_policy

if TYPE_CHECKING:
    from codezero.models.sampler import Sampler

logger = logging.getLogger(__name__)

REGISTRY = "registry"
"""The word for the peers that are registered on the chain."""


def run_node(config: NodeConfig, folder: RunFolder, overrides: Sequence[str] = ()) -> bool:
    """Build a node and run it to its end. True when SIGINT ended it. `overrides` are what `config` was composed of."""
    end_with_parent()
    setup_logging(Path(config.run.logs))
    identity = Identity.load_or_create(Path(config.swarm.identity))
    config = with_login(config)
    with contextlib.ExitStack() as stack:
        page = stack.enter_context(Page(config)) if wanted(config) else None
        swarm = build_swarm(config, identity, folder)
        stack.callback(swarm.close)
        config = fit(config, overrides, folder.path)
        known_round = KnownRound()
        chain = start_chain(config, identity.peer_id, folder, known_round, stack)
        monitor = build_monitor(config, folder, swarm)
        monitor.busy("loading the libraries")
        node = build_node(config, folder, swarm, monitor, chain, known_round, stack)
        if isinstance(swarm, HivemindSwarm):
            (folder.path / ADDRESSES).write_text("".join(f"{address}\n" for address in swarm.addresses))
        if page is not None:
            announce(page)
        node.run()
    return node.stop.received is signal.SIGINT


def start_chain(
    config: NodeConfig, peer_id: str, folder: RunFolder, known_round: KnownRound, stack: contextlib.ExitStack
) -> Callable[[], ChainParts]:
    """The chain's part, made in a thread while the models load; who calls what is returned waits for it.

    A swarm of one, whose chain is its own and asks nobody for a passphrase, trains before there is a chain.
    """
    members = members_file(folder) if config.swarm.members == REGISTRY else None
    parts = stack.enter_context(contextlib.ExitStack())

    def build() -> ChainParts:
        return build_chain(config.chain, peer_id, folder.path, parts, members=members)

    if config.chain.kind == "embedded" and config.swarm.kind == "local" and throws_away(config.chain):
        late = LateChain(build, known_round)
        stack.callback(late.close)
        return lambda: ChainParts(late, late)
    with_thread = ThreadPoolExecutor(1, thread_name_prefix="chain-start")
    made = with_thread.submit(build)
    stack.callback(wait, [made])
    with_thread.shutdown(wait=False)
    return made.result


def members_file(folder: RunFolder) -> Path:
    return folder.path / FOLDER / "members.txt"


def build_swarm(config: NodeConfig, identity: Identity, folder: RunFolder) -> Swarm:
    """The exchange, starting; its addresses come when it is ready."""
    if config.swarm.kind == "local":
        return LocalSwarm(identity.peer_id)
    told = dataclasses.replace(config.swarm, pull_groups=pulled_groups(config))
    if told.members == REGISTRY:
        from codezero.chain.registry import write_members

        write_members(members_file(folder), [identity.peer_id])
        told = dataclasses.replace(told, members=str(members_file(folder)))
    port = told.port or remembered_port(folder.path / ADDRESSES, told.host)
    swarm = HivemindSwarm(dataclasses.replace(told, port=port), identity, state=folder.path / FOLDER)
    swarm.start()
    return swarm


def pulled_groups(config: NodeConfig) -> int:
    """Peers' groups that are asked for; none where nobody would learn from them."""
    wanted = config.external.policy != "off" and config.external.groups > 0
    return config.swarm.pull_groups if wanted else 0


def remembered_port(addresses: Path, host: str) -> int:
    """The port of the last start if it is still free, so that peers who know it find this node again; else 0."""
    found = re.search(r"/tcp/(\d{1,5})/", addresses.read_text()) if addresses.is_file() else None
    port = int(found[1]) if found else 0
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError):
            return 0
    return port


def build_monitor(config: NodeConfig, folder: RunFolder, swarm: Swarm) -> RunMonitor:
    return RunMonitor(
        folder=folder.path,
        view=config.monitor.view,
        identity=swarm.peer_id,
        swarm_kind=config.swarm.kind,
        facts={"solver": config.model.solver, "evaluator": config.evaluator.model, "proposer": config.proposer.model},
    )


def build_node(
    config: NodeConfig,
    folder: RunFolder,
    swarm: Swarm,
    monitor: RunMonitor,
    chain: Callable[[], ChainParts],
    known_round: KnownRound,
    stack: contextlib.ExitStack,
) -> Node:
    """Every part, put together; what holds a process or a file is closed by `stack`."""
    from codezero.models.load import use_threads
    from codezero.models.sampler import Sampler
    from codezero.solver.checkpoint import CheckpointStore
    from codezero.solver.generators import GlobalGenerators
    from codezero.solver.kind import kind_of
    from codezero.solver.solver import GrpoSolver

    policy = load_policy(config, monitor.busy)
    use_threads(policy.model, config.model.threads)
    if isinstance(swarm, HivemindSwarm):
        swarm.tokenizer_digest = policy.tokenizer_digest
    sampler = Sampler(policy)
    evaluator = build_evaluator(config, stack, monitor.busy, lambda: load_judge(config, monitor.busy))
    solver = GrpoSolver(
        config.solver,
        sampler=sampler,
        learner=build_learner(config, policy),
        tokenizer=policy.tokenizer,
        peer_id=swarm.peer_id,
        seed=config.seed,
        external=config.external,
    )
    monitor.busy("waiting for the chain")
    parts = chain()
    return Node(
        problems=SyntheticStream(
            seed=config.seed,
            peer_id=swarm.peer_id,
            batch=config.solver.problems_per_iteration,
            proposer_share=config.data.proposer_share,
        ),
        solver=solver,
        evaluator=evaluator,
        swarm=swarm,
        difficulty=BandTS(seed=config.seed),
        proposer=build_proposer(config, swarm.peer_id, monitor.busy, stack),
        coordinator=parts.coordinator,
        outbox=parts.outbox,
        exam=build_exam(config, sampler, evaluator, stack),
        monitor=monitor,
        checkpoints=CheckpointStore(
            folder.checkpoints,
            keep=config.run.keep_checkpoints,
            resume=config.run.resume,
            kind=kind_of(policy),
            also={"random": GlobalGenerators()},
        ),
        proposals_per_iteration=config.proposer.problems_per_iteration,
        propose_every=config.proposer.every,
        max_iterations=config.run.max_iterations,
        max_seconds=60 * config.run.max_minutes,
        checkpoint_seconds=config.run.checkpoint_seconds,
        known_round=known_round,
    )


def examine(config: NodeConfig, say: Say) -> Metrics:
    """One exam of the solver named in the config, without training. Writes nothing."""
    from codezero.models.load import use_threads
    from codezero.models.sampler import Sampler

    with contextlib.ExitStack() as stack:
        solver = load(config, config.model.solver, "solver", say)
        use_threads(solver.model, config.model.threads)
        evaluator = build_evaluator(config, stack, say, lambda: load_judge(config, say))
        exam = build_exam(config, Sampler(solver), evaluator, stack)
        say("attempting and executing the held-out problems")
        return exam.sit()


def build_exam(config: NodeConfig, sampler: "Sampler", evaluator: Evaluator, stack: contextlib.ExitStack) -> Exam:
    from codezero.code.extract import extract_code
    from codezero.evals.exam import HeldOutExam
    from codezero.sandbox.monty import MontySandbox
    from codezero.solver.solver import solver_prompt

    return HeldOutExam(
        problems=held_out(config.evals.problems, config.evals.seed),
        sampler=sampler,
        sandbox=stack.enter_context(MontySandbox()),
        evaluator=evaluator,
        samples=config.evals.samples,
        max_new_tokens=config.solver.max_new_tokens,
        temperature=config.solver.temperature,
        every=config.evals.every,
        seed=config.evals.seed,
        prompt=solver_prompt,
        extract=lambda text: extract_code(text).code,
    )


def build_proposer(config: NodeConfig, peer_id: str, say: Say, stack: contextlib.ExitStack) -> Proposer:
    """In this process, or behind an endpoint. Raises ModelError and ConfigError."""
    from codezero.proposer.proposer import ModelProposer, NoProposer

    settings = config.proposer
    if settings.model == "off":
        return NoProposer()
    return ModelProposer(
        proposing_sampler(config, say, stack),
        peer_id=peer_id,
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        attempts=settings.attempts,
        seed=config.seed,
        taken=settings.taken,
    )


def proposing_sampler(config: NodeConfig, say: Say, stack: contextlib.ExitStack) -> GroupSampler:
    settings = config.proposer
    if settings.kind == "openai":
        from codezero.proposer.endpoint import EndpointSampler

        return stack.enter_context(
            EndpointSampler(settings.url, settings.model, seconds=settings.seconds, requests=settings.requests)
        )
    from codezero.models.sampler import Sampler

    return Sampler(load(config, settings.model, "proposer", say))
