"""What is in the image, and what is not."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from builders.docker import ROOT, docker

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]
SENT = "codezero-test:sent"
MOST_BYTES = 2_500_000_000
"""Of the image for a machine without a GPU. The CUDA libraries alone are more."""


def inside(image: str, *command: str, check: bool = True) -> str:
    done = docker("run", "--rm", "--network=none", f"--entrypoint={command[0]}", image, *command[1:], check=check)
    return (done.stdout + done.stderr).strip()


def test_its_size_is_bounded_and_told(
    image: str, capsys: pytest.CaptureFixture[str], record_testsuite_property: Callable[[str, object], None]
) -> None:
    size = json.loads(docker("image", "inspect", image).stdout)[0]["Size"]
    record_testsuite_property("image_bytes", size)
    with capsys.disabled():
        print(f"\n{image} is {size / 1e6:.0f} MB:")
        print(docker("history", "--format", "{{.Size}}\t{{.CreatedBy}}", image).stdout)
    assert size < MOST_BYTES


def test_nothing_of_cuda_is_in_it(image: str) -> None:
    assert inside(image, "python", "-c", "import torch; print(torch.version.cuda)") == "None"
    assert "nvidia" not in inside(image, "sh", "-c", "ls /app/.venv/lib/python3*/site-packages").split()


def test_its_user_is_nobody_special(image: str) -> None:
    assert inside(image, "id", "--user") == "1000" and inside(image, "id", "--groups") == "1000"
    assert inside(image, "sh", "-c", "command -v sudo su-exec gosu || echo none") == "none"
    assert "Permission denied" in inside(image, "touch", "/app/configs/node.yaml", check=False)


def test_what_only_builds_is_not_in_it(image: str) -> None:
    tools = 'for tool in node npm uv gcc; do command -v $tool && echo "$tool is there"; done; echo end'
    assert inside(image, "sh", "-c", tools) == "end"


def test_no_key_or_run_of_this_checkout_is_in_it(image: str) -> None:
    listed = inside(image, "find", "/app", "-name", "*.pem", "-not", "-path", "*/site-packages/*")
    assert listed == ""
    parts = set(inside(image, "ls", "-A", "/app").split())
    assert parts == {".venv", "LICENSE", "NOTICE", "codezero", "configs", "docker", "pyproject.toml"}
    assert inside(image, "find", "/node", "-type", "f") == ""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--help",), 0, "usage: codezero"),
        (("solver.learning_rat=1",), 2, "did you mean solver.learning_rate?"),
        (("run", "--help"), 0, "usage: codezero run"),
        (("config", "show"), 0, "max_iterations"),
        (("fly",), 2, "there is no fly"),
        (("status",), 2, "there is no run below runs yet"),
    ],
    ids=["help", "misspelt", "run-help", "show", "unknown", "no-run"],
)
def test_arguments_go_to_codezero_and_its_exit_code_comes_back(
    image: str, words: tuple[str, ...], code: int, said: str
) -> None:
    done = docker("run", "--rm", "--read-only", "--tmpfs=/tmp", "--network=none", image, *words, check=False)
    assert done.returncode == code and said in done.stdout + done.stderr


def test_the_page_in_it_is_the_one_of_this_source(image: str) -> None:
    stamp = inside(image, "cat", "/app/codezero/login/static/.built")
    here = ROOT / "codezero" / "login" / "static" / ".built"
    if not here.is_file():
        pytest.skip("the page was not built in this checkout: scripts/build_page.sh")
    assert stamp == here.read_text().strip()


def test_what_is_ones_own_is_not_even_sent_to_the_build(image: str, tmp_path: Path) -> None:
    """The engine's own reading of .dockerignore, on a checkout that somebody has used."""
    own = ["configs/local.yaml", ".env", "swarm.pem", "wallet.json", "wallet.json.passphrase", "runs/mine/run.json",
           "docker-compose.override.yaml", "logs/swarm.log", ".venv/pyvenv.cfg"]  # fmt: skip
    for name in (*own, "configs/node.yaml", "codezero/cli.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("somebody's\n")
    (tmp_path / ".dockerignore").write_text((ROOT / ".dockerignore").read_text())
    (tmp_path / "Dockerfile").write_text(f"FROM {image}\nCOPY . /sent\n")
    docker("build", "--quiet", "--tag", SENT, str(tmp_path))
    found = inside(SENT, "find", "/sent", "-type", "f").split()
    docker("rmi", SENT)
    assert sorted(found) == ["/sent/codezero/cli.py", "/sent/configs/node.yaml"]
