"""Settings from files and the command line: shipped values, then the user's `configs/local.yaml`, then KEY=VALUE.

`configs/local.yaml` lies in the folder a command is started in, beside swarm.pem and runs/, and every command reads it.
Each place is a layer of values by dotted key. Hydra decides which of the shipped files count, as the chosen groups
(`profile: peer`) say; a scalar stays the text that was written until pydantic parses and checks it, once, with all the
others. A mistake is one line that names the key and the nearest right one."""

import contextlib
import dataclasses
import difflib
import functools
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta

from codezero.config import PLUGIN_KEYS, NodeConfig, contradictions, plugins_of
from codezero.config.learning import ModelConfig, named
from codezero.errors import ConfigError, translated
from codezero.system.files import beside_package, read_json

MAIN, LOCAL = "node.yaml", Path("configs", "local.yaml")
VARIABLE = "CODEZERO_LOCAL"  # names another file; set and empty: no file is read
MAX_BYTES = 1 << 20
ADAPTER_CONFIG = "adapter_config.json"
EMBEDDED = ("", "auto", ModelConfig.solver)  # solvers that no folder is looked for
QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
# of a list that was typed, with a comma behind its last
ITEM = re.compile(rf"\s*({QUOTED.pattern}|(?:\$\{{[^}}]*\}}|[^,])*?)\s*,", re.DOTALL)
NAMES = {"float": "a number", "int": "a whole number", "bool": "true or false", "list": "a list", "string": "a text"}
SIGNS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
PUBLISHED = ("swarm.name", "swarm.announce", "hub.repository")  # seen by other people: no resolver may fill these in
# seen too where the first is set: on the card of a pushed model, and of a run at Weights & Biases
ALSO_PUBLISHED = {
    "hub.repository": ("model.solver", "evaluator.model", "reward.function"),
    "monitor.wandb": ("model.solver", "evaluator.model", "run.name"),
}
CONFIGS = beside_package("configs")
GROUPS = {path.name: sorted(file.stem for file in path.iterdir()) for path in CONFIGS.iterdir() if path.is_dir()}

Layers = Sequence[tuple[str, Mapping[str, Any]]]  # origin and values by key, the last of which counts


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """By dotted key; None for one that was written without a value."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        key = f"{prefix}{name}"
        section = isinstance(value, dict) and key not in PLUGIN_KEYS  # a plug-in with arguments is a value
        flat |= _flat(cast("dict[str, Any]", value), f"{key}.") if section else {key: value}
    return flat


DEFAULTS = _flat(dataclasses.asdict(NodeConfig()))
KINDS: dict[str, type[object]] = {key: type(value) for key, value in DEFAULTS.items()}
SECTIONS = {key[:at] for key in KINDS for at, letter in enumerate(key) if letter == "."}
KEYS = sorted(KINDS.keys() | SECTIONS | GROUPS.keys())


def compose(overrides: Sequence[str] = (), *, published: Sequence[str] = PUBLISHED) -> NodeConfig:
    """The shipped values, the user's own, then `overrides`, as checked dataclasses.

    published: keys whose values must not hold an interpolation. Raises ConfigError with one line that names the key
    and the nearest right one, and the user's file if the mistake is there."""
    own = own_settings(given := typed(overrides))
    try:
        return _checked(_layers(own, given), published)
    except ConfigError as error:
        try:
            _checked(_layers(own, {}))
        except ConfigError as mistake:
            if str(mistake) == str(error):
                raise ConfigError(f"{local_file()}: {error}") from error
        raise


def typed(overrides: Sequence[str]) -> dict[str, Any]:
    """Read them, by key. A text, a number and an item of a list are what stands there. Raises ConfigError."""
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
    """Read those of the user's own file that are not `given`. Raises ConfigError."""
    if (path := local_file()) is None or (path == LOCAL and not path.exists()):
        return {}
    read = _read_file(path).items()
    with translated(ConfigError, str(path), ConfigError):
        own = {key: _settled(key, value) for key, value in read}
    return {key: value for key, value in own.items() if value is not None and key not in given}


def _implied(given: Mapping[str, Any]) -> dict[str, Any]:
    """Values of model=qwen that a real solver needs which is named without a group: its problems and its exam. A
    directory whose vocabulary is as small as the embedded one's keeps the embedded problems."""
    solver = given.get("model.solver", ModelConfig.solver)
    if solver == ModelConfig.solver or given.keys() & {"model", "profile", "recipe"}:
        return {}
    with contextlib.suppress(OSError, ValueError, TypeError, LookupError):
        config = Path(os.path.expanduser(solver), "config.json").read_bytes()
        if json.loads(config[:MAX_BYTES])["vocab_size"] < 4096:  # then it is of the embedded kind
            return {}
    wanted = {"data.sources", "data.wait_seconds", "evals.sources"}
    return {key: value for key, value in _read_file(CONFIGS / "model" / "qwen.yaml").items() if key in wanted}


