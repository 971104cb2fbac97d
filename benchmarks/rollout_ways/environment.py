"""genrl's environment: made once, from pinned packages, apart from ours, which has what genrl does not want and lacks
what it does."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PINS = HERE / "genrl.txt"
TORCH = "torch==2.13.0"  # the version of our own environment; the build for CPUs where that can be had
SECONDS = 1800  # most time for one step of the installation


class NoEnvironmentError(Exception):
    """genrl's environment could not be made; the message says at which step and why."""


def genrl_python(folder: Path) -> Path:
    """The interpreter of the environment below `folder`, which is made when it is not there or not of these pins.

    Raises NoEnvironmentError, without a network for example.
    """
    environment = folder / "genrl"
    python, stamp = environment / "bin" / "python", environment / "codezero-installed"
    wanted = hashlib.sha256(f"{TORCH} {sys.version_info[:2]} {PINS.read_text()}".encode()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    print(f"rollout: installing genrl into {environment} (once; some minutes)", file=sys.stderr)
    shutil.rmtree(environment, ignore_errors=True)
    uv = _uv()
    _run("making it", [uv, "venv", "--quiet", "--python", sys.executable, str(environment)])
    install = [uv, "pip", "install", "--quiet", "--python", str(python)]
    _run("its packages", [*install, "--no-deps", "--requirements", str(PINS)])
    try:
        _run("torch", [*install, "--torch-backend", "cpu", TORCH])
    except NoEnvironmentError:  # the index of CPU builds is out of reach; the ordinary one is not
        _run("torch", [sys.executable, "-P", "-m", "pip", "--python", str(python), "install", "--quiet", TORCH])
    _run("importing it", [str(python), "-c", "import genrl.trainer.grpo_trainer"])
    stamp.write_text(wanted)
    return python


def _uv() -> str:
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.is_file() else shutil.which("uv")
    if found is None:
        raise NoEnvironmentError("there is no uv; `pip install uv` brings it")
    return found


def _run(step: str, command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = (error.stderr or "") if isinstance(error, subprocess.CalledProcessError) else "it took too long"
        lines = [line.strip() for line in said.splitlines() if line.strip()] or ["it said nothing"]
        raise NoEnvironmentError(f"{step} failed: {' '.join(lines)[:300]}") from error
