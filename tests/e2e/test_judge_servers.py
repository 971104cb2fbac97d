"""Judges behind other people's servers, as they are installed: what they give, and what `doctor` says of them.

Slow, and skipped where a server is not installed; `scripts/test_vllm.sh` has both."""

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from builders.models import byte_tokenizer, tiny_policy

from codezero.code.parsing import fence
from codezero.config import EvaluatorConfig
from codezero.evaluator.judge_prompts import FLOOR
from codezero.evaluator.openai_judge import GAPS, OpenAIJudge
from codezero.evaluator.types import Program
from codezero.models.chat import encode_completions
from codezero.nano import weights_directory
from codezero.ops import doctor_network as network
from codezero.ops.doctor import CheckState

PROGRAM = Program("Write a function f(x) that returns x.", "def f(x):\n    return x + 1")
SERVING = ("fastapi", "uvicorn")
START_SECONDS = 420.0
pytestmark = [pytest.mark.long, pytest.mark.timeout(900), pytest.mark.filterwarnings("default")]


def needs(*modules: str) -> pytest.MarkDecorator:
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


@contextlib.contextmanager
def started(folder: Path, *words: str) -> Iterator[str]:
    """Its address, once it answers; ends the server and its children."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", *words, "--host", "127.0.0.1", "--port", str(port)]
    offline = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    output = folder / "server.log"
    with output.open("wb") as log:
        process = subprocess.Popen(command, env=offline, stdout=log, stderr=log, start_new_session=True)
    try:
        until = time.monotonic() + START_SECONDS
        while not answers(f"{url}/health"):
            assert process.poll() is None and time.monotonic() < until, output.read_text(errors="replace")[-3000:]
            time.sleep(0.5)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def answers(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as response:
        return response.status == 200
    return False


@needs("vllm", *SERVING)
def test_vllm_gives_the_likelihood_of_a_program_by_its_prompt(tmp_path: Path) -> None:
    """Token for token that of the same model in this process. The model is random: it answers no question."""
    made = tiny_policy(hidden=128, scale=0.1)
    made.model.save_pretrained(tmp_path / "model")
    made.tokenizer.save_pretrained(tmp_path / "model")
    words = ["vllm.entrypoints.openai.api_server", "--model", str(tmp_path / "model"), "--served-model-name", "judge"]
    with started(tmp_path, *words, "--dtype", "float32", "--enforce-eager", "--max-model-len", "512") as url:
        config = EvaluatorConfig(kind="openai", url=url, model="judge", seconds=60.0)
        found = network.judge(config)
        with OpenAIJudge(config) as judge:
            judge.check()
            (reading,) = judge.read([PROGRAM], frozenset(GAPS))
    assert found.state is CheckState.OK and "answers (vLLM 0." in found.text and "weaker" not in found.text
    opening, _, code = fence(PROGRAM.code).partition("\n")
    head, body = encode_completions(byte_tokenizer(), [f"{PROGRAM.question}\n\n{opening}\n", code])
    with torch.no_grad():
        logits = made.model(input_ids=torch.tensor([[*head, *body]])).logits[0, len(head) - 1 : -1]
    scores = logits.log_softmax(-1)
    gaps = (scores.gather(-1, torch.tensor(body)[:, None])[:, 0] - scores.max(-1).values).clamp(min=FLOOR)
    assert reading.scores is not None
    given = dict(zip(judge.names, reading.scores, strict=True))
    assert given["least_gap"] == pytest.approx(float(gaps.min()), abs=1e-3)
    assert given["mean_gap"] == pytest.approx(float(gaps.mean()), abs=1e-3)


@needs(*SERVING)
def test_transformers_serve_cannot_be_a_judge_and_doctor_says_why(tmp_path: Path) -> None:
    """It takes the request and answers without log-probabilities: no judge, rather than one that always abstains."""
    model = str(weights_directory("judge"))
    with started(tmp_path, "transformers.cli.transformers", "serve", "--device", "cpu", model) as url:
        found = network.judge(EvaluatorConfig(kind="openai", url=url, model=model, seconds=60.0))
    assert found.state is CheckState.FAIL
    assert "no log-probabilities" in found.text and "does not tell its version" in found.text
