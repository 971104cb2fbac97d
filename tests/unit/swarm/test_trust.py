"""What a hostile peer gets out of this node's memory of it: floods, framing, washing out, waiting, broken files.

Does not show: what the gossip does with the answers. Nothing sleeps; the clock is a number."""

import json
import logging
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from builders.swarm import Clock
from hypothesis import given
from hypothesis import strategies as st

from codezero.swarm import trust
from codezero.swarm.calls import CHUNK
from codezero.swarm.identity import open_to_all, peer_id_of
from codezero.swarm.network_status import PeerLine
from codezero.swarm.trust import MAX_DIGESTS, MAX_FILE, MAX_PEERS, Limits, Offence, PeerRecord, PeerTrust
from codezero.swarm.wire import MAX_BODY, MAX_ITEMS

NOW = 1_700_000_000.0
LIMITS = Limits()
LIGHT = [Offence.DUPLICATE, Offence.SILENT]


def peer(number: int) -> str:
    return peer_id_of(number.to_bytes(64, "big"))


ALICE, BOB, MALLORY = peer(0), peer(1), peer(2)


def node(limits: Limits = LIMITS, *, clock: Clock | None = None) -> tuple[PeerTrust, Clock]:
    clock = clock or Clock(NOW)
    return PeerTrust(open_to_all, clock, limits), clock


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


@pytest.fixture
def memory(clock: Clock) -> PeerTrust:
    return node(clock=clock)[0]


def seen(memory: PeerTrust, of: str = MALLORY) -> PeerLine:
    return next(one for one in memory.report() if one.peer == of)


def cheat(memory: PeerTrust, who: str = MALLORY) -> None:
    """Until a quarantine begins."""
    while not memory.refusal(who):
        memory.blame(who, Offence.FORGED)


def quarantine_length(memory: PeerTrust, clock: Clock, who: str = MALLORY) -> float:
    """Seconds until the peer may be dealt with again, where the clock then stands; exact to a minute."""
    began = clock.now
    while memory.refusal(who):
        clock.now += 60.0
    return clock.now - began


def test_a_flood_is_refused_after_the_burst(memory: PeerTrust, clock: Clock) -> None:
    granted = 0
    for tick in range(10):
        clock.now = NOW + tick
        granted += sum(memory.spend(MALLORY, size=1000) for _ in range(3000))
    assert granted == LIMITS.requests_burst + 9 * LIMITS.requests_per_second


def test_bytes_are_limited_as_well_as_requests(memory: PeerTrust, clock: Clock) -> None:
    assert memory.spend(MALLORY, size=int(LIMITS.bytes_burst))
    assert not memory.spend(MALLORY, size=1) and memory.spend(MALLORY, size=0)
    clock.now += 1
    assert not memory.spend(MALLORY, size=int(LIMITS.bytes_per_second) + 1)
    assert memory.spend(MALLORY, size=int(LIMITS.bytes_per_second))


def test_an_honest_peer_pulls_32_of_the_largest_bodies_at_once(memory: PeerTrust) -> None:
    chunks = MAX_ITEMS * MAX_BODY // CHUNK
    assert all(memory.spend(ALICE, size=CHUNK) for _ in range(chunks))
    assert all(memory.spend(ALICE) for _ in range(3 * chunks))  # each asked for again, in vain


def test_a_refused_request_takes_nothing(memory: PeerTrust) -> None:
    for _ in range(1000):
        assert not memory.spend(ALICE, size=int(LIMITS.bytes_burst) + 1)
        assert not memory.spend(ALICE, requests=int(LIMITS.requests_burst) + 1)
    assert memory.spend(ALICE, requests=int(LIMITS.requests_burst), size=int(LIMITS.bytes_burst))


def test_waiting_buys_no_more_than_one_burst(memory: PeerTrust, clock: Clock) -> None:
    memory.spend(MALLORY)
    clock.now += 1e7
    assert sum(memory.spend(MALLORY) for _ in range(3000)) == LIMITS.requests_burst


