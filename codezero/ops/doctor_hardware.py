"""Child process of the doctor: does torch load, does the device compute, do the models fit? Prints JSON lines.

A broken driver hangs or crashes this process and not the doctor.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from codezero.config import NodeConfig
from codezero.errors import ModelError
from codezero.ops.doctor_machine import Finding, fail, ok
from codezero.settings import compose

GIB = 2**30


def main(overrides: Sequence[str]) -> None:
    config = compose(overrides)
    _print("torch", _torch())
    from codezero.models.device import choose_device

    try:
        where = choose_device(config.model.device, "solver")
    except ModelError as error:
        _print("device", fail(str(error)))
        return
    _print("device", _device(config))
    _print("memory", _memory(config, overrides, where.type))


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
    memory = f"{has.free / GIB:.1f} of {has.total / GIB:.1f} GiB free on {device}"
    if need is None:
        return judge_memory(memory, None, "", has.free)
    return judge_memory(memory, need.total, str(need), has.free)


def judge_memory(memory: str, need: float | None, estimate: str, free: int) -> Finding:
    """need, free: bytes; None: of embedded models, which need less than a GiB."""
    if need is None:
        mend = "end what uses it"
        return ok(f"{memory}; the embedded models need less than one") if free >= GIB else fail(memory, mend)
    if need > free:
        return fail(f"{memory}, and this node needs about {estimate}", "choose a smaller profile= or model.solver=")
    return ok(f"{memory}; this node needs about {estimate}")


def _print(check: str, finding: Finding) -> None:
    print(msgspec.json.encode(finding.named(check)).decode(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
