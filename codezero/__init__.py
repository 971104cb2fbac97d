"""A node of a peer-to-peer swarm in which language models learn to code together."""

import os
from importlib import import_module

TYPE_CHECKING = False  # as type checkers read it; `typing` is not loaded before `__main__` has closed sys.path
if TYPE_CHECKING:
    __version__: str
    from codezero.config import NodeConfig
    from codezero.errors import CodeZeroError
    from codezero.settings import compose
    from codezero.types import Completion, Problem, RolloutGroup, ScoredGroup, Verdict

__all__ = [
    "CodeZeroError", "Completion", "NodeConfig", "Problem", "RolloutGroup", "ScoredGroup", "Verdict", "__version__",
    "compose",
]  # fmt: skip
_HOMES = {"CodeZeroError": "errors", "NodeConfig": "config", "compose": "settings"}
"""Where the public names are that are not in `types`."""
# No library reports on its user, here and in children: each reads its variable when it is imported, after this.
os.environ |= {
    "DO_NOT_TRACK": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_UPDATE_DOWNLOAD_COUNTS": "0",
    "DISABLE_SAFETENSORS_CONVERSION": "1", "VLLM_NO_USAGE_STATS": "1", "RAY_USAGE_STATS_ENABLED": "0",
    "GRADIO_ANALYTICS_ENABLED": "False", "WANDB_ERROR_REPORTING": "false",
}  # fmt: skip


def __getattr__(name: str) -> object:
    """Each public name is imported when it is first asked for, so that `import codezero` loads nothing else."""
    if name == "__version__":
        return import_module("importlib.metadata").version("codezero")
    if name not in __all__:
        raise AttributeError(f"module 'codezero' has no attribute '{name}'")
    return getattr(import_module(f"codezero.{_HOMES.get(name, 'types')}"), name)