def test_a_clock_set_back_does_not_lock_out_and_gives_one_burst_at_most(memory: PeerTrust, clock: Clock) -> None:
    assert memory.spend(ALICE, requests=256) and not memory.spend(ALICE)
    clock.now -= 1e6
    assert sum(memory.spend(ALICE) for _ in range(3000)) == 256
    clock.now += LIMITS.requests_burst / LIMITS.requests_per_second
    assert memory.spend(ALICE, requests=256)


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, 60), st.integers(0, 10_000)), max_size=60))
def test_no_pattern_of_asking_beats_the_allowance(asked: list[tuple[float, int, int]]) -> None:
    limits = replace(LIMITS, requests_per_second=3.0, requests_burst=50.0, bytes_per_second=70.0, bytes_burst=9000.0)
    memory, clock = node(limits)
    requests = size = 0
    for pause, wanted, wanted_bytes in asked:
        clock.now += pause
        if memory.spend(MALLORY, wanted, wanted_bytes):
            requests, size = requests + wanted, size + wanted_bytes
    assert requests <= 50 + 3 * (clock.now - NOW) + 1e-3 and size <= 9000 + 70 * (clock.now - NOW) + 1e-1


@pytest.mark.parametrize(
    ("offence", "needed"),
    [(Offence.FORGED, 2), (Offence.DIGEST, 2), (Offence.MALFORMED, 3), *((light, 10) for light in LIGHT)],
)
def test_a_few_heavy_offences_or_many_light_ones_are_a_quarantine(offence: Offence, needed: int) -> None:
    memory, _ = node()
    for _ in range(needed - 1):
        memory.blame(MALLORY, offence)
    assert memory.refusal(MALLORY) == "" and memory.spend(MALLORY)
    memory.blame(MALLORY, offence)
    assert f"for another 2 min: {offence} (" in memory.refusal(MALLORY)
    assert not memory.spend(MALLORY)


def test_one_light_offence_a_round_is_lived_with_when_bodies_come(memory: PeerTrust, clock: Clock) -> None:
    for _ in range(1000):
        clock.now += 60
        memory.blame(ALICE, Offence.SILENT)
        memory.praise(ALICE)
        assert memory.refusal(ALICE) == ""


@given(st.lists(st.floats(0, 1000), max_size=200))
def test_no_number_of_timeouts_is_a_quarantine(pauses: list[float]) -> None:
    memory, clock = node()
    for pause in [*pauses, *[0.0] * 100]:
        clock.now += pause
        memory.blame(ALICE, Offence.TIMEOUT)
        assert memory.refusal(ALICE) == "" and memory.chance(ALICE) >= 0.2


def test_timeouts_neither_begin_nor_lengthen_what_cheating_deserves(memory: PeerTrust, clock: Clock) -> None:
    cheat(memory)
    for _ in range(100):
        memory.blame(MALLORY, Offence.FORGED)
    length = quarantine_length(memory, clock)
    memory.blame(MALLORY, Offence.TIMEOUT)
    assert length == LIMITS.quarantine_seconds and memory.refusal(MALLORY) == ""
    assert seen(memory).penalty > LIMITS.threshold


def test_a_peer_with_a_bad_line_is_drawn_less_and_recovers(memory: PeerTrust, clock: Clock) -> None:
    for _ in range(100):
        memory.blame(ALICE, Offence.TIMEOUT)
    assert 0 < memory.chance(ALICE) < memory.chance(BOB) == 1.0
    clock.now += 10 * LIMITS.half_life_seconds
    assert memory.chance(ALICE) > 0.99


