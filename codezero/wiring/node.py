"""Config -> Node: here the concrete classes are put together.

Heavy libraries load inside the functions, in the order that wastes least time: the network process first, because it
starts in parallel and must exist before CUDA does.
"""

import dataclasses
import importlib
import logging
import signal
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from codezero.config import NodeConfig
from codezero.config.learning import source_weights
from codezero.environment import Environment
from codezero.errors import ConfigError, FailedRunError, translated
from codezero.login.page_process import PageProcess, announce, wanted
from codezero.monitor.logs import setup_logging
from codezero.monitor.monitor import RunMonitor
from codezero.monitor.summaries import PlainView
from codezero.monitor.terminal import StartView, choose_view
from codezero.monitor.text import print_flushed
from codezero.nano import NANO
from codezero.node import InStep, Node
from codezero.problems.dedup import Novelty
from codezero.problems.held_back import MAX_HELD_BACK
from codezero.problems.stream import SYNTHETIC, MixedStream
from codezero.proposer.difficulty import BandTS
from codezero.protocols import Evaluator, Harvest, Solver, Swarm
from codezero.rollout.harvest import Ahead
from codezero.runs import RunFolder
from codezero.swarm.hivemind_swarm import HivemindSwarm
from codezero.swarm.identity import Identity
from codezero.swarm.network_status import ADDRESSES
from codezero.system.signals import FAILED, Stop, end_with_parent, leave
from codezero.system.state import KnownRound
from codezero.types import REHEARSAL, Metrics, Problem
from codezero.wiring.chain import ChainParts, build_chain, usual_recursion_limit, with_login
from codezero.wiring.environment import build_environment, fitted
from codezero.wiring.evaluator import build_canaries, build_evaluator
from codezero.wiring.foresight import start_advice
from codezero.wiring.hardware import check_extras, fit
from codezero.wiring.hub import PushedCheckpoints
from codezero.wiring.market import build_market
from codezero.wiring.models import FrozenModels, build_policy, deal_cards
from codezero.wiring.monitor import build_monitor, record_settings, secrets_of
from codezero.wiring.network import MEMBERS, REGISTRY, build_swarm
from codezero.wiring.proposer import Assembly, PartsLater, build_proposer, build_proposer_node, vetted
from codezero.wiring.solver import build_solver, build_verified, verifier_config

if TYPE_CHECKING:
    from codezero.models.generation import Sampler
    from codezero.models.load import LoadedModel
    from codezero.solver.updater import Learner

logger = logging.getLogger(__name__)

VERSIONS = "weights"
"""The folder of a run that its trainer publishes the policy in."""
NOT_BEGUN = "stopped while starting, with nothing to save"


def run_node(
    config: NodeConfig, folder: RunFolder, overrides: Sequence[str] = (), start: PlainView | None = None
) -> bool:
    """Build a node and run it to its end. True when SIGINT ended it. `overrides` are what `config` was composed of.

    start: what is seen until the node trains, and closed then; None: lines.
    """
    end_with_parent()
    start = start or choose_view("plain", StartView)
    check_extras(config)
    with translated(
        ConfigError, f"run.logs={config.run.logs} cannot be written", OSError, mend="choose another folder"
    ):
        setup_logging(Path(config.run.logs), secrets_of(config))
    monitor: RunMonitor | None = None

    def answer(which: signal.Signals, _before: int) -> None:
        leave(which, lambda: monitor.cut(NOT_BEGUN) if monitor else cut_short(start))

    with in_the_log(), Stop().on_signals(answer=answer), ExitStack() as stack:
        identity = Identity.load_or_create(Path(config.swarm.identity))
        environment = build_environment(config)
        config, proposes = fitted(with_login(config), environment), config.role == "proposer"
        variables = [] if proposes else deal_cards(config)
        page = stack.enter_context(PageProcess(config, overrides)) if wanted(config) else None
        swarm = build_swarm(config, environment, identity, folder, stack)
        stack.callback(swarm.close)  # after the outbox, whose last points may go through it
        composed, config = config, config if proposes else fit(config, overrides, folder.path)
        for line in [] if proposes else start_advice(config):
            print_flushed(f"codezero: {line}")
        known_round, chain = KnownRound(), start_chain(config, swarm, folder, stack)
        monitor = build_monitor(config, folder, swarm, start)
        monitor.busy("preparing the parts")
        site = Assembly(config, environment, folder, swarm, monitor, chain, stack)
        if proposes:
            node = build_proposer_node(site)
        else:
            node = build_node(site, variables)
            if config.hub.repository:
                node.checkpoints = PushedCheckpoints(node.checkpoints, config, folder.path, known_round)
                stack.callback(node.checkpoints.close)
        node.known_round = known_round
        if isinstance(swarm, HivemindSwarm):
            (folder.path / ADDRESSES).write_text("".join(f"{address}\n" for address in swarm.addresses))
        record_settings(folder.path, composed, config, overrides)
        folder.record_start()
        if page is not None:
            announce(page)
        try:
            node.run()
        except FailedRunError as error:
            if node.stop.received is not signal.SIGINT:
                raise
            logger.error("%s", error)
    return node.stop.received is signal.SIGINT


