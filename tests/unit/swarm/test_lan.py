"""The local network names its swarm, and whatever else is announced there costs a second and nothing more."""

import os
from contextlib import ExitStack
from functools import partial

import pytest

from codezero.chain.invitation import ChainPart, Invitation, JudgePart, NetworkPart, encode_code
from codezero.commands import run as joining
from codezero.errors import ConfigError, InviteError
from codezero.swarm import lan
from codezero.swarm.identity import Identity

LOOPBACK = ["127.0.0.1"]


def code(name: str, peer: str) -> str:
    """Of an invitation that nobody signed: a code has no signature."""
    network = NetworkPart(name, 1, [f"/ip4/192.0.2.7/tcp/38331/p2p/{peer}"])
    contract = "0x" + "12" * 20
    chain = ChainPart(1, ["http://127.0.0.1:8545"], contract, 60.0, "")
    return encode_code(Invitation(1, contract, chain, network, JudgePart("nano", "")))


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return Identity.load_or_create(tmp_path_factory.mktemp("identity") / "swarm.pem").peer_id


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a name of its own: a founder who runs on this machine is none of the test's."""
    monkeypatch.setattr(lan, "SERVICE", f"_cz{os.getpid()}._tcp.local.")
    monkeypatch.setattr(joining, "LAN_SECONDS", 5.0)
    monkeypatch.setattr(lan, "listen", partial(lan.listen, interfaces=LOOPBACK))


@pytest.mark.usefixtures("loopback")
def test_the_announced_swarm_is_found_among_junk(peer: str, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [code("mine", peer), "\x1b[31m${oc.env:HOME}" + 20 * "r"]
    with ExitStack() as stack:
        for text in texts:
            stack.enter_context(lan.announced(text, 38331, LOOPBACK))
        assert joining._announced_code() == texts[0]
    said = capsys.readouterr().out
    assert "joining mine at /ip4/192.0.2.7/tcp/38331" in said and "\x1b" not in said


@pytest.mark.usefixtures("loopback")
def test_of_two_swarms_none_is_joined(peer: str) -> None:
    with (
        lan.announced(code("mine", peer), 38331, LOOPBACK),
        lan.announced(code("theirs", peer), 38331, LOOPBACK),
        pytest.raises(InviteError, match="2 swarms are announced") as failure,
    ):
        joining._announced_code()
    assert "mine: codezero swarm join cz1" in str(failure.value) and "theirs: codezero" in str(failure.value)


@pytest.mark.usefixtures("loopback")
def test_silence_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "LAN_SECONDS", 0.5)
    with pytest.raises(InviteError, match="no swarm is announced on the local network"):
        joining._announced_code()


def test_a_code_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="announce fewer addresses"), lan.announced("c" * 241, 1, LOOPBACK):
        pass