Plain = Annotated[str, Meta(max_length=4096, pattern=r"\A[^$]*\Z")]


class AdapterSettings(msgspec.Struct, frozen=True):
    """The fields read of peft's adapter_config.json, whose texts become settings: none may hold an interpolation. Of
    those from `use_dora` on, none is known here."""

    r: Annotated[int, Meta(ge=1, le=1024)]
    lora_alpha: Annotated[float, Meta(gt=0, le=4096)]
    target_modules: Annotated[list[Plain], Meta(min_length=1, max_length=1000)] | Plain
    base_model_name_or_path: Plain | None = None
    peft_type: Literal["LORA"] = "LORA"
    use_dora: Literal[False] = False
    use_rslora: Literal[False] = False
    fan_in_fan_out: Literal[False] = False
    bias: Literal["none"] = "none"
    modules_to_save: None = None
    layers_to_transform: None = None
    rank_pattern: Annotated[dict[str, int], Meta(max_length=0)] = {}
    alpha_pattern: Annotated[dict[str, float], Meta(max_length=0)] = {}


def read_adapter(folder: Path) -> AdapterSettings:
    """Raises ConfigError for what is no adapter, or one of a form that is not learned on."""
    path = folder / ADAPTER_CONFIG
    with translated(ConfigError, f"{path} is of no adapter that can be learned on", OSError, ValueError):
        shape = read_json(path, AdapterSettings, MAX_BYTES)
    if not (folder / "adapter_model.safetensors").is_file():
        raise ConfigError(f"{folder} has no adapter_model.safetensors; save it with safe_serialization=True")
    return shape


