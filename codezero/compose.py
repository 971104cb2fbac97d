"""Overrides -> checked settings: the values of `configs/`, the user's own, then the command line's; held to the schema.

Whatever is wrong is said in one line that names the key and the nearest right one.
"""

import dataclasses
import difflib
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from codezero.config import QUESTIONS, RUN_NAME, NodeConfig
from codezero.config_data import source_weights
from codezero.config_hub import REPOSITORY
from codezero.errors import ConfigError
from codezero.local_settings import local_file, read_local

BOUNDS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "ge": ("at least", operator.ge),
    "gt": ("more than", operator.gt),
    "le": ("at most", operator.le),
}


PUBLISHED = ("swarm.name", "swarm.announce", "hub.repository")
"""Settings that other people see. Their values are written out: no resolver may put the environment into them."""


def beside_package(name: str) -> Path:
    """A folder of the checkout, or its copy inside an installed package."""
    package = Path(__file__).resolve().parent
    beside = package.parent / name
    return beside if beside.is_dir() and (package.parent / "pyproject.toml").is_file() else package / name


def config_directory() -> Path:
    return beside_package("configs")


def check(config: Any, prefix: str = "") -> None:
    """Raise ConfigError for the first field outside its bounds."""
    for spec in dataclasses.fields(config):
        key, value = prefix + spec.name, getattr(config, spec.name)
        if dataclasses.is_dataclass(value):
            check(value, key + ".")
            continue
        rule = spec.metadata
        if rule.get("one_of") and value not in rule["one_of"]:
            raise ConfigError(f"{key}={value} is unknown; choose one of: {', '.join(rule['one_of'])}")
        for name, (sign, holds) in BOUNDS.items():
            bound = rule.get(name)
            if bound is not None and not holds(value, bound):  # NaN holds no bound
                raise ConfigError(f"{key}={value} is out of bounds; it must be {sign} {bound:g}")


def check_together(config: NodeConfig) -> None:
    """What no bound of a single key can say. Raises ConfigError."""
    reward, judge = config.reward, config.evaluator
    if not reward.correctness + reward.structure + reward.adherence + reward.format > 0:
        raise ConfigError("reward: all four weights are 0; give reward.correctness at least some weight")
    unknown = [question for question in judge.questions if question not in QUESTIONS]
    if unknown or not judge.questions:
        what = f"has the unknown {unknown[0]}" if unknown else "is empty"
        raise ConfigError(f"evaluator.questions {what}; choose some of: {', '.join(QUESTIONS)}")
    for section, asked in (("evaluator", judge), ("proposer", config.proposer)):
        if "@" in asked.url.partition("://")[2].partition("/")[0]:  # before anything could show it
            raise ConfigError(f"{section}.url must hold no password; its key comes from an environment variable")
        if asked.kind != "local" and asked.model != "off" and not asked.url.startswith(("http://", "https://")):
            raise ConfigError(
                f"{section}.url='{asked.url}' is no address; {section}.kind={asked.kind} needs http://HOST:PORT"
            )
    check_backend(config)
    check_role(config)
    try:
        source_weights(config.data.sources)
    except ValueError as error:
        raise ConfigError(f"data.sources: {error}") from error
    if config.proposer.train:
        check_proposer_training(config)
    check_names(config)


def check_names(config: NodeConfig) -> None:
    """A run has a folder of its own directly below run.directory, a repository an owner. Raises ConfigError."""
    if config.hub.repository and not REPOSITORY.fullmatch(config.hub.repository):
        raise ConfigError(f"hub.repository={config.hub.repository} is no repository of the hub; write OWNER/NAME")
    name, others = config.run.name, (Path(config.chain.directory), Path(config.login.directory))
    if name and (not RUN_NAME.fullmatch(name) or Path(config.run.directory, name) in others):
        raise ConfigError(
            f"run.name={name!r} cannot name a run; use one folder name of letters, digits, `.`, `_` and `-` that is "
            "neither the chain's nor the login's (run.directory says where the folder lies)"
        )


