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
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

from codezero.config import NodeConfig
from codezero.fleet import ADDRESSES
from codezero.monitor.monitor import RunMonitor, setup_logging
from codezero.node import Node
from codezero.page import Page, announce, wanted
from codezero.problems.stream import SyntheticStream
from codezero.problems.synthetic import held_out
from codezero.proposer.difficulty import BandTS
from codezero.protocols import Evaluator, Exam, Proposer, Swarm
from codezero.run_folder import RunFolder
from codezero.stopping import end_with_parent
from codezero.swarm.gossip import HivemindSwarm
from codezero.swarm.identity import Identity
from codezero.swarm.local import LocalSwarm
from codezero.swarm.status import FOLDER
from codezero.types import Metrics
from codezero.wiring_chain import ChainParts, build_chain, with_login
from codezero.wiring_evaluator import Say, build_evaluator

if TYPE_CHECKING:
    from codezero.models.load import LoadedModel
    from codezero.models.sampler import Sampler

logger = logging.getLogger(__name__)

NANO = "nano"
"""The word for the embedded model of a role."""
REGISTRY = "registry"
"""The word for the peers that are registered on the chain."""
LARGE_PARAMETERS = 200_000_000
"""From here on memory is dearer than computing activations twice."""


def run_node(config: NodeConfig, folder: RunFolder) -> bool:
    """Build a node and run it to its end. True when SIGINT ended it."""
    end_with_parent()
    setup_logging(Path(config.run.logs))
    identity = Identity.load_or_create(Path(config.swarm.identity))
    config = with_login(config)
    with contextlib.ExitStack() as stack:
        page = stack.enter_context(Page(config)) if wanted(config) else None
        swarm = build_swarm(config, identity, folder)
        stack.callback(swarm.close)
        chain = start_chain(config, identity.peer_id, folder, stack)
        monitor = build_monitor(config, folder, swarm)
        monitor.busy("loading the libraries")
        node = build_node(config, folder, swarm, monitor, chain, stack)
        if isinstance(swarm, HivemindSwarm):
            (folder.path / ADDRESSES).write_text("".join(f"{address}\n" for address in swarm.addresses))
        if page is not None:
            announce(page)
        node.run()
    return node.stop.received is signal.SIGINT


def start_chain(
    config: NodeConfig, peer_id: str, folder: RunFolder, stack: contextlib.ExitStack
) -> "Future[ChainParts]":
    """The chain's part, made in a thread while the models load: its libraries and its first block take a second."""
    members = members_file(folder) if config.swarm.members == REGISTRY else None
    parts = stack.enter_context(contextlib.ExitStack())
    with_thread = ThreadPoolExecutor(1, thread_name_prefix="chain-start")
    made = with_thread.submit(build_chain, config.chain, peer_id, folder.path, parts, members=members)
    stack.callback(wait, [made])
    with_thread.shutdown(wait=False)
    return made


def members_file(folder: RunFolder) -> Path:
    return folder.path / FOLDER / "members.txt"


def build_swarm(config: NodeConfig, identity: Identity, folder: RunFolder) -> Swarm:
    """The exchange, starting; its addresses come when it is ready."""
    if config.swarm.kind == "local":
        return LocalSwarm(identity.peer_id)
    told = config.swarm
    if told.members == REGISTRY:
        from codezero.chain.registry import write_members

        write_members(members_file(folder), [identity.peer_id])
        told = dataclasses.replace(told, members=str(members_file(folder)))
    port = told.port or remembered_port(folder.path / ADDRESSES, told.host)
    swarm = HivemindSwarm(dataclasses.replace(told, port=port), identity, state=folder.path / FOLDER)
    swarm.start()
    return swarm


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
    chain: "Future[ChainParts]",
    stack: contextlib.ExitStack,
) -> Node:
    """Every part, put together; what holds a process or a file is closed by `stack`."""
    from codezero.models.load import use_threads
    from codezero.models.sampler import Sampler
    from codezero.solver.checkpoint import CheckpointStore
    from codezero.solver.learner import TrlLearner
    from codezero.solver.solver import GrpoSolver

    policy = load(config, config.model.solver, "solver", monitor.busy, for_training=True)
    use_threads(policy.model, config.model.threads)
    if isinstance(swarm, HivemindSwarm):
        swarm.tokenizer_digest = policy.tokenizer_digest
    sampler = Sampler(policy)
    evaluator = build_evaluator(config, stack, monitor.busy, lambda: load_judge(config, monitor.busy))
    solver = GrpoSolver(
        config.solver,
        sampler=sampler,
        learner=TrlLearner(
            policy, config.solver, activation_checkpointing=policy.model.num_parameters() > LARGE_PARAMETERS
        ),
        tokenizer=policy.tokenizer,
        peer_id=swarm.peer_id,
        seed=config.seed,
    )
    monitor.busy("waiting for the chain")
    parts = chain.result()
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
        proposer=build_proposer(config, swarm.peer_id, monitor.busy),
        coordinator=parts.coordinator,
        outbox=parts.outbox,
        exam=build_exam(config, sampler, evaluator, stack),
        monitor=monitor,
        checkpoints=CheckpointStore(folder.checkpoints, keep=config.run.keep_checkpoints, resume=config.run.resume),
        proposals_per_iteration=config.proposer.problems_per_iteration,
        propose_every=config.proposer.every,
        max_iterations=config.run.max_iterations,
        max_seconds=60 * config.run.max_minutes,
        checkpoint_seconds=config.run.checkpoint_seconds,
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


def load_judge(config: NodeConfig, say: Say) -> "LoadedModel":
    """The judge that runs in this process. Raises ModelError."""
    return load(config, config.evaluator.model, "judge", say)


def load(config: NodeConfig, name: str, role: str, say: Say, *, for_training: bool = False) -> "LoadedModel":
    """`nano`, a directory or a hub id. Raises ModelError."""
    say(f"loading the {role}, {name}")
    from codezero.models.load import load_model
    from codezero.nano import weights_directory

    path = str(weights_directory(role)) if name == NANO else name
    loaded = load_model(
        path, device=config.model.device, precision=config.model.precision, role=role, for_training=for_training
    )
    logger.info("%s: %s on %s", role, name, loaded.device)
    return loaded


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


def build_proposer(config: NodeConfig, peer_id: str, say: Say) -> Proposer:
    from codezero.models.sampler import Sampler
    from codezero.proposer.proposer import ModelProposer, NoProposer

    settings = config.proposer
    if settings.model == "off":
        return NoProposer()
    return ModelProposer(
        Sampler(load(config, settings.model, "proposer", say)),
        peer_id=peer_id,
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        attempts=settings.attempts,
        seed=config.seed,
    )
