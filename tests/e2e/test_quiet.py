"""The README's first command, begun and resumed, watched by strace: it asks nobody, no connection and no name, and
executes nothing that was generated, in any of its processes.

Does not show: extras that are not installed here (vLLM, wandb, gradio), whose variables are set with the others."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from e2e.test_run import command

from codezero.code import worker as guard

CALLS = re.compile(
    r'^\d+ +(?:connect|send\w+)\(.*?sin6?_port=htons\((\d+)\).*?(?:inet_addr\(|inet_pton\(AF_INET6, |, )"([^"]+)"'
)
LOOPBACK = re.compile(r"127\.|::1$|::ffff:127\.")
EXECUTED = re.compile(r'^\d+ +execve\("([^"]*)", \["[^"]*"(?:, )?(.*?)\], 0x')
BEGUN = re.compile(r"^\d+ +exec")
MONTY = ("monty", '"subprocess"')
NAMESPACE = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
STRACE = ["strace", "-f", "-qq", "-s", "4096", "-e", "trace=execve,execveat,connect,sendto,sendmsg,sendmmsg", "-o"]
PROBE = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 53))"


def strangers(trace: Path) -> list[str]:
    """Calls to elsewhere, and to a resolver of names anywhere."""
    found = [match for line in trace.read_text().splitlines() if (match := CALLS.search(line))]
    return [match[0] for match in found if match[1] == "53" or not LOOPBACK.match(match[2])]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of a node's beginning and of its second life, without a network."""
    folder = tmp_path_factory.mktemp("quiet")
    if not (shutil.which("strace") and shutil.which("unshare") and shutil.which("ip")):
        pytest.skip("needs strace, unshare and ip")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HF_", "DO_NOT_TRACK", "VLLM_", "WANDB_"))
    }
    environment = kept | {"HF_HOME": str(folder / "hub")}  # what the hub's library caches hides that it asks
    words = [*NAMESPACE, *STRACE]
    probe = subprocess.run([*words, folder / "probe", sys.executable, "-c", PROBE], capture_output=True, text=True)
    if not (folder / "probe").exists() or not strangers(folder / "probe"):
        pytest.skip(f"this machine does not let a namespace be watched: {probe.stderr.strip()[-200:]}")
    traces = [folder / "trace-1", folder / "trace-2"]
    for iterations, trace in enumerate(traces, 1):
        settings = (f"run.max_iterations={iterations}", "evals.problems=5", f"login.directory={folder / 'login'}")
        node = command(folder, *settings, "login.page=on")
        done = subprocess.run([*words, trace, *node], capture_output=True, text=True, timeout=400, env=environment)
        assert done.returncode == 0 and f"after iteration {iterations}" in done.stdout, done.stderr
    return traces


@pytest.mark.slow
def test_a_swarm_of_one_asks_nobody(traces: list[Path]) -> None:
    assert not [call for trace in traces for call in strangers(trace)]


@pytest.mark.slow
def test_no_generated_code_is_ever_executed(traces: list[Path]) -> None:
    """Only this node, its page and chain, its static pass and the exam's interpreter are started."""
    ended = re.compile(r"ENOENT|<\.\.\. execve resumed>")  # the second: where two start at once, its begin has a line
    lines = [
        line
        for trace in traces
        for line in trace.read_text().splitlines()
        if BEGUN.match(line) and not ended.search(line)
    ]
    understood = [found for line in lines if (found := EXECUTED.search(line))]
    assert len(understood) == len(lines) > 0
    started = {(Path(found[1]).name, found[2].removeprefix('"-P", ')) for found in understood}
    python = Path(sys.executable).name
    of_python = {arguments for name, arguments in started if name == python}
    nodes = {each for each in of_python if each.startswith('"-m", "codezero", "run"')}
    pages = {each for each in of_python if each.startswith('"-m", "codezero", "dashboard", "--json"')}
    chains = {each for each in of_python if each.startswith('"-m", "codezero.chain.devchain_server"')}
    guards = {each for each in of_python if each.startswith(f'"-I", "-c", "{guard._RUN_CHILD}"')}
    assert len(nodes) == 2 and pages and chains and guards and MONTY in started
    # How Python looks for a shared library where no compiler is installed
    linker = {each for each in started if each[0] in ("ldconfig", "ldconfig.real") and each[1] == '"-p"'}
    assert started == {MONTY, *linker, *((python, each) for each in nodes | pages | chains | guards)}
    assert not any("def " in arguments for _, arguments in started)


def test_no_library_reports_where_it_could(tmp_path: Path) -> None:
    """Whoever imports a part of this package alone, and starts children, is as quiet."""
    code = "import codezero, subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"
    check = "from huggingface_hub import constants; from datasets import config; "
    check += "assert constants.HF_HUB_DISABLE_TELEMETRY and not config.HF_UPDATE_DOWNLOAD_COUNTS"
    subprocess.run([sys.executable, "-c", code, check], check=True)
