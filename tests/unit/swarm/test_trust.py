"""What a hostile peer gets out of this node's memory of it: floods, framing, washing out, waiting, broken files.

Does not show: what the gossip does with the answers. Nothing sleeps; the clock is a number.
"""

import json
import logging
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codezero.swarm import trust
from codezero.swarm.identity import open_to_all, peer_id_of
from codezero.swarm.network_status import PeerLine
from codezero.swarm.schema import MAX_BODY, MAX_ITEMS
from codezero.swarm.serving import CHUNK
from codezero.swarm.trust import MAX_DIGESTS, MAX_FILE, MAX_PEERS, Limits, Offence, PeerRecord, PeerTrust

NOW = 1_700_000_000.0
LIMITS = Limits()
HEAVY = [Offence.FORGED, Offence.DIGEST, Offence.MALFORMED]
LIGHT = [Offence.DUPLICATE, Offence.SILENT]


def peer(number: int) -> str:
    return peer_id_of(number.to_bytes(64, "big"))


ALICE, BOB, MALLORY = peer(0), peer(1), peer(2)


class Clock:
    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def node(limits: Limits = LIMITS, *, clock: Clock | None = None) -> tuple[PeerTrust, Clock]:
    clock = clock or Clock()
    return PeerTrust(open_to_all, clock, limits), clock


def seen(made: PeerTrust, of: str = MALLORY) -> PeerLine:
    return next(one for one in made.report() if one.peer == of)


def cheat(made: PeerTrust, who: str = MALLORY) -> None:
    """Until a quarantine begins."""
    while not made.refusal(who):
        made.blame(who, Offence.FORGED)


def quarantine_length(made: PeerTrust, clock: Clock, who: str = MALLORY) -> float:
    """Seconds until the peer may be dealt with again, where the clock then stands; exact to a minute."""
    began = clock.now
    while made.refusal(who):
        clock.now += 60.0
    return clock.now - began


# Allowances


def test_a_flood_is_refused_after_the_burst() -> None:
    made, clock = node()
    granted = 0
    for tick in range(10):
        clock.now = NOW + tick
        granted += sum(made.spend(MALLORY, size=1000) for _ in range(3000))
    assert granted == LIMITS.requests_burst + 9 * LIMITS.requests_per_second


def test_bytes_are_limited_as_well_as_requests() -> None:
    made, clock = node()
    assert made.spend(MALLORY, size=int(LIMITS.bytes_burst))
    assert not made.spend(MALLORY, size=1) and made.spend(MALLORY, size=0)
    clock.now += 1
    assert not made.spend(MALLORY, size=int(LIMITS.bytes_per_second) + 1)
    assert made.spend(MALLORY, size=int(LIMITS.bytes_per_second))


def test_an_honest_peer_pulls_32_of_the_largest_bodies_at_once() -> None:
    made, _ = node()
    chunks = MAX_ITEMS * MAX_BODY // CHUNK
    assert all(made.spend(ALICE, size=CHUNK) for _ in range(chunks))
    assert all(made.spend(ALICE) for _ in range(3 * chunks))  # each asked for again, in vain


def test_a_refused_request_takes_nothing() -> None:
    made, _ = node()
    for _ in range(1000):
        assert not made.spend(ALICE, size=int(LIMITS.bytes_burst) + 1)
        assert not made.spend(ALICE, requests=int(LIMITS.requests_burst) + 1)
    assert made.spend(ALICE, requests=int(LIMITS.requests_burst), size=int(LIMITS.bytes_burst))


def test_allowances_are_each_peers_own() -> None:
    made, _ = node()
    assert made.spend(MALLORY, requests=256) and not made.spend(MALLORY)
    assert made.spend(ALICE)


def test_waiting_buys_no_more_than_one_burst() -> None:
    made, clock = node()
    made.spend(MALLORY)
    clock.now += 1e7
    assert sum(made.spend(MALLORY) for _ in range(3000)) == LIMITS.requests_burst