def check_backend(config: NodeConfig) -> None:
    """vLLM decodes for one rank, and not in the greedy limit. Raises ConfigError."""
    if config.model.backend != "vllm":
        return
    if config.model.gpus != 1:
        raise ConfigError(
            f"model.gpus={config.model.gpus} with model.backend=vllm: the engine decodes on one card; "
            "set model.gpus=1, or model.backend=own"
        )
    if config.solver.temperature < 0.01:
        raise ConfigError(
            f"solver.temperature={config.solver.temperature:g} is below 0.01, where vLLM does not go; "
            "raise it, or set model.backend=own"
        )


def check_role(config: NodeConfig) -> None:
    """A proposer without a model, a swarm or attempts of its own has nothing to do. Raises ConfigError."""
    if config.role != "proposer":
        return
    if config.proposer.model == "off":
        raise ConfigError("role=proposer with proposer.model=off would do nothing; name a model")
    if config.proposer.train:
        raise ConfigError("role=proposer attempts nothing that a proposer could learn from; drop proposer.train")
    if config.swarm.kind == "local":
        raise ConfigError("role=proposer needs a swarm to propose to; use `codezero propose`, or network=peer")


def check_proposer_training(config: NodeConfig) -> None:
    """It needs weights at hand, and enough attempts at its own proposals to compare. Raises ConfigError."""
    told = config.proposer
    if told.kind != "local":
        raise ConfigError(
            f"proposer.train=true needs a model in this process, and proposer.kind={told.kind} is behind an endpoint; "
            "set proposer.kind=local or drop proposer.train"
        )
    if told.model == "off" or not told.problems_per_iteration:
        which = "proposer.model=off" if told.model == "off" else "proposer.problems_per_iteration=0"
        raise ConfigError(f"proposer.train=true with {which} has nothing to train; drop one of them")
    if proposal_places(config) * min(told.every, told.wait) < 2:
        raise ConfigError(
            "proposer.train=true needs two proposals attempted to compare them; raise data.proposer_share, "
            "solver.problems_per_iteration, proposer.every or proposer.wait"
        )


def proposal_places(config: NodeConfig) -> int:
    """Most proposals that an iteration's problems hold."""
    return int(config.solver.problems_per_iteration * config.data.proposer_share)


def check_directories(config: NodeConfig) -> None:
    """Models that are named by a path are there. Raises ConfigError."""
    models = {
        "model.solver": config.model.solver,
        "evaluator.model": config.evaluator.model if config.evaluator.kind == "local" else "",
        "proposer.model": config.proposer.model if config.proposer.kind == "local" else "",
    }
    for key, name in models.items():
        if name.startswith(("/", "./", "../", "~")) and not Path(name).is_dir():
            raise ConfigError(f"{key}={name} is no directory; name one that save_pretrained wrote, or a hub id")


def keys(schema: Any = NodeConfig, prefix: str = "") -> Iterator[str]:
    """Every dotted key of the schema, groups included."""
    for spec in dataclasses.fields(schema):
        yield prefix + spec.name
        if dataclasses.is_dataclass(spec.type):
            yield from keys(spec.type, prefix + spec.name + ".")


def compose(overrides: Sequence[str] = (), *, published: Sequence[str] = PUBLISHED) -> NodeConfig:
    """The shipped values, the user's own (`local_settings`), then `overrides`, as checked dataclasses.

    published: keys whose values must not hold an interpolation. Raises ConfigError with one line that names the key
    and the nearest right one, and the user's file if it is there.
    """
    directory = config_directory()
    for override in overrides:
        _check_key(override, directory)
    own = in_force(overrides)
    try:
        return _composed([*own, *overrides], published)
    except ConfigError as error:
        if own and _refusal(own) == str(error):
            raise ConfigError(f"{local_file()}: {error}") from error
        raise


def in_force(overrides: Sequence[str]) -> list[str]:
    """The user's own settings as overrides, without those that `overrides` say otherwise. Raises ConfigError."""
    path, typed = local_file(), {_key(override) for override in overrides}
    own, sections = list[str](), {key.rpartition(".")[0] for key in keys()}
    try:
        for key, value in read_local(path).items():
            _check_key(f"{key}=", config_directory())
            if value is None and key not in sections:  # a section may have all its lines commented out
                raise ConfigError(f"{key} has no value; write one, or drop the line")
            if isinstance(value, list) and any(isinstance(one, dict | list) for one in cast("list[object]", value)):
                raise ConfigError(f"{key} has a section or a list in its list; quote what has a colon: ['mbpp:3']")
            if value is not None and key not in typed:
                own.append(f"{key}={_written(cast(object, value))}")
    except ConfigError as error:
        raise ConfigError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from error
    return own


