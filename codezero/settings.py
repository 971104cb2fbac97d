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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, cast

from codezero.config import NodeConfig, check_bounds
from codezero.config.contradictions import contradictions
from codezero.config.learning import ModelConfig, named
from codezero.errors import ConfigError, translated

MAIN, LOCAL = "node.yaml", Path("configs", "local.yaml")
VARIABLE = "CODEZERO_LOCAL"
"""Names another file; set and empty: no file is read."""
MAX_BYTES = 1 << 20
REAL_VOCABULARY = 4096
"""Tokens; models with fewer are of the embedded kind."""
KINDS = {"Float": "a number", "Integer": "a whole number", "Boolean": "true or false"}
PUBLISHED = ("swarm.name", "swarm.announce", "hub.repository")
"""Settings that other people see: no resolver may fill these in."""
ALSO_PUBLISHED = {
    "hub.repository": ("model.solver", "evaluator.model", "reward.function"),
    "monitor.wandb": ("model.solver", "evaluator.model", "run.name"),
}
"""What they also see where this is set: on the card of a pushed model, and of a run at Weights & Biases."""


def beside_package(name: str) -> Path:
    """A folder of the checkout, or its copy inside an installed package."""
    package = Path(__file__).resolve().parent
    beside = package.parent / name
    return beside if beside.is_dir() and (package.parent / "pyproject.toml").is_file() else package / name


CONFIGS = beside_package("configs")


def keys(schema: Any = NodeConfig, prefix: str = "", *, unbounded: bool = False) -> Iterator[str]:
    """Every dotted key of the schema, sections included. unbounded: only of what has no bounds but its type."""
    for spec in dataclasses.fields(schema):
        section = dataclasses.is_dataclass(spec.type)
        if not unbounded or not (section or hasattr(spec.type, "__metadata__")):
            yield prefix + spec.name
        if section:
            yield from keys(spec.type, prefix + spec.name + ".", unbounded=unbounded)


def compose(overrides: Sequence[str] = (), *, published: Sequence[str] = PUBLISHED) -> NodeConfig:
    """The shipped values, the user's own, then `overrides`, as checked dataclasses.

    published: keys whose values must not hold an interpolation. Raises ConfigError with one line that names the key
    and the nearest right one, and the user's file if the mistake is there.
    """
    for override in overrides:
        _check_key(override)
    own = own_overrides(overrides)
    try:
        return _checked([*implied([*own, *overrides]), *own, *overrides], published)
    except ConfigError as error:
        try:
            _checked(own)
        except ConfigError as mistake:
            if str(mistake) == str(error):
                raise ConfigError(f"{local_file()}: {error}") from error
        raise


def own_overrides(overrides: Sequence[str]) -> list[str]:
    """The user's own file as overrides, without the keys that `overrides` give. Raises ConfigError."""
    path, typed = local_file(), {_key(override) for override in overrides}
    if path is None or (path == LOCAL and not path.exists()):
        return []
    own, values = list[str](), _flat(_read_yaml(path))
    with translated(ConfigError, str(path), ConfigError):
        for key, value in values.items():
            _check_key(f"{key}=")
            if value is None and not any(known.startswith(f"{key}.") for known in keys()):  # a section may be empty
                raise ConfigError(f"{key} has no value; write one, or drop the line")
            if isinstance(value, list) and any(isinstance(item, dict | list) for item in cast("list[object]", value)):
                raise ConfigError(f"{key} has a section or a list in its list; quote what has a colon: ['mbpp:3']")
            if value is not None and key not in typed:
                own.append(f"{key}={_right_hand_side(cast(object, value))}")
    return own


def implied(overrides: Sequence[str]) -> list[str]:
    """What a real solver learns from and is examined on where it is named without a group: as with model=qwen.

    A directory whose vocabulary is as small as the embedded one's keeps the embedded problems.
    """
    given = {_key(override): override.partition("=")[2].strip("'\"") for override in overrides}
    solver = given.get("model.solver", ModelConfig.solver)
    if solver == ModelConfig.solver or given.keys() & {"model", "profile", "recipe"}:
        return []
    with contextlib.suppress(OSError, ValueError, TypeError, LookupError):
        if json.loads(Path(solver, "config.json").read_bytes()[:MAX_BYTES])["vocab_size"] < REAL_VOCABULARY:
            return []
    group = _flat(_read_yaml(CONFIGS / "model" / "qwen.yaml")).items()
    wanted = {"data.sources", "data.wait_seconds", "evals.sources"} - given.keys()
    return [f"{key}={_right_hand_side(value)}" for key, value in group if key in wanted]


def _checked(overrides: Sequence[str], published: Sequence[str] = PUBLISHED) -> NodeConfig:
    import hydra
    from hydra.core.config_store import ConfigStore
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    ConfigStore.instance().store(name="schema", node=NodeConfig)
    try:
        with hydra.initialize_config_dir(str(CONFIGS), version_base=None):
            composed = hydra.compose("node", overrides=list(overrides))
        raw = _flat(cast("dict[str, Any]", OmegaConf.to_container(composed, resolve=False)))
        for key in (*published, *chain(*(keys for where, keys in ALSO_PUBLISHED.items() if raw.get(where)))):
            value = raw.get(key, raw.get(key.partition(".")[0]))  # a whole section may be an interpolation
            if "${" in str(named(cast("dict[str, Any]", value)) if isinstance(value, dict) else value):
                raise ConfigError(f"{key} is shown to other people, so it must not hold ${{…}}; write the value itself")
        config = cast(NodeConfig, OmegaConf.to_object(composed))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_one_line(error, overrides)) from error
    if not set(map(_key, overrides)) <= set(keys(unbounded=True)):
        check_bounds(config)
    for contradiction in contradictions(config):
        raise ConfigError(contradiction)
    return config