def test_a_clock_set_back_does_not_lock_out_and_gives_one_burst_at_most() -> None:
    made, clock = node()
    assert made.spend(ALICE, requests=256) and not made.spend(ALICE)
    clock.now -= 1e6
    assert sum(made.spend(ALICE) for _ in range(3000)) == 256
    clock.now += LIMITS.requests_burst / LIMITS.requests_per_second
    assert made.spend(ALICE, requests=256)


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, 60), st.integers(0, 10_000)), max_size=60))
def test_no_pattern_of_asking_beats_the_allowance(asked: list[tuple[float, int, int]]) -> None:
    limits = replace(LIMITS, requests_per_second=3.0, requests_burst=50.0, bytes_per_second=70.0, bytes_burst=9000.0)
    made, clock = node(limits)
    requests = size = 0
    for pause, wanted, wanted_bytes in asked:
        clock.now += pause
        if made.spend(MALLORY, wanted, wanted_bytes):
            requests, size = requests + wanted, size + wanted_bytes
    assert requests <= 50 + 3 * (clock.now - NOW) + 1e-3 and size <= 9000 + 70 * (clock.now - NOW) + 1e-1


# Penalties and quarantine


@pytest.mark.parametrize("offence", HEAVY)
def test_a_few_heavy_offences_are_a_quarantine(offence: Offence) -> None:
    made, _ = node()
    made.blame(MALLORY, offence)
    assert made.refusal(MALLORY) == "" and made.spend(MALLORY)
    for _ in range(2):
        made.blame(MALLORY, offence)
    assert f"for another 2 min: {offence} (" in made.refusal(MALLORY)
    assert not made.spend(MALLORY)


@pytest.mark.parametrize("offence", LIGHT)
def test_light_offences_need_many(offence: Offence) -> None:
    made, _ = node()
    for _ in range(9):
        made.blame(MALLORY, offence)
    assert made.refusal(MALLORY) == ""
    made.blame(MALLORY, offence)
    assert made.refusal(MALLORY)


def test_one_light_offence_a_round_is_lived_with_when_bodies_come() -> None:
    made, clock = node()
    for _ in range(1000):
        clock.now += 60
        made.blame(ALICE, Offence.SILENT)
        made.praise(ALICE)
        assert made.refusal(ALICE) == ""


@given(st.lists(st.floats(0, 1000), max_size=200))
def test_no_number_of_timeouts_is_a_quarantine(pauses: list[float]) -> None:
    made, clock = node()
    for pause in [*pauses, *[0.0] * 100]:
        clock.now += pause
        made.blame(ALICE, Offence.TIMEOUT)
        assert made.refusal(ALICE) == "" and made.chance(ALICE) >= 0.2


def test_timeouts_neither_begin_nor_lengthen_what_cheating_deserves() -> None:
    made, clock = node()
    cheat(made)
    for _ in range(100):
        made.blame(MALLORY, Offence.FORGED)
    length = quarantine_length(made, clock)
    made.blame(MALLORY, Offence.TIMEOUT)
    assert length == LIMITS.quarantine_seconds and made.refusal(MALLORY) == ""
    assert seen(made).penalty > LIMITS.threshold


def test_a_peer_with_a_bad_line_is_drawn_less_and_recovers() -> None:
    made, clock = node()
    for _ in range(100):
        made.blame(ALICE, Offence.TIMEOUT)
    assert 0 < made.chance(ALICE) < made.chance(BOB) == 1.0
    clock.now += 10 * LIMITS.half_life_seconds
    assert made.chance(ALICE) > 0.99


def test_a_quarantine_ends_and_doubles_with_each_repetition_up_to_a_bound() -> None:
    made, clock = node()
    lengths: list[float] = []
    for _ in range(12):
        cheat(made)
        lengths.append(quarantine_length(made, clock))
    first, longest = LIMITS.quarantine_seconds, LIMITS.longest_quarantine_seconds
    assert lengths == [min(first * 2**number, longest) for number in range(12)]
    assert lengths[-1] == longest


def test_offences_within_a_quarantine_are_no_repetitions() -> None:
    made, clock = node()
    cheat(made)
    until = clock.now + LIMITS.quarantine_seconds
    for _ in range(1000):
        made.blame(MALLORY, Offence.FORGED)
    assert seen(made).penalty <= 2 * LIMITS.threshold
    clock.now = until
    assert made.refusal(MALLORY) == ""


