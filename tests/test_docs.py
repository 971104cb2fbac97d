"""Every command of the pages is one, every line they quote can be printed, every link leads somewhere.

What needs a GPU, another machine, the hub or an account is parsed and composed, and not run."""

import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from builders import documents
from builders.documents import LAUNCHER, MARK, NEEDS, PAGES, ROOT, Block

from codezero.cli import parse
from codezero.config import NodeConfig
from codezero.monitor.metrics_file import KEYS
from codezero.settings import KINDS, compose
from codezero.swarm.supervisor import network_settings

NAMES = {str(path.relative_to(ROOT)).removeprefix("docs/"): path for path in PAGES}
RUN_HERE = ("README.md", "machines.md", "swarm.md", "troubleshooting.md", "tutorial.md")
"""Pages all of whose unmarked blocks are run here; docs/unattended.md and docs/docker.md have tests of their own."""
WITHOUT_CALLS = (
    "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "architecture.md", "concepts.md", "contract.md", "docker.md",
    "examples/README.md", "extending.md", "logs.md", "reproduce.md", "tested.md", "wire-format.md",
)  # fmt: skip
QUOTED = [block.text.strip() for block in documents.blocks(NAMES["troubleshooting.md"]) if block.language == "text"]
TOOLS = {"./run_tests.sh", ".venv/bin/hf", "TORCH_BACKEND=cu130", "cp", "git", "if", "mkdir", "mv", "rm", "scp", "tar"}
PORTS = ("38331", "38332", "3000")
SMALL = ["run.max_iterations=1", "evaluator.canaries=80", "solver.problems_per_iteration=2", "evals.every=0",
         "login.page=off", "chain.submit_after=2", "proposer.model=off"]  # fmt: skip
NODES = (["run"], ["propose"], ["swarm", "up"], ["swarm", "create"], ["swarm", "join"])
SERVERS = ("swarm bootnode",)  # end when they are told to


def shell(page: Path) -> list[Block]:
    return [block for block in documents.blocks(page) if block.language == "sh"]


def composed(words: list[str]) -> NodeConfig:
    """The settings that a command of the pages runs with, as it composes them."""
    options = parse(words)
    network = ["network=peer"] if words[0] in ("swarm", "propose") else []
    return once(*network, *(word for word in getattr(options, "overrides", []) if "=" in word))


@cache
def once(*typed: str) -> NodeConfig:
    return compose(list(typed))


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_command_of_a_page_is_one_with_its_settings(name: str) -> None:
    calls = [call for block in shell(NAMES[name]) for line in block.lines for call in documents.launched(line)]
    calls += [
        call
        for code in documents.inline(NAMES[name])
        if code.startswith(f"{LAUNCHER} ")
        for call in documents.launched(code)
    ]
    for words in calls:
        config = composed(words)
        if name in RUN_HERE and config.swarm.kind != "local":
            network_settings(config.swarm)
    assert calls or name in WITHOUT_CALLS


@pytest.mark.parametrize("words", [["rum"], ["run", "--fast"], ["run", "swarm.prot=1"], ["run", "swarm.port=-1"]])
def test_a_command_that_is_none_would_be_found(words: list[str]) -> None:
    with pytest.raises((SystemExit, ValueError)):
        composed(words)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_settings_and_commands_that_a_text_names_are_there(name: str) -> None:
    known, sections = set(KINDS), {key.split(".")[0] for key in KINDS if "." in key}
    for code in documents.inline(NAMES[name]):
        if code.startswith("codezero "):
            command = re.split(r" (?=[A-Z\[…])", code.removeprefix("codezero "))[0].split()
            helped(command)
        for key in re.findall(r"(?<![\w./-])([a-z]+\.[a-z_0-9]+)(?==)", code):
            assert key in known or key.split(".")[0] not in sections, f"{name}: {key}"


def helped(command: list[str]) -> None:
    """Its help is shown, so there is such a command."""
    if command[0] == "bench":
        assert command[1:] in ([], ["list"]) or (ROOT / "benchmarks" / f"{command[1]}.py").is_file(), command
        return
    words = [word for word in command if not word.startswith("-") and "=" not in word and "/" not in word]
    with pytest.raises(SystemExit) as ended:
        parse([*words, "--help"])
    assert ended.value.code == 0, command


@pytest.mark.parametrize("name", RUN_HERE)
def test_what_is_not_run_says_why_and_is_shell(name: str) -> None:
    page = NAMES[name]
    assert page.read_text().count(MARK) == sum(bool(block.needs) for block in documents.blocks(page)), (
        "a mark without a block"
    )
    for block in documents.blocks(page):
        assert block.language in ("sh", "text") and (not block.needs or block.needs in NEEDS), block
        if block.language == "sh":
            subprocess.run(["bash", "-n"], input=block.text, text=True, check=True, timeout=120)
        for line in block.lines if block.needs else []:
            assert documents.launched(line) or line.split()[0] in TOOLS, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in documents.links(page):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path) if path else page
        assert there.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in documents.anchors(there), f"{page.name}: {target}"


