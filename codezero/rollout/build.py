"""Config -> rollout servers, those of this machine started, and the client that draws from all of them."""

import logging
import os
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from codezero.config import NodeConfig
from codezero.errors import ConfigError
from codezero.models.hardware import SPARE, VISIBLE, assign_cards, find_cards, source_of, threads_of, weigh
from codezero.system.child import python
from codezero.weights import SOURCE, TOKEN

if TYPE_CHECKING:
    from codezero.models.load import LoadedModel
    from codezero.rollout.client import RolloutServer, RolloutServers

logger = logging.getLogger(__name__)

PATIENCE = {"little": 120.0, "vllm": 1200.0}  # seconds in which a server that died is up again
MAX_REQUESTS = 48  # attempts that a server decodes at once: of Qwen3-8B at 7,000 tokens each they fit a card of 80 GB
MEMORY_SHARE = 0.8  # of a card's memory, that vLLM takes at most; both as in AstraFlow's recipes
MOST_TOKENS = 7_000 * MAX_REQUESTS  # of all attempts at once: shorter ones are more
MOST_REQUESTS = 256
LEAST_SHARE = 0.2  # with less vLLM has no room for keys and values of a model worth a server


def build_servers(
    config: NodeConfig, policy: "LoadedModel", versions: Path, say: Callable[[str], None], stack: ExitStack
) -> "RolloutServers | None":
    """The decoder over all servers of `config`, which follow the folder `versions`; `stack` ends what is started. None:
    there are none.

    Raises RolloutError for a server that does not start, ConfigError for an address that cannot be listened at."""
    if not config.rollout.has_servers:
        return None
    from aiohttp import web

    from codezero.models.load import BARRED
    from codezero.rollout.client import RolloutServer, RolloutServers, serving
    from codezero.weights.versions import routes

    token = os.environ.get(TOKEN, "")
    if config.weights.listen:
        app = web.Application()
        app.add_routes(routes(versions, token))
        stack.enter_context(serving(app, config.weights.listen, "weights.listen", token))
    for line in host_commands(config):
        logger.warning("there, unless it runs already: %s", line)
    local = start_servers(config, os.fspath(versions.absolute()), say, stack, beside=True)
    client = RolloutServers(
        servers=[*local, *(RolloutServer(address.rstrip("/"), token) for address in config.rollout.servers)],
        vocabulary=policy.model.get_input_embeddings().num_embeddings,  # pyright: ignore
        stop_ids=policy.stop_ids,
        # a little server bars them as it loads the tokenizer
        bias=dict.fromkeys(policy.barred_ids, BARRED) or None if config.rollout.engine == "vllm" else None,
        max_requests=requests_at_once(config),
        patience=PATIENCE[config.rollout.engine],
    )
    stack.callback(client.close)
    return client


def host_commands(config: NodeConfig) -> list[str]:
    """Commands that start the servers of `rollout.servers` on their machines, with the settings that have to be as
    here."""
    solver, rollout = config.solver, config.rollout
    same = f"solver.max_prompt_tokens={solver.max_prompt_tokens} solver.max_new_tokens={solver.max_new_tokens}"
    named = f"--model {config.model.solver} --engine {rollout.engine} --weights http://{config.weights.listen}"
    places = Counter(urlsplit(address).netloc for address in rollout.servers)
    return [f"codezero rollout-host {named} --listen {place} --count {count} {same}" for place, count in places.items()]


def start_servers(
    config: NodeConfig, weights: str, say: Callable[[str], None], stack: ExitStack, *, beside: bool = False
) -> "list[RolloutServer]":
    """`rollout.start` processes on this machine, once they answer.

    weights: folder or address of the versions. beside: a node that learns may have the same card."""
    from codezero.rollout.client import ServerProcess, wait_until_up

    rollout, logs = config.rollout, Path(config.run.logs)
    spare = [card for card in os.environ.get(SPARE, "").split(",") if card]
    cards = assign_cards(rollout.cards or spare or find_cards(config.model.device), rollout.start)
    vllm_beside = beside and any(cards) and rollout.engine == "vllm" and not (rollout.cards or spare)
    share = share_beside(config) if vllm_beside else MEMORY_SHARE
    logs.mkdir(parents=True, exist_ok=True)
    own = {SOURCE: weights, "VLLM_SERVER_DEV_MODE": "1"}
    usual = {"OMP_NUM_THREADS": str(threads_of(rollout.start or 1)), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    usual |= {"VLLM_CPU_KVCACHE_SPACE": "1"}
    processes: list[ServerProcess] = []
    for number, card in enumerate(cards):
        env = {**usual, **os.environ, **own} | ({VISIBLE: card} if card else {})
        command = partial(server_command, config, weights, card, share / cards.count(card))
        processes.append(ServerProcess(command, env, logs / f"rollout-{number}.log"))
        stack.callback(processes[-1].close)
    wait_until_up(processes, say)
    return [process.server for process in processes]


def requests_at_once(config: NodeConfig) -> int:
    """Attempts that a server decodes together: as many as their tokens allow."""
    longest = config.solver.max_prompt_tokens + config.solver.max_new_tokens
    return max(MAX_REQUESTS, min(MOST_REQUESTS, MOST_TOKENS // longest))


def share_beside(config: NodeConfig) -> float:
    """The share of a card's memory that the node on it leaves. Raises ConfigError where that is next to nothing."""
    need, has, _ = weigh(config)
    share = min(MEMORY_SHARE, (has.free - (need.total if need else 0)) / has.total)
    if share < LEAST_SHARE:
        left = f"rollout.engine=vllm: beside learner and judge {max(0, share):.0%} of the card are left"
        raise ConfigError(f"{left}; set rollout.start=0, or rollout.cards to another one")
    return share


def server_command(config: NodeConfig, weights: str, card: str, share: float, port: int) -> list[str]:
    """card: empty where it decodes on the CPU. share: of its memory, that vLLM may take."""
    import msgspec

    rollout, solver, model = config.rollout, config.solver, config.model
    context = solver.max_prompt_tokens + solver.max_new_tokens
    place = source_of(model.solver, "solver")
    if rollout.engine == "little":
        rows = max(requests_at_once(config), solver.group_size, config.evals.samples)
        settings = {"model": place, "weights": weights, "device": model.device, "precision": model.precision}
        settings |= {"port": port, "context": context, "rows": rows}
        return python("-m", "codezero.rollout.little", msgspec.json.encode(settings).decode())
    dtype = model.precision if model.precision != "auto" else "bfloat16" if card else "float32"
    flags = f"--host 127.0.0.1 --port {port} --dtype {dtype} --max-model-len {context}"
    flags += f" --max-num-seqs {requests_at_once(config)} --gpu-memory-utilization {share:.2f}"
    flags += " --served-model-name policy --load-format safetensors --generation-config vllm"
    flags += "" if card else " --enforce-eager"  # graphs are a card's
    flags += " --skip-tokenizer-init --enable-scale-out --enable-prefix-caching --logprobs-mode processed_logprobs"
    entry = "vllm.entrypoints.openai.api_server"  # `vllm serve` asks for a distribution of another name on a CPU
    transfer = ["--weight-transfer-config", '{"backend": "codezero"}']
    return python("-m", entry, "--model", place, *flags.split(), *transfer)
