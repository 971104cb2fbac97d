"""Points are kept, sealed when they should be, sent once, and told about."""

import contextlib
import itertools
import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from builders.anvil import BACKENDS
from builders.chain import Swarm, found, reward_of
from eth_utils import to_checksum_address
from hexbytes import HexBytes

from codezero.chain.contract import ContractCoordinator, Sender, SignedTransaction
from codezero.chain.errors import ContractError
from codezero.chain.outbox import PROBLEM, ChainOutbox, OutboxStatus, OutboxStore, read_status
from codezero.chain.provider import ChainClient
from codezero.chain.wallet import KeystoreWallet
from codezero.errors import ChainError


@pytest.fixture(scope="module", params=BACKENDS)
def swarm(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Swarm]:
    with found(tmp_path_factory.mktemp("swarm"), request.param) as swarm:
        swarm.open_round(2)
        yield swarm


@pytest.fixture
def member(swarm: Swarm, tmp_path: Path) -> Iterator[ContractCoordinator]:
    member = swarm.member(tmp_path / "key.json")
    yield member
    member.close()


def outbox(folder: Path, member: ContractCoordinator, peer: str, **settings: float) -> ChainOutbox:
    return ChainOutbox(folder / "outbox.db", member, peer, **({"every": 0.02, "settle_seconds": 0.0} | settings))  # pyright: ignore[reportArgumentType]


def until(path: Path, **wanted: int) -> OutboxStatus:
    """Wait for these counts; the test's time limit is the deadline."""
    while True:
        status = read_status(path)
        if all(getattr(status, name) == count for name, count in wanted.items()):
            return status
        time.sleep(0.02)


def test_a_round_is_its_mean_and_its_most_frequent_vote(tmp_path: Path, member: ContractCoordinator) -> None:
    box = outbox(tmp_path, member, "QmMean", settle_seconds=60.0)
    for number, (reward, vote) in enumerate(((0.5, "QmA"), (1.0, "QmB"), (0.25, "QmB"), (0.25, None))):
        box.add(number, 0, reward, vote)
    box.add(4, 1, 0.0, None)
    status = until(tmp_path / "outbox.db", accepted=2)
    assert (reward_of(member, 0, "QmMean"), member._ask("getVoterVotes", 0, "QmMean")) == (500, ["QmB"])
    assert status.last is not None and status.last.round == 0 and status.last.hash.startswith("0x")
    assert box.close(60)


def test_an_iteration_counts_once_however_often_it_is_repeated(tmp_path: Path, member: ContractCoordinator) -> None:
    """After a kill before its checkpoint, also when its first round is sealed."""
    for life, repeated in enumerate(((1, 2, 3, 4), (3, 4, 5), (3, 4, 5, 6))):
        with closing(OutboxStore(tmp_path / "outbox.db")) as store:
            for iteration in repeated:
                store.add(iteration, life, 0.25 * (life + (iteration == 1)), f"Qm{life}")
            if life == 1:
                store.seal(0)
            points = store._connection.execute("SELECT * FROM iterations WHERE round > 0").fetchall()
            assert store.collecting() == [[0], [1], [1, 2]][life]
    assert points == [(5, 1, 0.25, "Qm1"), (6, 2, 0.5, "Qm2")]
    box = outbox(tmp_path, member, "QmRepeats")
    assert box.close(60) and reward_of(member, 0, "QmRepeats") == 62  # (0.25 + 3 * 0.0) / 4


def test_nobody_votes_for_themselves(tmp_path: Path, member: ContractCoordinator) -> None:
    box = outbox(tmp_path, member, "QmSelf")
    box.add(1, 0, 0.5, "QmSelf")
    assert box.close(60)
    assert (reward_of(member, 0, "QmSelf"), member._ask("getVoterVotes", 0, "QmSelf")) == (500, [])


def test_an_open_round_waits_for_its_end(tmp_path: Path, swarm: Swarm, member: ContractCoordinator) -> None:
    current = swarm.owner.read_round()
    box = outbox(tmp_path, member, "QmOpen", settle_seconds=60.0)
    box.add(1, current, 0.5, None)
    box.add(2, current - 1, 0.5, None)
    until(tmp_path / "outbox.db", accepted=1, collecting=1)
    assert reward_of(member, current, "QmOpen") is None
    assert box.close(60)
    assert reward_of(member, current, "QmOpen") == 500