def test_the_site_is_built_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    for name in ("docs", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(tmp_path / "mkdocs.yml")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path.stem: path.read_text() for path in (tmp_path / "site").glob("*.html")}
    in_menu = re.findall(r": ([\w-]+)\.md$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert set(pages) - {"404"} == set(in_menu) == {path.stem for path in (ROOT / "docs").glob("*.md")}
    for name, text in pages.items():
        loads = re.findall(r"<(?:script|img|iframe)[^>]* src=\W?(\S+)|<link rel=\W?stylesheet\W? href=\W?(\S+)", text)
        assert loads and not [url for both in loads for url in both if "//" in url], name
        assert "class=mermaid" not in text and 'class="mermaid"' not in text, name
    assert "def short_answers(scored: ScoredGroup)" in re.sub("<[^>]+>", "", pages["extending"])


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_has_nothing_to_say_of_the_unit(tmp_path: Path) -> None:
    """It warns of what it does not understand, and its exit code is 0."""
    unit = next(block.text for block in documents.blocks(NAMES["unattended.md"]) if block.language == "ini")
    path = tmp_path / "codezero.service"
    path.write_text(unit.replace("/srv/codezero", str(ROOT)))
    done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_page_of_settings_is_what_the_classes_say() -> None:
    spec = importlib.util.spec_from_file_location("settings_page", ROOT / "scripts" / "settings_page.py")
    assert spec is not None and spec.loader is not None
    generated = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generated)
    text = (ROOT / "docs" / "settings.md").read_text()
    assert text == generated.page(), "run .venv/bin/python scripts/settings_page.py"
    rows = re.findall(r"^\| `([a-z_0-9.]+)` \| [^|]+ \| [^|]* \| .*\S.* \|$", text, re.MULTILINE)
    assert set(rows) >= KINDS.keys()


@pytest.mark.parametrize("line", QUOTED, ids=range(len(QUOTED)))
def test_a_quoted_line_is_one_that_the_program_prints(line: str) -> None:
    assert documents.can_print(line), line


@pytest.mark.parametrize(
    "line",
    ["the chain can not be reached: …", "the chain cannot be reached", "…", "points are kept back: we do not know"],
)
def test_a_line_that_it_does_not_print_would_be_found(line: str) -> None:
    assert not documents.can_print(line)


def test_the_page_of_logs_lists_every_metric_and_no_other() -> None:
    listed = documents.listed_metrics()
    written = documents.written_metrics({key.split("/")[0] for key in listed if "/" in key}) | set(KEYS)
    written -= {"judge/calibrated_on"}  # of the card of `codezero judge` alone
    assert not sorted(key for key in written if not any(documents.same_metric(key, other) for other in listed))
    assert not sorted(key for key in listed if not any(documents.same_metric(key, other) for other in written))


def checkout(folder: Path, small: list[str]) -> None:
    """The real launcher over this very codezero, whose nodes are given `small`."""
    documents.launcher(folder, f'exec {sys.executable} {folder}/small.py "$@"')
    (folder / "small.py").write_text(
        "import sys\nfrom codezero.cli import main\nwords = sys.argv[1:]\n"
        f"small = {small!r} if any(words[:len(node)] == node for node in {NODES!r}) else []\n"
        "if __name__ == '__main__':  # the network process begins by reading this file again\n"
        "    sys.exit(main([*words, *small]))\n"
    )
    shutil.copytree(ROOT / "examples", folder / "examples")


def ports() -> dict[str, str]:
    """A free one for each that the pages name."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in PORTS]
    free = {name: str(probe.getsockname()[1]) for name, probe in zip(PORTS, probes, strict=True)}
    for probe in probes:
        probe.close()
    return free


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", RUN_HERE)
def test_the_commands_of_a_page_run_in_their_order(tmp_path: Path, name: str) -> None:
    """In a fresh folder, with nodes of one iteration."""
    counted = name in ("README.md", "swarm.md", "tutorial.md")
    checkout(tmp_path, SMALL if counted else [*SMALL, "chain.kind=clock"])
    free = ports()
    there = os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    if name == "troubleshooting.md":  # a reader in trouble has run a node
        subprocess.run([tmp_path / "run_swarm.sh"], env=there, capture_output=True, check=True)
    for block in shell(NAMES[name]):
        for line in block.lines if not block.needs else []:
            typed = re.sub("|".join(PORTS), lambda port: free[port[0]], line)
            if any(word in line for word in SERVERS):
                serve(typed, tmp_path, there)
                continue
            done = subprocess.run(["bash", "-c", typed], cwd=tmp_path, env=there, capture_output=True, text=True)
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


def serve(line: str, folder: Path, there: dict[str, str]) -> None:
    """Until it has said something; told to end, it does so in peace."""
    command = ["bash", "-c", f"exec {line}"]
    with subprocess.Popen(command, cwd=folder, env=there, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and "/p2p/" in process.stdout.readline()
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) in (0, 130)


ATTACKS = [line.split(" | ")[-1] for line in NAMES["SECURITY.md"].read_text().splitlines() if "::test_" in line]


@pytest.mark.parametrize("cell", ATTACKS)
def test_what_stops_an_attack_has_a_test(cell: str) -> None:
    named = re.fullmatch(r"`(tests/[a-z0-9_/]+\.py)::(test_[a-z0-9_]+)` \|", cell)
    assert named, cell
    assert re.search(rf"^(async )?def {named[2]}\(", (ROOT / named[1]).read_text(), re.MULTILINE), cell


def test_each_row_of_the_attacks_names_one() -> None:
    table = NAMES["SECURITY.md"].read_text().partition("## Attacks")[2]
    assert len(ATTACKS) == table.count("\n| ") - 1 >= 25  # the head of the table