def test_repetitions_are_forgiven_after_a_day_and_not_before() -> None:
    made, clock = node()
    cheat(made)
    quarantine_length(made, clock)
    clock.now += LIMITS.forgiven_seconds
    cheat(made)
    assert quarantine_length(made, clock) == 2 * LIMITS.quarantine_seconds
    clock.now += LIMITS.forgiven_seconds + 1
    cheat(made)
    assert quarantine_length(made, clock) == LIMITS.quarantine_seconds


def test_a_peer_that_served_its_time_needs_a_new_offence_to_go_back() -> None:
    made, clock = node()
    cheat(made)
    clock.now += LIMITS.quarantine_seconds
    made.blame(MALLORY, Offence.DUPLICATE)
    assert made.refusal(MALLORY) == "" and seen(made).penalty < LIMITS.threshold


def test_a_penalty_halves_in_a_half_life() -> None:
    made, clock = node()
    made.blame(MALLORY, Offence.DIGEST)
    before = seen(made).penalty
    clock.now += LIMITS.half_life_seconds
    assert seen(made).penalty == pytest.approx(before / 2)
    made.blame(MALLORY, Offence.DUPLICATE)
    assert seen(made).penalty == pytest.approx(before / 2 + 1)


def test_praise_fades_penalties_faster() -> None:
    made, _ = node()
    for one in (ALICE, BOB):
        made.blame(one, Offence.FORGED)
    made.praise(ALICE)
    assert 0 < seen(made, ALICE).penalty < seen(made, BOB).penalty and made.chance(ALICE) > made.chance(BOB)


def test_praise_buys_nothing_in_advance() -> None:
    made, _ = node()
    for _ in range(1000):
        made.praise(MALLORY, groups=32, size=1000)
    made.blame(ALICE, Offence.FORGED)
    made.blame(MALLORY, Offence.FORGED)
    assert seen(made).penalty == seen(made, ALICE).penalty and made.chance(MALLORY) == made.chance(ALICE)


def test_five_good_bodies_for_a_forged_one_are_not_enough() -> None:
    made, _ = node()
    for _ in range(4):
        for _ in range(5):
            made.praise(MALLORY)
        made.blame(MALLORY, Offence.FORGED)
    assert made.refusal(MALLORY)


def test_praise_does_not_shorten_a_quarantine() -> None:
    made, clock = node()
    cheat(made)
    for _ in range(1000):
        made.praise(MALLORY)
    assert quarantine_length(made, clock) == LIMITS.quarantine_seconds


def test_a_refused_peer_has_the_least_chance_and_an_unknown_one_a_full_one() -> None:
    made, _ = node()
    for _ in range(9):
        made.blame(BOB, Offence.DUPLICATE)
    cheat(made)
    assert 0 < made.chance(MALLORY) < made.chance(BOB) < made.chance(ALICE) == 1.0


def test_a_clock_set_back_by_years_does_not_shut_a_peer_out_for_years() -> None:
    made, clock = node()
    cheat(made)
    clock.now -= 3600
    assert made.refusal(MALLORY)
    clock.now -= 1e8
    assert made.refusal(MALLORY) == "" and seen(made).penalty <= LIMITS.threshold


# Replays


def test_a_body_is_used_once_whoever_sends_it() -> None:
    made, _ = node()
    assert made.first_time(b"a" * 32) and made.first_time(b"b" * 32)
    assert not made.first_time(b"a" * 32) and not made.first_time(b"a" * 32)


def test_a_body_that_is_replayed_again_and_again_stays_remembered() -> None:
    made, _ = node(replace(LIMITS, digests=8))
    made.first_time(b"a" * 32)
    for number in range(1000):
        assert made.first_time(number.to_bytes(32, "big"))
        assert not made.first_time(b"a" * 32)


def test_the_memory_of_bodies_is_bounded() -> None:
    made, _ = node(replace(LIMITS, digests=8))
    for number in range(1000):
        made.first_time(number.to_bytes(32, "big"))
    assert [made.first_time(number.to_bytes(32, "big")) for number in range(999, 991, -1)] == [False] * 8
    assert len(made._used) == 8


