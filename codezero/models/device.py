"""The device of a model: which one, in which precision, whether it works, how much memory it has."""

# pyright: reportUnknownMemberType=false, reportPrivateUsage=false

import contextlib
import ctypes
import itertools
import os
import shutil
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import torch
from torch import Tensor

from codezero.errors import ModelChoiceError, ModelError
from codezero.models import VARIABLE, cpu_only

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# largest error of the tiny kernel, relative to its largest number; cards may compute float32 in fewer bits
TOLERANCE = {torch.float32: 1e-2, torch.bfloat16: 0.1, torch.float16: 0.05}
# files of a control group, and the counter in memory.stat that the kernel would give back
VERSION_2 = "memory.max", "memory.current", "inactive_file"
VERSION_1 = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
M_MMAP_THRESHOLD, LARGE_BLOCK = -3, 4 << 20  # from glibc's malloc.h; bytes
OUT_OF_MEMORY = ("out of memory", "can't allocate memory")  # of allocators without an error class (CPU, MPS)


class DeviceMemory(NamedTuple):
    """Memory in bytes."""

    free: int
    total: int


def choose_device(device: str, role: str) -> torch.device:
    """auto: CUDA, then Apple's MPS, then the CPU. Raises ModelChoiceError when the chosen device is not there."""
    if cpu_only():
        if device not in ("auto", "cpu"):
            raise ModelChoiceError(f"{role}: {VARIABLE} is set and model.device={device}; drop one of the two")
        return torch.device("cpu")
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if device == "auto":
        return torch.device(next(kind for kind, there in present.items() if there))
    if not present.get(device, False):
        raise ModelChoiceError(
            f"{role}: no {device} device here; set model.device=auto, or profile=auto, which chooses what fits"
        )
    return torch.device(device)


def choose_precision(precision: str, device: torch.device) -> torch.dtype:
    """auto: bfloat16 on CUDA cards that compute in it (from capability 8.0 on), else float32."""
    if precision != "auto":
        return PRECISIONS[precision]
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.bfloat16
    return torch.float32


def computes_bfloat16() -> bool:
    """True where this CPU multiplies in bfloat16 itself (AVX512-BF16 or AMX). Others are slower in it than in
    float32."""
    checks = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(check is not None and check() for check in checks)


def compiles_kernels() -> bool:
    """True where Triton can build its kernels: with a C compiler, and the headers of this Python."""
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("gcc", "cc", "clang")), "")
    return bool(shutil.which(compiler)) and Path(sysconfig.get_path("include"), "Python.h").is_file()


def prove_device(device: torch.device, dtype: torch.dtype) -> None:
    """Run a matmul, a softmax and their backward pass there, and compare. Raises ModelError that names the card. A card
    that this build of torch does not support fails only at its first kernel, with an obscure message."""
    try:
        off = float((_kernel(device, dtype) - _kernel(torch.device("cpu"), torch.float64)).abs().max())
        if not off <= TOLERANCE[dtype]:  # NaN is not either
            raise RuntimeError(f"{dtype} is wrong by {off:.2g}")
    except RuntimeError as error:
        card, built_for = f"the {device.type} device", f"{device.type}, version {torch.__version__}"
        if device.type == "cuda":
            major, minor = torch.cuda.get_device_capability(device)
            card = f"{torch.cuda.get_device_name(device)} (capability {major}.{minor})"
            built_for = ", ".join(torch.cuda.get_arch_list()) or built_for
        if ran_out_of_memory(error):
            raise ModelError(f"{card} has no memory left; end what else uses it, or set {VARIABLE}=1") from error
        reason = (str(error).strip() or "no reason given").splitlines()[0][:200]
        raise ModelError(
            f"{card} cannot run the simplest step ({reason}); this torch was built for {built_for}: install one built "
            f"for the card, set {VARIABLE}=1, or model.precision=float32 where only the precision is missing"
        ) from error


def _kernel(device: torch.device, dtype: torch.dtype) -> Tensor:
    """Gradient [8, 8], float64 on the CPU, of a function with every kind of kernel that training needs."""
    grid = torch.linspace(-1, 1, 64, dtype=torch.float64).view(8, 8)
    leaf = grid.clone().to(dtype).to(device).requires_grad_()  # in this order: not every device has float64
    other = grid.flip(0).to(dtype).to(device)
    ((leaf @ other).softmax(-1) * other).sum().backward()
    assert leaf.grad is not None
    return leaf.grad.detach().cpu().double()


def ran_out_of_memory(error: BaseException) -> bool:
    """True for an allocator's error."""
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in OUT_OF_MEMORY)
    )


def return_freed_memory() -> None:
    """Have glibc give freed tensors of LARGE_BLOCK and more back to the system, for models that are not tiny.

    Else it keeps those below 32 MiB in a heap, in whose holes the next ones do not fit: two updates of an adapter grew
    a process by 1.28 GiB that way and by 0.55 GiB so. It costs an eighth of the time."""
    with contextlib.suppress(OSError, AttributeError):  # no glibc
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)


def keep_to_share(device: torch.device, share: float) -> None:
    """On CUDA, let this process run out of memory at its share rather than another process at its own."""
    if device.type == "cuda" and share < 1:
        torch.cuda.set_per_process_memory_fraction(share, device)


def memory_of(device: torch.device, share: float = 1.0, *, root: Path = Path("/")) -> DeviceMemory:
    """The memory of a process with `share` of the device. On a CPU the limits of control groups count as well."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
    elif device.type == "mps":
        total = torch.mps.recommended_max_memory()
        free = min(total - torch.mps.driver_allocated_memory(), psutil.virtual_memory().available)
    else:
        memory = psutil.virtual_memory()
        free, total = memory.available, memory.total
        for limit, used in _limits(root):
            free, total = max(0, min(free, limit - used)), min(total, limit)
    return DeviceMemory(min(free, int(share * total)), total)


def _limits(root: Path) -> Iterator[tuple[int, int]]:
    """(limit, use without what the kernel would give back) of the own control groups, the parent's and all above."""
    top = root / "sys/fs/cgroup"
    places = {top, top / "memory"}
    for process in ("self", str(os.getppid())):  # `doctor` asks for its parent
        with contextlib.suppress(OSError, ValueError):
            for line in (root / "proc" / process / "cgroup").read_text().splitlines():
                _, controllers, path = line.split(":", 2)
                if not controllers or "memory" in controllers.split(","):
                    own = Path(f"{top / 'memory' if controllers else top}{path}")
                    places |= {own, *own.parents}
    for place, (limit, used, cached) in itertools.product(places, (VERSION_1, VERSION_2)):
        with contextlib.suppress(OSError, ValueError):  # ValueError: "max", which is none
            counters = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
            use = int((place / used).read_text()) - int(counters.get(cached, 0))
            yield int((place / limit).read_text()), use


def measured_flops(half: bool) -> float:
    """Operations a second of products of matrices. half: in bfloat16 where this CPU computes in it."""
    dtype = torch.bfloat16 if half and computes_bfloat16() else torch.float32
    size = 1024
    matrix, seconds = torch.ones(size, size, dtype=dtype), list[float]()
    for _ in range(4):  # the first warms up
        began = time.perf_counter()
        torch.mm(matrix, matrix)
        seconds.append(time.perf_counter() - began)
    return 2 * size**3 / min(seconds[1:])
