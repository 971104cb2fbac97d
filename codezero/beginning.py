"""How a run begins: it goes on where it stopped, or anew, or with another run's newest checkpoint.

Only folders are moved and copied here; nothing heavy is loaded.
"""

from codezero.config import NodeConfig
from codezero.errors import ConfigError
from codezero.run_folder import RunFolder, open_forked_folder, open_fresh_folder, open_run_folder
from codezero.solver.checkpoint import copy_newest


def begin(config: NodeConfig, *, fresh: bool = False, fork: str | None = None) -> RunFolder:
    """The owned folder of the run that the config and the two options of `codezero run` ask for.

    One line on stdout says what was moved or copied. Raises ConfigError and CheckpointError.
    """
    if fresh and fork is not None:
        raise ConfigError("--fresh begins without a past and --fork with another run's; give one of them")
    if fork is not None:
        if not config.run.resume:
            raise ConfigError("--fork goes on from a checkpoint and run.resume=False does not; give one of them")
        folder, name = open_forked_folder(config, fork, copy_newest)
        print(f"codezero: {folder.path} is a new run and begins with checkpoint {name} of {fork}", flush=True)
        return folder
    if fresh:
        folder, aside = open_fresh_folder(config)
        if aside is not None:
            print(f"codezero: the run that was here is whole in {aside}; run.name={aside.name} goes on with it")
        return folder
    return open_run_folder(config)


def refuse_options(command: str, *, fresh: bool, fork: str | None) -> None:
    """For a command whose nodes have folders of its own making. Raises ConfigError."""
    for option, given in (("--fresh", fresh), ("--fork", fork is not None)):
        if given:
            raise ConfigError(
                f"{option} is for one node: give it to `codezero run` or `codezero swarm join`; "
                f"`codezero swarm {command}` begins anew under another run.name"
            )