# Strangers and the bounds of memory


def test_a_stranger_is_refused_in_words_of_its_own_and_takes_no_memory() -> None:
    made = PeerTrust(lambda one: one == ALICE, Clock())
    for number in range(10, 200):
        made.blame(peer(number), Offence.FORGED)
        made.praise(peer(number))
        assert not made.spend(peer(number))
        assert made.refusal(peer(number)) == "not a member of this swarm"
        assert 0 < made.chance(peer(number)) < made.chance(ALICE)
    assert made.spend(ALICE) and [one.peer for one in made.report()] == [ALICE] and len(made._records) == 1


def test_a_peer_that_leaves_the_swarm_and_comes_back_is_not_washed_clean() -> None:
    members = {MALLORY}
    made = PeerTrust(members.__contains__, Clock())
    cheat(made)
    members.clear()
    assert "member" in made.refusal(MALLORY) and made.report() == []
    members.add(MALLORY)
    assert "quarantined" in made.refusal(MALLORY)


def test_fresh_ids_cannot_wash_out_a_quarantined_peer() -> None:
    made, clock = node(replace(LIMITS, peers=64))
    cheat(made)
    for number in range(10, 1000):
        clock.now += 0.001
        made.spend(peer(number))
        made.praise(peer(number), groups=1)
        for offence in (*LIGHT, Offence.MALFORMED if number % 2 else Offence.TIMEOUT):
            made.blame(peer(number), offence)
        assert len(made._records) <= 64
    assert "quarantined" in made.refusal(MALLORY)


def test_fresh_ids_cannot_wash_out_a_memory_full_of_quarantined_peers() -> None:
    made, _ = node(replace(LIMITS, peers=64))
    guilty = [peer(number) for number in range(10, 72)]
    for one in guilty:
        cheat(made, one)
    for number in range(100, 1000):
        made.spend(peer(number))
    assert all(made.refusal(one) for one in guilty) and len(made._records) <= 64


def test_fresh_ids_cannot_wash_out_a_penalty() -> None:
    made, clock = node(replace(LIMITS, peers=64))
    made.blame(MALLORY, Offence.FORGED)
    for number in range(10, 500):
        clock.now += 0.001
        made.spend(peer(number))
    assert made.chance(MALLORY) < 0.2


def test_fresh_ids_cannot_make_a_quarantine_the_first_again() -> None:
    made, clock = node(replace(LIMITS, peers=64))
    cheat(made)
    clock.now += LIMITS.quarantine_seconds
    for number in range(10, 500):
        made.spend(peer(number))
    cheat(made)
    assert quarantine_length(made, clock) == 2 * LIMITS.quarantine_seconds


def test_when_all_are_quarantined_the_one_with_most_repetitions_stays() -> None:
    made, clock = node(replace(LIMITS, peers=16))
    for _ in range(2):
        cheat(made)
        quarantine_length(made, clock)
    cheat(made)
    for number in range(10, 200):
        cheat(made, peer(number))
    assert "number 3" in made.refusal(MALLORY) and len(made._records) <= 16


def test_of_equally_innocent_peers_the_last_heard_stay() -> None:
    made, clock = node(replace(LIMITS, peers=16))
    for number in range(10, 500):
        clock.now += 1
        made.spend(peer(number))
        made.spend(ALICE)
    assert seen(made, ALICE).heard_seconds_ago == 0
    assert {peer(number) for number in range(490, 500)} < {one.peer for one in made.report()}


def test_a_penalty_that_has_faded_keeps_no_place() -> None:
    made, clock = node(replace(LIMITS, peers=16))
    made.blame(MALLORY, Offence.FORGED)
    clock.now += 10 * LIMITS.half_life_seconds
    for number in range(10, 200):
        clock.now += 1
        made.spend(peer(number))
    assert MALLORY not in {one.peer for one in made.report()}


def test_limits_beyond_what_a_file_holds_are_cut_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "MAX_PEERS", 32)
    monkeypatch.setattr(trust, "MAX_DIGESTS", 32)
    made, _ = node(replace(LIMITS, peers=10**9, digests=10**9))
    for number in range(100):
        made.spend(peer(number))
        made.first_time(number.to_bytes(32, "big"))
    assert len(made._records) <= 32 and len(made._used) == 32