def test_a_quarantine_ends_and_doubles_with_each_repetition_up_to_a_bound(memory: PeerTrust, clock: Clock) -> None:
    lengths: list[float] = []
    for _ in range(12):
        cheat(memory)
        lengths.append(quarantine_length(memory, clock))
    first, longest = LIMITS.quarantine_seconds, LIMITS.longest_quarantine_seconds
    assert lengths == [min(first * 2**number, longest) for number in range(12)]
    assert lengths[-1] == longest


def test_repetitions_are_forgiven_after_a_day_and_not_before(memory: PeerTrust, clock: Clock) -> None:
    cheat(memory)
    quarantine_length(memory, clock)
    clock.now += LIMITS.forgiven_seconds
    cheat(memory)
    assert quarantine_length(memory, clock) == 2 * LIMITS.quarantine_seconds
    clock.now += LIMITS.forgiven_seconds + 1
    cheat(memory)
    assert quarantine_length(memory, clock) == LIMITS.quarantine_seconds


def test_a_penalty_halves_in_a_half_life(memory: PeerTrust, clock: Clock) -> None:
    memory.blame(MALLORY, Offence.DIGEST)
    before = seen(memory).penalty
    clock.now += LIMITS.half_life_seconds
    assert seen(memory).penalty == pytest.approx(before / 2)
    memory.blame(MALLORY, Offence.DUPLICATE)
    assert seen(memory).penalty == pytest.approx(before / 2 + 1)


def test_praise_fades_penalties_faster(memory: PeerTrust) -> None:
    for one in (ALICE, BOB):
        memory.blame(one, Offence.FORGED)
    memory.praise(ALICE)
    assert 0 < seen(memory, ALICE).penalty < seen(memory, BOB).penalty and memory.chance(ALICE) > memory.chance(BOB)


def test_praise_buys_nothing_in_advance(memory: PeerTrust) -> None:
    for _ in range(1000):
        memory.praise(MALLORY, groups=32, size=1000)
    memory.blame(ALICE, Offence.FORGED)
    memory.blame(MALLORY, Offence.FORGED)
    assert seen(memory).penalty == seen(memory, ALICE).penalty and memory.chance(MALLORY) == memory.chance(ALICE)


def test_five_good_bodies_for_a_forged_one_are_not_enough(memory: PeerTrust) -> None:
    for _ in range(4):
        for _ in range(5):
            memory.praise(MALLORY)
        memory.blame(MALLORY, Offence.FORGED)
    assert memory.refusal(MALLORY)


def test_praise_does_not_shorten_a_quarantine(memory: PeerTrust, clock: Clock) -> None:
    cheat(memory)
    for _ in range(1000):
        memory.praise(MALLORY)
    assert quarantine_length(memory, clock) == LIMITS.quarantine_seconds


def test_a_refused_peer_has_the_least_chance_and_an_unknown_one_a_full_one(memory: PeerTrust) -> None:
    for _ in range(9):
        memory.blame(BOB, Offence.DUPLICATE)
    cheat(memory)
    assert 0 < memory.chance(MALLORY) < memory.chance(BOB) < memory.chance(ALICE) == 1.0


def test_a_clock_set_back_by_years_does_not_shut_a_peer_out_for_years(memory: PeerTrust, clock: Clock) -> None:
    cheat(memory)
    clock.now -= 3600
    assert memory.refusal(MALLORY)
    clock.now -= 1e8
    assert memory.refusal(MALLORY) == "" and seen(memory).penalty <= LIMITS.threshold


def test_a_body_that_is_replayed_again_and_again_stays_remembered() -> None:
    memory, _ = node(replace(LIMITS, digests=8))
    memory.read[b"a" * 32] = None
    for number in range(1000):
        memory.read[number.to_bytes(32, "big")] = None
        assert b"a" * 32 in memory.read
        memory.read[b"a" * 32] = None