def test_an_open_round_is_submitted_after_its_time(tmp_path: Path, swarm: Swarm, member: ContractCoordinator) -> None:
    current = swarm.owner.read_round()
    box = outbox(tmp_path, member, "QmTimed", submit_after=0.0)
    box.add(1, current, 0.5, None)
    until(tmp_path / "outbox.db", accepted=1)
    assert reward_of(member, current, "QmTimed") == 500
    box.close(60)


def test_late_points_count_in_the_next_round(tmp_path: Path, member: ContractCoordinator) -> None:
    box = outbox(tmp_path, member, "QmLate")
    box.add(1, 0, 0.5, None)
    until(tmp_path / "outbox.db", accepted=1)
    box.add(2, 0, 1.0, None)
    until(tmp_path / "outbox.db", accepted=2)
    assert (reward_of(member, 0, "QmLate"), reward_of(member, 1, "QmLate")) == (500, 1000)
    box.close(60)


@pytest.mark.slow
def test_a_last_round_is_noticed_and_said_until_another_opens(
    tmp_path: Path, swarm: Swarm, member: ContractCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    current = swarm.owner.read_round()
    box = outbox(tmp_path, member, "QmLast", submit_after=0.0, round_seconds=0.2)
    for number in itertools.takewhile(lambda _: "stays open" not in read_status(box.path).problem, itertools.count()):
        box.add(number, current, 0.25, None)
        time.sleep(0.05)
    time.sleep(0.5)
    assert sum("stays open" in record.message for record in caplog.records) == 1
    swarm.open_round(current + 1)
    while read_status(box.path).problem:
        time.sleep(0.05)
    assert box.close(60)
    assert (reward_of(member, current, "QmLast"), reward_of(member, current + 1, "QmLast")) == (250, 250)


@pytest.mark.slow
def test_points_outlive_a_chain_that_is_away(tmp_path: Path, swarm: Swarm, caplog: pytest.LogCaptureFixture) -> None:
    nowhere = ChainClient(["http://127.0.0.1:9"], swarm.chain_id, seconds=0.5)
    wallet = KeystoreWallet.ephemeral(tmp_path / "key.json")
    box = outbox(tmp_path, ContractCoordinator(nowhere, swarm.contract, Sender(nowhere, wallet)), "QmAway")
    for number in (0, 1):
        box.add(number, number, 0.5, "QmA")
    while not (problem := read_status(box.path).problem):
        time.sleep(0.02)
    time.sleep(2.0)
    assert "cannot be reached" in problem and read_status(box.path).collecting == 2
    assert not box.close(0.1)
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1  # however often it was tried
    back = outbox(tmp_path, swarm.member(tmp_path / "key.json"), "QmAway")
    status = until(tmp_path / "outbox.db", accepted=4, collecting=0)
    assert (status.pending, status.reasons) == (0, {})
    back.close()


def test_an_earlier_life_is_recognised(tmp_path: Path, swarm: Swarm, member: ContractCoordinator) -> None:
    """Everything was sent by a process that heard of nothing, not even the hash."""
    member.register("QmAgain")
    member.send("submitReward", 0, 0, 500, "QmAgain")
    member.send("submitWinners", 0, ["QmA"], "QmAgain")
    box = outbox(tmp_path, member, "QmAgain")
    box.add(1, 0, 0.5, "QmA")
    status = until(tmp_path / "outbox.db", accepted=2)
    assert status.last is not None and status.last.reason == "found on the chain"
    box.close(60)
    events = [event for page in member.history(0, ["RewardSubmitted"]) for event in page.events]
    assert sum(event["args"]["peerId"] == "QmAgain" for event in events) == 1


def test_anothers_peer_id_is_a_problem_that_is_told_not_a_success(
    tmp_path: Path, swarm: Swarm, member: ContractCoordinator
) -> None:
    swarm.owner.register("QmForeign")
    box = outbox(tmp_path, member, "QmForeign")
    box.add(1, 0, 0.5, None)
    while not (status := read_status(box.path)).problem:
        time.sleep(0.02)
    assert swarm.owner.account in status.problem and member.account in status.problem
    assert (status.pending, status.accepted) == (1, 0)
    box.close(0.1)


def test_what_the_contract_refuses_for_good_is_given_up_with_its_reason(
    tmp_path: Path, member: ContractCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    store = OutboxStore(tmp_path / "outbox.db")
    for number in (0, 1):
        store.add(number, number, 0.5, "QmRefused")  # an own vote, as a careless program would leave it
    store.close()
    box = outbox(tmp_path, member, "QmRefused")
    status = until(tmp_path / "outbox.db", accepted=2, refused=2)
    while not status.problem:  # it is published after what it is about
        time.sleep(0.02)
        status = read_status(box.path)
    assert list(status.reasons.values()) == [2]
    assert "the voter itself" in next(iter(status.reasons)) and "the voter itself" in status.problem
    assert sum("the voter itself" in record.message for record in caplog.records if record.levelname == "ERROR") == 1
    box.close(60)


def test_the_file_belongs_to_one_peer_and_one_process(tmp_path: Path, member: ContractCoordinator) -> None:
    box = outbox(tmp_path, member, "QmOwner")
    with pytest.raises(ChainError, match="used by another process"):
        outbox(tmp_path, member, "QmOwner")
    box.close(60)
    with pytest.raises(ChainError, match="points of peer QmOwner, not of QmOther"):
        outbox(tmp_path, member, "QmOther")
    outbox(tmp_path, member, "QmOwner").close()


def test_a_problem_does_not_outlive_its_process(tmp_path: Path, member: ContractCoordinator) -> None:
    store = OutboxStore(tmp_path / "outbox.db")
    store.note(PROBLEM, "the chain cannot be reached")
    store.close()
    assert read_status(tmp_path / "outbox.db").problem == "the chain cannot be reached"  # of one that was killed
    outbox(tmp_path, member, "QmKilled").close()
    assert read_status(tmp_path / "outbox.db").problem == ""


def test_a_damaged_file_is_named_and_kept(tmp_path: Path, member: ContractCoordinator) -> None:
    (tmp_path / "outbox.db").write_bytes(b"not a database" * 100)
    with pytest.raises(ChainError, match="cannot be used"):
        outbox(tmp_path, member, "QmDamaged")
    with pytest.raises(ChainError, match="cannot be read"):
        read_status(tmp_path / "outbox.db")
    assert (tmp_path / "outbox.db").read_bytes().startswith(b"not a database")


def test_a_locked_file_keeps_points_in_memory(
    tmp_path: Path, member: ContractCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codezero.chain.outbox.BUSY_SECONDS", 0.05)
    box = outbox(tmp_path, member, "QmLocked")
    with closing(sqlite3.connect(tmp_path / "outbox.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        box.add(1, 0, 0.5, None)
        other.execute("COMMIT")
    other.close()
    until(tmp_path / "outbox.db", accepted=1)
    box.close(60)


def test_the_wall_clock_decides_nothing(
    tmp_path: Path, member: ContractCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = outbox(tmp_path, member, "QmClock")
    for number, now in enumerate((4e9, 0.0, -1e9)):
        monkeypatch.setattr("codezero.chain.outbox.time.time", lambda now=now: now)
        box.add(number, number, 0.5, "QmA")
    assert box.close(60)
    assert box.close(60)
    assert [reward_of(member, number, "QmClock") for number in range(3)] == [500, 500, 500]


# ---- one transaction, at most once


def test_a_killed_process_leaves_one_transaction_under_its_nonce(
    swarm: Swarm, member: ContractCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between signing and sending, or between sending and the receipt."""
    member.register("QmBytes")
    sent: list[bytes] = []

    def die(sender: Sender, transaction: SignedTransaction) -> None:
        sent.append(transaction.raw)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Sender, "_send", die)
        member.send("submitReward", 0, 0, 1, "QmBytes")
    assert reward_of(member, 0, "QmBytes") is None
    member.send("submitReward", 0, 0, 1, "QmBytes")
    account = to_checksum_address(member.account)
    count = swarm.client.eth.get_transaction_count(account)
    with contextlib.suppress(ChainError):
        swarm.client.eth.send_raw_transaction(HexBytes(sent[0]))
    assert swarm.client.eth.get_transaction_count(account) == count
    with pytest.raises(ContractError, match="already submitted"):
        member.send("submitReward", 0, 0, 1, "QmBytes")


def test_a_used_nonce_is_signed_anew(
    swarm: Swarm, member: ContractCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process with the account was faster: what was signed before can never be mined."""
    member.register("QmNonce")
    signed: list[SignedTransaction] = []
    sign = Sender._sign

    def overtaken(sender: Sender, to: str | None, data: bytes) -> SignedTransaction:
        transaction = sign(sender, to, data)
        signed.append(transaction)
        if len(signed) == 1:
            member.register("QmFaster")
        return transaction

    monkeypatch.setattr(Sender, "_sign", overtaken)
    receipt = member.send("submitReward", 0, 0, 1, "QmNonce")
    assert receipt["transactionHash"].to_0x_hex() == signed[-1].hash
    assert signed[-1].nonce == signed[0].nonce + 1
