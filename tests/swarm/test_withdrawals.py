"""A problem taken back: dropped where it is on offer, refused when it comes again, and by nobody but its own author.

Does not show: a real network; `test_gossip.py` does.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders_swarm import SWARM, fast_identity, group, make_swarm, problem, scored
from test_exchange import ROUND, Clock, Peer, peers

from codezero.errors import CheckpointError, SwarmError
from codezero.swarm import records
from codezero.swarm.hivemind_swarm import HivemindSwarm
from codezero.swarm.local import LocalHub, LocalSwarm
from codezero.swarm.messages import Heard, Message, Publish
from codezero.swarm.offers import AUTHORS, PROPOSALS_KEPT, WITHDRAWN_EACH, Offers
from codezero.swarm.records import Place
from codezero.swarm.schema import MAX_ITEMS, PROPOSALS, WITHDRAWALS
from codezero.swarm.wire import (
    body_digest,
    claimed,
    decode_proposals,
    decode_withdrawals,
    encode_header,
    encode_proposals,
    encode_withdrawals,
)
from codezero.types import Problem

A, B, C = (fast_identity(seed).peer_id for seed in (1, 2, 3))


class Network:
    """In the place of the network process: what it heard, and what it was sent."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.sent: list[Message] = []
        self.counts = Counter[str]()
        self.restarts = self.neighbours = 0
        self.down = False

    def check(self) -> None:
        if self.down:
            raise SwarmError("the network process was started again")

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def take_heard(self) -> list[Heard]:
        taken, self.heard = self.heard, []
        return taken

    def offers(self, author: str, *problems: Problem) -> None:
        body = encode_proposals(problems, peer=author, round_number=1)
        self.heard.append(Heard(PROPOSALS, author, 1, body, bytes(32)))

    def takes_back(self, author: str, *ids: str) -> None:
        for start in range(0, len(ids), MAX_ITEMS):
            body = encode_withdrawals(ids[start : start + MAX_ITEMS], peer=author, round_number=1)
            self.heard.append(Heard(WITHDRAWALS, author, 1, body, bytes(32)))

    def told(self, kind: str = WITHDRAWALS) -> list[list[str]]:
        """Ids of each message of a kind that was sent."""
        bodies = [one.body for one in self.sent if isinstance(one, Publish) and one.kind == kind]
        if kind == WITHDRAWALS:
            return [list(decode_withdrawals(body)[2]) for body in bodies]
        return [[one.id for one in decode_proposals(body)[2]] for body in bodies]


def handle(folder: Path, name: str = "node") -> tuple[HivemindSwarm, Network]:
    swarm, network = make_swarm(folder, name), Network()
    fake: Any = network
    swarm._network = fake
    return swarm, network


def offered(swarm: HivemindSwarm | LocalSwarm) -> list[tuple[str | None, str]]:
    return [(one.proposer, one.question) for one in swarm.proposals(1)]


def test_what_its_author_takes_back_is_dropped_and_refused_when_it_comes_again(tmp_path: Path) -> None:
    swarm, network = handle(tmp_path)
    bad, good = problem("bad"), problem("good")
    network.offers(A, bad, good)
    assert len(offered(swarm)) == 2
    network.takes_back(A, bad.id)
    assert offered(swarm) == [(A, "good")]
    network.offers(A, bad, problem("newer"))
    assert offered(swarm) == [(A, "newer"), (A, "good")]
    measured = swarm.metrics()
    told = ("withdrawals_heard", "offers_withdrawn", "refused_withdrawn", "refused")
    assert [measured[f"swarm/{name}"] for name in told] == [1, 1, 1, 1]


def test_a_withdrawal_that_comes_before_the_offer_holds_too(tmp_path: Path) -> None:
    swarm, network = handle(tmp_path)
    network.takes_back(A, problem("bad").id)
    network.offers(A, problem("bad"))
    assert offered(swarm) == []


def test_nobody_takes_back_another_s_problem(tmp_path: Path) -> None:
    swarm, network = handle(tmp_path)
    mine, hers = problem("mine"), problem("hers")
    swarm.offer([mine], 1)
    network.offers(A, hers)
    network.takes_back(B, mine.id, hers.id)
    network.takes_back(A, mine.id)
    assert offered(swarm) == [(A, "hers"), (swarm.peer_id, "mine")]
    assert swarm.metrics()["swarm/offers_withdrawn"] == 0


