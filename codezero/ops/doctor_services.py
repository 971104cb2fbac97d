"""Checks of services: the chain, the judge, the hub; and of the node's identity and login."""

import os
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from codezero.config import ChainConfig, EvaluatorConfig, NodeConfig
from codezero.config_learning import source_weights
from codezero.errors import ChainError, EvaluatorError
from codezero.monitor.text import readable_name
from codezero.nano import NANO
from codezero.ops.doctor_machine import Finding, fail, ok, warn

if TYPE_CHECKING:
    from codezero.chain.provider import ChainClient

CHAIN_SECONDS, JUDGE_SECONDS, HUB_SECONDS = 8.0, 10.0, 6.0
HUB = "https://huggingface.co"
DATA_SETS = ("mbpp", "code_contests")
"""Sources whose problems come from the hub."""


def identity(path: Path) -> Finding:
    from codezero.swarm.identity import Identity

    if not path.exists():
        return ok(f"{path} is made at the first start")
    own = Identity.load(path)
    return ok(f"{readable_name(own.peer_id)}, {own.peer_id}, {path}")


def chain(config: ChainConfig) -> Finding:
    """Does it answer, as the right chain, and is the swarm's contract there? Nothing is started."""
    if config.kind == "clock":
        return ok("none: rounds go by the clock, and points are not counted (chain.kind=clock)")
    if config.kind == "embedded":
        return _embedded(config)
    from codezero.chain.contract import ContractCoordinator
    from codezero.chain.errors import WrongChainError

    client = _client(config)
    try:
        if not config.contract:
            return fail("chain.contract is empty", "name the swarm's contract, or join with its invitation")
        coordinator = ContractCoordinator(client, config.contract)
        try:
            now = coordinator.read_round()
        finally:
            coordinator.close()
    except WrongChainError as error:
        return fail(str(error))
    except ChainError as error:
        return fail(str(error), "training goes on without it, and points wait")
    finally:
        client.close()
    return ok(f"chain {config.chain_id} answers; round {now} of contract {config.contract}")


def _embedded(config: ChainConfig) -> Finding:
    from codezero.chain.devchain_process import ChainEndpoint

    endpoint = ChainEndpoint.of(Path(config.directory))
    if endpoint is None or not endpoint.answers():
        return ok("embedded; a node starts it")
    if config.chain_id and config.chain_id != endpoint.chain_id:
        return fail(
            f"{endpoint.url} serves chain {endpoint.chain_id}, not {config.chain_id}", "correct chain.directory"
        )
    return ok(f"embedded; chain {endpoint.chain_id} answers at {endpoint.url}")


def block_time(config: ChainConfig) -> float | None:
    """Of the newest block of a chain that others keep, in seconds since 1970; None where there is none."""
    if config.kind != "rpc" or not config.rpc_urls:
        return None
    client = _client(config)
    try:
        return float(client.eth.get_block("latest").get("timestamp", 0))
    except ChainError:
        return None
    finally:
        client.close()


def _client(config: ChainConfig) -> "ChainClient":
    from codezero.chain.provider import ChainClient

    return ChainClient(config.rpc_urls, config.chain_id, seconds=CHAIN_SECONDS, plain_http=config.plain_http)


def judge(config: EvaluatorConfig) -> Finding:
    """One request to a judge behind an endpoint."""
    if config.kind == "local":
        return ok(f"{config.model}, in the node's own process")
    from codezero.evaluator.openai_judge import endpoint_judge

    with endpoint_judge(replace(config, seconds=min(config.seconds, JUDGE_SECONDS), requests=1)) as served:
        try:
            served.check()
        except EvaluatorError as error:
            return fail(str(error), "a node does not start without it; one that runs learns nothing until it answers")
    return ok(f"{config.model} at {config.url} answers")


def wanted_of_hub(config: NodeConfig) -> tuple[list[str], list[str]]:
    """Models and data sets that a node would look for on the hub."""
    named = [config.model.solver]
    if config.evaluator.kind == "local" and config.reward.mode == "judge":
        named.append(config.evaluator.model)
    if config.proposer.kind == "local":
        named.append(config.proposer.model)
    models = [name for name in dict.fromkeys(named) if name not in (NANO, "off", "auto") and not _is_path(name)]
    return models, [name for name in source_weights(config.data.sources) if name in DATA_SETS]


def _is_path(name: str) -> bool:
    return name.startswith(("/", "./", "../", "~")) or Path(name).is_dir()


def hub(config: NodeConfig) -> Finding:
    """Are the models and data sets that the node needs here, or can they be fetched?"""
    models, sets = wanted_of_hub(config)
    if not models and not sets:
        return ok("not needed: models and problems are embedded or local")
    missing = [name for name in models if not _is_cached(name)]
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON")
    return judge_hub(missing, models, sets, None if offline else _answers(os.environ.get("HF_ENDPOINT") or HUB))


def judge_hub(missing: list[str], models: list[str], sets: list[str], answers: bool | None) -> Finding:
    """missing: models that are not in the cache. answers: of the hub; None: it must not be asked."""
    state = {True: "the hub answers", False: "the hub cannot be reached", None: "offline, as HF_HUB_OFFLINE says"}
    cached = [name for name in models if name not in missing]
    where = state[answers] + (f"; in the cache: {', '.join(cached)}" if cached else "")
    if missing and not answers:
        mend = "unset HF_HUB_OFFLINE" if answers is None else "see the network, or set HF_ENDPOINT"
        return fail(f"{where}; not here: {', '.join(missing)}", f"{mend}, or name a directory")
    if sets and not answers:
        return warn(f"{where}; {', '.join(sets)} only as far as in the cache", "other sources fill the batch")
    return ok(where + (f"; to be fetched: {', '.join(missing)}" if missing else ""))


def _is_cached(name: str) -> bool:
    """Configuration and weights, of any revision."""
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(name, "config.json")
    return isinstance(cached, str) and any(Path(cached).parent.glob("*.safetensors"))


def _answers(endpoint: str) -> bool:
    if not endpoint.startswith(("http://", "https://")):
        return False
    try:
        request = urllib.request.Request(endpoint, method="HEAD")
        with urllib.request.urlopen(request, timeout=HUB_SECONDS):
            return True
    except urllib.error.HTTPError:
        return True  # it answers; with which status does not matter
    except (OSError, ValueError):
        return False


def login(config: NodeConfig) -> Finding:
    """Who signs for the points, and can the node do so now?"""
    from codezero.login.store import Folder
    from codezero.login.vault import UNLOCKED, Unlocked, Vault

    if config.chain.kind == "clock":
        return ok("not needed: no points are counted (chain.kind=clock)")
    directory = Path(config.login.directory)
    folder = Folder(directory) if directory.is_dir() else None
    vault = folder and Vault(folder, config.login.days, time.time)
    owner = vault.owner() if vault else None
    if folder is None or vault is None or owner is None:
        return ok(f"nobody owns this node on the page; points go to the account of {config.chain.wallet}")
    if not vault.unlocked:
        return warn(f"logged out: points for {owner.account} wait", "codezero login")
    unlocked = folder.load(UNLOCKED, Unlocked)
    left = f" for {(unlocked.expires - time.time()) / 86_400:.0f} more days" if unlocked else ""
    return ok(f"logged in as {owner.account}{left}")
