"""Config -> a node's part in the swarm's prediction market."""

from contextlib import ExitStack
from pathlib import Path

from codezero.config import NodeConfig
from codezero.errors import ConfigError
from codezero.market.ledger import FILE, Ledger
from codezero.market.opinions import Opinions
from codezero.market.playing import Player
from codezero.protocols import Evaluator, Swarm
from codezero.wiring.evaluator import build_sandbox


def build_market(
    config: NodeConfig, swarm: Swarm, evaluator: Evaluator, folder: Path, stack: ExitStack
) -> Player | None:
    """None in a swarm of one, and where it is not asked for. Raises ConfigError, MarketError and SandboxError."""
    settings = config.market
    if not settings.enabled or config.swarm.kind == "local":
        return None
    if settings.confirm and not settings.execute:
        raise ConfigError("market.confirm=true needs market.execute=true: own attempts have to return the value too")
    sandbox = build_sandbox(config, stack) if settings.execute else None
    player = Player(
        settings,
        config.swarm.name,
        swarm,
        Ledger(folder / FILE),
        Opinions(evaluator, sandbox, config.answer.block),
        None,
        round_seconds=config.chain.round_seconds,
        seed=config.seed,
        logs=Path(config.run.logs),
    )
    stack.callback(player.close)
    return player
