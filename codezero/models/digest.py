"""The identity of a model by its content: the same digest for the same files, wherever they are."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codezero.errors import ModelChoiceError, ModelError

# files beside the weights that change what a model says
DECIDING = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
WEIGHTS = "*.safetensors"


@dataclass(frozen=True, slots=True)
class Base:
    """The frozen model beneath an adapter."""

    name: str  # as it was loaded: a directory or a Hugging Face id
    digest: str  # see `weights_digest`. It alone decides whether an adapter fits, because directories move.


def weights_digest(name: str) -> str:
    """64 hex digits over weights, configuration and tokenizer of a directory or hub id, which is fetched if needed.
    sha256 of the lines `NAME sha256-of-content`, sorted by name. Raises ModelError."""
    folder = folder_of(place_of(name))
    files = sorted({path for pattern in (*DECIDING, WEIGHTS) for path in folder.glob(pattern)})
    if not any(path.suffix == ".safetensors" for path in files):
        raise ModelChoiceError(f"{name} has no weights as safetensors; give a directory written by save_pretrained")
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            digest.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def place_of(name: str) -> str:
    """The path of a directory, without `~`; anything else is a hub id and stays."""
    path = os.path.expanduser(name)
    return path if os.path.isdir(path) else name


def same_place(name: str) -> str:
    """Equal for two names of one directory, or of one hub id."""
    place = place_of(name)
    return str(Path(place).resolve()) if Path(place).is_dir() else place


def folder_of(name: str, more: Sequence[str] = ()) -> Path:
    """Where the files of a place are; of a hub id those that decide and `more` are fetched if needed. Raises
    ModelError."""
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download  # pyright: ignore[reportUnknownVariableType] - slow to import
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=[*DECIDING, WEIGHTS, *more]))
    except HFValidationError as error:
        raise ModelChoiceError(f"{name} is neither a directory nor a hub id, which is OWNER/NAME") from error
    except (OSError, HfHubHTTPError, LocalEntryNotFoundError) as error:
        raise ModelError(f"{name} is neither a directory nor on the hub: {str(error).splitlines()[0]}") from error
