"""Checks of the network and its services: ports, ways in, reach, chain, judge, hub; and the list of all checks."""

import contextlib
import ipaddress
import platform
import re
import secrets
import select
import socket
import sys
import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path

from codezero.chain.build import open_client
from codezero.config import ChainConfig, EvaluatorConfig, NodeConfig, SwarmConfig
from codezero.config.learning import source_weights
from codezero.errors import ChainError, ConfigError, EndpointError, EvaluatorError, LoginError
from codezero.inspection.status import RunFiles, newest_run
from codezero.login.page_process import open_sockets, wanted
from codezero.nano import NANO
from codezero.ops import doctor as machine
from codezero.ops.doctor import Check, Finding, fail, ok, unknown, warn
from codezero.problems.rows import SETS
from codezero.swarm.build import visitor
from codezero.swarm.network_status import NetworkStatus, own_addresses
from codezero.swarm.supervisor import network_settings
from codezero.system.http_client import answer_of

DIAL_SECONDS, REQUEST_SECONDS, CHAIN_SECONDS, JUDGE_SECONDS = 4.0, 6.0, 8.0, 10.0
_OWN_PORT = threading.Lock()
_DIALLED = re.compile(r"/(?:ip4|ip6|dns|dns4|dns6)/([^/\s]{1,255})/tcp/(\d{1,5})(?:/|\Z)")


def page_port(config: NodeConfig) -> Finding:
    if not wanted(config):
        return ok("the page is off")
    where = f"http://localhost:{config.login.port}"
    try:
        for listener in open_sockets(config.login.port):
            listener.close()
    except LoginError as error:
        if b'"limit_seconds"' in (answer_of(f"{where}/healthz", REQUEST_SECONDS) or b""):
            return ok(f"{where} serves the page of a node already; others' processes stand by")
        return warn(str(error), "a node trains without its page")
    return ok(f"{where} is free on 127.0.0.1 and ::1")


def running_network(config: NodeConfig) -> NetworkStatus | None:
    """Read the status of the node that runs here now; None: there is none, or its status is old."""
    with contextlib.suppress(ConfigError):
        run = RunFiles(newest_run(Path(config.run.directory), config.run.name), budget=1 << 16)
        if run.view("").running and run.network and abs(time.time() - run.network.time) < 60:  # else of an earlier run
            return run.network
    return None


def p2p_port(config: SwarmConfig, network: NetworkStatus | None) -> Finding:
    """`network`: of a node of this machine that runs now. Raises ConfigError for settings no network can have."""
    if config.kind == "local":
        return ok("a swarm of one uses no port")
    network_settings(config)
    if not config.port:
        return warn("swarm.port=0: any free port, which others may not find later", "choose one: --p2p-port 38331")
    port = f"TCP port {config.port}"
    try:
        with _listening(config):
            return ok(f"{port} of {config.host} is free")
    except OSError as error:
        if network and any(f"/tcp/{config.port}/" in address for address in network.addresses):
            return ok(f"{port} is used by this node, which is running")
        mend = "end what uses it, or choose another swarm.port or swarm.host"
        return fail(f"{port} of {config.host} cannot be listened at ({error.strerror})", mend)


def ways_in(config: SwarmConfig) -> Finding:
    """Does anything listen at the bootstrap addresses? Who it is shows only when a node speaks with it."""
    if config.kind == "local" or not config.bootstrap:
        return ok("none is needed" if config.kind == "local" else "none is set: this node founds a swarm")
    ways = config.bootstrap[:16]
    with ThreadPool(len(ways)) as pool:
        closed = [way for way, is_open in zip(ways, pool.map(_is_open, ways), strict=True) if not is_open]
    count = f"{len(ways) - len(closed)} of {len(ways)} ways in can be dialled"
    if len(closed) < len(ways):
        return warn(f"{count}; not {', '.join(closed)}") if closed else ok(count)
    return fail(f"{count}: {', '.join(closed)}", "ask the founder for a new invitation; until then a node trains alone")


def reach(config: SwarmConfig, network: NetworkStatus | None) -> Finding:
    """Can others reach this node? A running one has asked its neighbours; else only a view from inside is possible."""
    if config.kind == "local":
        return ok("a swarm of one is reached by nobody")
    if network is not None:
        unreached = ok if network.neighbours else warn
        return {True: ok, False: unreached, None: unknown}[network.reachable](network.reachability)
    if config.reachable == "no":
        return ok("as set: others get its rollouts by relays (swarm.reachable=no)")
    if config.announce:
        return _announced(config)
    host = ipaddress.ip_address(config.host)
    if host.is_loopback:
        return warn(f"swarm.host={config.host}: this machine's own nodes alone reach it", "set swarm.host=0.0.0.0")
    return judge_outward([*own_addresses(host.version), None][0] if host.is_unspecified else str(host), config.port)


