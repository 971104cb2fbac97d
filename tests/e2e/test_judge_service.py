"""`codezero judge serve` with the embedded judge, asked as rl-swarm's client asks, and its receipts read again."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from codezero.code.parsing import fence
from codezero.market.judge_service import Receipt, SignedReceipt, signed_bytes
from codezero.problems.synthetic.tasks import worked
from codezero.swarm.identity import Identity

CODEZERO = [sys.executable, "-m", "codezero", "judge"]
TASKS = [worked(Random(f"judged {number}")) for number in range(16)]
ITEMS = [
    {"question": task.problem.question, "tests": list(task.problem.tests), "completion": fence(code)}
    for task in TASKS
    for code in (task.right[0], task.wrong[0])
]
KERNELS = {
    "as they are": {},
    "one thread": {"OMP_NUM_THREADS": "1"},
    "default": {"ATEN_CPU_CAPABILITY": "default"},
    "sse41": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("judge")


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    command = [*CODEZERO, "serve", "--port", "0", "--json", "evaluator.canaries=120"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
        process.terminate()


def post(url: str, body: object) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=120))


def verify(folder: Path, *words: str, **environment: str) -> tuple[int, Any]:
    command, environ = [*CODEZERO, "verify", "items.json", *words, "--json"], os.environ | environment
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=300)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


def forged(folder: Path, answer: dict[str, Any], name: str) -> None:
    """The receipt with one step too much in every reading, signed by another judge."""
    whole = msgspec.convert(answer, SignedReceipt)
    readings = tuple(
        msgspec.structs.replace(reading, scores=tuple(score + 2 for score in reading.scores or ()))
        for reading in whole.receipt.readings
    )
    claimed, identity = Receipt(whole.receipt.judge, readings), Identity.load_or_create(folder / f"{name}.pem")
    signature = identity.sign(signed_bytes(claimed)).hex()
    (folder / name).write_bytes(msgspec.json.encode(SignedReceipt(claimed, identity.public_key_bytes.hex(), signature)))


@pytest.mark.slow
def test_the_clients_questions_are_scored(url: str) -> None:
    """Whatever is asked the judge can tell: some of the embedded problems are unlike its canaries'."""
    for number in range(24):
        asked = post(f"{url}/request-question/", {"user_id": "Qm", "round_number": number, "model_name": "m"})
        answer = f"system\nYou code.\nuser\n{asked['question']}\nassistant\n{fence('def nothing(): pass')}"
        body = {"session_id": asked["session_id"], "round_number": number, "user_answer": answer}
        given = post(f"{url}/submit-answer/", body)
        assert 0 <= given["score"] < 0.5 and given["prompt_removed"] and given["verdict"]["reasons"]


@pytest.mark.slow
def test_a_receipt_is_read_again_and_a_forged_one_is_refuted(url: str, folder: Path) -> None:
    result = post(f"{url}/v1/verdicts", {"items": ITEMS})
    rewards = [verdict["reward"] for verdict in result["verdicts"]]
    assert all(reward >= 0.5 for reward in rewards[::2]) and all(reward < 0.5 for reward in rewards[1::2])
    (folder / "items.json").write_text(json.dumps({"items": ITEMS}))
    (folder / "receipt.json").write_text(json.dumps(result))
    code, verified = verify(folder, "receipt.json")
    assert code == 0 and len(verified["read"]) == 1 and not verified["refuted"]
    forged(folder, result, "forged.json")
    code, verified = verify(folder, "forged.json", "--item", "19")
    assert code == 1 and list(verified["refuted"]) == ["19"] and not verified["read"]
    receipt = result["receipt"] | {"readings": result["receipt"]["readings"][::-1]}
    (folder / "changed.json").write_text(json.dumps(result | {"receipt": receipt}))
    code, words = verify(folder, "changed.json")
    assert code == 1 and "not of this receipt" in words
    code, words = verify(folder, "receipt.json", "--item", "99")
    assert code == 2 and "--item=99" in words


READ_ALL = """
import sys, msgspec
from pathlib import Path
from random import Random
from codezero.code.parsing import fence
from codezero.code.worker import StaticGuard
from codezero.market.judge_service import ReceiptItem, as_group
from codezero.problems.synthetic.tasks import worked
from codezero.settings import compose
from codezero.ops.judge import ExactReader
tasks = [worked(Random(f"exact {number}")) for number in range(500)]
items = [ReceiptItem(task.problem.question, task.problem.tests, fence(code))
         for task in tasks for code in (task.right[0], task.wrong[0])]
with StaticGuard() as guard:
    read = ExactReader(compose([]), guard, print).read([as_group(item) for item in items])
Path(sys.argv[1]).write_bytes(msgspec.json.encode(read))
"""


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_thousand_programs_read_the_same_on_every_kernel_set(tmp_path: Path) -> None:
    readings: dict[str, list[list[int] | None]] = {}
    for name, environment in KERNELS.items():
        path = tmp_path / f"{name}.json"
        subprocess.run([sys.executable, "-c", READ_ALL, str(path)], env=os.environ | environment, check=True)
        readings[name] = json.loads(path.read_text())
    first = readings["as they are"]
    assert len(first) == 1000 and sum(read is not None for read in first) > 950
    for other in readings.values():
        for one, two in zip(first, other, strict=True):
            assert (one is None) == (two is None)
            assert all(abs(a - b) <= 1 for a, b in zip(one or [], two or [], strict=True))
