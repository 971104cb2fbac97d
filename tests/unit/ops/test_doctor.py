"""The doctor says what is wrong and how to mend it, in time, and claims nothing that it could not look at.

Does not show: cards of any kind (none is here), and routers that do or do not forward a port."""

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.judge_server import MODEL, Server
from msgspec import structs

from codezero.cli import main
from codezero.config import ChainConfig, EvaluatorConfig, NodeConfig, SwarmConfig
from codezero.errors import ChainError, EndpointError
from codezero.evaluator.openai_judge import OLLAMA_LOGPROBS, server_version
from codezero.ops import doctor as machine
from codezero.ops import doctor_network as network
from codezero.ops.doctor import Check, CheckState, Finding, diagnose, fail, healthy, judge_memory, line, ok, warn
from codezero.swarm.network_status import NetworkStatus

GIB = 2**30
PEER = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"


def listening() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(8)
    return listener


def network_of(reachable: bool | None, reachability: str, port: int = 1) -> NetworkStatus:
    known = {"time": time.time(), "me": PEER, "addresses": [f"/ip4/127.0.0.1/tcp/{port}/p2p/{PEER}"]}
    counts = {"neighbours": 0, "round": None, "shards": 1, "peers": []}
    return NetworkStatus(**known, **counts, reachable=reachable, reachability=reachability)


def raising(error: Exception) -> Callable[[], Finding]:
    def look() -> Finding:
        raise error

    return look


def test_a_check_that_fails_hangs_or_breaks_stops_no_other() -> None:
    never = threading.Event()

    def hang() -> Finding:
        never.wait(60)
        return ok("late")

    checks = [
        Check("good", lambda: ok("fine")),
        Check("hung", hang, 0.3),
        Check("named", raising(ChainError("chain 5 is not 6\nmore"))),
        Check("broken", raising(KeyError("x"))),
        Check("last", lambda: warn("so so", "try this")),
    ]
    findings = list(diagnose(checks))
    never.set()
    assert [(finding.check, str(finding.state)) for finding in findings] == [
        ("good", "ok"), ("hung", "unknown"), ("named", "fail"), ("broken", "unknown"), ("last", "warn")
    ]  # fmt: skip
    assert findings[2].text == "chain 5 is not 6"
    assert line(findings[1]).startswith("could not tell") and "0.3 s" in line(findings[1])
    assert line(findings[-1]).endswith("so so; try this") and line(fail("a\x1b[31mb", check="c")).count("\x1b") == 0
    assert not healthy(findings) and healthy([findings[0], findings[1], findings[-1]])


def test_room_is_judged_by_what_runs_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for free, state in ((0, CheckState.FAIL), (GIB, CheckState.WARN), (9 * GIB, CheckState.OK)):
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        assert machine.disk(str(tmp_path)).state is state


def test_a_folder_that_cannot_be_written_is_a_failure(tmp_path: Path) -> None:
    assert machine.disk(f"{tmp_path}/not/yet").state in (CheckState.OK, CheckState.WARN)
    code = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); \
from codezero.ops.doctor import disk; print(disk({str(tmp_path)!r}).state)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "fail\n"


@pytest.mark.parametrize(
    ("synchronised", "block", "state"),
    [(True, None, "ok"), (False, None, "unknown"), (False, 995.0, "ok"), (True, 1030.0, "warn"), (True, 1100.0, "fail"),
     (True, -9000.0, "unknown")],
)  # fmt: skip
def test_a_clock_is_right_only_when_somebody_says_so(synchronised: bool, block: float | None, state: str) -> None:
    assert machine.judge_clock(synchronised, 1000.0, block, 60.0).state == state


