"""Devices: CPU_ONLY means it, a card that cannot work is named, memory is what a container leaves of it."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch

from codezero.errors import ModelError
from codezero.models import HIDING, cpu_only, isolate
from codezero.models import device as device_module
from codezero.models.device import choose_device, choose_precision, memory_of, prove_device

A_NODE_WITH_A_CARD = """
import os, sys
import codezero
from codezero.cli import main
assert main(["config", "show"]) == 0  # hides what is to be hidden, before torch
assert "torch" not in sys.modules
import torch

class Touched(BaseException):
    pass

def hidden():
    return os.environ.get("CUDA_VISIBLE_DEVICES") == ""

def touching():
    def function(*_, **__):  # one for each name: torch tells them apart
        raise Touched
    return function

for name in ("init", "_lazy_init", "current_device", "mem_get_info", "get_device_capability", "get_device_properties",
             "get_device_name", "set_device", "synchronize", "empty_cache", "is_bf16_supported"):
    setattr(torch.cuda, name, touching())

def asked(answer):
    def function(*_, **__):
        if sys._getframe(1).f_code.co_filename.startswith(codezero.__path__[0]):
            raise Touched  # a library may ask, and is told that there is none
        return answer()
    return function

torch.cuda.is_available = asked(lambda: not hidden())
torch.cuda.device_count = asked(lambda: 0 if hidden() else 1)

from codezero.config import SolverConfig
from codezero.models.load import load_model
from codezero.models.generation import Sampler
from codezero.nano import weights_directory
from codezero.solver.batch import Batch, TrainingRow
from codezero.solver.learner import TrlLearner
from accelerate.utils import release_memory
from codezero.models.device import memory_of

try:
    policy = load_model(str(weights_directory("solver")), role="solver", for_training=True)
    learner = TrlLearner(policy, SolverConfig(minibatches=1, kl_beta=0.1))
    done = learner.update(Batch((TrainingRow((5, 6), (7, 8), (-1.0, -1.0), 1.0),)))
    Sampler(policy).sample(["x"], group_size=2, max_new_tokens=4, temperature=1.0, generator_seed=0)
    release_memory()
    print("learned on", policy.device, done.rows, memory_of(policy.device).free > 0)
except Touched:
    print("touched")
