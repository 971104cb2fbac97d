"""The swarm without a network: alone, and the benchmarks' several in one process."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from builders.swarm import fast_identity, group, problem, scored
from simulation.hub import HubSwarm, LocalHub

from codezero.swarm.base import PROPOSALS_KEPT, Swarm

A, B, C = (fast_identity().peer_id for _ in range(3))


def test_alone_own_offers_come_back_and_nobody_is_heard() -> None:
    alone = Swarm(A)
    alone.offer([problem("old"), problem("new", reference="secret")], 1)
    alone.publish([scored(group(A))], 1)
    assert [one.question for one in alone.proposals(1)] == ["new", "old"]
    assert [one.question for one in alone.proposals(2)] == ["new", "old"]
    assert alone.gather(1) == []
    assert alone.metrics()["swarm/peers"] == 0


def test_a_proposer_hears_once_from_each_peer_what_became_of_its_problem() -> None:
    hub = LocalHub()
    a, b, c = (HubSwarm(name, hub) for name in (A, B, C))
    a.offer([problem()], 1)
    (offered,) = b.proposals(1)
    for peer in (b, c, b):
        peer.publish([scored(replace(group(peer.peer_id), problem=offered), 1.0, 0.0, 0.0, 0.0)], 1)
    assert [(one.peer_id, one.level, one.attempts, one.success) for one in a.feedback()] == [
        (B, 2, 4, 0.25), (C, 2, 4, 0.25),
    ]  # fmt: skip
    assert a.feedback() == b.feedback() == []


def test_groups_reach_everybody_else_once() -> None:
    hub = LocalHub()
    a, b, c = (HubSwarm(name, hub) for name in (A, B, C))
    a.publish([scored(group(A))], 7)
    for other in (b, c):
        (heard,) = other.gather(7)
        assert (heard.peer_id, heard.round, heard.completions) == (A, 7, group(A).completions)
        assert other.gather(7) == []
    assert a.gather(7) == []
    assert b.metrics()["swarm/peers"] == 1


def test_last_round_s_words_are_heard_and_older_ones_are_not() -> None:
    hub = LocalHub()
    a, b = HubSwarm(A, hub), HubSwarm(B, hub)
    a.publish([scored(group(A, "older"))], 5)
    a.publish([scored(group(A, "last"))], 6)
    assert [one.problem.question for one in b.gather(7)] == ["last"]
    assert b.metrics()["swarm/refused"] == 1


@pytest.mark.parametrize("change", [{"policy_step": -1}, {"completions": ()}])
def test_what_no_peer_would_read_is_not_sent(change: dict[str, object]) -> None:
    hub = LocalHub()
    a, b = HubSwarm(A, hub), HubSwarm(B, hub)
    a.publish([scored(replace(group(A), **change))], 1)  # type: ignore[arg-type]
    assert b.gather(1) == []


def test_who_left_is_sent_nothing() -> None:
    hub = LocalHub()
    a, b = HubSwarm(A, hub), HubSwarm(B, hub)
    b.close()
    a.publish([scored(group(A))], 1)
    assert a.metrics()["swarm/bytes_out"] == 0


def test_offers_stay_bounded() -> None:
    offers = Swarm(B)
    offers.keep(replace(problem(f"question {number}"), proposer=A) for number in range(PROPOSALS_KEPT + 9))
    assert len(offers.proposals(1)) == PROPOSALS_KEPT
    assert offers.proposals(1)[-1].question == "question 9"


def test_a_checkpoint_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    alone = Swarm(A)
    alone.offer([problem("kept")], 1)
    alone.save(tmp_path)
    path = tmp_path / "swarm.json"
    path.write_text(
        json.dumps(
            json.loads(path.read_text()) | {"withdrawn": {A: ["ab" * 32]}, "heard": [B], "counts": {"bytes_in": 3}}
        )
    )
    again = Swarm(A)
    again.load(tmp_path)
    assert [one.question for one in again.proposals(1)] == ["kept"]
    again.save(tmp_path)
    assert json.loads(path.read_text()).keys() == {"offers", "own", "seen"}
