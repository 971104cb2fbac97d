"""The user's own settings: `configs/local.yaml` of the folder a command is started in, beside swarm.pem and runs/.

It is read by every command, after the shipped values and before the command line. Nothing here knows the schema.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from codezero.errors import ConfigError

DEFAULT = Path("configs", "local.yaml")
VARIABLE = "CODEZERO_LOCAL"
"""Names another file; set and empty: no file is read."""
MAX_BYTES = 1 << 20


def local_file() -> Path | None:
    """Where the settings are looked for; None: nowhere."""
    named = os.environ.get(VARIABLE)
    if named is None:
        return DEFAULT
    return Path(named) if named else None


def read_local(path: Path | None) -> dict[str, Any]:
    """Dotted key -> value. Without a file nothing, unless the variable named it.

    Raises ConfigError with one line that names the file.
    """
    if path is None or (path == DEFAULT and not path.exists()):
        return {}
    return dict(flat(read_yaml(path)))


def read_yaml(path: Path) -> Mapping[str, Any]:
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


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and their values; None for one that was written without."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from flat(cast("dict[str, Any]", value), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
