"""Config -> a node's part in the swarm's prediction market."""

from contextlib import ExitStack
from pathlib import Path

from codezero.config import NodeConfig
from codezero.evaluator.base import Evaluator
from codezero.market.ledger import FILE, Ledger
from codezero.market.play import Player
from codezero.sandbox.build import build_sandbox
from codezero.swarm.base import Swarm


def build_market(
    config: NodeConfig, swarm: Swarm, evaluator: Evaluator, folder: Path, stack: ExitStack
) -> Player | None:
    """Build the market; None in a swarm of one, and where it is off. Raises MarketError and SandboxError."""
    settings = config.market
    if not settings.enabled or config.swarm.kind == "local":
        return None
    ledger, logs, name = Ledger(folder / FILE), Path(config.run.logs), config.swarm.name
    sandbox = build_sandbox(config, stack) if settings.execute else None
    stack.callback(ledger.close)
    block, seed = config.answer.block, config.seed
    return Player(settings, name, swarm, ledger, evaluator, sandbox, block=block, seed=seed, logs=logs)