def _composed(overrides: Sequence[str], published: Sequence[str] = PUBLISHED) -> NodeConfig:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    raw = hydra_composed(overrides)
    _check_published(raw, published)
    try:
        config = cast(NodeConfig, OmegaConf.to_object(raw))
    except OmegaConfBaseException as error:
        raise ConfigError(_one_line(error, overrides)) from error
    check(config)
    check_together(config)
    return config


def _check_published(raw: Any, published: Sequence[str]) -> None:
    """Raise ConfigError for an interpolation in a value that other people see. raw: as Hydra composed it."""
    from omegaconf import OmegaConf

    settings = cast("dict[str, Any]", OmegaConf.to_container(raw, resolve=False))
    for key in published:
        section, _, name = key.partition(".")
        group: Any = settings[section]
        if "${" in str(group if isinstance(group, str) else group[name]):
            raise ConfigError(f"{key} is shown to other people, so it must not hold ${{…}}; write the value itself")


def _refusal(overrides: Sequence[str]) -> str:
    """Why these alone are refused; empty when they are not."""
    try:
        _composed(overrides)
    except ConfigError as error:
        return str(error)
    return ""


def hydra_composed(overrides: Sequence[str], *, with_hydra: bool = False) -> Any:
    """What Hydra makes of the shipped values and `overrides`; with_hydra: and its own notes. Raises ConfigError."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.config_store import ConfigStore
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    ConfigStore.instance().store(name="schema", node=NodeConfig)
    try:
        with initialize_config_dir(str(config_directory()), version_base=None):
            return hydra_compose("node", overrides=list(overrides), return_hydra_config=with_hydra)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_one_line(error, overrides)) from error


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~")


def _check_key(override: str, directory: Path) -> None:
    """Name the nearest right key for a misspelt one, which Hydra does not."""
    key, equals = _key(override), "=" in override
    groups = sorted(path.name for path in directory.iterdir() if path.is_dir())
    known = sorted({*keys(), *groups})
    if not equals:
        raise ConfigError(f"'{override}' is not an override; write key=value, for example solver.learning_rate=1e-5")
    if key not in known:
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
        raise ConfigError(f"{key} is not a setting; did you mean {near[0]}? `codezero config show` lists them all")


def _one_line(error: Exception, overrides: Sequence[str]) -> str:
    """Hydra's and OmegaConf's many-line messages as one line that names the key."""
    lines = [line.strip() for part in (error.__cause__, error) if part for line in str(part).splitlines()]
    key = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("full_key:")), "")
    what = next((line for line in lines if line and not line.startswith(("full_key:", "object_type="))), repr(error))
    given = next((override for override in reversed(overrides) if key and override.startswith(key + "=")), key)
    return f"{given}: {what}" if given else what


def _written(value: object) -> str:
    """A value of the user's own file as an override's right-hand side; its interpolations stay alive."""
    if isinstance(value, list):
        return f"[{','.join(_written(item) for item in cast('list[object]', value))}]"
    return _in_quotes(value) if isinstance(value, str) else str(value).lower()


def quoted(value: object) -> str:
    """`value` as an override's right-hand side that composes to exactly this text, whatever it holds.

    Interpolations are escaped, so that text of a stranger never reaches a resolver. One text has no such form: `???`,
    which OmegaConf reads as a missing value and `compose` therefore refuses.
    """
    return _in_quotes(re.sub(r"(\\*)\$\{", lambda run: f"{run[1] * 2}\\${{", str(value)))


def _in_quotes(text: str) -> str:
    """Hydra's quoted string: backslashes count only where they stand before a quote."""
    return "'" + re.sub(r"(\\*)('|$)", lambda run: run[1] * 2 + run[2].replace("'", "\\'"), text) + "'"
