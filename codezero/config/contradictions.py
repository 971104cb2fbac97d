"""Settings that contradict each other, and those that name code of the user's own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from codezero.config import RUN_NAME, NodeConfig
from codezero.config.learning import is_own_rows, source_weights

COLDEST = 0.01  # vLLM silently raises lower temperatures to this one
CODE = "code"  # the environment that is no plug-in
# groups of entry points, behind `codezero.`
ENVIRONMENTS, JUDGES, REWARDS, LOSSES = "environments", "judges", "rewards", "losses"
PLUGIN_KEYS = ("environment", "evaluator.object", "reward.function", "solver.loss_function")
# these may name a function that returns rows
SOURCE_KEYS = ("data.sources", "evals.sources", "evaluator.canaries_from")


class PluginSlot(NamedTuple):
    """A setting that names code, as `plugins.load_object` takes it."""

    spec: Any
    key: str
    group: str = ""


def plugins_of(config: NodeConfig) -> Iterator[PluginSlot]:
    """The code of the user's own that a node of this config would run."""
    environment = "" if config.environment == CODE else config.environment
    values = (environment, config.evaluator.object, config.reward.function, config.solver.loss_function)
    for value, key, group in zip(values, PLUGIN_KEYS, (ENVIRONMENTS, JUDGES, REWARDS, LOSSES), strict=True):
        if value:
            yield PluginSlot(value, key, group)
    sources = (source_weights(config.data.sources), config.evals.sources, [config.evaluator.canaries_from])
    for names, key in zip(sources, SOURCE_KEYS, strict=True):
        yield from (PluginSlot(name, key) for name in names if is_own_rows(name))


def contradictions(config: NodeConfig) -> Iterator[str]:
    """Say what is at odds with other settings, a line each."""
    for section, settings in (("evaluator", config.evaluator), ("proposer", config.proposer)):
        url = settings.url
        if "@" in url.partition("://")[2].partition("/")[0]:  # before anything could show it
            yield f"{section}.url must hold no password; its key comes from an environment variable"
        endpoint = settings.kind not in ("local", "custom") and settings.model != "off"
        if endpoint and not url.startswith(("http://", "https://")):
            yield f"{section}.url='{url}' is no address; {section}.kind={settings.kind} needs http://HOST:PORT"
    yield from _of_plugins_and_roles(config)
    yield from _of_training(config)
    reward, run = config.reward, config.run
    if not reward.correctness + reward.structure + reward.adherence + reward.format > 0:
        yield "reward: all four weights are 0; give reward.correctness at least some weight"
    if reward.executed < 1 and reward.mode != "hybrid":
        yield f"reward.executed={reward.executed:g} is for reward.mode=hybrid, not {reward.mode}; set that, or drop it"
    if config.evaluator.model == "off" and reward.mode != "rlvr":
        yield f"evaluator.model=off leaves reward.mode={reward.mode} without a judge; name one, or set reward.mode=rlvr"
    taken = (Path(config.chain.directory), Path(config.login.directory))
    if run.name and (not RUN_NAME.fullmatch(run.name) or Path(run.directory, run.name) in taken):
        form = "one folder name of letters, digits, `.`, `_` and `-` that is neither the chain's nor the login's"
        yield f"run.name={run.name!r} cannot name a run; use {form} (run.directory says where the folder lies)"


def _of_plugins_and_roles(config: NodeConfig) -> Iterator[str]:
    slots = (("evaluator.kind", config.evaluator.kind, "evaluator.object", config.evaluator.object),
             ("solver.loss", config.solver.loss, "solver.loss_function", config.solver.loss_function))  # fmt: skip
    for key, choice, slot, value in slots:
        if choice == "custom" and not value:
            yield f"{key}=custom needs code of your own; set {slot}=file.py:attribute"
        if choice != "custom" and value:
            yield f"{slot} is used with {key}=custom alone, and {key} is {choice}; set that, or drop {slot}"
    if config.role == "proposer" and config.proposer.model == "off":
        yield "role=proposer with proposer.model=off would do nothing; name a model"
    if config.role == "proposer" and config.swarm.kind == "local":
        yield "role=proposer needs a swarm to propose to; use `codezero propose`, or network=peer"


def _of_training(config: NodeConfig) -> Iterator[str]:
    ranks, rollout, model = config.trainer.ranks, config.rollout, config.model
    if ranks and model.train == "lora":
        yield "model.train=lora with trainer.ranks: the ranks shard all weights; set one of the two back"
    if ranks and config.solver.optimizer == "adamw_8bit":
        yield "solver.optimizer=adamw_8bit with trainer.ranks: it cannot be sharded; set solver.optimizer=adamw"
    for name, temperature in (("solver", config.solver.temperature), ("evals", config.evals.temperature)):
        if rollout.has_servers and rollout.engine == "vllm" and 0 < temperature < COLDEST:
            what = f"{name}.temperature={temperature:g} is below {COLDEST}, where vLLM does not go"
            yield f"{what}; raise it, or set rollout.engine=little"
    if rollout.in_flight and not rollout.has_servers:
        yield "rollout.in_flight needs servers that decode while the trainer learns; set rollout.start=1, or drop it"