def begin_from(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Read what follows of `model.adapter`, and of a `model.solver` that is a folder of another kind than a model's.
    Raises ConfigError."""
    solver, adapter = str(chosen.get("model.solver", "")), str(chosen.get("model.adapter", ""))
    place, settings = Path(os.path.expanduser(solver)), dict[str, Any]()
    with translated(ConfigError, f"model.solver={solver} cannot be read", OSError):
        inside = os.listdir(place) if solver not in EMBEDDED and os.path.isdir(place) else []
    if "checkpoints" in inside:
        mend = f"model.solver={solver}/checkpoints/NUMBER, or `codezero run --fork {place.name}`"
        raise ConfigError(f"model.solver={solver} is a run; begin with one of its checkpoints: {mend}")
    if place.suffix == ".gguf" or ("config.json" not in inside and any(name.endswith(".gguf") for name in inside)):
        raise ConfigError(f"model.solver={solver}: a GGUF cannot be learned on; give the model that it was made of")
    if "solver" in inside:  # it is a run's checkpoint
        kinds = (place / "solver" / kind for kind in ("model", "adapter"))
        place = next((each for each in kinds if each.is_dir()), place)
        settings["model.solver"] = str(place)
    if not adapter and solver not in EMBEDDED and os.path.isfile(place / ADAPTER_CONFIG):
        adapter, base = str(place), read_adapter(place).base_model_name_or_path or ""
        here = bool(base) and os.path.isdir(os.path.expanduser(base))
        if not here and (base.startswith(("/", ".", "~")) or "/" not in base):
            named = f"model.solver=BASE model.adapter={place}"
            raise ConfigError(f"model.solver={solver} is an adapter of {base or 'a base without name'}; give {named}")
        settings["model.solver"] = base
    if not adapter:
        return settings
    if chosen.get("model.train") == "full":
        raise ConfigError(f"model.adapter={adapter} learns on as an adapter; drop model.train=full")
    shape = read_adapter(Path(os.path.expanduser(adapter)))
    targets = [shape.target_modules] if isinstance(shape.target_modules, str) else [*shape.target_modules]
    settings |= {"model.adapter": adapter, "model.train": "lora", "model.lora_rank": shape.r}
    return settings | {"model.lora_alpha": shape.lora_alpha, "model.lora_targets": targets}


def _layers(own: Mapping[str, Any], given: Mapping[str, Any]) -> Layers:
    """The defaults, the shipped files in Hydra's order, what is implied, the user's file, and the command line."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.types import RunMode

    chosen = {**own, **given}
    with initialize_config_dir(str(CONFIGS), version_base=None):
        choices = [f"{group}={chosen[group]}" for group in GROUPS if group in chosen]
        read = GlobalHydra.instance().config_loader().compute_defaults_list("node", choices, RunMode.RUN).defaults
    paths = [path for config in read if (path := CONFIGS / f"{config.config_path}.yaml").is_file()]
    begun = begin_from(chosen)
    names = [MAIN if path.name == MAIN else f"{path.parent.name}={path.stem}" for path in paths]
    shipped = zip(names, map(_read_file, paths), strict=True)
    above = [("real solver", _implied({**chosen, **begun})), (str(local_file()), own), ("command line", given)]
    above += [(str(begun.get("model.adapter") or chosen["model.solver"]), begun)] if begun else []
    return [("default", DEFAULTS), *shipped, *above]


def _checked(layers: Layers, published: Sequence[str] = PUBLISHED) -> NodeConfig:
    """Resolve what refers to other settings, and parse all of them. Raises ConfigError."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from pydantic import ValidationError

    values = {key: value for _, layer in layers for key, value in layer.items() if key in KINDS}
    also = (key for where, keys in ALSO_PUBLISHED.items() if values[where] for key in keys)
    for key in (*published, *also):
        if "${" in str(named(values[key]) if isinstance(values[key], dict) else values[key]):
            raise ConfigError(f"{key} is shown to other people, so it must not hold ${{…}}; write the value itself")
    nested: dict[str, Any] = {}
    for key, value in values.items():
        *path, name = key.split(".")
        section = functools.reduce(lambda parent, part: parent.setdefault(part, {}), path, nested)
        section[name] = value
    try:
        resolved = OmegaConf.to_container(OmegaConf.create(nested), resolve=True, throw_on_missing=True)
        config = _adapter().validate_python(resolved)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{error.full_key}: {str(error).splitlines()[0]}") from error
    except ValidationError as error:
        raise ConfigError(_one_line(error.errors(include_url=False)[0])) from error
    for contradiction in contradictions(config):
        raise ConfigError(contradiction)
    return config


@functools.cache
def _adapter() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(NodeConfig)


def _one_line(wrong: Mapping[str, Any]) -> str:
    """Say what pydantic found, which has many lines, in one that names the key."""
    key, shown, context = ".".join(map(str, wrong["loc"])), f"={wrong['input']}", wrong.get("ctx", {})
    for name in context.keys() & SIGNS:
        return f"{key}{shown} is out of bounds; it must be {SIGNS[name]} {context[name]:g}"
    if "expected" in context:
        choices = context["expected"].replace("'", "").replace(" or ", ", ")
        return f"{key}{shown} is unknown; choose one of: {choices}"
    kind = NAMES.get(wrong["type"].partition("_")[0], "a value that it can have")
    return f"{key}{context['error']}" if "error" in context else f"{key}{shown}: this is not {kind}"


def _unquoted(text: str) -> str:
    """Take off quotes, as `quoted` writes them, where they are around all of it."""
    if not QUOTED.fullmatch(text):
        return text
    return re.sub(rf"(\\+)({text[0]}|\Z)", lambda run: run[1][: len(run[1]) // 2] + run[2], text[1:-1])


def _settled(key: str, value: Any) -> Any:
    """The value as it counts. Raises ConfigError, with the nearest right key for a misspelt one."""
    if key not in KEYS:
        near = difflib.get_close_matches(key, KEYS, n=1, cutoff=0.0)
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
    is_name = key.endswith(("model", "solver")) or key in PLUGIN_KEYS  # which others may read
    return os.path.expanduser(value) if isinstance(value, str) and not is_name else value


def quoted(value: object) -> str:
    """`value` as an override's right-hand side that composes to exactly this text, whatever it holds.

    Interpolations are escaped, so that a peer's text never reaches a resolver. One text has no such form: `???`,
    which OmegaConf reads as a missing value and `compose` therefore refuses."""
    text = re.sub(r"(\\*)\$\{", lambda run: f"{run[1] * 2}\\${{", str(value))
    return "'" + re.sub(r"(\\*)('|\Z)", lambda run: run[1] * 2 + run[2].replace("'", "\\'"), text) + "'"


def local_file() -> Path | None:
    """Where the user's own settings are looked for; None: nowhere."""
    path = os.environ.get(VARIABLE)
    return LOCAL if path is None else Path(os.path.expanduser(path)) if path else None


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
    origins: Mapping[str, str]  # default, node.yaml, real solver, GROUP=CHOICE, the user's own file, or command line
    groups: Mapping[str, str]  # what was chosen of each group of files
    local: Path | None  # where the user's own file is looked for


def trace(overrides: Sequence[str], composed: NodeConfig | None = None) -> Provenance:
    """Every setting that `overrides` and the user's own file lead to, and led to if `composed`. Raises ConfigError."""
    values = _flat(dataclasses.asdict(composed or compose(overrides)))
    layers = _layers(own_settings(given := typed(overrides)), given)
    chosen = [(group, choice) for group, _, choice in (origin.partition("=") for origin, _ in layers)]
    return Provenance(
        values={key: values[key] for key in KINDS},
        origins={key: origin for origin, layer in layers for key in layer if key in KINDS},
        groups={group: choice for group, choice in chosen if choice in GROUPS.get(group, [])},
        local=local_file(),
    )


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


RIGHTS = "their code runs with this node's rights"


def own_code(config: NodeConfig) -> list[str]:
    """The settings that name code of the user's own, as `key=name`. Raises ConfigError for a file that is not there."""
    from codezero.system.plugins import file_of

    for slot in plugins_of(config):
        file_of(*slot)
    return [f"{slot.key}={named(slot.spec)}" for slot in plugins_of(config)]
