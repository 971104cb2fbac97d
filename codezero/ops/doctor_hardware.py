"""A process of its own: does torch load, does the device compute, and do the models fit? Prints findings as JSON lines.

A driver that is broken hangs or crashes this process and not the doctor.
"""

import dataclasses
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from codezero.config import NodeConfig
from codezero.errors import ModelError
from codezero.ops.doctor_machine import Finding, fail, ok
from codezero.settings import compose

GIB = 2**30


def main(overrides: Sequence[str]) -> None:
    config = compose(overrides)
    _tell("torch", _torch())
    from codezero.models.device import choose_device

    try:
        where = choose_device(config.model.device, "solver")
    except ModelError as error:
        _tell("device", fail(str(error)))
        return
    _tell("device", _device(config))
    _tell("memory", _memory(config, overrides, where.type))


def _torch() -> Finding:
    try:
        import torch
    except (ImportError, OSError) as error:
        return fail(f"torch cannot be loaded: {str(error).splitlines()[0]}", "install again: remove .venv/")
    return ok(f"{torch.__version__}, built for {'CUDA ' + torch.version.cuda if torch.version.cuda else 'the CPU'}")


def _device(config: NodeConfig) -> Finding:
    """A real kernel, forward and backward, compared with the CPU's."""
    from codezero.models.device import choose_device, choose_precision, prove_device

    where = choose_device(config.model.device, "solver")
    dtype = choose_precision(config.model.precision, where)
    try:
        prove_device(where, dtype)
    except ModelError as error:
        return fail(str(error))
    return ok(f"{where.type} computes in {str(dtype).removeprefix('torch.')}")


def _memory(config: NodeConfig, overrides: Sequence[str], device: str) -> Finding:
    """The same estimate, and the same refusal, that a run begins with."""
    from codezero.wiring.hardware import settled, weigh

    with tempfile.TemporaryDirectory() as nowhere:  # what `auto` chooses is not kept
        config = settled(config, overrides, Path(nowhere))
    try:
        need, has, _ = weigh(config)
    except ModelError as error:
        return fail(str(error))
    said = f"{has.free / GIB:.1f} of {has.total / GIB:.1f} GiB free on {device}"
    if need is None:
        return judge_memory(said, None, "", has.free)
    return judge_memory(said, need.total, str(need), has.free)


def judge_memory(said: str, need: float | None, told: str, free: int) -> Finding:
    """need, free: bytes; None: of embedded models, which need less than a GiB."""
    if need is None:
        mend = "end what uses it"
        return ok(f"{said}; the embedded models need less than one") if free >= GIB else fail(said, mend)
    if need > free:
        return fail(f"{said}, and this node needs about {told}", "choose a smaller profile= or model.solver=")
    return ok(f"{said}; this node needs about {told}")


def _tell(check: str, finding: Finding) -> None:
    print(json.dumps(dataclasses.asdict(finding.named(check))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
