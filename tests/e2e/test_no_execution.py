"""What a node that runs with the settings it ships with asks the operating system to execute."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from codezero.code import worker as guard

EXECUTED = re.compile(r'execve\("([^"]*)", \["[^"]*"(?:, )?(.*?)\], 0x')
MONTY = ("monty", '"subprocess"')


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_no_generated_code_is_ever_executed(tmp_path: Path):
    """Only this node, its page and chain, its static pass and the exam's interpreter are started."""
    trace, settings = tmp_path / "trace", ["run.name=run", "run.max_iterations=3", "evals.problems=5", "evals.every=2"]
    settings += ["evaluator.canaries=80", "solver.problems_per_iteration=2"]
    settings += [f"run.directory={tmp_path}", f"run.logs={tmp_path}/logs", f"swarm.identity={tmp_path}/swarm.pem"]
    settings += [f"chain.directory={tmp_path}/chain", f"chain.wallet={tmp_path}/wallet.json"]
    settings += [f"login.directory={tmp_path}/login"]
    command = [sys.executable, "-m", "codezero", "run", *settings]
    strace = ["strace", "-f", "-qq", "-s", "4096", "-e", "trace=execve,execveat", "-o", str(trace)]
    done = subprocess.run([*strace, *command], capture_output=True, text=True, timeout=300)
    if "ptrace" in done.stderr and not (tmp_path / "run").exists():
        pytest.skip(f"this machine does not let strace watch: {done.stderr.strip()[:200]}")
    assert done.returncode == 0, done.stderr

    ended = re.compile(r"ENOENT|<\.\.\. execve resumed>")  # the second: where two start at once, its begin has a line
    lines = [line for line in trace.read_text().splitlines() if " exec" in line and not ended.search(line)]
    understood = [found for line in lines if (found := EXECUTED.search(line))]
    assert len(understood) == len(lines) > 0
    started = {(Path(found[1]).name, found[2].removeprefix('"-P", ')) for found in understood}
    python = Path(sys.executable).name
    node = (python, ", ".join(f'"{argument}"' for argument in command[1:]))
    guards = {one for one in started if one[0] == python and one[1].startswith(f'"-I", "-c", "{guard._RUN_CHILD}"')}
    page = {one for one in started if one[0] == python and one[1].startswith('"-m", "codezero", "dashboard", "--json"')}
    chain = {one for one in started if one[0] == python and one[1].startswith('"-m", "codezero.chain.devchain_server"')}
    assert page and guards and chain and MONTY in started
    # How Python looks for a shared library where no compiler is installed
    linker = {one for one in started if one[0] in ("ldconfig", "ldconfig.real") and one[1] == '"-p"'}
    assert started == {node, MONTY, *page, *chain, *guards, *linker}
    assert not any("def " in arguments for _, arguments in started)
