"""scripts/install.sh: when it installs, what it asks for, and when it leaves everything as it is.

Does not show that what uv and pip are asked for can be had: tests/e2e/docker/test_fresh.py does."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STAND_IN = '#!/bin/sh\necho "$(basename "$0") $*" >>"$CALLS"\n'
STAMP = ".venv/codezero-installed"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The real script, with an environment whose python and uv only write down what they are told."""
    for name in ("scripts/install.sh", "uv.lock", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("python", "uv"):
        path = tmp_path / ".venv" / "bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(STAND_IN)
        path.chmod(0o755)
    return tmp_path


def install(checkout: Path, *words: str) -> list[str]:
    """What was called."""
    calls = checkout / "calls"
    calls.write_text("")
    there = os.environ | {"PYTHON": sys.executable, "CALLS": str(calls)}
    script = [checkout / "scripts" / "install.sh", *words]
    subprocess.run(script, env=there, stdin=subprocess.DEVNULL, check=True, timeout=120)
    return calls.read_text().splitlines()


def exported(calls: list[str]) -> str:
    (line,) = [call for call in calls if call.startswith("uv export")]
    return line


def test_what_is_installed_is_what_the_lock_names_whatever_pyproject_overrides(checkout: Path) -> None:
    (line,) = [call for call in install(checkout) if "--require-hashes" in call]
    words = line.split()
    folder = Path(words[words.index("--directory") + 1])
    assert folder.is_absolute() and checkout not in (folder, *folder.parents)


@pytest.mark.parametrize(
    ("words", "asked", "not_asked"),
    [
        ((), ["--no-dev"], ["--extra", "--group"]),
        (("dev",), ["--group=dev"], ["--no-dev", "--extra"]),
        (("wandb",), ["--no-dev", "--extra=wandb"], ["--group"]),
        (("wandb", "dev"), ["--group=dev", "--extra=wandb"], ["--no-dev"]),
    ],
    ids=["plain", "dev", "extra", "extra-and-dev"],
)
def test_it_asks_for_what_the_lock_names(
    checkout: Path, words: tuple[str, ...], asked: list[str], not_asked: list[str]
) -> None:
    line = exported(install(checkout, *words))
    assert "--frozen" in line and all(one in line for one in asked) and not any(one in line for one in not_asked)


@pytest.mark.parametrize(
    ("before", "after", "again"),
    [
        ((), (), False),
        (("wandb",), (), False),
        (("dev",), (), False),
        (("dev", "wandb"), ("wandb",), False),
        ((), ("wandb",), True),
        ((), ("dev",), True),
        (("dev",), ("wandb",), True),
    ],
    ids=["same", "had-extra", "had-dev", "had-both", "wants-extra", "wants-dev", "has-other"],
)
def test_what_is_there_is_not_installed_again(
    checkout: Path, before: tuple[str, ...], after: tuple[str, ...], again: bool
) -> None:
    install(checkout, *before)
    assert bool(install(checkout, *after)) is again


def test_another_lock_or_an_install_that_broke_off_is_done_again(checkout: Path) -> None:
    install(checkout)
    (checkout / "uv.lock").write_text((checkout / "uv.lock").read_text() + "# newer\n")
    assert install(checkout) and not install(checkout)
    (checkout / STAMP).write_text("")
    assert install(checkout)
    (checkout / STAMP).unlink()
    assert install(checkout)


def test_a_python_that_does_not_suit_is_named(checkout: Path) -> None:
    tools = checkout / "tools"
    tools.mkdir()
    (tools / "dirname").symlink_to(shutil.which("dirname") or "dirname")
    script = [shutil.which("bash") or "bash", checkout / "scripts" / "install.sh"]
    done = subprocess.run(script, env={"PATH": str(tools)}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "needs Python 3.11 to 3.13" in done.stderr and "PYTHON=" in done.stderr


def test_where_no_python_suits_uv_brings_one_and_without_network_it_says_what_to_do(checkout: Path) -> None:
    """Its python is one that this test has; a real download is not shown."""
    tools, calls = checkout / "tools", checkout / "calls"
    tools.mkdir()
    for name in ("bash", "dirname", "cat", "sha256sum", "cut", "mktemp", "rm", "grep", "sed", "basename", "sh"):
        (tools / name).symlink_to(shutil.which(name) or name)
    uv = tools / "uv"
    uv.write_text(f'{STAND_IN}if [ "$2" = find ]; then echo "{sys.executable}"; fi\nexit ${{UV_FAILS:-0}}\n')
    uv.chmod(0o755)
    script = [tools / "bash", checkout / "scripts" / "install.sh"]
    there = {"PATH": str(tools), "CALLS": str(calls)}
    done = subprocess.run(script, env=there, capture_output=True, text=True, timeout=120, check=True)
    assert "uv fetches 3.12" in done.stderr and "4 of 4: codezero itself" in done.stdout
    assert "uv python install --quiet 3.12" in calls.read_text() and (checkout / STAMP).is_file()
    done = subprocess.run(script, env=there | {"UV_FAILS": "1"}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "uv could not fetch it" in done.stderr and "PYTHON=" in done.stderr


def test_the_launcher_installs_and_works_where_it_is_called(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for name in ("codezero.sh", "run_swarm.sh"):
        shutil.copy(ROOT / name, checkout / name)
    (checkout / "scripts" / "build_page.sh").symlink_to("/bin/true")
    command = checkout / ".venv" / "bin" / "codezero"
    command.write_text('#!/bin/sh\necho "$PWD: $*"\n')
    command.chmod(0o755)
    install(checkout)
    elsewhere, there = tmp_path_factory.mktemp("elsewhere"), os.environ | {"PYTHON": sys.executable}

    def called(name: str, *words: str) -> str:
        line = [checkout / name, *words]
        return subprocess.run(line, cwd=elsewhere, env=there, capture_output=True, text=True, check=True).stdout

    assert (
        called("codezero.sh", "runs", "a b") == f"{elsewhere}: runs a b\n"
        and called("codezero.sh") == f"{elsewhere}: \n"
    )
    assert called("run_swarm.sh", "seed=1") == f"{checkout}: run seed=1\n"
