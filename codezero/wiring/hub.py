"""Config -> checkpoints that are pushed to the hub: the token, and the run's figures for the card."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from codezero.config import NodeConfig
from codezero.errors import ConfigError, WalletError
from codezero.monitor.run_state import Fold, History
from codezero.protocols import Checkpoints, KnownRound
from codezero.solver.hub import HubPusher, PushedCheckpoints, Target
from codezero.solver.hub_card import Facts, Measured, model_card
from codezero.system.files import read_private

MAX_TOKEN = 1024
"""Bytes."""


def pushed(
    config: NodeConfig,
    store: Checkpoints,
    run: Path,
    checkpoints: Path,
    known_round: KnownRound,
    stack: contextlib.ExitStack,
) -> Checkpoints:
    """`store`, and what it saves is pushed where the config says so. Raises ConfigError when there is no token."""
    told = config.hub
    if not told.repository:
        return store
    target = Target(
        repository=told.repository,
        private=told.private,
        token=token_of(config),
        every=told.every,
        seconds=told.seconds,
    )
    pusher = HubPusher(target, run, card_of(config, run))
    stack.callback(pusher.close)
    part = "adapter" if config.model.train == "lora" else "model"
    return PushedCheckpoints(store, pusher, lambda number: checkpoints / f"{number:08d}" / "solver" / part, known_round)


def token_of(config: NodeConfig) -> str:
    """From the file or the variable that the config names. Raises ConfigError."""
    told = config.hub
    if told.token_file:
        try:
            token = read_private(Path(told.token_file), MAX_TOKEN).decode("ascii").strip()
        except (WalletError, UnicodeDecodeError) as error:
            raise ConfigError(f"hub.token_file: {error}") from error
    else:
        token = os.environ.get(told.token_variable, "").strip()
    if not token or not token.isprintable() or " " in token:
        where = f"hub.token_file={told.token_file}" if told.token_file else f"the variable {told.token_variable}"
        raise ConfigError(f"hub.repository={told.repository} needs a token that may write, and {where} has none")
    return token


def card_of(config: NodeConfig, run: Path) -> Callable[[int], str]:
    """The card of an iteration, from what the run has recorded up to it. For one thread at a time."""
    history = History(run)

    def card(iteration: int) -> str:
        fold = history.read()
        facts = Facts(
            name=config.hub.repository.rpartition("/")[2],
            base=config.model.solver,
            judge=config.evaluator.model,
            adapter=config.model.train == "lora",
            iteration=iteration,
            settings={
                "group size": str(config.solver.group_size),
                "problems an iteration": str(config.solver.problems_per_iteration),
                "learning rate": str(config.solver.learning_rate),
                "loss": config.solver.loss,
                "reward": config.reward.mode,
                "problems": ", ".join(Path(source).name for source in config.data.sources),
                "seed": str(config.seed),
            },
            measured=measured(fold, iteration, "executed" if config.reward.mode == "rlvr" else "judged"),
        )
        return model_card(facts)

    return card


def measured(fold: Fold, iteration: int, rewarded: str) -> list[Measured]:
    """The first and the newest exam up to `iteration`, and the newest reward."""
    sat = [one for one in fold.exams.items if one.iteration <= iteration]
    found: list[Measured] = []
    for one in dict.fromkeys((sat[0].iteration, sat[-1].iteration)) if sat else ():
        exam = next(each for each in sat if each.iteration == one)
        found.append(Measured(f"average@{exam.samples}", exam.source, one, exam.average, exam.low, exam.high))
        if exam.passed is not None:
            found.append(Measured(f"pass@{exam.samples}", exam.source, one, exam.passed, exam.pass_low, exam.pass_high))
    rows = [row for row in fold.recent if _number(row.get("reward/mean")) is not None]
    rows = [row for row in rows if 0 < (_number(row.get("iteration")) or 0) <= iteration]
    if rows:
        at, value = _number(rows[-1].get("iteration")), _number(rows[-1].get("reward/mean"))
        found.append(Measured("mean reward", rewarded, int(at or 0), value or 0.0))
    return found


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