def _announced(config: SwarmConfig) -> Finding:
    """Listen at the own port, and dial the own announced addresses."""
    try:
        with _listening(config) as listener:
            missed = ", ".join(address for address in config.announce if not _is_open(address, listener))
    except OSError as error:
        return unknown(f"TCP port {config.port} is in use ({error.strerror}), and no node of this folder uses it")
    if not missed:
        return ok(f"own announced addresses lead back here: {', '.join(config.announce)}")
    mend = f"open that TCP port and forward it to this machine's port {config.port}"
    return unknown(f"{missed} does not lead back here, seen from inside, which some routers never allow", mend)


def judge_outward(outward: str | None, port: int) -> Finding:
    """outward: this machine's address towards others; None: it has none."""
    if outward is None:
        return fail("this machine has no address but its own loopback", "connect it to a network")
    mend = f"open TCP port {port or '(set one with --p2p-port)'} in the firewall"
    if ipaddress.ip_address(outward).is_global:
        return unknown(f"from inside: others dial {outward}; a running node asks its neighbours", mend)
    mend += f" and forward it in the router to {outward}, and set swarm.announce=[/ip4/YOUR_ADDRESS/tcp/{port}]"
    return unknown(f"from inside: {outward} is an address of a local network; a running node asks its neighbours", mend)


def _is_open(address: str, listener: socket.socket | None = None) -> bool:
    """Can it be dialled, and does the connection arrive at `listener` where there is one? What is no address is not."""
    match = _DIALLED.match(address)
    if match is None:
        return False
    with (
        contextlib.suppress(OSError, OverflowError),  # the latter for a port above 65535
        socket.create_connection((match[1], int(match[2])), DIAL_SECONDS) as dialled,
    ):
        return listener is None or _arrives(dialled, listener)
    return False


def _arrives(dialled: socket.socket, listener: socket.socket) -> bool:
    """Does what is sent come out at `listener`? Strangers who dial it meanwhile send something else, or nothing."""
    token = secrets.token_bytes(16)
    dialled.sendall(token)
    end = time.monotonic() + DIAL_SECONDS
    with contextlib.ExitStack() as connections:
        waiting = [listener]
        while (seconds := end - time.monotonic()) > 0:
            for ready in select.select(waiting, [], [], seconds)[0]:
                if ready is listener:
                    waiting.append(connections.enter_context(listener.accept()[0]))
                    continue
                waiting.remove(ready)
                with contextlib.suppress(OSError):
                    if ready.recv(len(token)) == token:
                        return True
    return False


@contextlib.contextmanager
def _listening(config: SwarmConfig) -> Generator[socket.socket]:
    """At the own port, one check after the other. Raises OSError."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    with _OWN_PORT, socket.create_server((config.host, config.port), family=family) as listener:
        yield listener


def chain(config: ChainConfig) -> Finding:
    """Does it answer, as the right chain, and is the swarm's contract there? Nothing is started."""
    if config.kind != "rpc":
        clock = "none: rounds go by the clock, and points are not counted (chain.kind=clock)"
        return ok("embedded; a node starts it" if config.kind == "embedded" else clock)
    if not config.contract:
        return fail("chain.contract is empty", "name the swarm's contract, or join with its invitation")
    from codezero.chain.contract import ContractCoordinator

    try:
        with contextlib.ExitStack() as stack:
            client = open_client(config, stack, visitor, seconds=CHAIN_SECONDS)
            now = ContractCoordinator(client, config.contract).read_round()
    except ChainError as error:
        return fail(str(error), "training goes on without it, and points wait")
    return ok(f"chain {config.chain_id} answers; round {now} of contract {config.contract}")


def block_time(config: ChainConfig) -> float | None:
    """Time of the newest block of a chain that others keep, in seconds since 1970; None where there is none."""
    if config.kind == "rpc" and config.rpc_urls:
        with contextlib.suppress(ChainError), contextlib.ExitStack() as stack:
            client = open_client(config, stack, visitor, seconds=CHAIN_SECONDS)
            return float(client.eth.get_block("latest").get("timestamp", 0))
    return None


