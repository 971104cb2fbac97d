"""Clients of the original are served as they are: without a token, by the orgId that their scripts find."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.node_api import Client, Member, contract, serving

from codezero.chain.contract import read_artifact
from codezero.errors import LoginError
from codezero.login.node_api import ORG_FILE, is_local, legacy_id
from codezero.login.store import Folder

AWK = r"""BEGIN { FS = "\"" } !/^[ \t]*[{}]/ { print $(NF - 1); exit }"""
"""How the original's start script finds the id."""


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Member]]:
    with contract(tmp_path_factory.mktemp("swarm")) as found:
        yield found


@pytest.fixture(scope="module")
def client(members: list[Member]) -> Iterator[Client]:
    with serving(members[0].transact, legacy=True) as served:
        yield served


def test_its_client_registers_submits_and_votes(client: Client, members: list[Member]) -> None:
    chain = members[0].coordinator
    status, told = client.old("register-peer", peerId="QmOld")
    assert status == 200 and isinstance(told, dict) and re.fullmatch("0x[0-9a-f]{64}", told["hash"])
    assert client.old("register-peer", peerId="QmOld") == (
        400,
        {"error": "PeerIdAlreadyRegistered", "message": "this peer id is already registered"},
    )
    assert client.old("submit-reward", roundNumber=0, stageNumber=0, reward=12, peerId="QmOld")[0] == 200
    assert client.old("submit-winner", roundNumber=0, winners=["QmNew"], peerId="QmOld")[0] == 200
    assert chain.reward_of(0, "QmOld") == 12 and chain.ballot_of(0, "QmOld") == ["QmNew"]
    status, told = client.old("submit-reward", roundNumber=0, stageNumber=0, reward=13, peerId="QmOld")
    assert status == 400 and isinstance(told, dict) and told["error"] == "RewardAlreadySubmitted"


def test_its_start_script_sees_that_the_key_is_active(client: Client) -> None:
    assert client.ask(f"get-api-key-status?orgId={client.org_id}", Authorization="") == (200, "activated")


@pytest.mark.parametrize("org_id", ["", "__proto__", "00000000-0000-4000-8000-000000000000", "é" * 36])
def test_another_id_is_not_admitted(client: Client, org_id: str) -> None:
    status, _ = client.old("register-peer", org_id, peerId="QmStranger")
    assert status == 401
    assert client.ask("register-peer", {"orgId": org_id, "peerId": "QmStranger"}, Authorization="")[0] == 401


def test_no_id_at_all_is_not_admitted(client: Client) -> None:
    assert client.ask("register-peer", {"orgId": None, "peerId": "QmStranger"}, Authorization="")[0] == 401
    assert client.ask("register-peer", {"peerId": "QmStranger"}, Authorization="")[0] == 401


def test_a_wrong_token_is_not_made_good_by_the_id(client: Client) -> None:
    body = {"orgId": client.org_id, "peerId": "QmStranger"}
    assert client.ask("register-peer", body, Authorization="Bearer wrong")[0] == 401


@pytest.mark.parametrize("header", [{"Origin": "http://localhost:3000"}, {"Sec_Fetch_Site": "none"}])
def test_a_browser_is_not_admitted(client: Client, header: dict[str, str]) -> None:
    body = {"orgId": client.org_id, "peerId": "QmStranger"}
    assert client.ask("register-peer", body, Authorization="", **header)[0] == 403


def test_the_id_alone_opens_nothing_while_it_is_switched_off(members: list[Member], client: Client) -> None:
    with serving(members[0].transact) as strict:
        assert strict.old("register-peer", client.org_id, peerId="QmStranger")[0] == 401


@pytest.mark.parametrize(
    ("remote", "admitted"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("127.8.9.1", True),
        ("192.168.1.7", False),
        ("fe80::1%eth0", False),
        ("", False),
    ],
)
def test_only_this_machine_is_admitted(remote: str, admitted: bool) -> None:
    assert is_local(remote) is admitted


def test_the_id_is_kept_where_the_original_s_scripts_look_for_it(tmp_path: Path) -> None:
    made = legacy_id(Folder(tmp_path))
    path = tmp_path / ORG_FILE
    found = subprocess.run(["awk", AWK, str(path)], capture_output=True, text=True, check=True).stdout
    assert found.strip() == made == legacy_id(Folder(tmp_path))
    assert json.loads(path.read_text()) == {made: {"orgId": made}}
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_without_an_id_is_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write(ORG_FILE, b"{}")
    with pytest.raises(LoginError, match=r"userData\.json holds no orgId; remove it"):
        legacy_id(folder)


def test_the_original_s_own_client(client: Client, members: list[Member], tmp_path: Path) -> None:
    connections = pytest.importorskip(
        "genrl.blockchain.connections", reason="gensyn-genrl is not installed; its requests are replayed above"
    )
    from genrl.blockchain.coordinator import SwarmCoordinator

    chain = members[0].coordinator
    abi = tmp_path / "abi.json"
    abi.write_text(json.dumps({"abi": read_artifact().abi}))
    url = f"http://localhost:{client.port}/api/"
    sent = connections.send_via_api(client.org_id, url, "register-peer", {"peerId": "QmGenrl"})
    assert sent["hash"].startswith("0x")
    reward = {"roundNumber": 0, "stageNumber": 0, "reward": 3, "peerId": "QmGenrl"}
    connections.send_via_api(client.org_id, url, "submit-reward", reward)
    connections.send_via_api(
        client.org_id, url, "submit-winner", {"roundNumber": 0, "winners": ["QmOld"], "peerId": "QmGenrl"}
    )
    assert chain.reward_of(0, "QmGenrl") == 3 and chain.ballot_of(0, "QmGenrl") == ["QmOld"]
    assert SwarmCoordinator(chain.client.urls[0], chain.contract, str(abi)).get_round_and_stage() == (0, 0)