def _files(overrides: Sequence[str]) -> list[str]:
    """What Hydra reads of the shipped values, in the order in which a later one wins."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.types import RunMode

    with initialize_config_dir(str(CONFIGS), version_base=None):
        loader = GlobalHydra.instance().config_loader()
        read = loader.compute_defaults_list("node", list(overrides), RunMode.RUN).defaults
    return [name for config in read if (CONFIGS / (name := f"{config.config_path}.yaml")).is_file()]


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~")


def _check_key(override: str) -> None:
    """Name the nearest right key for a misspelt one, which Hydra does not."""
    key = _key(override)
    known = sorted({*keys(), *(path.name for path in CONFIGS.iterdir() if path.is_dir())})
    if "=" not in override:
        raise ConfigError(f"'{override}' is not an override; write key=value, for example solver.learning_rate=1e-5")
    if key not in known:
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
        raise ConfigError(f"{key} is not a setting; did you mean {near[0]}? `codezero config show` lists them all")


def _one_line(error: Exception, overrides: Sequence[str]) -> str:
    """Hydra's and OmegaConf's many-line messages as one line that names the key."""
    lines = [line.strip() for part in (error.__cause__, error) if part for line in str(part).splitlines()]
    key = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("full_key:")), "")
    what = next((line for line in lines if line and not line.startswith(("full_key:", "object_type="))), repr(error))
    if missing := re.search(r"Could not find '(\w+)/(.*)'", what):
        choices = sorted(path.stem for path in (CONFIGS / missing[1]).glob("*.yaml"))
        return f"{missing[1]}={missing[2]} is unknown; choose one of: {', '.join(choices)}"
    if kind := re.search(r"could not be converted to (\w+)", what):
        what = f"this is not {KINDS.get(kind[1], 'a value that it can have')}"
    given = next((override for override in reversed(overrides) if key and override.startswith(key + "=")), key)
    return f"{given}: {what}" if given else what


def _right_hand_side(value: object) -> str:
    """A value of the user's own file as an override's right-hand side; its interpolations stay alive."""
    if isinstance(value, list):
        return f"[{','.join(_right_hand_side(item) for item in cast('list[object]', value))}]"
    if isinstance(value, dict):
        entries = cast("dict[str, object]", value).items()
        return f"{{{','.join(f'{name}:{_right_hand_side(item)}' for name, item in entries)}}}"
    return _in_quotes(value) if isinstance(value, str) else "null" if value is None else str(value).lower()


def quoted(value: object) -> str:
    """`value` as an override's right-hand side that composes to exactly this text, whatever it holds.

    Interpolations are escaped, so that text of a stranger never reaches a resolver. One text has no such form: `???`,
    which OmegaConf reads as a missing value and `compose` therefore refuses.
    """
    return _in_quotes(re.sub(r"(\\*)\$\{", lambda run: f"{run[1] * 2}\\${{", str(value)))


def _in_quotes(text: str) -> str:
    from hydra.core.override_parser.types import Quote, QuotedString

    return QuotedString(text, Quote.single).with_quotes()


def local_file() -> Path | None:
    """Where the user's own settings are looked for; None: nowhere."""
    named = os.environ.get(VARIABLE)
    return LOCAL if named is None else Path(named) if named else None


def _read_yaml(path: Path) -> Mapping[str, Any]:
    """The settings in a file of values, nested as they were written. Raises ConfigError."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        with path.open(encoding="utf-8") as stream:
            if os.fstat(stream.fileno()).st_size > MAX_BYTES:
                raise ConfigError(f"{path} is larger than {MAX_BYTES >> 20} MiB; settings are a page at most")
            read: object = OmegaConf.to_container(OmegaConf.load(stream), resolve=False)  # knows 1e-4, as YAML does not
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}); mend or remove it") from error
    except (YAMLError, OmegaConfBaseException, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(read, dict):
        raise ConfigError(f"{path} holds no settings; write key: value, for example solver.learning_rate: 1e-4")
    return cast("dict[str, Any]", read)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """By dotted key; None for one that was written without a value."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        key = f"{prefix}{name}"
        section = isinstance(value, dict) and "_target_" not in value  # a plug-in with arguments is a value
        flat |= _flat(cast("dict[str, Any]", value), f"{key}.") if section else {key: value}
    return flat


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
    values, own = _flat(dataclasses.asdict(composed or compose(overrides))), own_overrides(overrides)
    origins, files = dict.fromkeys(values, "default"), _files([*own, *overrides])
    for name in files:
        origin = MAIN if name == MAIN else name.removesuffix(".yaml").replace("/", "=")
        origins |= dict.fromkeys(_flat(_read_yaml(CONFIGS / name)), origin)
    groups, local = dict(name.removesuffix(".yaml").split("/") for name in files if name != MAIN), local_file()
    origins |= dict.fromkeys(_keys_of(implied([*own, *overrides])), "real solver")
    origins |= dict.fromkeys(_keys_of(own), str(local)) | dict.fromkeys(_keys_of(overrides), "command line")
    return Provenance(values=values, origins=origins, groups=groups, local=local)


def _keys_of(overrides: Sequence[str]) -> Iterator[str]:
    """The dotted keys that overrides give a value; of `solver={learning_rate: 1e-4}` the one inside."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    for override in OverridesParser.create().parse_overrides(list(overrides)):
        yield from _flat({override.key_or_group: override.value()})


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
