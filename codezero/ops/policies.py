"""The policy of an eval: a run's newest checkpoint, a checkpoint's folder, or any model by its name."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from codezero.config import NodeConfig
from codezero.errors import CheckpointError, ModelChoiceError, ModelError, translated
from codezero.models.build import Say, load
from codezero.models.hardware import source_of
from codezero.monitor.metrics_file import LABEL
from codezero.nano import NANO, NANO_GYM
from codezero.runs import CHECKPOINTS
from codezero.solver.checkpoint import check_files, newest, read_manifest

if TYPE_CHECKING:
    from codezero.models.load import LoadedModel

EMBEDDED = (NANO, NANO_GYM)
SOLVER = "solver"  # the part of a checkpoint that holds the policy


class AdapterSettings(msgspec.Struct, frozen=True):
    """The fields read of peft's adapter_config.json."""

    r: Annotated[int, Meta(ge=1, le=1024)]
    lora_alpha: Annotated[float, Meta(gt=0, le=4096)]
    target_modules: Annotated[list[Annotated[str, Meta(max_length=200)]], Meta(min_length=1, max_length=1000)] | str


@dataclass(frozen=True, slots=True)
class Policy:
    """The name is for people; `load` takes `source`, the whole model or the base of the adapter."""

    name: str
    source: str
    digest: str  # 64 hex digits, the same for the same weights and tokenizer
    adapter: Path | None = None
    run: Path | None = None  # the folder of the run that it is of


def find_policy(config: NodeConfig, name: str) -> Policy:
    """`name` empty: the config's solver. Reads every byte of the policy, for its digest.

    Raises CheckpointError for a run without a usable checkpoint, ModelError for no such model.
    """
    from codezero.models.digest import weights_digest

    for path in (Path(config.run.directory) / name, Path(os.path.expanduser(name))):
        if name and (path / CHECKPOINTS).is_dir():
            whole = newest(path / CHECKPOINTS, lambda folder: check_files(folder, read_manifest(folder)))
            return _in_checkpoint(whole, path)
        if name and (path / SOLVER).is_dir():
            run = path.parent.parent if path.parent.name == CHECKPOINTS else None
            return _in_checkpoint(path, run)
    base, model = Path(config.run.directory), name or config.model.solver
    if name and (base / name / LABEL).is_file():
        raise ModelChoiceError(f"{name} has no checkpoint yet; let it train a little with `codezero run`")
    if name and "/" not in name and name not in EMBEDDED and not Path(name).is_dir():
        raise ModelChoiceError(f"{name} is no run below {base}, no folder and no model's id, OWNER/NAME")
    return Policy(model, model, weights_digest(source_of(model, "solver")))


def load_found(config: NodeConfig, policy: Policy, say: Say) -> "LoadedModel":
    """Ready to sample. Raises ModelError and CheckpointError."""
    loaded = load(config, policy.source, "solver", say)
    if policy.adapter is None:
        return loaded
    from codezero.models.load import add_adapter, load_adapter
    from codezero.solver.policy_files import UNREADABLE, check_base

    fault = f"the adapter in {policy.adapter} cannot be used"
    with translated(CheckpointError, fault, *UNREADABLE, msgspec.MsgspecError):
        settings = msgspec.json.decode((policy.adapter / "adapter_config.json").read_bytes(), type=AdapterSettings)
        targets = settings.target_modules
        targets = [targets] if isinstance(targets, str) else targets
        adapted = add_adapter(loaded, rank=settings.r, alpha=settings.lora_alpha, targets=targets)
        assert adapted.base is not None  # it has just been put there
        check_base(adapted.base, policy.adapter)
        load_adapter(adapted.model, policy.adapter)
    adapted.model.requires_grad_(False).train(False)
    return adapted


def _in_checkpoint(folder: Path, run: Path | None) -> Policy:
    from codezero.models.digest import Base, weights_digest
    from codezero.solver.policy_files import ADAPTER, BASE, MODEL

    name = f"{run.name if run else folder.parent.name}/{folder.name}"
    model, adapter = folder / SOLVER / MODEL, folder / SOLVER / ADAPTER
    fault = f"the policy in {folder / SOLVER} cannot be read"
    with translated(CheckpointError, fault, ModelError, OSError, ValueError, RecursionError):
        if model.is_dir():
            return Policy(name, str(model), weights_digest(str(model)), run=run)
        base = msgspec.json.decode((adapter / BASE).read_bytes(), type=Base)
        settings = hashlib.sha256((adapter / "adapter_config.json").read_bytes()).hexdigest()
        together = f"{base.digest} {weights_digest(str(adapter))} {settings}"
    return Policy(name, base.name, hashlib.sha256(together.encode()).hexdigest(), adapter, run)
