"""A node of a peer-to-peer swarm in which language models learn to code together."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
    from codezero.config import NodeConfig
    from codezero.errors import CodeZeroError
    from codezero.settings import compose
    from codezero.types import Completion, Problem, RolloutGroup, ScoredGroup, Verdict

__all__ = [
    "CodeZeroError",
    "Completion",
    "NodeConfig",
    "Problem",
    "RolloutGroup",
    "ScoredGroup",
    "Verdict",
    "__version__",
    "compose",
]
_HOMES = {"CodeZeroError": "errors", "NodeConfig": "config", "compose": "settings"}
"""Where the public names are that are not in `types`."""


def __getattr__(name: str) -> object:
    """Each public name is imported when it is first asked for, so that `import codezero` loads nothing else."""
    if name == "__version__":
        return import_module("importlib.metadata").version("codezero")
    if name not in __all__:
        raise AttributeError(f"module 'codezero' has no attribute '{name}'")
    return getattr(import_module(f"codezero.{_HOMES.get(name, 'types')}"), name)
