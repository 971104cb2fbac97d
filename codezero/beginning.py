"""How a run begins: it goes on where it stopped, or anew, or with another run's newest checkpoint.

Only folders are moved and copied here; nothing heavy is loaded.
"""

from pathlib import Path

from codezero.config import NodeConfig
from codezero.errors import CheckpointError, ConfigError
from codezero.monitor.state import read_exam
from codezero.monitor.store import FILE_NAME, read_metrics
from codezero.monitor.text import clean, percent
from codezero.run_folder import RunFolder, open_forked_folder, open_fresh_folder, open_run_folder
from codezero.solver.checkpoint import checkpoints_in, copy_newest
from codezero.solver.manifest import read_manifest

MAX_BYTES = 1 << 20
"""Read of the metrics, half from their beginning and half from their end."""


def begin(config: NodeConfig, *, fresh: bool = False, fork: str | None = None, supervised: bool = False) -> RunFolder:
    """The owned folder of the run that the config and the two options of `codezero run` ask for.

    One line on stdout says which run it is, and what was moved or copied. supervised: of a run that is opened as it is
    the node's own process says so. Raises ConfigError and CheckpointError.
    """
    if fresh and fork is not None:
        raise ConfigError("--fresh begins without a past and --fork with another run's; give one of them")
    if fork is not None:
        if not config.run.resume:
            raise ConfigError("--fork goes on from a checkpoint and run.resume=False does not; give one of them")
        folder, name = open_forked_folder(config, fork, copy_newest)
        print(f"codezero: new run {folder.path.name}, which begins with checkpoint {name} of {fork}", flush=True)
        return folder
    if fresh:
        folder, aside = open_fresh_folder(config)
        kept = f"; the one before is whole in {aside}, and run.name={aside.name} goes on with it" if aside else ""
        print(f"codezero: new run {folder.path.name}{kept}", flush=True)
        return folder
    folder = open_run_folder(config)
    refused = not config.run.resume and checkpoints_in(folder.checkpoints)  # once it would go on
    if not supervised and not refused:
        print(f"codezero: {start_line(folder)}", flush=True)
    return folder


def start_line(folder: RunFolder) -> str:
    """Which run it is and how far it has come. A checkpoint that turns out to be damaged is named when it is loaded."""
    iterations = [_iteration_of(checkpoint) for checkpoint in checkpoints_in(folder.checkpoints)]
    iteration = next((each for each in iterations if each), 0)
    if not iteration:
        return f"new run {folder.path.name}"
    rows = read_metrics(folder.path / FILE_NAME, max_bytes=MAX_BYTES)
    exams = [exam for row in rows if (exam := read_exam(row)) is not None and exam.iteration <= iteration]
    last = exams[-1] if exams else None
    measured = f", {clean(last.label, 40)} {percent(last.average)}" if last else ""
    return f"goes on with {folder.path.name} at iteration {iteration}{measured}"


def _iteration_of(checkpoint: Path) -> int:
    """0: it cannot be used."""
    try:
        return read_manifest(checkpoint).iteration
    except CheckpointError:
        return 0


def refuse_options(command: str, *, fresh: bool, fork: str | None) -> None:
    """For a command whose nodes have folders of its own making. Raises ConfigError."""
    for option, given in (("--fresh", fresh), ("--fork", fork is not None)):
        if given:
            raise ConfigError(
                f"{option} is for one node: give it to `codezero run` or `codezero swarm join`; "
                f"`codezero swarm {command}` begins anew under another run.name"
            )
