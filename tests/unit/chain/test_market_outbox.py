"""Anchors and ballots in the outbox: sent once, after all points; an anchor ends with its round."""

import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from builders.chain import Swarm, found, fund
from eth_utils.crypto import keccak

from codezero.chain.contract import MARKET, ContractCoordinator, deploy
from codezero.chain.market import ContractMarket, peer_key
from codezero.chain.outbox import ChainOutbox
from codezero.chain.outbox_db import KEPT_ROUNDS, OutboxStore, SignedTransaction, read_status
from codezero.chain.sender import Sender
from codezero.chain.wallet import KeystoreWallet
from codezero.errors import ChainError

ROOT, OTHER, GAME, SHOWN = (keccak(text=text) for text in ("root", "other", "game", "shown"))


@dataclass(frozen=True)
class Place:
    """A swarm with a market, and an account in it."""

    swarm: Swarm
    member: ContractCoordinator
    market: ContractMarket

    def events(self, name: str, peer: str) -> list[Any]:
        pages = self.market.history(0, [name], [[f"0x{peer_key(peer).hex()}"]])
        return [event for page in pages for event in page.events]

    def next_round(self) -> int:
        self.swarm.open_round(self.swarm.owner.read_round() + 1)
        return self.swarm.owner.read_round()


def marketed(swarm: Swarm) -> str:
    assert swarm.owner._sender is not None
    return deploy(swarm.owner._sender, MARKET, swarm.contract)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with found(tmp_path_factory.mktemp("swarm")) as swarm:
        member = swarm.member(tmp_path_factory.mktemp("member") / "key.json")
        yield Place(swarm, member, ContractMarket(member, marketed(swarm)))
        member.close()


def outbox(folder: Path, place: Place, peer: str, market: ContractMarket | None = None) -> ChainOutbox:
    path, market = folder / "outbox.db", market or place.market
    return ChainOutbox(path, place.member, peer, market=market, settle_seconds=0.0, every=0.02)


def rows(path: Path, kinds: str = "'anchor', 'ballot'") -> dict[tuple[int, str], tuple[str, str]]:
    """State and reason by round and kind."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(f"SELECT round, kind, state, reason FROM submissions WHERE kind IN ({kinds})")
        return {(number, kind): (state, reason) for number, kind, state, reason in found}


def until(path: Path, key: tuple[int, str], state: str) -> str:
    """Wait for this state; the test's time limit is the deadline. Returns the reason."""
    while (row := rows(path).get(key, ("", "")))[0] != state:
        time.sleep(0.02)
    return row[1]


def test_what_is_queued_is_on_the_chain_once(tmp_path: Path, place: Place) -> None:
    box, now = outbox(tmp_path, place, "QmOnce"), place.swarm.owner.read_round()
    for _ in range(3):
        box.anchor(now, ROOT)
        box.ballot(now, [GAME], [3], SHOWN)
        until(box.path, (now, "anchor"), "accepted")
        until(box.path, (now, "ballot"), "accepted")
    assert box.close(60)
    assert place.market.anchors(now).get(peer_key("QmOnce")) == ROOT
    [cast] = place.market.ballots(now, ["QmOnce"])
    assert (cast.peer, cast.ballot.games, cast.ballot.answers) == ("QmOnce", (GAME,), (3,))
    status = read_status(box.path)
    assert (status.accepted, status.pending, status.last, status.problem) == (0, 0, None, "")  # it counts points


def test_a_round_has_one_root_and_one_ballot(tmp_path: Path, place: Place) -> None:
    box, now = outbox(tmp_path, place, "QmTwo"), place.swarm.owner.read_round()
    box.anchor(now, ROOT)
    box.ballot(now, [GAME], [0], SHOWN)
    for _ in range(2):
        with pytest.raises(ChainError, match="another anchor already"):
            box.anchor(now, OTHER)
        with pytest.raises(ChainError, match="another ballot already"):
            box.ballot(now, [GAME], [1], SHOWN)
        until(box.path, (now, "anchor"), "accepted")
    assert box.close(60)
    assert [event["args"]["root"] for event in place.events("Anchored", "QmTwo")] == [ROOT]


def test_an_anchor_ends_with_its_round(tmp_path: Path, place: Place, caplog: pytest.LogCaptureFixture) -> None:
    late = place.swarm.owner.read_round()
    now = place.next_round()
    box = outbox(tmp_path, place, "QmLate")
    box.anchor(late, ROOT)
    assert "only the round that is open" in until(box.path, (late, "anchor"), "refused")
    box.anchor(now, OTHER)
    until(box.path, (now, "anchor"), "accepted")
    assert box.close(60)
    assert place.market.anchors(late).get(peer_key("QmLate")) is None
    status = read_status(box.path)
    assert (status.refused, status.problem) == (0, "") and "points are kept back" not in caplog.text
    assert "anchors and ballots" not in caplog.text  # it is too late, and nothing is wrong


