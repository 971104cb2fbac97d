"""Each profile's estimate against what a process really took: its models' widths and vocabulary, some layers deep.

On a CPU in float32, with random weights and texts a quarter as long as the profile lets them get. It shows what the
formula counts beside the process itself, and not what a card's allocator and kernels add. It begins when the models are
read: until then the kernel counts the pages of their files too, which it takes back when they are needed."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from codezero.models.memory import GIB

BUILD = """
import sys
import torch
from builders.models import PAD, byte_tokenizer
from transformers import Qwen2Config, Qwen2ForCausalLM
from codezero.models.memory import KNOWN

for name, folder in zip(sys.argv[2::2], sys.argv[3::2], strict=True):
    config = Qwen2Config(**(KNOWN[name] | {"num_hidden_layers": int(sys.argv[1])}), pad_token_id=PAD, bos_token_id=None)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        model = Qwen2ForCausalLM(config)
    model.to_empty(device="cpu")  # random numbers for each of billions would take minutes
    for weight in model.parameters():
        weight.data = (0.02 * torch.randn(4096)).repeat(-(-weight.numel() // 4096))[: weight.numel()].view_as(weight)
    model.tie_weights()
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
"""
MEASURE = """
import sys
from contextlib import ExitStack
import datasets, peft, transformers.trainer, trl
from builders.models import forget_peak, peak_memory
from codezero.code.worker import StaticGuard
from codezero.evaluator.types import Program
from codezero.models import generation
from codezero.models.generation import OwnLoop
from codezero.settings import compose
from codezero.solver.batch import Batch, TrainingRow
from codezero.evaluator.build import build_judge
from codezero.models.hardware import estimate
from codezero.models.build import FrozenModels
from codezero.solver.build import build_learner, load_policy

generation.MERGE_ROOM = float("inf")  # the merged copy is made where much is free, and not needed
before = peak_memory()
config = compose(sys.argv[1:])
solves, P, T = config.solver, config.solver.max_prompt_tokens, config.solver.max_new_tokens
need = estimate(config, "cpu", 4)
policy = load_policy(config, print)
models = FrozenModels(config, print, policy)
with ExitStack() as stack:
    judge = build_judge(config, stack, print, models, stack.enter_context(StaticGuard()))
    writer = None if config.proposer.model == "off" else models.load(config.proposer.model, "proposer")
    learner = build_learner(config, policy)
    forget_peak()
    prompt = tuple(range(3, 3 + P))
    rows = [TrainingRow(prompt, (7,) * T, (-1.0,) * T, 1.0) for _ in range(solves.micro_batch_rows)]
    OwnLoop(policy).draw([prompt], solves.group_size, 4, 1.0, 0)
    programs = [Program("q" * P, chr(97 + i) * (T - 16)) for i in range(config.evaluator.batch_rows)]
    judge.read(programs, frozenset(judge.names))
    if writer is not None:
        OwnLoop(writer).draw([prompt], 1, 4, 1.0, 0)
    for _ in range(2):  # the second has moments beside its gradients
        learner.update(Batch(tuple(rows)))
print(need)
print(peak_memory() - before, need.total - need.process)
"""
MODELS = {"0.5": "Qwen/Qwen2.5-Coder-0.5B-Instruct", "1.5": "Qwen/Qwen2.5-Coder-1.5B-Instruct",
          "3": "Qwen/Qwen2.5-Coder-3B-Instruct", "7": "Qwen/Qwen2.5-Coder-7B-Instruct"}  # fmt: skip
WITHOUT_BNB = pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is None, reason="without the extra `bnb`")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process cannot tell its own peak of memory apart")
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("profile", "solver", "judge", "layers", "more"),
    [
        ("laptop", "0.5", "1.5", 12, []),
        ("gpu-8g", "1.5", "1.5", 4, []),
        ("gpu-12g", "3", "3", 4, []),
        pytest.param("gpu-12g", "3", "3", 4, ["model.quantize=nf4", "solver.micro_batch_rows=6"], marks=WITHOUT_BNB),
        pytest.param("gpu-16g", "7", "7", 3, [], marks=WITHOUT_BNB),
        ("gpu-24g", "7", "7", 2, []),
        ("gpu-24g", "0.5", "1.5", 4, ["model.train=full", "model.activation_checkpointing=off", "solver.kl_beta=0.1"]),
        pytest.param(
            "gpu-24g", "0.5", "1.5", 4, ["model.train=full", "solver.optimizer=adamw_8bit"], marks=WITHOUT_BNB
        ),
        ("gpu-80g", "1.5", "1.5", 2, ["model.train=full", "solver.micro_batch_rows=4"]),
    ],
)
def test_the_estimate_is_what_the_profile_takes(
    profile: str, solver: str, judge: str, layers: int, more: list[str], tmp_path: Path
) -> None:
    """Never less than 0.95 of it, never more than 1.2. All at once of gpu-80g would not fit a common machine."""
    names = {size: tmp_path / f"{size}B" for size in (solver, judge)}
    run(BUILD, str(layers), *(word for size, folder in names.items() for word in (MODELS[size], str(folder))))
    words = [f"profile={profile}", "model.device=cpu", "model.precision=float32", "model.activation_checkpointing=on"]
    words += [f"model.solver={names[solver]}", f"evaluator.model={names[judge]}"]
    words += ["evals.every=0", "solver.max_prompt_tokens=256"]
    words += [f"proposer.model={names[judge]}"] if profile != "laptop" else []
    *_, need, figures = run(MEASURE, *words, "solver.max_new_tokens=96", *more).splitlines()
    measured, estimated = map(float, figures.split())
    sizes = f"{measured / GIB:.2f} GiB measured, {estimated / GIB:.2f} estimated"
    print(f"{profile} {more}: {estimated / measured:.2f}; {sizes}: {need}")
    assert 0.95 * measured <= estimated <= 1.2 * measured, (measured / GIB, need)


def run(code: str, *words: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
