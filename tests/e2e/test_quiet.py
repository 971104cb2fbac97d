"""The README's first command, begun and resumed, asks nobody: no connection and no name, in any of its processes.

Does not show: extras that are not installed here (vLLM, wandb, gradio), whose variables are set with the others.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from e2e.test_run import command

CALLS = re.compile(
    r'^\d+ +(?:connect|send\w+)\(.*?sin6?_port=htons\((\d+)\).*?(?:inet_addr\(|inet_pton\(AF_INET6, |, )"([^"]+)"'
)
LOOPBACK = re.compile(r"127\.|::1$|::ffff:127\.")
NAMESPACE = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
STRACE = ["strace", "-f", "-qq", "-s", "0", "-e", "trace=connect,sendto,sendmsg,sendmmsg", "-o"]
PROBE = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 53))"


def strangers(trace: Path) -> list[str]:
    """Calls to elsewhere, and to a resolver of names anywhere."""
    found = [match for line in trace.read_text().splitlines() if (match := CALLS.search(line))]
    return [match[0] for match in found if match[1] == "53" or not LOOPBACK.match(match[2])]


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What runs a command without a network, and writes down whom it wants to reach."""
    for name in [name for name in os.environ if name.startswith(("HF_", "DO_NOT_TRACK", "VLLM_", "WANDB_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))  # what the hub's library caches hides that it asks
    if not (shutil.which("strace") and shutil.which("unshare") and shutil.which("ip")):
        pytest.skip("needs strace, unshare and ip")
    words = [*NAMESPACE, *STRACE, str(tmp_path / "trace")]
    probe = subprocess.run([*words, sys.executable, "-c", PROBE], capture_output=True, text=True)
    if not (tmp_path / "trace").exists() or not strangers(tmp_path / "trace"):
        pytest.skip(f"this machine does not let a namespace be watched: {probe.stderr.strip()[-200:]}")
    return words


def test_a_swarm_of_one_asks_nobody(tmp_path: Path, alone: list[str]) -> None:
    for iterations in (1, 2):
        words = command(tmp_path, "evals.every=0", f"run.max_iterations={iterations}", "login.page=on")
        done = subprocess.run([*alone, *words], capture_output=True, text=True, timeout=400)
        assert done.returncode == 0 and f"after iteration {iterations}" in done.stdout, done.stderr
        assert not strangers(tmp_path / "trace")


def test_no_library_reports_where_it_could(tmp_path: Path) -> None:
    """Whoever imports a part of this package alone, and starts children, is as quiet."""
    code = "import codezero, subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"
    check = "from huggingface_hub import constants; from datasets import config; "
    check += "assert constants.HF_HUB_DISABLE_TELEMETRY and not config.HF_UPDATE_DOWNLOAD_COUNTS"
    subprocess.run([sys.executable, "-c", code, check], check=True)
