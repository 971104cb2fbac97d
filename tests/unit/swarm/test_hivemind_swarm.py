"""Real peers on loopback exchange what they sampled and proposed, and come back from every kind of death.

Does not show: more than three peers, a network that delays or loses packets."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from builders.swarm import Nodes, eventually, fast_identity, group, make_swarm, problem, scored, started
from simulation.hub import HubSwarm, LocalHub

from codezero.config import SwarmConfig
from codezero.errors import SwarmError
from codezero.swarm.base import PROPOSALS_KEPT, Swarm
from codezero.swarm.hivemind_swarm import HivemindSwarm
from codezero.swarm.supervisor import Answered, Message, NetworkProcess, Publish
from codezero.swarm.wire import decode_body
from codezero.types import Completion, Feedback, Post, RolloutGroup, Source, Standing

pytestmark = pytest.mark.timeout(300)


def hear(swarm: HivemindSwarm, round_number: int, question: str) -> RolloutGroup:
    """The group about `question`, when it arrives; the tolerated SwarmError of a restart is not one here."""

    def look() -> list[RolloutGroup]:
        with contextlib.suppress(SwarmError):
            return [each for each in swarm.gather(round_number) if each.problem.question == question]
        return []

    return eventually(look)[0]


def daemons(pid: int | None) -> list[psutil.Process]:
    return [child for child in psutil.Process(pid).children(recursive=True) if "p2pd" in child.name()]


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_groups_travel_both_ways(nodes: Nodes) -> None:
    for sender, receiver in ((nodes.alice, nodes.bob), (nodes.bob, nodes.alice)):
        sent = group(sender.peer_id, f"from {sender.peer_id}")
        sender.publish([scored(sent)], 10)
        assert hear(receiver, 10, sent.problem.question) == replace(sent, round=10)
        assert eventually(lambda at=receiver: at.metrics()["swarm/bytes_in"])  # counted at the end of a poll
        assert receiver.metrics()["swarm/peers"] == receiver.metrics()["swarm/groups_received"] == 1


def test_proposals_travel_and_come_back_newest_first(nodes: Nodes) -> None:
    nodes.bob.offer([problem("offer one")], 10)
    nodes.bob.offer([problem("offer two", reference="secret", standing=Standing.REFERENCE)], 10)
    assert [one.question for one in nodes.bob.proposals(10)] == ["offer two", "offer one"]
    offers = eventually(lambda: [one for one in nodes.alice.proposals(10) if one.question == "offer two"])
    assert offers == [one for one in nodes.bob.proposals(10) if one.question == "offer two"]
    assert (offers[0].source, offers[0].standing) == (Source.PROPOSER, Standing.CLAIMED)
    assert (offers[0].proposer, offers[0].reference) == (nodes.bob.peer_id, None)


@pytest.mark.slow
def test_posts_travel_among_those_who_post_and_disturb_nobody_else(nodes: Nodes, tmp_path: Path) -> None:
    """bob never posts, as a node without the market: he reads none, and groups go to and fro as before."""
    alice, bob = nodes.alice, nodes.bob
    with started(tmp_path, "market", bootstrap=(nodes.join,)) as carol:
        for swarm in (alice, bob, carol):
            swarm.play(10)
        carol.post(b"here", 10)
        for payload in (b"an offer", b"\xc1 a bid", os.urandom(100_000)):
            alice.post(payload, 10)
            expected = Post(alice.peer_id, 10, payload)
            assert eventually(lambda expected=expected: expected in carol.posts())
        assert eventually(alice.posts) == [Post(carol.peer_id, 10, b"here")]
        bob.publish([scored(group(bob.peer_id, "beside the market"))], 10)
        assert hear(carol, 10, "beside the market").peer_id == bob.peer_id
        alice.publish([scored(group(alice.peer_id, "of a player"))], 10)
        assert hear(bob, 10, "of a player").peer_id == alice.peer_id
        assert bob.posts() == [] and bob.metrics()["swarm/refused"] == 0


def test_an_answer_that_nobody_waits_for_any_more_is_not_kept() -> None:
    process = NetworkProcess(SwarmConfig(), Path())
    process._on_message(Answered(1))
    assert not process._replies


def test_a_peer_that_jumps_three_rounds_is_heard(nodes: Nodes) -> None:
    nodes.alice.gather(17)  # bob was told of round 10 last, and holds alice's records all the same
    nodes.alice.publish([scored(group(nodes.alice.peer_id, "ahead"))], 17)
    nodes.bob.publish([scored(group(nodes.bob.peer_id, "after the gap"))], 17)
    assert hear(nodes.alice, 17, "after the gap").round == 17
    assert hear(nodes.bob, 17, "ahead").round == 17


def test_a_body_of_more_than_a_chunk_arrives_whole(nodes: Nodes) -> None:
    chance = random.Random(0)
    count = 32_768
    attempts = tuple(
        Completion(f"{i}", tuple(chance.choices(range(2**32), k=count)), (-1.0,) * count, True) for i in range(12)
    )
    large = replace(group(nodes.bob.peer_id, "large"), completions=attempts)
    before = int(nodes.bob.metrics()["swarm/bytes_out"] or 0)
    nodes.bob.publish([scored(large, *[0.0, 1.0] * 6)], 18)
    assert hear(nodes.alice, 18, "large").completions == attempts
    assert eventually(lambda: int(nodes.bob.metrics()["swarm/bytes_out"] or 0) - before > 1 << 20)


def test_what_fits_in_no_body_is_left_out_and_the_rest_is_sent(nodes: Nodes) -> None:
    unfit = replace(group(nodes.bob.peer_id, "unfit"), policy_step=-1)
    nodes.bob.publish([scored(unfit), scored(group(nodes.bob.peer_id, "fit"))], 18)
    hear(nodes.alice, 18, "fit")
    assert nodes.bob.metrics()["swarm/unpublished"] == 1


def test_another_tokenizer_s_ids_are_not_handed_on(nodes: Nodes) -> None:
    nodes.bob._tokenizer_digest = "cd" * 32
    try:
        nodes.bob.publish([scored(group(nodes.bob.peer_id, "foreign ids"))], 18)
        heard = hear(nodes.alice, 18, "foreign ids")
    finally:
        nodes.bob._tokenizer_digest = nodes.alice._tokenizer_digest
    assert [one.token_ids for one in heard.completions] == [(), ()]
    assert heard.completions[0].text == group("").completions[0].text


def test_the_same_attempts_are_told_once(nodes: Nodes) -> None:
    again = group(nodes.bob.peer_id, "again")
    nodes.bob.publish([scored(again)], 18)
    hear(nodes.alice, 18, "again")
    before = int(nodes.alice.metrics().get("swarm/refused_duplicate") or 0)
    nodes.bob.publish([scored(again), scored(group(nodes.bob.peer_id, "something else"))], 18)
    hear(nodes.alice, 18, "something else")
    assert nodes.alice.metrics()["swarm/refused_duplicate"] == before + 1


def test_the_proposer_hears_what_became_of_its_problem(nodes: Nodes) -> None:
    nodes.alice.offer([problem("from alice")], 18)

    (offered,) = eventually(lambda: [each for each in nodes.bob.proposals(18) if each.question == "from alice"])
    attempted = replace(group(nodes.bob.peer_id, "attempted"), problem=offered)
    nodes.bob.publish([scored(attempted, 1.0, 0.0, 0.0, 0.0), scored(group(nodes.bob.peer_id, "not hers"))], 18)
    assert eventually(nodes.alice.feedback) == [Feedback(nodes.bob.peer_id, offered.id, offered.level, 4, 0.25)]
    assert nodes.bob.feedback() == []


@pytest.mark.slow
def test_a_killed_network_process_is_told_of_once_and_comes_back(nodes: Nodes) -> None:
    old, address = nodes.bob.network.pid, nodes.bob.addresses
    orphans = daemons(old)
    assert old and orphans
    os.kill(old, signal.SIGKILL)
    eventually(lambda: nodes.bob.network.pid != old)
    with pytest.raises(SwarmError, match="started again"):
        nodes.bob.gather(18)
    nodes.bob.gather(18)
    eventually(lambda: all(map(gone, orphans)))
    assert nodes.bob.addresses == address
    nodes.bob.publish([scored(group(nodes.bob.peer_id, "back again"))], 18)
    hear(nodes.alice, 18, "back again")
    nodes.alice.publish([scored(group(nodes.alice.peer_id, "welcome"))], 18)
    hear(nodes.bob, 18, "welcome")
    assert nodes.bob.metrics()["swarm/network_restarts"] == 1


CAROL = """
import sys, time
from pathlib import Path
from builders.swarm import group, make_swarm, scored
if __name__ == "__main__":
    carol = make_swarm(Path(sys.argv[1]), "carol", bootstrap=(sys.argv[2],))
    carol.network.start()
    carol.addresses
    print(carol.network.pid, flush=True)
    carol.publish([scored(group(carol.peer_id, "first life"))], 18)
    time.sleep(600)
