"""The code of the user's own that a node runs: named by each start, and asked about once by the doctor.

An answer holds for the file as it was: one that changes is asked about again. It is kept beside the runs.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from codezero.config import NodeConfig
from codezero.config.contradictions import plugins_of
from codezero.config.learning import named
from codezero.errors import ConfigError, translated
from codezero.ops.findings import Finding, ok, warn
from codezero.plugins import file_of
from codezero.system.files import read_json, write_atomic

RIGHTS = "their code runs with this node's rights"
ANSWERS = "plugins.json"
"""Below run.directory."""
MAX_BYTES = 1 << 20


class Consent(msgspec.Struct, frozen=True):
    """What the user said of a file."""

    sha256: str
    agreed: bool


def own_code(config: NodeConfig) -> dict[str, Path]:
    """The files by `key=name`, in the order of the settings. Raises ConfigError for one that is not there."""
    return {f"{slot.key}={named(slot.spec)}": file_of(*slot) for slot in plugins_of(config)}


def answers(config: NodeConfig) -> dict[str, Consent]:
    """By the file's path. Raises ConfigError."""
    path = Path(config.run.directory, ANSWERS)
    with translated(ConfigError, f"{path} cannot be read", OSError, ValueError, mend="remove it"):
        return read_json(path, dict[str, Consent], MAX_BYTES) if path.exists() else {}


def plugins(config: NodeConfig) -> Finding:
    """Raises ConfigError."""
    if not (files := own_code(config)):
        return ok("none is named: nothing but this package's own code runs")
    known, text = answers(config), f"{', '.join(files)}: {RIGHTS}"
    if new := [name for name, path in files.items() if _answer(known, path) is None]:
        return warn(f"{text}; nobody agreed to {', '.join(new)} as it is now", "read it, and run this at a terminal")
    refused = [name for name, path in files.items() if not known[str(path)].agreed]
    return warn(f"{text}; you did not agree to {', '.join(refused)}", "drop the setting") if refused else ok(text)


def ask(config: NodeConfig, answer: Callable[[str], str] = input) -> None:
    """About every file that was never asked about as it is now. Raises ConfigError, and OSError for a full disk."""
    files, known = own_code(config), answers(config)
    fresh = {path: name for name, path in files.items() if _answer(known, path) is None}
    for path, name in fresh.items():
        words = answer(f"{name} is code in {path}, which runs with this node's rights. Do you trust it? [y/N] ")
        known[str(path)] = Consent(_digest(path), words.strip().lower() in ("y", "yes"))
    if fresh:
        Path(config.run.directory).mkdir(parents=True, exist_ok=True)
        path = Path(config.run.directory, ANSWERS)
        write_atomic(path, json.dumps(msgspec.to_builtins(known), indent=2) + "\n", private=True)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _answer(known: Mapping[str, Consent], path: Path) -> Consent | None:
    """The one about the file as it is now."""
    answer = known.get(str(path))
    return answer if answer is not None and answer.sha256 == _digest(path) else None