def judge(config: EvaluatorConfig) -> Finding:
    """A judge behind an endpoint: which server it is, and whether it answers a question of each kind."""
    if config.in_process:
        return ok(f"{config.model}, in the node's own process")
    if config.kind == "custom":
        return ok(f"{config.model}, code of your own in the node's process")
    from codezero.evaluator.judge_prompts import LIKELIHOOD
    from codezero.evaluator.openai_judge import ENDPOINT_JUDGES

    brief = replace(config, seconds=min(config.seconds, JUDGE_SECONDS), requests=1)
    with ENDPOINT_JUDGES[config.kind](brief) as served:
        server = _server_of(served.url)
        try:
            served.check()
        except EvaluatorError as error:
            mend = "a node does not start without it; one that runs learns nothing until it answers"
            return fail(f"{error} ({server})", mend)
        answers = f"{config.model} at {config.url} answers ({server})"
        if LIKELIHOOD in config.questions and not served.reads_likelihood:
            return warn(f"{answers}, yes/no only: weaker", "vLLM gives the likelihood too: docs/docker.md, A judge")
    return ok(answers)


def _server_of(url: str) -> str:
    """Its name and version, by the addresses at which vLLM and Ollama tell theirs."""
    from codezero.evaluator.openai_judge import server_version

    for name, path in (("vLLM", "/version"), ("Ollama", "/api/version")):
        with contextlib.suppress(EndpointError):
            return f"{name} {server_version(answer_of(url + path, REQUEST_SECONDS) or b'')}"
    return "its server does not tell its version as vLLM and Ollama do"


def wanted_of_hub(config: NodeConfig) -> tuple[list[str], list[str]]:
    """Models and data sets that a node would look for on the hub."""
    judge, proposer = config.evaluator, config.proposer
    names = [config.model.solver]
    names += [judge.model] if judge.in_process and config.reward.mode != "rlvr" else []
    names += [proposer.model] if proposer.kind == "local" else []
    own = (NANO, "off", "auto", *(name for name in names if name[:1] in "/.~" or Path(name).is_dir()))
    models = [name for name in dict.fromkeys(names) if name not in own]
    return models, [name for name in source_weights(config.data.sources) if name.partition("@")[0] in SETS]


def hub(config: NodeConfig) -> Finding:
    """Are the models and data sets that the node needs here, or can they be fetched?"""
    models, sets = wanted_of_hub(config)
    if not models and not sets:
        return ok("not needed: models and problems are embedded or local")
    from huggingface_hub import constants, try_to_load_from_cache

    def cached(name: str) -> bool:
        """Configuration and weights, of any revision."""
        path = try_to_load_from_cache(name, "config.json")
        return isinstance(path, str) and any(Path(path).parent.glob("*.safetensors"))

    missing = [name for name in models if not cached(name)]
    answers = None if constants.HF_HUB_OFFLINE else answer_of(constants.ENDPOINT, REQUEST_SECONDS) is not None
    return judge_hub(missing, models, sets, answers)


def judge_hub(missing: list[str], models: list[str], sets: list[str], answers: bool | None) -> Finding:
    """missing: models that are not in the cache. answers: of the hub; None: it must not be asked."""
    state = {True: "the hub answers", False: "the hub cannot be reached", None: "offline, as HF_HUB_OFFLINE says"}
    cached = ", ".join(name for name in models if name not in missing)
    where = state[answers] + (f"; in the cache: {cached}" if cached else "")
    if missing and not answers:
        mend = "unset HF_HUB_OFFLINE" if answers is None else "see the network, or set HF_ENDPOINT"
        return fail(f"{where}; not here: {', '.join(missing)}", f"{mend}, or name a directory")
    if sets and not answers:
        return warn(f"{where}; {', '.join(sets)} only as far as in the cache", "other sources fill the batch")
    return ok(where + (f"; to be fetched: {', '.join(missing)}" if missing else ""))


def checks(config: NodeConfig, overrides: Sequence[str]) -> list[Check]:
    """For a node of this config, which was composed of `overrides`; in the order in which people read them."""
    return [
        Check("python", lambda: ok(f"{platform.python_version()} on {sys.platform}")),
        Check("hardware", lambda: machine.hardware(config, overrides), machine.HARDWARE_SECONDS + 1),
        Check("disk", lambda: machine.disk(config.run.directory)),
        Check("clock", lambda: machine.clock(block_time(config.chain), config.chain.round_seconds)),
        Check("page port", lambda: page_port(config)),
        Check("p2p port", lambda: p2p_port(config.swarm, running_network(config))),
        Check("ways in", lambda: ways_in(config.swarm)),
        Check("reach", lambda: reach(config.swarm, running_network(config)), 20.0),
        Check("chain", lambda: chain(config.chain)),
        Check("judge", lambda: judge(config.evaluator), 25.0),
        Check("hub", lambda: hub(config)),
        Check("identity", partial(machine.identity, config.swarm)),
        Check("login", partial(machine.login, config)),
        Check("plug-ins", partial(machine.plugins, config)),
    ]