def test_an_anchor_waits_for_its_round(tmp_path: Path, place: Place) -> None:
    now = place.swarm.owner.read_round()
    box = outbox(tmp_path, place, "QmEarly")
    box.anchor(now + 1, ROOT)
    time.sleep(0.3)
    assert rows(box.path)[now + 1, "anchor"][0] == "pending"
    place.next_round()
    until(box.path, (now + 1, "anchor"), "accepted")
    assert box.close(60)


@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize("value", [ROOT, OTHER])
def test_an_earlier_life_is_recognised(tmp_path: Path, place: Place, over: bool, value: bytes) -> None:
    """It was anchored by a process that heard of nothing, not even the hash; perhaps the round is over since."""
    peer, now = f"QmLife{over}{value.hex()[:4]}", place.next_round()
    place.member.register(peer)
    place.market.send("anchor", now, value, peer)
    if over:
        place.next_round()
    box = outbox(tmp_path, place, peer)
    box.anchor(now, ROOT)
    reason = until(box.path, (now, "anchor"), "accepted")
    assert reason == "found on the chain" + ("" if value == ROOT else " with another value")
    assert box.close(60) and len(place.events("Anchored", peer)) == 1


def test_an_anchor_that_was_signed_and_never_sent_ends_with_its_round(tmp_path: Path, place: Place) -> None:
    """Its bytes are forgotten: nothing can send them later."""
    peer, late = "QmSigned", place.swarm.owner.read_round()
    place.next_round()
    store = OutboxStore(tmp_path / "outbox.db")
    store.queue(late, "anchor", ROOT.hex())
    [anchor] = store.unsettled(("anchor", "ballot"))
    store.record(anchor, SignedTransaction("0x" + 64 * "a", 10**6, b"never sent"))
    store.close()
    box = outbox(tmp_path, place, peer)
    until(box.path, (late, "anchor"), "refused")
    assert box.close(60)
    with closing(sqlite3.connect(box.path)) as connection:
        assert connection.execute("SELECT count(*) FROM signed").fetchone() == (0,)


@pytest.mark.slow
def test_a_market_that_fails_holds_up_no_points(tmp_path: Path, place: Place, caplog: pytest.LogCaptureFixture) -> None:
    broken = ContractMarket(place.member, place.swarm.contract)  # which has no such function
    box, now = outbox(tmp_path, place, "QmBroken", broken), place.swarm.owner.read_round()
    box.anchor(now, ROOT)
    box.ballot(now, [GAME], [0], SHOWN)
    for number in range(3):
        box.add(number, now, 0.5, "QmA")
        now, before = place.next_round(), now
        while place.member.reward_of(before, "QmBroken") is None:
            time.sleep(0.02)
    while read_status(box.path).accepted < 6:
        time.sleep(0.02)
    assert read_status(box.path).problem == ""
    assert "anchors and ballots" in caplog.text and "points are kept back" not in caplog.text
    assert {state for state, _ in rows(box.path, "'ballot'").values()} == {"pending"}
    assert not box.close(0.1)


def test_points_go_first(tmp_path: Path, place: Place) -> None:
    now = place.next_round()
    store = OutboxStore(tmp_path / "outbox.db")
    store.queue(now - 1, "ballot", "{}")
    store.queue(now, "anchor", ROOT.hex())
    waiting = store.unsettled(("anchor", "ballot"))
    assert [(submission.kind, submission.round) for submission in waiting] == [("anchor", now), ("ballot", now - 1)]
    store.settle(waiting[1], "refused")
    for number in (now - 1, now):
        store.add(number, number, 0.5, "QmA")
    assert store.collecting() == [now - 1, now]  # an anchor of the round keeps no points from it
    store.seal(now)
    assert [submission.kind for submission in store.unsettled()] == ["reward", "vote"] * 2
    store.close()
    box = outbox(tmp_path, place, "QmFirst")
    until(box.path, (now, "anchor"), "accepted")
    assert box.close(60)
    pages = place.member.history(0, ["RewardSubmitted", "WinnerSubmitted"])
    points = [event for page in pages for event in page.events if event["args"]["peerId"] == "QmFirst"]
    [anchor] = place.events("Anchored", "QmFirst")
    assert len(points) == 4 and max(event["blockNumber"] for event in points) < anchor["blockNumber"]


def test_without_a_market_nothing_is_queued(tmp_path: Path, place: Place) -> None:
    box = ChainOutbox(tmp_path / "outbox.db", place.member, "QmNone", every=0.02)
    with pytest.raises(ChainError, match="no market"):
        box.anchor(0, ROOT)
    with pytest.raises(ChainError, match="no ballot"):
        box.ballot(0, [GAME], [], SHOWN)
    assert box.close(60) and rows(box.path) == {}


