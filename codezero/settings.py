"""Overrides -> checked settings: the values of `configs/`, then `configs/local.yaml`, then the command line's.

`configs/local.yaml` lies in the folder a command is started in, beside swarm.pem and runs/, and every command reads it.
It may choose groups (`profile: peer`), which Hydra's own `optional` entries cannot do: its values become overrides.
Whatever is wrong is reported in one line that names the key and the nearest right one.
"""

import contextlib
import dataclasses
import difflib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, cast

from codezero.config import NodeConfig, check_bounds
from codezero.config.contradictions import PLUGIN_KEYS, contradictions
from codezero.config.learning import ModelConfig, named
from codezero.errors import ConfigError, translated
from codezero.system.files import beside_package

MAIN, LOCAL = "node.yaml", Path("configs", "local.yaml")
VARIABLE = "CODEZERO_LOCAL"
"""Names another file; set and empty: no file is read."""
MAX_BYTES = 1 << 20
REAL_VOCABULARY = 4096
"""Tokens; models with fewer are of the embedded kind."""
QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
ITEM = re.compile(rf"\s*({QUOTED.pattern}|(?:\$\{{[^}}]*\}}|[^,])*?)\s*,", re.DOTALL)
"""Of a list that was typed, with a comma behind its last."""
NAMES = {"Float": "a number", "Integer": "a whole number", "Boolean": "true or false"}
PUBLISHED = ("swarm.name", "swarm.announce", "hub.repository")
"""Settings that other people see: no resolver may fill these in."""
ALSO_PUBLISHED = {
    "hub.repository": ("model.solver", "evaluator.model", "reward.function"),
    "monitor.wandb": ("model.solver", "evaluator.model", "run.name"),
}
"""What they also see where this is set: on the card of a pushed model, and of a run at Weights & Biases."""
CONFIGS = beside_package("configs")
GROUPS = {path.name: sorted(file.stem for file in path.iterdir()) for path in CONFIGS.iterdir() if path.is_dir()}


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """By dotted key; None for one that was written without a value."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        key = f"{prefix}{name}"
        section = isinstance(value, dict) and key not in PLUGIN_KEYS  # a plug-in with arguments is a value
        flat |= _flat(cast("dict[str, Any]", value), f"{key}.") if section else {key: value}
    return flat


KINDS: dict[str, type[object]] = {key: type(value) for key, value in _flat(dataclasses.asdict(NodeConfig())).items()}
"""Of every setting: str, list, float, …"""
SECTIONS = {key[:at] for key in KINDS for at, letter in enumerate(key) if letter == "."}
keys = (KINDS | dict.fromkeys(SECTIONS)).keys


def compose(overrides: Sequence[str] = (), *, published: Sequence[str] = PUBLISHED) -> NodeConfig:
    """The shipped values, the user's own, then `overrides`, as checked dataclasses.

    published: keys whose values must not hold an interpolation. Raises ConfigError with one line that names the key
    and the nearest right one, and the user's file if the mistake is there.
    """
    own = own_settings(given := typed(overrides))
    try:
        return _checked(implied(own | given) | own | given, published, overrides)
    except ConfigError as error:
        try:
            _checked(own)
        except ConfigError as mistake:
            if str(mistake) == str(error):
                raise ConfigError(f"{local_file()}: {error}") from error
        raise


def typed(overrides: Sequence[str]) -> dict[str, Any]:
    """What they give, by key. A text, a number and an item of a list are what stands there. Raises ConfigError."""
    given = dict[str, Any]()
    for override in overrides:
        key, equals, value = override.lstrip("+").partition("=")
        if not equals:
            raise ConfigError(f"'{override}' is no override; write key=value, for example solver.learning_rate=1e-5")
        kind = KINDS.get(key)
        if value[:1] == "{" and (kind is not str or key in PLUGIN_KEYS):
            given |= _read_yaml(re.sub(r"([{,]\s*\w+):", r"\1: ", f"{key}: {value}"), override)
        elif kind is list and value[:1] + value[-1:] == "[]":
            given[key] = [*map(_unquoted, ITEM.findall(f"{value[1:-1]},"))] if value[1:-1].strip() else []
        else:
            given[key] = _unquoted(value)
    return {key: _settled(key, value) for key, value in given.items()}


def own_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the user's own file that are not `given`. Raises ConfigError."""
    if (path := local_file()) is None or (path == LOCAL and not path.exists()):
        return {}
    read = _read_file(path).items()
    with translated(ConfigError, str(path), ConfigError):
        own = {key: _settled(key, value) for key, value in read}
    return {key: value for key, value in own.items() if value is not None and key not in given}