@pytest.mark.parametrize("first", [A, B])
def test_who_copies_a_problem_takes_back_the_copy_alone(first: str, tmp_path: Path) -> None:
    swarm, network = handle(tmp_path)
    for author in (first, B if first == A else A):
        network.offers(author, problem("hers"))
    network.takes_back(B, problem("hers").id)
    assert offered(swarm) == [(A, "hers")]


def test_attempts_at_it_are_neither_published_nor_taken(tmp_path: Path) -> None:
    swarm, network = handle(tmp_path)
    bad = claimed(problem("bad"), A)
    network.takes_back(A, bad.id)
    swarm.proposals(1)
    swarm.publish([scored(replace(group(swarm.peer_id), problem=bad))], 1)
    assert not [one for one in network.sent if isinstance(one, Publish)]
    swarm._arrived.append(replace(group(C), problem=bad, round=1))
    swarm._arrived.append(replace(group(C), problem=replace(bad, proposer=B), round=1))
    assert [one.problem.proposer for one in swarm.gather(1)] == [B]


def test_own_ones_are_announced_in_every_round_and_never_offered_again(tmp_path: Path) -> None:
    swarm, network = handle(tmp_path)
    bad, good = problem("bad"), problem("good")
    swarm.offer([bad, good], 1)
    for round_number, ids in ((1, []), (1, [bad.id]), (1, []), (2, []), (2, [])):
        swarm.withdraw(ids, round_number)
    assert network.told() == [[bad.id], [bad.id]]
    swarm.offer([bad, good], 2)
    assert network.told(PROPOSALS) == [[bad.id, good.id], [good.id]]
    assert offered(swarm) == [(swarm.peer_id, "good")]
    network.restarts += 1
    swarm.withdraw([], 2)
    assert len(network.told()) == 3
    assert swarm.metrics()["swarm/withdrawn"] == 1


def test_it_is_taken_back_though_the_network_is_down_and_told_later(tmp_path: Path) -> None:
    swarm, network = handle(tmp_path)
    swarm.offer([problem("bad")], 1)
    network.down = True
    with pytest.raises(SwarmError):
        swarm.withdraw([problem("bad").id], 1)
    network.down = False
    assert offered(swarm) == [] and network.told() == []
    swarm.withdraw([], 1)
    assert network.told() == [[problem("bad").id]]


def test_a_restart_forgets_no_withdrawal(tmp_path: Path) -> None:
    swarm, network = handle(tmp_path)
    swarm.offer([problem("own")], 1)
    network.offers(A, problem("bad"), problem("good"))
    network.takes_back(A, problem("bad").id)
    swarm.withdraw([problem("own").id], 1)
    swarm.proposals(1)
    swarm.save(tmp_path)
    again, network = handle(tmp_path)
    again.load(tmp_path)
    network.offers(A, problem("bad"))
    again.offer([problem("own")], 2)
    assert offered(again) == [(A, "good")]
    again.withdraw([], 2)
    assert network.told() == [[problem("own").id]] and network.told(PROPOSALS) == []


def test_a_checkpoint_without_withdrawals_is_read_and_a_swollen_one_is_not(tmp_path: Path) -> None:
    swarm, _ = handle(tmp_path)
    (tmp_path / "swarm.json").write_text("{}")
    swarm.load(tmp_path)
    (tmp_path / "swarm.json").write_text('{"withdrawn": {"x": [' + ",".join(['"a"'] * (WITHDRAWN_EACH + 1)) + "]}}")
    with pytest.raises(CheckpointError, match=r"swarm\.json"):
        swarm.load(tmp_path)


def test_a_flood_of_withdrawals_costs_bounded_memory_and_no_own_word() -> None:
    offers = Offers(A)
    mine, hers = claimed(problem("mine"), A), claimed(problem("hers"), B)
    offers.keep([mine, hers])
    offers.withdraw(A, [mine.id])
    for author in range(10 * AUTHORS):
        offers.withdraw(f"flood {author}", [f"{author} {number}" for number in range(32)])
    for number in range(10 * WITHDRAWN_EACH):
        offers.withdraw(C, [f"{number}"])
    _, withdrawn = offers.state()
    assert len(withdrawn) == AUTHORS and max(map(len, withdrawn.values())) == WITHDRAWN_EACH
    assert offers.is_withdrawn(mine) and offers.newest_first() == [hers]


def test_offers_stay_bounded() -> None:
    offers = Offers(A)
    offers.keep(claimed(problem(f"question {number}"), A) for number in range(PROPOSALS_KEPT + 9))
    assert len(offers.newest_first()) == PROPOSALS_KEPT
    assert offers.newest_first()[-1].question == "question 9"