def test_a_stranger_is_refused_in_words_of_its_own_and_takes_no_memory() -> None:
    memory = PeerTrust(lambda one: one == ALICE, Clock(NOW))
    for number in range(10, 200):
        memory.blame(peer(number), Offence.FORGED)
        memory.praise(peer(number))
        assert not memory.spend(peer(number))
        assert memory.refusal(peer(number)) == "not a member of this swarm"
        assert 0 < memory.chance(peer(number)) < memory.chance(ALICE)
    assert memory.spend(ALICE) and [one.peer for one in memory.report()] == [ALICE] and len(memory._records) == 1


def test_a_peer_that_leaves_the_swarm_and_comes_back_is_not_washed_clean() -> None:
    members = {MALLORY}
    memory = PeerTrust(members.__contains__, Clock(NOW))
    cheat(memory)
    members.clear()
    assert "member" in memory.refusal(MALLORY) and memory.report() == []
    members.add(MALLORY)
    assert "quarantined" in memory.refusal(MALLORY)


def test_fresh_ids_cannot_wash_out_a_quarantined_peer() -> None:
    memory, clock = node(replace(LIMITS, peers=64))
    cheat(memory)
    for number in range(10, 1000):
        clock.now += 0.001
        memory.spend(peer(number))
        memory.praise(peer(number), groups=1)
        for offence in (*LIGHT, Offence.MALFORMED if number % 2 else Offence.TIMEOUT):
            memory.blame(peer(number), offence)
        assert len(memory._records) <= 64
    assert "quarantined" in memory.refusal(MALLORY)


def test_fresh_ids_wash_out_neither_a_penalty_nor_an_earlier_quarantine_nor_earned_trust() -> None:
    memory, clock = node(replace(LIMITS, peers=64))
    cheat(memory)
    clock.now += LIMITS.quarantine_seconds
    memory.blame(BOB, Offence.FORGED)
    for _ in range(trust.EARNED):
        memory.praise(ALICE)
    for number in range(10, 1000):
        clock.now += 0.001
        memory.spend(peer(number))
    assert memory.chance(BOB) < 0.2 and memory.shares([ALICE, peer(5)])[ALICE] == 1.0
    cheat(memory)
    assert quarantine_length(memory, clock) == 2 * LIMITS.quarantine_seconds


def test_when_all_are_quarantined_the_one_with_most_repetitions_stays() -> None:
    memory, clock = node(replace(LIMITS, peers=16))
    for _ in range(2):
        cheat(memory)
        quarantine_length(memory, clock)
    cheat(memory)
    for number in range(10, 200):
        cheat(memory, peer(number))
    assert "number 3" in memory.refusal(MALLORY) and len(memory._records) <= 16


def test_of_equally_innocent_peers_the_last_heard_stay() -> None:
    memory, clock = node(replace(LIMITS, peers=16))
    for number in range(10, 500):
        clock.now += 1
        memory.spend(peer(number))
        memory.spend(ALICE)
    assert seen(memory, ALICE).heard_seconds_ago == 0
    assert {peer(number) for number in range(490, 500)} < {one.peer for one in memory.report()}


def test_a_penalty_that_has_faded_keeps_no_place() -> None:
    memory, clock = node(replace(LIMITS, peers=16))
    memory.blame(MALLORY, Offence.FORGED)
    clock.now += 10 * LIMITS.half_life_seconds
    for number in range(10, 200):
        clock.now += 1
        memory.spend(peer(number))
    assert MALLORY not in {one.peer for one in memory.report()}


def test_limits_beyond_what_a_file_holds_are_cut_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "MAX_PEERS", 32)
    monkeypatch.setattr(trust, "MAX_DIGESTS", 32)
    memory, _ = node(replace(LIMITS, peers=10**9, digests=10**9))
    for number in range(100):
        memory.spend(peer(number))
        memory.read[number.to_bytes(32, "big")] = None
    assert len(memory._records) <= 32 and len(memory.read) == 32


ACTIONS = st.tuples(
    st.sampled_from(["spend", "blame", "praise", "use"]),
    st.integers(0, 12),
    st.sampled_from(list(Offence)),
    st.floats(-100, 5000),
)