"""


@pytest.mark.slow
def test_a_killed_node_leaves_nothing_behind_and_comes_back_as_itself(nodes: Nodes) -> None:
    script = nodes.folder / "carol.py"
    script.write_text(CAROL)
    command = [sys.executable, str(script), str(nodes.folder), nodes.join]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            network = psutil.Process(int(process.stdout.readline()))
            left = [network, *daemons(network.pid)]
            assert len(left) == 2
            first = hear(nodes.alice, 18, "first life")
        finally:
            process.kill()
    eventually(lambda: all(map(gone, left)))
    carol = make_swarm(nodes.folder, "carol", bootstrap=(nodes.join,))
    carol.publish([scored(group(carol.peer_id, "second life"))], 18)  # before the network is up
    carol.network.start()
    try:
        for node in (nodes.alice, nodes.bob):
            assert hear(node, 18, "second life").peer_id == first.peer_id
    finally:
        carol.close()


def test_who_is_busy_for_many_rounds_hears_its_peers(nodes: Nodes) -> None:
    nodes.alice.gather(18)
    nodes.alice.network.follow(lambda: 40)
    nodes.bob.publish([scored(group(nodes.bob.peer_id, "meanwhile"))], 40)
    eventually(lambda: any(body.round == 40 for body in nodes.alice.network.bodies))
    nodes.alice.network.follow(lambda: 80)
    assert "meanwhile" in [each.problem.question for each in nodes.alice.gather(80)]


def test_groups_that_teach_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swarm = make_swarm(tmp_path, "dave")
    equal = [scored(group(swarm.peer_id, f"equal {i}"), 1.0, 1.0) for i in range(40)]
    teaching = [scored(group(swarm.peer_id, f"teaching {i}"), 1.0, 0.0) for i in range(3)]
    sent: list[Message] = []
    monkeypatch.setattr(swarm.network, "send", sent.append)
    swarm.publish(equal + teaching, 1)
    (message,) = (one for one in sent if isinstance(one, Publish))
    questions = [one.problem.question for one in decode_body(message.body)[2]]
    assert questions[:3] == ["teaching 0", "teaching 1", "teaching 2"]
    assert len(questions) == 32


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
