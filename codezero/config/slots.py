"""Which settings may name code of the user's own, and what is at odds among them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from codezero.config.learning import is_own_rows, source_weights

if TYPE_CHECKING:
    from codezero.config import NodeConfig

CODE = "code"
"""The environment that is no plug-in."""
ENVIRONMENTS, JUDGES, REWARDS, LOSSES = "environments", "judges", "rewards", "losses"
"""Groups of entry points, behind `codezero.`."""
PLUGIN_KEYS = ("environment", "evaluator.object", "reward.function", "solver.loss_function")
SOURCE_KEYS = ("data.sources", "evals.sources", "evaluator.canaries_from")
"""These may name a function that returns rows."""


class PluginSlot(NamedTuple):
    """A setting that names code, as `plugins.load_object` takes it."""

    spec: Any
    key: str
    group: str = ""


def plugins_of(config: "NodeConfig") -> Iterator[PluginSlot]:
    """The code of the user's own that a node of this config would run."""
    environment = "" if config.environment == CODE else config.environment
    values = (environment, config.evaluator.object, config.reward.function, config.solver.loss_function)
    for value, key, group in zip(values, PLUGIN_KEYS, (ENVIRONMENTS, JUDGES, REWARDS, LOSSES), strict=True):
        if value:
            yield PluginSlot(value, key, group)
    sources = (source_weights(config.data.sources), config.evals.sources, [config.evaluator.canaries_from])
    for names, key in zip(sources, SOURCE_KEYS, strict=True):
        yield from (PluginSlot(name, key) for name in names if is_own_rows(name))


def of_plugins(config: "NodeConfig") -> Iterator[str]:
    """What is at odds here, a line each."""
    slots = (("evaluator.kind", config.evaluator.kind, "evaluator.object", config.evaluator.object),
             ("solver.loss", config.solver.loss, "solver.loss_function", config.solver.loss_function))  # fmt: skip
    for key, choice, slot, value in slots:
        if choice == "custom" and not value:
            yield f"{key}=custom needs code of your own; set {slot}=file.py:attribute"
        if choice != "custom" and value:
            yield f"{slot} is used with {key}=custom alone, and {key} is {choice}; set that, or drop {slot}"