def play(memory: PeerTrust, clock: Clock, action: tuple[str, int, Offence, float]) -> None:
    name, number, offence, pause = action
    clock.now += pause
    if name == "spend":
        memory.spend(peer(number), number, number * 1000)
    elif name == "blame":
        memory.blame(peer(number), offence)
    elif name == "praise":
        memory.praise(peer(number), groups=number, size=100 * number)
    else:
        memory.read[bytes([number]) * 32] = None


@given(st.lists(ACTIONS, max_size=120))
def test_nothing_peers_do_raises_or_leaves_the_bounds(actions: list[tuple[str, int, Offence, float]]) -> None:
    memory, clock = node(replace(LIMITS, peers=6, digests=4))
    for action in actions:
        play(memory, clock, action)
        for one in memory.report():
            assert 0 <= one.penalty <= 2 * LIMITS.threshold and one.heard_seconds_ago >= 0
            assert 0 < memory.chance(one.peer) <= 1
            assert (one.state == "ok") == (one.reason == "") and one.reason == memory.refusal(one.peer)
        assert len(memory._records) <= 6 and len(memory.read) <= 4


@given(st.text(max_size=100))
def test_no_name_makes_it_raise(name: str) -> None:
    memory, _ = node()
    memory.blame(name, Offence.FORGED)
    assert memory.refusal(name) == "not a member of this swarm" and not memory.spend(name) and memory.report() == []


def test_the_report_says_what_a_peer_did(memory: PeerTrust, clock: Clock) -> None:
    memory.praise(ALICE, groups=3, size=100)
    memory.praise(ALICE, groups=2, size=50)
    memory.blame(ALICE, Offence.TIMEOUT)
    clock.now += 7
    cheat(memory)
    mallory, alice = memory.report()
    assert alice == PeerLine(
        peer=ALICE, heard_seconds_ago=7.0, bodies=2, groups=5, size=150, failures={"timeout": 1},
        penalty=alice.penalty, state="ok", reason="",
    )  # fmt: skip
    assert mallory.peer == MALLORY and mallory.state == "quarantined" and mallory.failures == {Offence.FORGED: 2}
    assert mallory.reason == "quarantined for another 2 min: forged (quarantine number 1)"


def test_a_timeout_is_not_hearing_from_a_peer(memory: PeerTrust, clock: Clock) -> None:
    memory.praise(ALICE)
    clock.now += 50
    memory.blame(ALICE, Offence.TIMEOUT)
    assert seen(memory, ALICE).heard_seconds_ago == 50
    memory.spend(ALICE)
    assert seen(memory, ALICE).heard_seconds_ago == 0
    clock.now += 50
    memory.blame(ALICE, Offence.DUPLICATE)
    assert seen(memory, ALICE).heard_seconds_ago == 0


@given(st.lists(ACTIONS, max_size=60))
def test_saving_and_loading_change_nothing(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, int, Offence, float]]
) -> None:
    path, (memory, clock) = tmp_path_factory.mktemp("trust") / "peers.json", node(replace(LIMITS, peers=6, digests=4))
    for action in actions:
        play(memory, clock, action)
    memory.save(path)
    again, _ = node(replace(LIMITS, peers=6, digests=4), clock=clock)
    again.load(path)
    assert again.report() == memory.report() and again._records == memory._records
    assert list(again.read) == list(memory.read) and os.listdir(path.parent) == ["peers.json"]


def saved(folder: Path) -> Path:
    memory, _ = node()
    cheat(memory)
    memory.read[b"a" * 32] = None
    memory.save(folder / "peers.json")
    return folder / "peers.json"


