"""Overrides -> checked settings: the values of `configs/`, then what the command line says, held to the schema.

Whatever is wrong is said in one line that names the key and the nearest right one.
"""

import dataclasses
import difflib
import operator
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from codezero.config import QUESTIONS, NodeConfig
from codezero.errors import ConfigError

BOUNDS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "ge": ("at least", operator.ge),
    "gt": ("more than", operator.gt),
    "le": ("at most", operator.le),
}


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
        if asked.kind != "local" and asked.model != "off" and not asked.url.startswith(("http://", "https://")):
            raise ConfigError(
                f"{section}.url='{asked.url}' is no address; {section}.kind={asked.kind} needs http://HOST:PORT"
            )


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


def compose(overrides: Sequence[str] = ()) -> NodeConfig:
    """The shipped values, then `overrides`, as checked dataclasses.

    Raises ConfigError with one line that names the key and the nearest right one.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.config_store import ConfigStore
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    ConfigStore.instance().store(name="schema", node=NodeConfig)
    directory = config_directory()
    for override in overrides:
        _check_key(override, directory)
    try:
        with initialize_config_dir(str(directory), version_base=None):
            raw = hydra_compose("node", overrides=list(overrides))
            config = cast(NodeConfig, OmegaConf.to_object(raw))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_one_line(error, overrides)) from error
    check(config)
    check_together(config)
    return config


def _check_key(override: str, directory: Path) -> None:
    """Name the nearest right key for a misspelt one, which Hydra does not."""
    key, equals, _ = override.partition("=")
    key = key.lstrip("+~")
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
    given = next((override for override in overrides if key and override.startswith(key + "=")), key)
    return f"{given}: {what}" if given else what


def to_yaml(config: NodeConfig) -> str:
    """Every setting and its value."""
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(OmegaConf.structured(config))


def overrides_of(config: NodeConfig, *sections: str) -> list[str]:
    """These sections of a config as overrides, for a process that needs no more of it."""
    return [
        f"{section}.{spec.name}={_written(getattr(getattr(config, section), spec.name))}"
        for section in sections
        for spec in dataclasses.fields(getattr(config, section))
    ]


def _written(value: object) -> str:
    if isinstance(value, list):
        return f"[{','.join(_written(one) for one in cast('list[object]', value))}]"
    return quoted(value) if isinstance(value, str) else str(value).lower()


def quoted(value: object) -> str:
    """`value` as an override's right-hand side; for paths, which may hold spaces, commas and quotes."""
    escaped = str(value).replace("'", "\\'")
    return f"'{escaped}'"