"""


def child(code: str, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in ("CPU_ONLY", *HIDING)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean | environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize(("value", "line"), [("1", "learned on cpu 1 True"), ("0", "touched")])
def test_cpu_only_never_touches_a_card(value: str, line: str):
    assert child(A_NODE_WITH_A_CARD, CPU_ONLY=value) == line


@pytest.mark.parametrize(("value", "meant"), [("1", True), ("true", True), ("", False), ("0", False), ("No", False)])
def test_what_cpu_only_means(value: str, meant: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CPU_ONLY", value)
    for name in (*HIDING, "ACCELERATE_USE_CPU"):
        monkeypatch.setenv(name, "3")  # put back afterwards
    assert cpu_only() == meant
    isolate()
    assert {os.environ[name] for name in HIDING} == ({""} if meant else {"3"})


LAUNCHED = {
    "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "NODE_RANK": "0",
    "MASTER_ADDR": "10.255.255.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "x", "PMI_SIZE": "2",
    "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "MPI_LOCALRANKID": "1", "ACCELERATE_USE_FSDP": "true",
    "ACCELERATE_MIXED_PRECISION": "fp16", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "4", "FSDP_OFFLOAD_PARAMS": "true",
    "ACCELERATE_USE_CPU": "true",
}  # fmt: skip
"""Of a shell within a job of torchrun, accelerate or MPI."""


def test_a_launchers_job_is_not_read(monkeypatch: pytest.MonkeyPatch):
    kept = {"OMP_NUM_THREADS": "1", "NCCL_DEBUG": "WARN", "MASTER": "x", "PROFANK": "1", "CPU_ONLY": ""}
    for name, value in (LAUNCHED | kept).items():
        monkeypatch.setenv(name, value)
    isolate()
    assert not LAUNCHED.keys() & os.environ.keys()
    assert {name: os.environ[name] for name in kept} == kept


def test_cpu_only_and_a_card_contradict_each_other(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CPU_ONLY", "1")
    assert choose_device("auto", "solver") == choose_device("cpu", "solver") == torch.device("cpu")
    with pytest.raises(ModelError, match=r"CPU_ONLY is set and model\.device=cuda"):
        choose_device("cuda", "solver")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_this_machine_runs_the_tiny_kernel(dtype: torch.dtype):
    prove_device(torch.device("cpu"), dtype)


def test_a_device_that_cannot_run_it_is_named():
    """`meta` computes nothing, so that nothing can be read back from it."""
    with pytest.raises(ModelError, match=r"^the meta device cannot run .* built for meta, version .* CPU_ONLY=1"):
        prove_device(torch.device("meta"), torch.float32)


def test_a_device_that_computes_nonsense_is_named(monkeypatch: pytest.MonkeyPatch):
    right = device_module._kernel
    wrong = {torch.float32: float("nan"), torch.bfloat16: 0.5}
    monkeypatch.setattr(device_module, "_kernel", lambda where, dtype: right(where, dtype) + wrong.get(dtype, 0.0))
    for dtype in wrong:
        with pytest.raises(ModelError, match=f"{dtype} is wrong by"):
            prove_device(torch.device("cpu"), dtype)


@pytest.mark.parametrize(("supported", "precision"), [(True, torch.bfloat16), (False, torch.float32)], ids=str)
def test_half_precision_where_the_card_computes_in_it(
    supported: bool, precision: torch.dtype, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    assert choose_precision("auto", torch.device("cuda")) == precision
    assert choose_precision("auto", torch.device("cpu")) == torch.float32
    assert choose_precision("float16", torch.device("cuda")) == torch.float16


def groups(root: Path, own: str, files: dict[str, tuple[object, int, int]], version: int = 2) -> Path:
    """A tree with /proc/self/cgroup, and control groups by their folder: limit, use, and what of it is cached."""
    limit, use, cached = (device_module.VERSION_1, device_module.VERSION_2)[version - 1]
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(own)
    for place, (most, used, back) in files.items():
        folder = root / "sys/fs/cgroup" / place
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in ((limit, most), (use, used), ("memory.stat", f"anon 5\n{cached} {back}")):
            (folder / name).write_text(f"{text}\n")
    return root


SERVICE, JOB = "0::/system.slice/codezero.service\n", "9:memory:/slurm/uid_1/job_5/step_0\n4:cpu:/slurm\n0::/\n"
NONE, UNLIMITED = ("max", 900, 0), (0x7FFFFFFFFFFFF000, 900, 0)
TREES = {
    "a container": ("0::/\n", {".": (4096, 700, 200)}, 2, (3596, 4096)),
    "no namespace": ("0::/docker/f00\n", {".": (4096, 700, 200)}, 2, (3596, 4096)),
    "MemoryMax": (SERVICE, {"system.slice": NONE, "system.slice/codezero.service": (4096, 700, 200)}, 2, (3596, 4096)),
    "a slice's": (SERVICE, {"system.slice": (4096, 700, 0), "system.slice/codezero.service": NONE}, 2, (3396, 4096)),
    "a slice that others fill": (
        SERVICE,
        {"system.slice": (9999, 9900, 0), "system.slice/codezero.service": (4096, 700, 200)},
        2,
        (99, 4096),
    ),
    "more is used": ("0::/\n", {".": (4096, 5000, 0)}, 2, (0, 4096)),
    "docker, version 1": ("", {"memory": (4096, 700, 200)}, 1, (3596, 4096)),
    "slurm, version 1": (JOB, {"memory": UNLIMITED, "memory/slurm/uid_1/job_5": (4096, 700, 200)}, 1, (3596, 4096)),
}


@pytest.mark.parametrize("name", TREES)
def test_the_least_of_the_control_groups_counts(name: str, tmp_path: Path):
    own, files, version, expected = TREES[name]
    memory = memory_of(torch.device("cpu"), root=groups(tmp_path, own, files, version))
    assert (memory.free, memory.total) == expected


@pytest.mark.parametrize(
    ("own", "files", "version"),
    [
        ("", {}, 2),
        ("0::/a\nnonsense\n", {".": NONE, "a": NONE, "b": (1, 1, 0)}, 2),
        ("4:cpu:/b\n", {"memory": UNLIMITED, "memory/b": (1, 1, 0)}, 1),
        ("0::/../a\n", {"a": ("words", 1, 0)}, 2),
    ],
)
def test_where_no_own_group_has_a_limit_the_machine_counts(
    own: str, files: dict[str, tuple[object, int, int]], version: int, tmp_path: Path
):
    memory = memory_of(torch.device("cpu"), root=groups(tmp_path, own, files, version))
    assert memory.total == psutil.virtual_memory().total


def test_a_share_is_of_the_whole():
    whole, half = memory_of(torch.device("cpu")), memory_of(torch.device("cpu"), 1e-6)
    assert 0 < half.free <= 1e-6 * whole.total < whole.free