ACTIONS = st.tuples(
    st.sampled_from(["spend", "blame", "praise", "use"]),
    st.integers(0, 12),
    st.sampled_from(list(Offence)),
    st.floats(-100, 5000),
)


def play(made: PeerTrust, clock: Clock, action: tuple[str, int, Offence, float]) -> None:
    name, number, offence, pause = action
    clock.now += pause
    if name == "spend":
        made.spend(peer(number), number, number * 1000)
    elif name == "blame":
        made.blame(peer(number), offence)
    elif name == "praise":
        made.praise(peer(number), groups=number, size=100 * number)
    else:
        made.first_time(bytes([number]) * 32)


@given(st.lists(ACTIONS, max_size=120))
def test_nothing_peers_do_raises_or_leaves_the_bounds(actions: list[tuple[str, int, Offence, float]]) -> None:
    made, clock = node(replace(LIMITS, peers=6, digests=4))
    for action in actions:
        play(made, clock, action)
        for one in made.report():
            assert 0 <= one.penalty <= 2 * LIMITS.threshold and one.heard_seconds_ago >= 0
            assert 0 < made.chance(one.peer) <= 1
            assert (one.state == "ok") == (one.reason == "") and one.reason == made.refusal(one.peer)
        assert len(made._records) <= 6 and len(made._used) <= 4


@given(st.text(max_size=100))
def test_no_name_makes_it_raise(name: str) -> None:
    made, _ = node()
    made.blame(name, Offence.FORGED)
    assert made.refusal(name) == "not a member of this swarm" and not made.spend(name) and made.report() == []


# The report


def test_the_report_says_what_a_peer_did() -> None:
    made, clock = node()
    made.praise(ALICE, groups=3, size=100)
    made.praise(ALICE, groups=2, size=50)
    made.blame(ALICE, Offence.TIMEOUT)
    clock.now += 7
    cheat(made)
    mallory, alice = made.report()
    assert alice == PeerLine(
        peer=ALICE, heard_seconds_ago=7.0, bodies=2, groups=5, size=150, failures={"timeout": 1},
        penalty=alice.penalty, state="ok", reason="",
    )  # fmt: skip
    assert mallory.peer == MALLORY and mallory.state == "quarantined" and mallory.failures == {Offence.FORGED: 2}
    assert mallory.reason == "quarantined for another 2 min: forged (quarantine number 1)"


def test_a_report_is_not_the_memory_itself() -> None:
    made, _ = node()
    made.blame(MALLORY, Offence.DUPLICATE)
    before = made.report()
    made.blame(MALLORY, Offence.DUPLICATE)
    assert before[0].failures == {Offence.DUPLICATE: 1}


def test_a_timeout_is_not_hearing_from_a_peer() -> None:
    made, clock = node()
    made.praise(ALICE)
    clock.now += 50
    made.blame(ALICE, Offence.TIMEOUT)
    assert seen(made, ALICE).heard_seconds_ago == 50
    made.spend(ALICE)
    assert seen(made, ALICE).heard_seconds_ago == 0
    clock.now += 50
    made.blame(ALICE, Offence.DUPLICATE)
    assert seen(made, ALICE).heard_seconds_ago == 0


# The file


@given(st.lists(ACTIONS, max_size=60))
def test_saving_and_loading_change_nothing(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, int, Offence, float]]
) -> None:
    path, (made, clock) = tmp_path_factory.mktemp("trust") / "peers.json", node(replace(LIMITS, peers=6, digests=4))
    for action in actions:
        play(made, clock, action)
    made.save(path)
    again, _ = node(replace(LIMITS, peers=6, digests=4), clock=clock)
    again.load(path)
    assert again.report() == made.report() and again._records == made._records
    assert list(again._used) == list(made._used) and os.listdir(path.parent) == ["peers.json"]


def saved(folder: Path) -> Path:
    made, _ = node()
    cheat(made)
    made.first_time(b"a" * 32)
    made.save(folder / "peers.json")
    return folder / "peers.json"