@contextmanager
def in_the_log() -> Generator[None]:
    """What ends a node stands in its log file, with its trace; whoever called shows it to people."""
    try:
        yield
    except Exception:
        logger.info(FAILED, exc_info=True)
        raise


def cut_short(start: PlainView) -> None:
    """Give the terminal back and say that nothing is saved."""
    start.close()
    print_flushed(f"codezero: {NOT_BEGUN}")


def start_chain(config: NodeConfig, swarm: Swarm, folder: RunFolder, stack: ExitStack) -> PartsLater:
    """The chain's part, made in a thread while problems are read; who calls what is returned waits for it."""
    members = folder.path / MEMBERS if config.swarm.members == REGISTRY else None
    parts = stack.enter_context(ExitStack())

    def build() -> ChainParts:
        if config.chain.kind != "clock":
            importlib.import_module("codezero.chain.wallet")  # takes its time, in which somebody may log in
            usual_recursion_limit()  # problems of files are being read meanwhile
        network, chain = swarm if isinstance(swarm, HivemindSwarm) else None, with_login(config).chain
        return build_chain(chain, swarm.peer_id, folder.path, parts, members, network, config.swarm.invitation)

    pool = ThreadPoolExecutor(1, thread_name_prefix="chain-start")
    parts_later = pool.submit(build)
    stack.callback(wait, [parts_later])
    pool.shutdown(wait=False)
    return parts_later.result


