"""Which model it is, by its content: the same digest wherever the same files lie, whatever they are called."""

# pyright: reportUnknownVariableType=false

import hashlib
from dataclasses import dataclass
from pathlib import Path

from codezero.errors import ModelChoiceError, ModelError

DECIDING = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
"""Files beside the weights that change what a model says."""
WEIGHTS = "*.safetensors"
PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Base:
    """The frozen model beneath an adapter."""

    name: str
    """As it was loaded: a directory or a Hugging Face id."""
    digest: str
    """See `weights_digest`. It alone decides whether an adapter fits: directories move."""


def weights_digest(name: str) -> str:
    """64 hex digits over weights, configuration and tokenizer of a directory or hub id (fetched if it is not here).

    sha256 of the lines `NAME sha256-of-content`, sorted by name. Raises ModelError.
    """
    folder = _folder(name)
    files = sorted({path for pattern in (*DECIDING, WEIGHTS) for path in folder.glob(pattern)})
    if not any(path.suffix == ".safetensors" for path in files):
        raise ModelChoiceError(f"{name} has no weights as safetensors; give a directory written by save_pretrained")
    lines = (f"{path.name} {_digest(path)}\n" for path in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _folder(name: str) -> Path:
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    from huggingface_hub import snapshot_download  # slow to import
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=[*DECIDING, WEIGHTS]))
    except HFValidationError as error:
        raise ModelChoiceError(f"{name} is neither a directory nor a hub id, which is OWNER/NAME") from error
    except (OSError, HfHubHTTPError, LocalEntryNotFoundError) as error:
        raise ModelError(f"{name} is neither a directory nor on the hub: {str(error).splitlines()[0]}") from error


def _digest(path: Path) -> str:
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            hasher.update(piece)
    return hasher.hexdigest()