def test_old_rounds_of_the_market_leave_the_file(tmp_path: Path) -> None:
    store = OutboxStore(tmp_path / "outbox.db")
    for number in range(0, 3 * KEPT_ROUNDS, KEPT_ROUNDS // 2):
        store.queue(number, "anchor", ROOT.hex())
        store.add(number, number, 0.5, None)
        store.seal(number)
        for submission in (*store.unsettled(), *store.unsettled(("anchor", "ballot"))):
            store.settle(submission, "accepted")
    store.close()
    kept = sorted(number for number, _ in rows(tmp_path / "outbox.db"))
    assert kept == [150, 200, 250]
    assert len(rows(tmp_path / "outbox.db", "'reward'")) == 6


# ---- kill -9

POINTS = ("before recording", "recorded", "sent", "mined")
DYING = """
import os, signal, sys
from pathlib import Path
from codezero.chain import sender as sending
from codezero.chain.contract import ContractCoordinator
from codezero.chain.market import ContractMarket
from codezero.chain.outbox import ChainOutbox
from codezero.chain.outbox_db import OutboxStore
from codezero.chain.provider import ChainClient
from codezero.chain.submitter import Submitter
from codezero.chain.wallet import KeystoreWallet

url, chain_id, contract, address, keystore, outbox, root = sys.argv[1:8]
current = ""

def around(cls, name, before, after, due=lambda: current == kind):
    real = getattr(cls, name)
    def wrapped(*a, **k):
        before and due() and os.kill(os.getpid(), signal.SIGKILL)
        answer = real(*a, **k)
        after and due() and os.kill(os.getpid(), signal.SIGKILL)
        return answer
    setattr(cls, name, wrapped)

def submitting(self, submission):
    global current
    current = submission.kind
    return submit(self, submission)

submit, Submitter._submit = Submitter._submit, submitting

def live(point):
    rpc = ChainClient([url], int(chain_id), seconds=60.0)
    coordinator = ContractCoordinator(rpc, contract, sending.Sender(rpc, KeystoreWallet.ephemeral(Path(keystore))))
    coordinator.register("QmCrash")
    around(OutboxStore, "record", point == "before recording", point == "recorded")
    around(sending.Sender, "_send", False, point == "sent")
    around(OutboxStore, "settle", point == "mined", False)
    around(OutboxStore, "queue", point == "before queueing", point == "queued", lambda: True)  # only what is told here
    box = ChainOutbox(Path(outbox), coordinator, "QmCrash", market=ContractMarket(coordinator, address), every=0.01)
    box.add(1, 0, 0.5, "QmA")
    if kind == "ballot":
        box.ballot(0, [bytes(32)], [1], bytes(32))
    elif kind == "anchor":
        box.anchor(0, bytes.fromhex(root))
    box.close(60)

for life in sys.argv[8:]:  # forked, because the imports take longer than the rest
    kind, point = life.split(":")
    child = os.fork()
    if not child:
        live(point)
        os._exit(0)
    print(life, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_kill_at_each_step_leaves_one_of_each_submission(tmp_path: Path) -> None:
    lives = [f"{kind}:{point}" for kind in ("reward", "vote") for point in POINTS]
    lives += [f"{kind}:{point}" for kind in ("anchor", "ballot") for point in ("before queueing", "queued", *POINTS)]
    with found(tmp_path) as swarm:
        address = marketed(swarm)
        fund(swarm.client, KeystoreWallet.ephemeral(tmp_path / "key.json").address)
        arguments = [swarm.url, str(swarm.chain_id), swarm.contract, address]
        arguments += [str(tmp_path / "key.json"), str(tmp_path / "outbox.db"), ROOT.hex()]
        done = subprocess.run([sys.executable, "-c", DYING, *arguments, *lives], capture_output=True, text=True)
        assert done.stdout.splitlines() == [f"{life} {-signal.SIGKILL}" for life in lives], done.stderr
        sender = Sender(swarm.client, KeystoreWallet.ephemeral(tmp_path / "key.json"))
        member = ContractCoordinator(swarm.client, swarm.contract, sender)
        place = Place(swarm, member, ContractMarket(member, address))
        assert outbox(tmp_path, place, "QmCrash").close(60)
        assert [event["args"]["root"] for event in place.events("Anchored", "QmCrash")] == [ROOT]
        assert len(place.events("Judged", "QmCrash")) == 1
        rewards = [event for page in member.history(0, ["RewardSubmitted"]) for event in page.events]
        assert [(event["args"]["roundNumber"], event["args"]["reward"]) for event in rewards] == [(0, 500)]
        states = rows(tmp_path / "outbox.db", "'reward', 'vote', 'anchor', 'ballot'")
        assert {kind: state for (_, kind), (state, _) in states.items()} == dict.fromkeys(
            ("reward", "vote", "anchor", "ballot"), "accepted"
        )
        member.close()