def test_memory_is_held_against_what_the_models_need() -> None:
    assert judge_memory("x", 9.0 * GIB, "9.0 GiB (solver 9.0)", 8 * GIB).state is CheckState.FAIL
    assert judge_memory("x", 7.0 * GIB, "7.0 GiB (solver 7.0)", 8 * GIB).state is CheckState.OK
    assert judge_memory("x", None, "", GIB // 2).state is CheckState.FAIL


def test_what_the_hardware_process_did_not_say_is_unknown() -> None:
    output = b'{"check": "torch", "state": "ok", "said": "2.13", "mend": ""}\nnonsense\n{"check": 1}\n[]\n'
    findings = machine.read_hardware(output, "its process ended with -11")
    assert [finding.state for finding in findings] == [CheckState.OK, CheckState.UNKNOWN, CheckState.UNKNOWN]
    assert "-11" in findings[1].text


@pytest.mark.slow
def test_a_port_that_is_taken_is_named() -> None:
    with listening() as held:
        port = held.getsockname()[1]
        config = SwarmConfig(kind="hivemind", port=port)
        assert f"TCP port {port}" in network.p2p_port(config, None).text
        assert network.p2p_port(config, None).state is CheckState.FAIL
        assert network.p2p_port(config, network_of(True, "", port)).state is CheckState.OK
        page = NodeConfig()
        page.login.port = port
        assert network.page_port(page).state is CheckState.WARN
    assert network.p2p_port(config, None).state is CheckState.OK
    assert network.p2p_port(replace(config, port=0), None).state is CheckState.WARN


def test_ways_in_are_dialled() -> None:
    with listening() as held:
        there = f"/ip4/127.0.0.1/tcp/{held.getsockname()[1]}/p2p/{PEER}"
        nothing = f"/ip4/127.0.0.1/tcp/1/p2p/{PEER}"
        states = [
            network.ways_in(SwarmConfig(kind="hivemind", bootstrap=list(ways))).state
            for ways in ([there], [there, nothing], [nothing], [])
        ]
    assert states == [CheckState.OK, CheckState.WARN, CheckState.FAIL, CheckState.OK]


@pytest.mark.slow
def test_reachability_is_proven_asked_or_not_claimed() -> None:
    with listening() as held:
        port = held.getsockname()[1]
    config = SwarmConfig(kind="hivemind", host="127.0.0.1", port=port)
    assert network.reach(config, None).state is CheckState.WARN
    announced = replace(config, announce=[f"/ip4/127.0.0.1/tcp/{port}"])
    assert network.reach(announced, None).state is CheckState.OK
    with listening() as other:  # somebody else answers there
        foreign = replace(config, announce=[f"/ip4/127.0.0.1/tcp/{other.getsockname()[1]}"])
        finding = network.reach(foreign, None)
    assert finding.state is CheckState.UNKNOWN and f"port {port}" in finding.mend
    for reachable, state in ((True, CheckState.OK), (False, CheckState.WARN), (None, CheckState.UNKNOWN)):
        assert network.reach(config, network_of(reachable, "as neighbours say")).state is state
    relayed = structs.replace(network_of(False, "by relays"), neighbours=1)
    assert network.reach(config, relayed).state is CheckState.OK


@pytest.mark.slow
def test_a_stranger_who_dials_meanwhile_is_no_proof_of_reach() -> None:
    with listening() as held:
        port = held.getsockname()[1]
    over = threading.Event()

    def dial() -> None:
        with contextlib.ExitStack() as calls:
            while not over.wait(0.01):
                with contextlib.suppress(OSError):
                    calls.enter_context(socket.create_connection(("127.0.0.1", port), 1))

    stranger = threading.Thread(target=dial)
    stranger.start()
    try:
        with listening() as other:
            ways = [f"/ip4/127.0.0.1/tcp/{number}" for number in (other.getsockname()[1], port)]
            states = [
                network.reach(SwarmConfig(kind="hivemind", host="127.0.0.1", port=port, announce=[way]), None).state
                for way in ways
            ]
    finally:
        over.set()
        stranger.join()
    assert states == [CheckState.UNKNOWN, CheckState.OK]


def test_checks_that_listen_at_the_own_port_at_once_do_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    dial = network._is_open  # pyright: ignore[reportPrivateUsage]

    def slowly(address: str, listener: socket.socket | None = None) -> bool:
        time.sleep(0.2)
        return dial(address, listener)

    monkeypatch.setattr(network, "_is_open", slowly)
    with listening() as held:
        port = held.getsockname()[1]
    config = SwarmConfig(kind="hivemind", port=port, announce=[f"/ip4/127.0.0.1/tcp/{port}"])
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(check, config, None) for check in (network.reach, network.p2p_port) * 2]
    assert {call.result().state for call in calls} == {CheckState.OK}


