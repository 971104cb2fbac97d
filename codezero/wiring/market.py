"""Config -> a node's part in the swarm's prediction market."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from codezero.chain.upkeep import ChainParts
from codezero.config import NodeConfig
from codezero.errors import ConfigError
from codezero.market.closing import Cast
from codezero.market.ledger import FILE, Ledger
from codezero.market.opinions import Opinions
from codezero.market.playing import Player
from codezero.protocols import Evaluator, Swarm
from codezero.wiring.evaluator import build_sandbox

if TYPE_CHECKING:
    from codezero.chain.market import ContractMarket
    from codezero.chain.outbox import ChainOutbox


class OnChain:
    """Anchors and ballots by the outbox, read from the contract. Raises ChainError."""

    def __init__(self, market: "ContractMarket", outbox: "ChainOutbox") -> None:
        self._market, self.anchor, self.vote = market, outbox.anchor, outbox.ballot
        self._accounts: dict[str, str] = {}

    def roots(self, round_number: int) -> dict[str, bytes]:
        anchored, players = self._market.anchors(round_number), self._market.players()
        self._accounts.update(players.values())
        return {players[key][0]: root for key, root in anchored.items() if key in players}

    def votes(self, round_number: int, jurors: Sequence[str]) -> list[tuple[str, Cast]]:
        cast = self._market.ballots(round_number, jurors)
        return [(row.peer, (row.ballot.games, row.ballot.answers, row.ballot.shown)) for row in cast]

    def accounts(self, peers: Sequence[str]) -> dict[str, str]:
        """Of those whose roots were read."""
        if not self._accounts.keys() >= {*peers}:
            self._accounts.update(self._market.players().values())
        return {peer: self._accounts[peer] for peer in peers if peer in self._accounts}


def build_market(
    config: NodeConfig, swarm: Swarm, evaluator: Evaluator, chain: ChainParts, folder: Path, stack: ExitStack
) -> Player | None:
    """None in a swarm of one, and where it is not asked for. Raises ConfigError, MarketError and SandboxError."""
    settings = config.market
    if not settings.enabled or config.swarm.kind == "local":
        return None
    if settings.confirm and not settings.execute:
        raise ConfigError("market.confirm=true needs market.execute=true: own attempts have to return the value too")
    sandbox = build_sandbox(config, stack) if settings.execute else None
    link = OnChain(chain.market, chain.outbox) if chain.market is not None else None  # pyright: ignore[reportArgumentType]
    player = Player(
        settings,
        config.swarm.name,
        swarm,
        Ledger(folder / FILE),
        Opinions(evaluator, sandbox, config.answer.block),
        link,
        round_seconds=config.chain.round_seconds,
        seed=config.seed,
        logs=Path(config.run.logs),
    )
    stack.callback(player.close)
    return player
