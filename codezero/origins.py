"""Where each setting's value comes from, for `codezero config show`."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from codezero.compose import compose, config_directory, hydra_composed, in_force
from codezero.local_settings import flat, local_file, read_yaml

DEFAULT, TYPED = "default", "command line"
MAIN = "node.yaml"


@dataclass(frozen=True, kw_only=True)
class Setting:
    value: object
    origin: str
    """default, node.yaml, GROUP=CHOICE, the path of the user's own file, or command line; the last that gave it."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All of them, by dotted key in the schema's order."""

    settings: Mapping[str, Setting]
    groups: Mapping[str, str]
    """What was chosen of each group of files."""
    local: Path | None
    """Where the user's own file is looked for."""
    local_found: bool


def trace(overrides: Sequence[str]) -> Settings:
    """Every setting that `overrides` and the user's own file lead to. Raises ConfigError."""
    config, own = compose(overrides), in_force(overrides)
    composed = hydra_composed([*own, *overrides], with_hydra=True)
    chosen = cast("dict[str, str | None]", dict(composed.hydra.runtime.choices))
    directory = config_directory()
    main = read_yaml(directory / MAIN)
    order = [cast("dict[str, str]", one) for one in cast("list[object]", main["defaults"]) if isinstance(one, dict)]
    groups = {name: str(chosen[name]) for one in order for name in one}
    files = [(f"{name}={choice}", directory / name / f"{choice}.yaml") for name, choice in groups.items()]
    origins: dict[str, str] = {}
    for origin, path in [*files, (MAIN, directory / MAIN)]:
        origins |= dict.fromkeys((key for key, _ in flat(read_yaml(path))), origin)
    path = local_file()
    origins |= dict.fromkeys(given_by(own), str(path))
    origins |= dict.fromkeys(given_by(overrides), TYPED)
    settings = {
        key: Setting(value=value, origin=origins.get(key, DEFAULT)) for key, value in flat(dataclasses.asdict(config))
    }
    return Settings(settings=settings, groups=groups, local=path, local_found=path is not None and path.exists())


def given_by(overrides: Sequence[str]) -> Iterator[str]:
    """The dotted keys that overrides give a value; of `solver={learning_rate: 1e-4}` the one inside."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    for override in OverridesParser.create().parse_overrides(list(overrides)):
        value: object = override.value()
        if isinstance(value, dict):
            yield from (key for key, _ in flat({override.key_or_group: value}))
        else:
            yield override.key_or_group


def as_yaml(told: Settings) -> str:
    """YAML that is a config of its own, with the origin of each value behind it."""
    rows: list[tuple[str, str]] = []
    section = ""
    for key, setting in told.settings.items():
        of, _, name = key.rpartition(".")
        if of != section:
            rows.append((f"{of}:", ""))
            section = of
        rows.append((f"{'  ' if of else ''}{name}: {_scalar(setting.value)}", setting.origin))
    width = max(min(len(line), 48) for line, _ in rows)
    where = "none" if told.local is None else f"{told.local}{'' if told.local_found else ' (not there)'}"
    header = f"# {' '.join(f'{group}={choice}' for group, choice in told.groups.items())}; your own settings: {where}\n"
    return header + "".join(f"{line:{width}}  # {origin}\n" if origin else f"{line}\n" for line, origin in rows)


def as_json(told: Settings) -> str:
    """One object: `settings` by dotted key, each with value and origin; `groups`; `local`, the user's file or null."""
    return json.dumps(
        {
            "settings": {key: dataclasses.asdict(setting) for key, setting in told.settings.items()},
            "groups": dict(told.groups),
            "local": str(told.local) if told.local_found else None,
        }
    )


def _scalar(value: object) -> str:
    """A value in one line of YAML."""
    from yaml import safe_dump

    return safe_dump([value], default_flow_style=True, width=10**6, allow_unicode=True).strip()[1:-1]