@pytest.mark.parametrize(
    ("outward", "state", "words"),
    [
        (None, CheckState.FAIL, "no address"),
        ("8.8.8.8", CheckState.UNKNOWN, "open TCP port 38331 in the firewall"),
        ("192.168.1.7", CheckState.UNKNOWN, "forward it in the router to 192.168.1.7"),
    ],
)
def test_the_port_to_open_is_named(outward: str | None, state: CheckState, words: str) -> None:
    finding = network.judge_outward(outward, 38331)
    assert finding.state is state and words in line(finding)


@pytest.mark.parametrize(
    ("missing", "sets", "answers", "state"),
    [([], [], None, "ok"), (["a/b"], [], True, "ok"), (["a/b"], [], False, "fail"), (["a/b"], [], None, "fail"),
     ([], ["mbpp"], False, "warn")],
)  # fmt: skip
def test_a_hub_that_is_away_matters_when_something_is_missing(
    missing: list[str], sets: list[str], answers: bool | None, state: str
) -> None:
    assert network.judge_hub(missing, ["a/b"], sets, answers).state == state


def test_what_is_asked_of_the_hub_is_what_the_node_would_load(tmp_path: Path) -> None:
    config = NodeConfig()
    assert network.wanted_of_hub(config) == ([], []) and network.hub(config).state is CheckState.OK
    config.model.solver, config.evaluator.model, config.proposer.model = "a/b", str(tmp_path), "a/b"
    config.data.sources = ["mbpp:3", "synthetic"]
    assert network.wanted_of_hub(config) == (["a/b"], ["mbpp"])


@pytest.mark.slow
def test_a_chain_and_a_judge_that_are_away_are_failures(tmp_path: Path) -> None:
    gone = "http://127.0.0.1:1"
    chain = ChainConfig(kind="rpc", rpc_urls=[gone], chain_id=5, contract="0x" + "11" * 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "CHAIN_SECONDS", 1.0)
        assert network.chain(chain).state is CheckState.FAIL
        assert network.block_time(chain) is None
    assert network.chain(replace(chain, contract="")).state is CheckState.FAIL
    node = "/ip4/127.0.0.1/tcp/1/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"
    assert network.chain(replace(chain, rpc_urls=[node])).state is CheckState.FAIL
    assert network.chain(ChainConfig(kind="clock")).state is CheckState.OK
    assert network.chain(ChainConfig(directory=str(tmp_path / "none"))).state is CheckState.OK
    assert network.judge(EvaluatorConfig(kind="openai", url=gone, model="m", seconds=3.0)).state is CheckState.FAIL
    assert network.judge(EvaluatorConfig()).state is CheckState.OK


def test_the_right_chain_answers_and_the_wrong_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from codezero.chain.devchain_process import DevChainHandle

    monkeypatch.setattr(network, "CHAIN_SECONDS", 60.0)  # a busy machine is not the question
    with DevChainHandle(tmp_path / "chain") as served:
        other = ChainConfig(kind="rpc", rpc_urls=[served.url], chain_id=served.chain_id + 1, contract="0x" + "11" * 20)
        assert "not " in network.chain(other).text and network.chain(other).state is CheckState.FAIL
        right = replace(other, chain_id=served.chain_id)
        assert network.chain(right).state is CheckState.FAIL  # nobody's contract
        block_time = network.block_time(right)
        assert block_time is not None and abs(block_time - time.time()) < 3600


def test_identity_and_login_are_shown(tmp_path: Path) -> None:
    from codezero.login.vault import Folder, Passphrase, Scrypt, Vault
    from codezero.swarm.identity import Identity

    path = tmp_path / "swarm.pem"
    assert machine.identity(SwarmConfig(identity=str(path))).state is CheckState.OK and not path.exists()
    assert Identity.load_or_create(path).peer_id in machine.identity(SwarmConfig(identity=str(path))).text
    config = NodeConfig()
    config.login.directory = str(tmp_path / "login")
    assert "nobody owns" in machine.login(config).text
    assert not (tmp_path / "login").exists()
    vault = Vault(Folder(tmp_path / "login"), 30.0, time.time)
    key = b"\x11" * 32
    vault.claim(key, Passphrase(scrypt=Scrypt(salt=b"s" * 32)), b"o" * 32)
    assert machine.login(config).state is CheckState.WARN and machine.login(config).mend == "codezero login"
    vault.unlock(key)
    assert machine.login(config).state is CheckState.OK and "0x" in machine.login(config).text


