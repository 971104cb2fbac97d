"""The embedded models: small enough to ship, trained by this package on its own problems. Imports no torch."""

from pathlib import Path

from codezero.errors import ModelError

NANO = "nano"
"""The word for the embedded model of a role."""
NANO_TESTS = "nano-tests"
"""And for the embedded verifier, which stands where other models of solvers do."""
NANO_GYM = "nano-gym"
"""And for the embedded solver of the environment `gym`."""
ROLES = ("solver", "judge", "proposer", "tests", "gym")
WEIGHTS = Path(__file__).parent / "weights"


def weights_directory(role: str) -> Path:
    """Directory of the embedded model for `role`, to be loaded like any other. Raises ModelError."""
    directory = WEIGHTS / role
    if role not in ROLES or not (directory / "config.json").is_file():
        raise ModelError(f"{role}: no embedded model in {directory}; run `codezero nano build`")
    return directory