def implied(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a real solver learns from and is examined on where it is named without a group: as with model=qwen.

    A directory whose vocabulary is as small as the embedded one's keeps the embedded problems.
    """
    solver = given.get("model.solver", ModelConfig.solver)
    if solver == ModelConfig.solver or given.keys() & {"model", "profile", "recipe"}:
        return {}
    with contextlib.suppress(OSError, ValueError, TypeError, LookupError):
        config = Path(os.path.expanduser(solver), "config.json").read_bytes()
        if json.loads(config[:MAX_BYTES])["vocab_size"] < REAL_VOCABULARY:
            return {}
    wanted = {"data.sources", "data.wait_seconds", "evals.sources"} - given.keys()
    return {key: value for key, value in _read_file(CONFIGS / "model" / "qwen.yaml").items() if key in wanted}


def _checked(given: Mapping[str, Any], published: Sequence[str] = PUBLISHED, words: Sequence[str] = ()) -> NodeConfig:
    """words: of whoever typed some of it."""
    import hydra
    from hydra.core.config_store import ConfigStore
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    ConfigStore.instance().store(name="schema", node=NodeConfig)
    choices = [f"{group}={given[group]}" for group in GROUPS if group in given]
    try:
        with hydra.initialize_config_dir(str(CONFIGS), version_base=None):
            composed = hydra.compose("node", overrides=choices)
        for key in given.keys() - GROUPS.keys():
            OmegaConf.update(composed, key, given[key], merge=False)
        raw = _flat(cast("dict[str, Any]", OmegaConf.to_container(composed, resolve=False)))
        for key in (*published, *chain(*(keys for where, keys in ALSO_PUBLISHED.items() if raw.get(where)))):
            if "${" in str(named(cast("dict[str, Any]", raw[key])) if isinstance(raw[key], dict) else raw[key]):
                raise ConfigError(f"{key} is shown to other people, so it must not hold ${{…}}; write the value itself")
        config = cast(NodeConfig, OmegaConf.to_object(composed))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_one_line(error, given, words)) from error
    check_bounds(config)
    for contradiction in contradictions(config):
        raise ConfigError(contradiction)
    return config


def _files(given: Mapping[str, Any]) -> list[str]:
    """What Hydra reads of the shipped values, in the order in which a later one wins."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.types import RunMode

    choices = [f"{group}={given[group]}" for group in GROUPS if group in given]
    with initialize_config_dir(str(CONFIGS), version_base=None):
        loader = GlobalHydra.instance().config_loader()
        read = loader.compute_defaults_list("node", choices, RunMode.RUN).defaults
    return [name for config in read if (CONFIGS / (name := f"{config.config_path}.yaml")).is_file()]


def _unquoted(text: str) -> str:
    """What is in quotes, as of `quoted`, where they are around all of it."""
    if not QUOTED.fullmatch(text):
        return text
    return re.sub(rf"(\\+)({text[0]}|\Z)", lambda run: run[1][: len(run[1]) // 2] + run[2], text[1:-1])


def _settled(key: str, value: Any) -> Any:
    """The value as it counts. Raises ConfigError, with the nearest right key for a misspelt one."""
    if key not in keys() | GROUPS.keys():
        near = difflib.get_close_matches(key, sorted(keys() | GROUPS.keys()), n=1, cutoff=0.0)
        raise ConfigError(f"{key} is not a setting; did you mean {near[0]}? `codezero config show` lists them all")
    if key in SECTIONS - GROUPS.keys():
        if value is None:  # it may be empty
            return None
        raise ConfigError(f"{key}={value} gives a section no setting; write {key}.NAME=VALUE")
    if value is None:
        raise ConfigError(f"{key} has no value; write one, or drop the line")
    if key in GROUPS and value not in GROUPS[key]:
        raise ConfigError(f"{key}={value} is unknown; choose one of: {', '.join(GROUPS[key])}")
    if KINDS.get(key) is list and isinstance(value, str) and "${" not in value:
        raise ConfigError(f"{key}={value} is no list; write {key}=['{value}']")
    if KINDS.get(key) is list and not {*map(type, value)} <= {str}:
        raise ConfigError(f"{key} has a section or a list in its list; quote what has a colon: ['mbpp:3']")
    named = key.endswith(("model", "solver")) or key in PLUGIN_KEYS  # by a name that others may read
    return os.path.expanduser(value) if isinstance(value, str) and not named else value


def _one_line(error: Exception, given: Mapping[str, Any], words: Sequence[str]) -> str:
    """Hydra's and OmegaConf's many-line messages as one line that names the key."""
    lines = [line.strip() for part in (error.__cause__, error) if part for line in str(part).splitlines()]
    key = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("full_key:")), "")
    what = next((line for line in lines if line and not line.startswith(("full_key:", "object_type="))), repr(error))
    if kind := re.search(r"could not be converted to (\w+)", what):
        what = f"this is not {NAMES.get(kind[1], 'a value that it can have')}"
    shown = next((word for word in reversed(words) if key and word.startswith(key + "=")), "")
    return f"{shown or f'{key}={given[key]!r}' if key in given else key}: {what}" if key else what


def quoted(value: object) -> str:
    """`value` as an override's right-hand side that composes to exactly this text, whatever it holds.

    Interpolations are escaped, so that text of a stranger never reaches a resolver. One text has no such form: `???`,
    which OmegaConf reads as a missing value and `compose` therefore refuses.
    """
    text = re.sub(r"(\\*)\$\{", lambda run: f"{run[1] * 2}\\${{", str(value))
    return "'" + re.sub(r"(\\*)('|\Z)", lambda run: run[1] * 2 + run[2].replace("'", "\\'"), text) + "'"


def local_file() -> Path | None:
    """Where the user's own settings are looked for; None: nowhere."""
    named = os.environ.get(VARIABLE)
    return LOCAL if named is None else Path(os.path.expanduser(named)) if named else None


def _read_file(path: Path) -> dict[str, Any]:
    """The settings in a file of values, by dotted key. Raises ConfigError."""
    try:
        with path.open(encoding="utf-8") as stream:
            return _read_yaml(stream.read(MAX_BYTES + 1), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({getattr(error, 'strerror', error)}); mend or remove it") from error


def _read_yaml(text: str, where: str) -> dict[str, Any]:
    """By dotted key; of a plug-in's arguments the values, else the texts as they stand there. Raises ConfigError."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import SafeLoader, YAMLError

    if len(text) > MAX_BYTES:
        raise ConfigError(f"{where} is larger than {MAX_BYTES >> 20} MiB; settings are a page at most")
    try:
        read: Any = OmegaConf.to_container(OmegaConf.create(text), resolve=False)  # knows 1e-4, as YAML does not
        only_merges = {"yaml_implicit_resolvers": {"<": SafeLoader.yaml_implicit_resolvers["<"]}}
        texts: Any = type("Texts", (SafeLoader,), only_merges)(text).get_single_data()
    except (YAMLError, OmegaConfBaseException, RecursionError) as error:
        why = " ".join(str(error).replace('"<unicode string>", ', "").split())
        raise ConfigError(f"{where} is no YAML: {why}; a text may stand in quotes") from error
    if not isinstance(cast(object, read), dict):
        raise ConfigError(f"{where} holds no settings; write key: value, for example solver.learning_rate: 1e-4")
    written = _flat(texts) if texts and texts != text else {}
    return {key: value if isinstance(value, dict) else written.get(key) or value for key, value in _flat(read).items()}


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Every setting by dotted key, in the schema's order, and where its value comes from."""

    values: Mapping[str, object]
    origins: Mapping[str, str]
    """default, node.yaml, real solver, GROUP=CHOICE, the user's own file, or command line; the last that gave it."""
    groups: Mapping[str, str]
    """What was chosen of each group of files."""
    local: Path | None
    """Where the user's own file is looked for; None: nowhere."""


def trace(overrides: Sequence[str], composed: NodeConfig | None = None) -> Provenance:
    """Every setting that `overrides` and the user's own file lead to, and led to if `composed`. Raises ConfigError."""
    values, given = _flat(dataclasses.asdict(composed or compose(overrides))), typed(overrides)
    own, local = own_settings(given), local_file()
    origins, files = dict.fromkeys(values, "default"), _files(own | given)
    for name in files:
        origin = MAIN if name == MAIN else name.removesuffix(".yaml").replace("/", "=")
        origins |= dict.fromkeys(_read_file(CONFIGS / name), origin)
    groups = dict(name.removesuffix(".yaml").split("/") for name in files if name != MAIN)
    origins |= dict.fromkeys(implied(own | given), "real solver")
    origins |= dict.fromkeys(own, str(local)) | dict.fromkeys(given, "command line")
    return Provenance(values=values, origins=origins, groups=groups, local=local)


def as_yaml(settings: Provenance) -> str:
    """YAML that is a config of its own, with the origin of each value behind it."""
    from yaml import safe_dump

    rows: dict[str, tuple[str, str]] = {}
    for key, value in settings.values.items():
        *path, name = key.split(".")
        for depth, section in enumerate(path):
            rows.setdefault(".".join(path[: depth + 1]), (f"{'  ' * depth}{section}:", ""))
        shown = safe_dump([value], default_flow_style=True, width=10**6, allow_unicode=True).strip()[1:-1]
        rows[key] = (f"{'  ' * len(path)}{name}: {shown}", f"  # {settings.origins[key]}")
    width = max(min(len(line), 48) for line, _ in rows.values())
    where = f"{settings.local or 'none'}{'' if not settings.local or settings.local.exists() else ' (not there)'}"
    groups = " ".join(f"{group}={choice}" for group, choice in settings.groups.items())
    lines = [f"{line:{width if origin else 0}}{origin}\n" for line, origin in rows.values()]
    return f"# {groups}; your own settings: {where}\n{''.join(lines)}"


def as_json(settings: Provenance) -> str:
    """One object: `settings` by dotted key, each with value and origin; `groups`; `local`, the user's file or null."""
    values = {key: {"value": value, "origin": settings.origins[key]} for key, value in settings.values.items()}
    local = str(settings.local) if settings.local and settings.local.exists() else None
    return json.dumps({"settings": values, "groups": dict(settings.groups), "local": local})