def test_a_quarantine_goes_on_while_the_node_is_down_and_ends_then(tmp_path: Path) -> None:
    path = saved(tmp_path)
    for later, refused in ((LIMITS.quarantine_seconds - 1, True), (LIMITS.quarantine_seconds, False)):
        made, _ = node(clock=Clock(NOW + later))
        made.load(path)
        assert bool(made.refusal(MALLORY)) == refused and not made.first_time(b"a" * 32)
        assert seen(made).penalty < 5.0


def test_a_restart_does_not_fill_allowances(tmp_path: Path) -> None:
    made, clock = node()
    made.spend(MALLORY, requests=256)
    made.save(tmp_path / "peers.json")
    again, _ = node(clock=clock)
    again.load(tmp_path / "peers.json")
    assert not again.spend(MALLORY)


def test_without_a_file_nothing_changes_and_nothing_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made, _ = node()
    cheat(made)
    made.load(tmp_path / "missing.json")
    made.load(tmp_path / "nowhere" / "missing.json")
    assert made.refusal(MALLORY) and not caplog.records


def test_the_file_is_for_its_owner_alone_and_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "peers.json.part").write_text("of a node that was killed")
    (tmp_path / "peers.json.part").chmod(0o666)
    path = saved(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and os.listdir(tmp_path) == ["peers.json"]
    before = path.read_bytes()
    monkeypatch.setattr(os, "replace", lambda *_: pytest.fail("killed here"))
    made, _ = node()
    with pytest.raises(pytest.fail.Exception):
        made.save(path)
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


DIGEST = "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE="
BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda good: b"",
    "cut": lambda good: good[:-1],
    "followed": lambda good: good + b"x",
    "no json": lambda good: b"\x80\x04\x95.",
    "no text": lambda good: good.replace(b"forged", b"\xff\xfe"),
    "deep": lambda good: b"[" * 200_000,
    "deep in an unknown field": lambda good: b'{"v":1,"x":' + b"[" * 200_000,
    "another version": lambda good: changed(good, v=2),
    "no version": lambda good: b"{}",
    "unknown field": lambda good: changed(good, more=1),
    "from the future": lambda good: changed(good, saved=NOW + 301),
    "no time": lambda good: changed(good, saved=None),
    "endless time": lambda good: good.replace(b'"saved":', b'"saved":1e999,"x":'),
    "no list": lambda good: changed(good, peers={}),
    "too many peers": lambda good: changed(good, peers=json.loads(good)["peers"] * (MAX_PEERS + 1)),
    "short digest": lambda good: changed(good, digests=["YQ=="]),
    "too many digests": lambda good: changed(good, digests=[DIGEST] * (MAX_DIGESTS + 1)),
    "no peer id": lambda good: changed_peer(good, peer="../../etc/passwd"),
    "long peer id": lambda good: changed_peer(good, peer="1" * 100_000),
    "negative penalty": lambda good: changed_peer(good, penalty=-1e9),
    "no number": lambda good: changed_peer(good, penalty=float("nan")),
    "negative count": lambda good: changed_peer(good, quarantines=-1),
    "huge count": lambda good: changed_peer(good, bodies=10**400),
    "unknown offence": lambda good: changed_peer(good, failures={"sneezed": 1}),
    "unknown use": lambda good: changed_peer(good, full={"stealing": [1.0, 1.0]}),
    "unknown peer field": lambda good: changed_peer(good, credit=9),
    "too large": lambda good: good + b" " * MAX_FILE,
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_put_aside_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str) -> None:
    path = saved(tmp_path)
    path.write_bytes(content := BROKEN[case](path.read_bytes()))
    made, _ = node()
    made.praise(ALICE)
    before = made.report()
    made.load(path)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and "peers.json.broken" in record.getMessage()
    assert "\n" not in record.getMessage() and len(record.getMessage()) < 500
    assert not path.exists() and (tmp_path / "peers.json.broken").read_bytes() == content
    assert made.report() == before and made.first_time(b"a" * 32)


def test_a_clock_that_runs_a_little_behind_is_not_the_future(tmp_path: Path) -> None:
    path = saved(tmp_path)
    made, _ = node(clock=Clock(NOW - trust.CLOCK_ERROR))
    made.load(path)
    assert made.refusal(MALLORY) and path.exists()