def test_in_one_process_the_same_holds(tmp_path: Path) -> None:
    hub = LocalHub()
    a, b, c = (LocalSwarm(name, hub) for name in (A, B, C))
    a.offer([problem("bad"), problem("good")], 1)
    b.withdraw([problem("bad").id], 1)
    assert len(offered(c)) == 2
    a.withdraw([problem("bad").id], 1)
    c.save(tmp_path)
    again = LocalSwarm(C, hub)
    again.load(tmp_path)
    a.offer([problem("bad")], 2)
    assert offered(a) == offered(b) == offered(again) == [(A, "good")]
    assert (a.metrics()["swarm/withdrawn"], b.metrics()["swarm/offers_withdrawn"]) == (1, 1)
    b.publish([scored(replace(group(B), problem=claimed(problem("bad"), A)))], 1)
    assert again.gather(1) == []


def offer(peer: Peer, *questions: str) -> None:
    body = encode_proposals([problem(one) for one in questions], peer=peer.id, round_number=ROUND)
    peer.exchange.publish(Publish(PROPOSALS, ROUND, body, [], bytes(32)))


def take_back(peer: Peer, *questions: str) -> None:
    body = encode_withdrawals([problem(one).id for one in questions], peer=peer.id, round_number=ROUND)
    peer.exchange.publish(Publish(WITHDRAWALS, ROUND, body, [], bytes(32)))


def proposals(heard: Sequence[Heard]) -> list[list[str]]:
    return [[one.question for one in decode_proposals(it.body)[2]] for it in heard if it.kind == PROPOSALS]


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_withdrawal_travels_and_earns_no_praise(clock: Clock) -> None:
    alice, bob = peers(clock)
    take_back(alice, "bad")
    alice.look()
    bob.look(16)
    assert [(one.kind, one.peer) for one in bob.heard] == [(WITHDRAWALS, alice.id)]
    assert decode_withdrawals(bob.heard[0].body) == (alice.id, ROUND, (problem("bad").id,))
    assert not [one for one in bob.trust.report() if one.bodies]


def test_what_is_taken_back_leaves_the_announcements(clock: Clock) -> None:
    alice, bob = peers(clock)
    offer(alice, "bad", "good")
    alice.look()
    offer(alice, "worse", "better")
    take_back(alice, "bad", "worse")
    clock.now += 1
    alice.look()
    bob.look(4)
    # the newest body replaces the older ones, as it always does; what waited for it lost its bad one too
    assert proposals(bob.heard) == [["better", "good"]]


def test_a_body_with_nothing_else_is_not_announced_again_and_blames_nobody(clock: Clock) -> None:
    alice, bob = peers(clock)
    offer(alice, "bad")
    alice.look()
    take_back(alice, "bad")
    alice.look()
    bob.look(2)
    assert proposals(bob.heard) == [["bad"]] and not bob.trust.report()[0].failures
    clock.now += records.LIFETIME + 1
    carol = Peer(alice.board, clock, 5)
    alice.look()
    carol.look(16)
    assert [one.kind for one in carol.heard] == [WITHDRAWALS]


def test_a_forged_withdrawal_is_refused_and_costs_the_forger(clock: Clock) -> None:
    alice, mallory, bob = peers(clock, 3)
    body = encode_withdrawals([problem("hers").id], peer=alice.id, round_number=ROUND)
    digest = mallory.exchange.server.keep(body)
    take_back(alice, "hers")
    packed = alice.exchange.announcer.pending.pack(WITHDRAWALS)
    assert packed is not None and body_digest(body) == digest
    header = encode_header(packed.header(digest, clock.now))
    place = Place(SWARM, WITHDRAWALS, ROUND)
    assert asyncio.run(mallory.transport.announce(place, header, clock.now + 100, confirm=False))
    counts = bob.look(16)
    assert not bob.heard and counts["refused_header"] == 1
    assert [one.peer for one in bob.trust.report() if one.failures] == [mallory.id]


def test_a_node_of_before_ignores_withdrawals_and_reads_the_rest(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    alice, bob = peers(clock)
    offer(alice, "good")
    take_back(alice, "bad")
    alice.look()
    monkeypatch.setattr(records, "KEY", re.compile(records.KEY.pattern.replace("[hpw]", "[hp]")))
    place = Place(SWARM, WITHDRAWALS, ROUND)
    (record,) = alice.board.records[place.id].values()
    assert not bob.validator.validate(record) and dict(bob.validator.refused) == {"key": 1}
    bob.look(4)
    assert proposals(bob.heard) == [["good"]] and not bob.trust.report()[0].failures