def test_a_quarantine_goes_on_while_the_node_is_down_and_ends_then(tmp_path: Path) -> None:
    path = saved(tmp_path)
    for later, refused in ((LIMITS.quarantine_seconds - 1, True), (LIMITS.quarantine_seconds, False)):
        memory, _ = node(clock=Clock(NOW + later))
        memory.load(path)
        assert bool(memory.refusal(MALLORY)) == refused and b"a" * 32 in memory.read
        assert seen(memory).penalty < 5.0


def test_a_restart_does_not_fill_allowances(tmp_path: Path) -> None:
    memory, clock = node()
    memory.spend(MALLORY, requests=256)
    memory.save(tmp_path / "peers.json")
    again, _ = node(clock=clock)
    again.load(tmp_path / "peers.json")
    assert not again.spend(MALLORY)


def test_without_a_file_nothing_changes_and_nothing_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    memory, _ = node()
    cheat(memory)
    memory.load(tmp_path / "missing.json")
    memory.load(tmp_path / "nowhere" / "missing.json")
    assert memory.refusal(MALLORY) and not caplog.records


def test_the_file_is_for_its_owner_alone_and_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "peers.json.part").write_text("of a node that was killed")
    (tmp_path / "peers.json.part").chmod(0o666)
    path = saved(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and os.listdir(tmp_path) == ["peers.json"]
    before = path.read_bytes()
    monkeypatch.setattr(os, "replace", lambda *_: pytest.fail("killed here"))
    memory, _ = node()
    with pytest.raises(pytest.fail.Exception):
        memory.save(path)
    assert path.read_bytes() == before


def test_a_link_laid_in_wait_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "peers.json.part").symlink_to(tmp_path / "victim")
    saved(tmp_path)
    assert (tmp_path / "victim").read_text() == "mine" and not (tmp_path / "peers.json").is_symlink()


def test_a_state_that_cannot_be_saved_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node()[0].save(tmp_path / "nowhere" / "peers.json")
    (tmp_path / "folder").mkdir()
    node()[0].save(tmp_path / "folder")
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "cannot be written" in caplog.text


def changed(good: bytes, **fields: object) -> bytes:
    return json.dumps(json.loads(good) | fields).encode()


def changed_peer(good: bytes, **fields: object) -> bytes:
    return changed(good, peers=[json.loads(good)["peers"][0] | fields])


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda good: b"",
    "cut": lambda good: good[:-1],
    "no json": lambda good: b"\x80\x04\x95.",
    "no text": lambda good: good.replace(b"forged", b"\xff\xfe"),
    "deep": lambda good: b"[" * 200_000,
    "deep in an unknown field": lambda good: b'{"v":1,"x":' + b"[" * 200_000,
    "another version": lambda good: changed(good, v=2),
    "unknown field": lambda good: changed(good, more=1),
    "from the future": lambda good: changed(good, saved=NOW + 301),
    "endless time": lambda good: good.replace(b'"saved":', b'"saved":1e999,"x":'),
    "too many peers": lambda good: changed(good, peers=json.loads(good)["peers"] * (MAX_PEERS + 1)),
    "no peer id": lambda good: changed_peer(good, peer="../../etc/passwd"),
    "negative penalty": lambda good: changed_peer(good, penalty=-1e9),
    "no number": lambda good: changed_peer(good, penalty=float("nan")),
    "huge count": lambda good: changed_peer(good, bodies=10**400),
    "unknown offence": lambda good: changed_peer(good, failures={"sneezed": 1}),
    "unknown peer field": lambda good: changed_peer(good, credit=9),
    "too large": lambda good: good + b" " * MAX_FILE,
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_put_aside_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str) -> None:
    path = saved(tmp_path)
    path.write_bytes(content := BROKEN[case](path.read_bytes()))
    memory, _ = node()
    memory.praise(ALICE)
    before = memory.report()
    memory.load(path)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and "peers.json.broken" in record.getMessage()
    assert "\n" not in record.getMessage() and len(record.getMessage()) < 500
    assert not path.exists() and (tmp_path / "peers.json.broken").read_bytes() == content
    assert memory.report() == before and b"a" * 32 not in memory.read