def test_a_file_that_is_too_large_is_not_read_to_its_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "endless").symlink_to("/dev/zero")
    node()[0].load(tmp_path / "endless")
    assert "not a regular file" in caplog.text and (tmp_path / "endless.broken").is_symlink()


def test_what_is_no_file_does_not_hang_or_stop_the_node(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        node()[0].load(tmp_path / name)
        assert (tmp_path / f"{name}.broken").exists()
    (tmp_path / "peers.json.broken").mkdir()
    (tmp_path / "peers.json").write_text("broken, and cannot be put aside")
    node()[0].load(tmp_path / "peers.json")
    assert len(caplog.records) == 3


def test_a_full_memory_fits_into_the_file() -> None:
    count, late = 2**53 - 1, NOW + 0.1234567
    failures, full = dict.fromkeys(Offence, count), {"serving": (late, late)}
    numbers = (late, late, 19.999999999999996, late, Offence.DIGEST, count, count, count, count)
    record = PeerRecord("1" * 64, *numbers, failures, full)
    one, digest = len(msgspec.json.encode(record)) + 1, len(msgspec.json.encode(b"a" * 32)) + 1
    assert one * MAX_PEERS + digest * MAX_DIGESTS + 1000 < MAX_FILE


def test_a_file_of_a_node_with_more_room_keeps_the_guiltiest(tmp_path: Path) -> None:
    made, _ = node(replace(LIMITS, peers=64, digests=64))
    cheat(made)
    for number in range(10, 60):
        made.spend(peer(number))
        made.first_time(number.to_bytes(32, "big"))
    made.save(tmp_path / "peers.json")
    small, _ = node(replace(LIMITS, peers=8, digests=8))
    small.load(tmp_path / "peers.json")
    assert small.refusal(MALLORY) and len(small.report()) <= 8
    assert not small.first_time((59).to_bytes(32, "big")) and small.first_time((10).to_bytes(32, "big"))


def test_a_file_with_one_byte_changed_is_loaded_or_put_aside(tmp_path: Path) -> None:
    path, aside = saved(tmp_path), tmp_path / "peers.json.broken"
    good = path.read_bytes()
    for at in range(0, len(good), 3):
        aside.unlink(missing_ok=True)
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x11]) + good[at + 1 :])
        made, _ = node()
        made.load(path)
        assert aside.exists() != path.exists() and len(made.report()) == path.exists()


# -- trust is earned


def test_invented_ids_do_not_crowd_out_who_earned_trust() -> None:
    made, _ = node()
    invented, known = [peer(number) for number in range(10, 1010)], [ALICE, BOB]
    for who in known:
        for _ in range(trust.EARNED):
            made.praise(who)
    shares = made.shares([*invented, *known])
    assert shares[ALICE] == shares[BOB] == 1.0
    assert 0 < sum(shares[who] for who in invented) < 0.26 * sum(shares.values())


def test_a_swarm_where_all_are_new_shares_equally() -> None:
    made, _ = node()
    assert len(set(made.shares([ALICE, BOB, MALLORY]).values())) == 1
    made.blame(MALLORY, Offence.DUPLICATE)
    shares = made.shares([ALICE, BOB, MALLORY])
    assert 0 < shares[MALLORY] < shares[ALICE] == shares[BOB]
    assert made.shares([]) == {}


def test_a_share_grows_with_fine_bodies_up_to_a_whole_one() -> None:
    made, _ = node()
    for _ in range(trust.EARNED):
        made.praise(BOB)
    before = 0.0
    for _ in range(trust.EARNED + 3):
        made.praise(ALICE)
        share = made.shares([ALICE, BOB, MALLORY])[ALICE]
        assert before < share or before == share == 1.0
        before = share


def test_fresh_ids_cannot_wash_out_earned_trust() -> None:
    made, clock = node(Limits(peers=64))
    for _ in range(trust.EARNED):
        made.praise(ALICE)
    for number in range(10, 1000):
        clock.now += 1
        made.spend(peer(number))
    assert made.shares([ALICE, MALLORY])[ALICE] == 1.0