def of_a_node(folder: Path) -> list[str]:
    return [f"run.directory={folder / 'runs'}", f"swarm.identity={folder / 'swarm.pem'}", "login.page=off"]


@pytest.mark.slow
def test_the_command_ends_in_time_with_a_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json", *of_a_node(tmp_path)]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    names = [finding["check"] for finding in report["findings"]]
    assert report["ok"] and names[:5] == ["python", "torch", "device", "memory", "disk"] and len({*names}) == len(names)
    assert {*report["findings"][0]} == {"check", "state", "said", "mend"}
    assert not list(tmp_path.iterdir()), "it left something behind"


@pytest.mark.long
def test_the_command_fails_where_a_node_would(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judge = ["evaluator.kind=openai", "evaluator.url=http://127.0.0.1:1", "evaluator.model=m"]
    assert main(["doctor", *of_a_node(tmp_path), *judge]) == 1
    bad = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("fail"))
    assert "judge" in bad and "cannot be reached" in bad and "start it" in bad
    assert main(["doctor", "seed=x"]) == 2


VLLM, OLLAMA = {"/version": b'{"version": "0.32.0"}'}, {"/api/version": b'{"version": "0.35.1"}'}


def judged(server: Server, kind: str = "openai", end: str = "", **more: list[str]) -> Finding:
    config = EvaluatorConfig(kind=kind, url=server.url + end, model=MODEL, seconds=20.0, **more)
    return network.judge(config)


@pytest.mark.parametrize("end", ["", "/", "/v1"])
def test_a_server_with_everything_is_named_with_its_version(server: Server, end: str) -> None:
    server.state.versions = VLLM
    finding = judged(server, end=end)
    assert finding.state is CheckState.OK
    assert finding.text.endswith("answers (vLLM 0.32.0)") and "weaker" not in finding.text


def test_ollama_has_no_likelihood_and_that_is_said(server: Server) -> None:
    server.state.versions = OLLAMA
    finding = judged(server, "ollama")
    assert finding.state is CheckState.WARN and "(Ollama 0.35.1), yes/no only: weaker" in finding.text
    assert "docs/docker.md" in finding.mend


@pytest.mark.parametrize("mode", ["no echo", "forgets the prompt"])
def test_a_server_without_log_probs_of_a_prompt_is_weaker(server: Server, mode: str) -> None:
    server.state.mode = mode
    finding = judged(server)
    assert finding.state is CheckState.WARN and "yes/no only: weaker" in finding.text
    assert "does not tell its version" in finding.text


def test_who_asks_for_yes_or_no_alone_lacks_nothing(server: Server) -> None:
    server.state.mode = "no echo"
    assert judged(server, questions=["yes_no"]).state is CheckState.OK


def test_a_server_too_old_for_log_probs_fails_with_its_version_beside_the_one_that_is_needed(server: Server) -> None:
    server.state.versions, server.state.mode = {"/api/version": b'{"version": "0.12.3"}'}, "bytes"
    server.state.body = b'{"message": {"content": "Yes"}}'
    finding = judged(server, "ollama")
    assert finding.state is CheckState.FAIL and "no log-probabilities" in finding.text
    assert OLLAMA_LOGPROBS in finding.text and "(Ollama 0.12.3)" in finding.text


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b"0.32.0", b'{"version": 1}', b'{"version": ""}', b'{"version": "1\\n2"}', b"[" * 9000,
     b'{"version": "' + b"1" * 41 + b'"}', b'{"version": "\\u001b[31m1"}', b'{"version": "\xff"}'],
)  # fmt: skip
def test_a_version_that_is_none_is_unknown(server: Server, body: bytes) -> None:
    with pytest.raises(EndpointError):
        server_version(body)
    server.state.versions = {"/version": body, "/api/version": body}
    assert "does not tell its version" in judged(server).text