def test_a_clock_that_runs_a_little_behind_is_not_the_future(tmp_path: Path) -> None:
    path = saved(tmp_path)
    memory, _ = node(clock=Clock(NOW - trust.CLOCK_ERROR))
    memory.load(path)
    assert memory.refusal(MALLORY) and path.exists()


def test_what_is_no_file_does_not_hang_or_stop_the_node(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name in ("pipe", "folder", "endless"):
        node()[0].load(tmp_path / name)
        assert (tmp_path / f"{name}.broken").exists()
    (tmp_path / "peers.json.broken").mkdir()
    (tmp_path / "peers.json").write_text("broken, and cannot be put aside")
    node()[0].load(tmp_path / "peers.json")
    assert len(caplog.records) == 4


def test_a_full_memory_fits_into_the_file() -> None:
    count, late = 2**53 - 1, NOW + 0.1234567
    failures, full = dict.fromkeys(Offence, count), {"serving": (late, late)}
    numbers = (late, late, 19.999999999999996, late, Offence.DIGEST, count, count, count, count)
    record = PeerRecord("1" * 64, *numbers, failures, full)
    one, digest = len(msgspec.json.encode(record)) + 1, len(msgspec.json.encode(b"a" * 32)) + 1
    assert one * MAX_PEERS + digest * MAX_DIGESTS + 1000 < MAX_FILE


def test_a_file_of_a_node_with_more_room_keeps_the_guiltiest(tmp_path: Path) -> None:
    memory, _ = node(replace(LIMITS, peers=64, digests=64))
    cheat(memory)
    for number in range(10, 60):
        memory.spend(peer(number))
        memory.read[number.to_bytes(32, "big")] = None
    memory.save(tmp_path / "peers.json")
    small, _ = node(replace(LIMITS, peers=8, digests=8))
    small.load(tmp_path / "peers.json")
    assert small.refusal(MALLORY) and len(small.report()) <= 8
    assert (59).to_bytes(32, "big") in small.read and (10).to_bytes(32, "big") not in small.read


def test_a_file_with_one_byte_changed_is_loaded_or_put_aside(tmp_path: Path) -> None:
    path, aside = saved(tmp_path), tmp_path / "peers.json.broken"
    good = path.read_bytes()
    for at in range(0, len(good), 3):
        aside.unlink(missing_ok=True)
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x11]) + good[at + 1 :])
        memory, _ = node()
        memory.load(path)
        assert aside.exists() != path.exists() and len(memory.report()) == path.exists()


def test_invented_ids_do_not_crowd_out_who_earned_trust(memory: PeerTrust) -> None:
    invented, known = [peer(number) for number in range(10, 1010)], [ALICE, BOB]
    for who in known:
        for _ in range(trust.EARNED):
            memory.praise(who)
    shares = memory.shares([*invented, *known])
    assert shares[ALICE] == shares[BOB] == 1.0
    assert 0 < sum(shares[who] for who in invented) < 0.26 * sum(shares.values())


def test_a_swarm_where_all_are_new_shares_equally(memory: PeerTrust) -> None:
    assert len(set(memory.shares([ALICE, BOB, MALLORY]).values())) == 1
    memory.blame(MALLORY, Offence.DUPLICATE)
    shares = memory.shares([ALICE, BOB, MALLORY])
    assert 0 < shares[MALLORY] < shares[ALICE] == shares[BOB]
    assert memory.shares([]) == {}


def test_a_share_grows_with_fine_bodies_up_to_a_whole_one(memory: PeerTrust) -> None:
    for _ in range(trust.EARNED):
        memory.praise(BOB)
    before = 0.0
    for _ in range(trust.EARNED + 3):
        memory.praise(ALICE)
        share = memory.shares([ALICE, BOB, MALLORY])[ALICE]
        assert before < share or before == share == 1.0
        before = share
