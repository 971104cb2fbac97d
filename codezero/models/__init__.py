"""Cards and launchers that torch may find. Imports nothing heavy, because it has to come before torch does."""

import os
import re

VARIABLE = "CPU_ONLY"
# drivers show a process only the cards that these name: none
HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
LAUNCHER = re.compile(
    "((LOCAL|GROUP|ROLE|NODE)_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|ROLE_NAME|FORK_LAUNCHED|MPI_LOCAL.+|"
    "(ACCELERATE|FSDP|PARALLELISM_CONFIG|MEGATRON_LM|TORCHELASTIC|PMI|OMPI_COMM_WORLD|MV2_COMM_WORLD)_.+"
)  # variables of a job that the shell is part of; a node is none, and its trainer's ranks are given theirs


def cpu_only() -> bool:
    """True where the user asked for it; empty, 0, false and no mean no."""
    return os.environ.get(VARIABLE, "").strip().lower() not in ("", "0", "false", "no")


def isolate() -> None:
    """Before torch loads, here and for children: forget a launcher's job, and hide every card if `CPU_ONLY` says so."""
    for name in filter(LAUNCHER.fullmatch, [*os.environ]):
        del os.environ[name]
    if cpu_only():
        os.environ |= dict.fromkeys(HIDING, "")
        os.environ["ACCELERATE_USE_CPU"] = "true"  # else it asks for a card when TRL is imported