def build_node(site: Assembly, variables: Sequence[Mapping[str, str]]) -> Node:
    """Every part, put together. variables: of a trainer."""
    from codezero.solver.checkpoint import CheckpointStore
    from codezero.solver.policy_files import policy_fingerprint
    from codezero.wiring.evals import build_exam, build_exam_tasks

    config, environment, swarm, monitor, stack = site.config, site.environment, site.swarm, site.monitor, site.stack
    verifier_variables = deal_cards(verifier_config(config))
    withheld, loading = Novelty(most=MAX_HELD_BACK), Future["LoadedModel"]()
    fits = holding(config, environment, loading.result)
    # Problems before models: that a run is a rehearsal is said before anything that takes long.
    problems = build_stream(config, environment, swarm.peer_id, fits, withheld, monitor)
    asked = build_exam_tasks(config, environment, withheld, monitor.busy)
    canaries = build_canaries(config, withheld, stack, monitor.busy, environment)
    monitor.add_facts(exam=asked.name, canaries=canaries.name)
    monitor.busy("waiting for the chain")
    parts = site.chain()  # before models: a wallet, outbox or contract that is wrong ends the start now
    read = partial(monitor.part, "learning", "rows are read")
    learner, sampler = build_policy(config, variables, site.folder.path / VERSIONS, monitor.busy, stack, learned=read)
    policy = learner.policy
    if isinstance(swarm, HivemindSwarm):
        swarm.tokenizer_digest = policy.tokenizer_digest
    loading.set_result(policy)
    models = FrozenModels(config, monitor.busy, policy, partial(monitor.part, "judging", "texts are read"))
    evaluator = build_evaluator(config, canaries, stack, monitor.busy, models, environment, swarm.peer_id)
    solver = build_solver(config, environment, learner, sampler, swarm.peer_id)
    if config.verifier.model != "off":
        solver = build_verified(config, solver, verifier_variables, site.folder.path, monitor.busy, stack)
    proposer = build_proposer(site, models)
    run, learned = config.run, f"{environment.name} {environment.digest}" if environment.digest else ""
    fingerprint = dataclasses.replace(policy_fingerprint(policy), environment=learned)
    checkpoints = CheckpointStore(site.folder.checkpoints, run.keep_checkpoints, run.resume, fingerprint=fingerprint)
    harvest = build_harvest(site, problems, solver, evaluator, learner, sampler)
    sampler.report_to(partial(monitor.part, "sampling", "attempts have ended"))
    return Node(
        config=config,
        problems=problems,
        solver=solver,
        evaluator=evaluator,
        swarm=swarm,
        difficulty=BandTS(seed=config.seed),
        proposer=vetted(site, proposer, sampler, evaluator),
        coordinator=parts.coordinator,
        outbox=parts.outbox,
        exam=build_exam(config, asked, sampler, evaluator, stack),
        harvest=harvest,
        market=build_market(config, swarm, evaluator, site.folder.path, stack),
        monitor=monitor,
        checkpoints=checkpoints,
    )


def build_harvest(
    site: Assembly,
    problems: MixedStream,
    solver: Solver,
    evaluator: Evaluator,
    learner: "Learner",
    sampler: "Sampler",
) -> Harvest:
    """Attempts ahead of the update that they serve, where the settings ask for it, or in step with it."""
    from codezero.rollout.client import RolloutServers

    servers: Callable[[], Metrics] = sampler.backend.metrics if isinstance(sampler.backend, RolloutServers) else dict
    if not site.config.rollout.in_flight:
        return InStep(problems, solver, evaluator, servers)
    harvest = Ahead(site.config, problems, solver, evaluator, lambda: learner.updates, servers)
    site.stack.callback(harvest.close)
    return harvest


def holding(
    config: NodeConfig, environment: Environment, policy: "Callable[[], LoadedModel]"
) -> Callable[[Problem], bool]:
    """Can the context of the solver, which is loaded when this is asked, hold a problem?"""
    from codezero.models.chat import encode_prompts

    most, prompt = config.solver.max_prompt_tokens, environment.prompt
    return lambda problem: len(encode_prompts(policy().tokenizer, [prompt(problem)], most + 1)[0]) <= most


def build_stream(
    config: NodeConfig,
    environment: Environment,
    peer_id: str,
    fits: Callable[[Problem], bool],
    withheld: Novelty,
    monitor: RunMonitor,
) -> MixedStream:
    """The problems' sources; prints what they are and what stands in for them. Raises ProblemError."""
    weights = source_weights(config.data.sources)
    batch = config.solver.problems_per_iteration
    stream = MixedStream(
        environment, config.data, seed=config.seed, peer_id=peer_id, batch=batch, fits=fits, withheld=withheld
    )
    if list(weights) != [SYNTHETIC]:
        monitor.busy("looking for the problems")
        monitor.stand_ins = stream.probe()
        too_easy = monitor.stand_ins.startswith(REHEARSAL) and config.model.solver != NANO
        little = "; these teach a real model little" if too_easy else ""
        print(f"codezero: problems: {monitor.stand_ins or ', '.join(weights)}{little}", flush=True)
    if environment.digest:
        monitor.add_facts(environment=environment.name, evaluator=f"rule of {environment.name}", proposer="derived")
    monitor.add_facts(problems=f"{environment.name} {environment.digest[:12]}" if environment.digest else stream.name)
    return stream
