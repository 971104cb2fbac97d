"""The doctor says what is wrong and how to mend it, in time, and claims nothing that it could not look at.

Does not show: cards of any kind (none is here), and routers that do or do not forward a port.
"""

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
from typing import Any

import pytest
from msgspec import structs

from codezero.cli import main
from codezero.config import ChainConfig, EvaluatorConfig, NodeConfig, SwarmConfig
from codezero.errors import ChainError
from codezero.ops import doctor as machine
from codezero.ops import doctor_network as network
from codezero.ops.doctor import judge_memory
from codezero.ops.findings import Check, CheckState, Finding, diagnose, fail, healthy, line, ok, warn
from codezero.swarm.network_status import NetworkStatus

GIB = 2**30
PEER = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"


def listening() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(8)
    return listener


def network_of(reachable: bool | None, said: str, port: int = 1) -> NetworkStatus:
    return NetworkStatus(
        time=time.time(),
        me=PEER,
        addresses=[f"/ip4/127.0.0.1/tcp/{port}/p2p/{PEER}"],
        neighbours=0,
        round=None,
        shards=1,
        reachable=reachable,
        reachability=said,
        peers=[],
    )


def raising(error: Exception) -> Callable[[], Finding]:
    def look() -> Finding:
        raise error

    return look


def test_a_check_that_fails_hangs_or_breaks_stops_no_other() -> None:
    never = threading.Event()

    def hang() -> Finding:
        never.wait(60)
        return ok("late")

    found = list(
        diagnose(
            [
                Check("good", lambda: ok("fine")),
                Check("hung", hang, 0.3),
                Check("named", raising(ChainError("chain 5 is not 6\nmore"))),
                Check("broken", raising(KeyError("x"))),
                Check("last", lambda: warn("so so", "try this")),
            ]
        )
    )
    never.set()
    states = {finding.check: finding.state for finding in found}
    assert states == {
        "good": CheckState.OK,
        "hung": CheckState.UNKNOWN,
        "named": CheckState.FAIL,
        "broken": CheckState.UNKNOWN,
        "last": CheckState.WARN,
    }
    assert [finding.text for finding in found if finding.check == "named"] == ["chain 5 is not 6"]
    assert line(found[1]).startswith("could not tell") and "0.3 s" in line(found[1])
    assert line(found[-1]).endswith("so so; try this") and line(fail("a\x1b[31mb", check="c")).count("\x1b") == 0
    assert not healthy(found) and healthy([found[0], found[1], found[-1]])


@pytest.mark.parametrize(
    ("free", "state"),
    [(0, CheckState.FAIL), (GIB, CheckState.WARN), (GIB * 9, CheckState.OK)],
    ids=["none", "little", "enough"],
)
def test_room_is_judged_by_what_runs_need(free: int, state: CheckState) -> None:
    assert machine.judge_disk(Path("runs"), free).state is state


def test_a_folder_that_cannot_be_written_is_a_failure(tmp_path: Path) -> None:
    assert machine.disk(f"{tmp_path}/not/yet").state in (CheckState.OK, CheckState.WARN)
    code = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); \
from codezero.ops.doctor import disk; print(disk({str(tmp_path)!r}).state)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "fail\n"


@pytest.mark.parametrize(
    ("synchronised", "block", "state"),
    [
        (True, None, CheckState.OK),
        (False, None, CheckState.UNKNOWN),
        (False, 995.0, CheckState.OK),
        (True, 1030.0, CheckState.WARN),
        (True, 1100.0, CheckState.FAIL),
        (True, -9000.0, CheckState.UNKNOWN),
    ],
)
def test_a_clock_is_called_right_only_when_somebody_says_so(
    synchronised: bool, block: float | None, state: CheckState
) -> None:
    assert machine.judge_clock(synchronised, 1000.0, block, 60.0).state is state


def test_memory_is_held_against_what_the_models_need() -> None:
    assert judge_memory("x", 9.0 * GIB, "9.0 GiB (solver 9.0)", 8 * GIB).state is CheckState.FAIL
    assert judge_memory("x", 7.0 * GIB, "7.0 GiB (solver 7.0)", 8 * GIB).state is CheckState.OK
    assert judge_memory("x", None, "", GIB // 2).state is CheckState.FAIL


def test_what_the_hardware_process_did_not_say_is_unknown() -> None:
    told = b'{"check": "torch", "state": "ok", "said": "2.13", "mend": ""}\nnonsense\n{"check": 1}\n[]\n'
    found = machine.read_hardware(told, "its process ended with -11")
    assert [finding.state for finding in found] == [CheckState.OK, CheckState.UNKNOWN, CheckState.UNKNOWN]
    assert "-11" in found[1].text


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
    told = replace(config, announce=[f"/ip4/127.0.0.1/tcp/{port}"])
    assert network.reach(told, None).state is CheckState.OK
    with listening() as other:  # somebody else answers there
        foreign = replace(config, announce=[f"/ip4/127.0.0.1/tcp/{other.getsockname()[1]}"])
        found = network.reach(foreign, None)
    assert found.state is CheckState.UNKNOWN and f"port {port}" in found.mend
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
    found = network.judge_outward(outward, 38331)
    assert found.state is state and words in line(found)


@pytest.mark.parametrize(
    ("missing", "sets", "answers", "state"),
    [
        ([], [], None, CheckState.OK),
        (["a/b"], [], True, CheckState.OK),
        (["a/b"], [], False, CheckState.FAIL),
        (["a/b"], [], None, CheckState.FAIL),
        ([], ["mbpp"], False, CheckState.WARN),
    ],
)
def test_a_hub_that_is_away_matters_when_something_is_missing(
    missing: list[str], sets: list[str], answers: bool | None, state: CheckState
) -> None:
    assert network.judge_hub(missing, ["a/b"], sets, answers).state is state


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
        told = network.block_time(right)
        assert told is not None and abs(told - time.time()) < 3600


def test_identity_and_login_are_told(tmp_path: Path) -> None:
    from codezero.login.store import Folder
    from codezero.login.vault import Passphrase, Scrypt, Vault
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


@pytest.mark.slow
def test_the_command_ends_in_time_with_a_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [f"run.directory={tmp_path / 'runs'}", f"swarm.identity={tmp_path / 'swarm.pem'}", "login.page=off"]
    assert main(["doctor", "--json", *given]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    names = [finding["check"] for finding in told["findings"]]
    assert told["ok"] and names[:5] == ["python", "torch", "device", "memory", "disk"] and len({*names}) == len(names)
    assert {*told["findings"][0]} == {"check", "state", "said", "mend"}
    assert not list(tmp_path.iterdir()), "it left something behind"


@pytest.mark.long
def test_the_command_fails_where_a_node_would(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [f"run.directory={tmp_path / 'runs'}", f"swarm.identity={tmp_path / 'swarm.pem'}", "login.page=off"]
    judge = ["evaluator.kind=openai", "evaluator.url=http://127.0.0.1:1", "evaluator.model=m"]
    assert main(["doctor", *given, *judge]) == 1
    lines = capsys.readouterr().out.splitlines()
    bad = next(one for one in lines if one.startswith("fail"))
    assert "judge" in bad and "cannot be reached" in bad and "start it" in bad
    assert main(["doctor", "seed=x"]) == 2
