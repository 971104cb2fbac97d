"""The embedded models: small enough to ship, made by `tools/nano/` of the source checkout. Imports no torch."""

from pathlib import Path

from codezero.errors import ModelError

NANO = "nano"
"""The word for the embedded model of a role."""
NANO_GYM = "nano-gym"
"""And for the embedded solver of the environment `gym`."""
WEIGHTS = Path(__file__).parent / "weights"


def weights_directory(role: str) -> Path:
    """Directory of the embedded model for `role`, to be loaded like any other. Raises ModelError."""
    directory = WEIGHTS / role
    if not (directory / "config.json").is_file():
        mend = "install codezero again, or run `python -m tools.nano` in its checkout"
        raise ModelError(f"{role}: no embedded model in {directory}; {mend}")
    return directory
