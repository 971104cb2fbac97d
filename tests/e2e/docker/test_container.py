"""What goes into a container: the entry point, the health check, the check of torch, and the limits of the services.

No engine is asked here: the files beside it do."""

import http.server
import os
import re
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from builders.servers import running
from packaging.requirements import Requirement
from packaging.version import Version

from codezero.evaluator.openai_judge import OLLAMA_LOGPROBS

ROOT = Path(__file__).parents[3]
DOCKER = ROOT / "docker"
PAGE = ["login.publish=true", "login.port=3000"]
P2P = ["swarm.host=0.0.0.0", "swarm.port=38331"]


@pytest.mark.parametrize(
    ("words", "passed"),
    [
        ([], ["run", *PAGE, *P2P]),
        (["seed=1"], ["run", "seed=1", *PAGE, *P2P]),
        (["run", "--fresh"], ["run", "--fresh", *PAGE, *P2P]),
        (["swarm", "join", "a b.toml"], ["swarm", "join", "a b.toml", *PAGE, *P2P]),
        (["swarm", "bootnode"], ["swarm", "bootnode", *P2P]),
        (["swarm", "up", "--nodes", "3"], ["swarm", "up", "--nodes", "3", *PAGE]),
        (["swarm", "peers"], ["swarm", "peers"]),
        (["dashboard", "runs/mine"], ["dashboard", "runs/mine", *PAGE]),
        (["evaluate", "attempts.jsonl"], ["evaluate", "attempts.jsonl"]),
        (["run", "--help"], ["run", "--help"]),
        (["--help"], ["--help"]),
        (
            ["run", "--p2p-port", "1", "login.publish=false", "--login-port=2"],
            ["run", "--p2p-port", "1", "login.publish=false", "--login-port=2", "swarm.host=0.0.0.0"],
        ),
    ],
    ids=["nothing", "setting", "fresh", "join", "bootnode", "up", "peers", "dashboard", "evaluate", "run-help",
         "help", "said"],
)  # fmt: skip
def test_the_entry_point_adds_the_ways_in_and_changes_nothing_that_was_said(
    tmp_path: Path, words: list[str], passed: list[str]
) -> None:
    shown = tmp_path / "codezero"
    shown.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\nexit 7\n')
    shown.chmod(0o755)
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PAGE_PORT": "3000", "P2P_PORT": "38331"}
    done = subprocess.run([DOCKER / "entrypoint.sh", *words], capture_output=True, text=True, env=variables)
    assert done.stdout.splitlines() == passed and done.returncode == 7 and not done.stderr


class Told(http.server.BaseHTTPRequestHandler):
    """A page that is well, or not."""

    def do_GET(self) -> None:
        status = self.server.status  # type: ignore[attr-defined]
        self.send_response(status if self.path == "/healthz" else 404)
        self.end_headers()
        self.wfile.write(b'{"problem":"no step for 500 s"}')

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def page() -> Iterator[Any]:
    with running(http.server.HTTPServer(("127.0.0.1", 0), Told)) as server:
        yield server


def healthy(port: int) -> "subprocess.CompletedProcess[str]":
    variables = os.environ | {"PAGE_PORT": str(port)}
    return subprocess.run([sys.executable, DOCKER / "healthy.py"], capture_output=True, text=True, env=variables)


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1), (500, 1)], ids=["well", "stalled", "broken"])
def test_the_health_check_says_what_the_page_says(page: Any, status: int, code: int) -> None:
    page.status = status
    done = healthy(page.server_port)
    assert done.returncode == code and "no step for 500 s" in done.stdout and not done.stderr


def test_a_page_that_does_not_answer_is_not_healthy() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    done = healthy(port)
    assert done.returncode == 1 and "does not answer" in done.stdout and not done.stderr


def check_torch() -> ModuleType:
    spec = spec_from_file_location("check_torch", DOCKER / "check_torch.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("backend", "cuda", "hip", "wrong"),
    [
        ("cpu", None, None, ""),
        ("cpu", "13.0", None, "carries GPU libraries"),
        ("cpu", None, "7.0", "carries GPU libraries"),
        ("cu130", "13.0", None, ""),
        ("rocm7.0", None, "7.0", ""),
        ("cu130", None, None, "knows no GPU"),
        ("auto", None, None, ""),
    ],
    ids=["cpu", "cuda-for-cpu", "rocm-for-cpu", "cuda", "rocm", "cpu-for-cuda", "auto"],
)
def test_the_other_kind_of_torch_is_refused(
    monkeypatch: pytest.MonkeyPatch, backend: str, cuda: str | None, hip: str | None, wrong: str
) -> None:
    module = check_torch()
    monkeypatch.setattr(module.torch.version, "cuda", cuda)
    monkeypatch.setattr(module.torch.version, "hip", hip)
    assert wrong in module.problem(backend) and bool(wrong) == bool(module.problem(backend))


def services() -> dict[str, dict[str, Any]]:
    return yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]


@pytest.mark.parametrize("name", sorted(services()))
def test_a_service_waits_to_be_named_and_offers_nothing_but_the_p2p_port_to_others(name: str) -> None:
    service = services()[name]
    assert service["profiles"] and service["restart"] == "unless-stopped"
    open_to_all = [port for port in service["ports"] if not port.startswith("127.0.0.1:")]
    assert open_to_all == (["${P2P_PORT:-38331}:${P2P_PORT:-38331}"] if name.startswith("swarm-") else [])


@pytest.mark.parametrize("name", ["swarm-cpu", "swarm-gpu"])
def test_a_node_can_do_no_more_than_it_needs(name: str) -> None:
    service = services()[name]
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"] and service["tmpfs"] == ["/tmp"]
    assert service["security_opt"] == ["no-new-privileges:true"] and "privileged" not in service
    assert [volume.split(":")[1] for volume in service["volumes"]] == [
        "/node",
        "/node/runs",
        "/node/logs",
        "/node/cache",
    ]


def pin(service: str) -> Version:
    """Of the image that is pulled where nobody names another."""
    tag = re.fullmatch(r"\$\{\w+:-[\w./-]+:(v?[\d.]+)\}", services()[service]["image"])
    assert tag, services()[service]["image"]
    return Version(tag[1])


def test_the_judges_images_are_new_enough_for_what_they_are_asked() -> None:
    assert pin("judge-ollama") >= Version(OLLAMA_LOGPROBS)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (vllm,) = map(Requirement, extras["vllm"])
    assert pin("judge") in vllm.specifier


def test_the_judges_model_is_named_as_the_images_entry_point_takes_it() -> None:
    """The image runs `vllm serve`, which takes the model as its first word and will drop `--model`."""
    model, *flags = services()["judge"]["command"]
    assert model.startswith("${JUDGE_MODEL:-") and flags == ["--served-model-name", "judge"]
