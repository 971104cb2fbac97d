"""Real peers of other environments, other versions and forged places: what is not derived here changes nothing."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
from builders.environments import attempts, item, right, sums
from builders.swarm import eventually, group, scored, started

from codezero.swarm.hivemind_swarm import HivemindSwarm
from codezero.types import Item, Problem

pytestmark = pytest.mark.timeout(240)
ROUND = 10
SUMS = sums()


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[HivemindSwarm]]:
    """Two that learn sums, one of another version, one that learns code, and one that lies."""
    folder = tmp_path_factory.mktemp("items")
    others = {"second": SUMS, "newer": sums(version="2"), "coder": None, "liar": SUMS}
    with ExitStack() as stack:
        first = stack.enter_context(started(folder, "first", environment=SUMS))
        yield [
            first,
            *(
                stack.enter_context(started(folder, name, bootstrap=first.addresses, environment=environment))
                for name, environment in others.items()
            ),
        ]


def published(swarm: HivemindSwarm, problem: Problem, *answers: str) -> None:
    swarm.publish([scored(attempts(problem, *answers, peer=swarm.peer_id, round_number=ROUND))], ROUND)


def arrived(at: HivemindSwarm, level: int, index: int) -> Problem | None:
    wanted = item(SUMS, level, index)
    return eventually(lambda: next((g.problem for g in at.gather(ROUND) if g.problem.item == wanted), None))


@pytest.mark.slow
def test_a_peer_s_problem_is_the_one_that_is_derived_here(peers: list[HivemindSwarm]) -> None:
    first, second = peers[:2]
    sent = SUMS.derive(item(SUMS, 2, 3))
    first.play(ROUND)
    published(second, sent, right(sent), "0")
    assert arrived(first, 2, 3) == sent
    second.offer([SUMS.derive(item(SUMS, 1, 1))], ROUND)
    (offer,) = eventually(lambda: [each for each in first.proposals(ROUND) if each.proposer == second.peer_id])
    assert offer == replace(SUMS.derive(item(SUMS, 1, 1)), proposer=second.peer_id)


@pytest.mark.slow
def test_other_environments_are_left_where_they_are_and_nobody_is_blamed(peers: list[HivemindSwarm]) -> None:
    first, second, newer, coder, _ = peers
    other = sums(version="2")
    for swarm in peers:
        swarm.play(ROUND)
    published(newer, other.derive(item(other, 3, 3)), "1", "2")
    coder.publish([scored(group(coder.peer_id, "in Python"))], ROUND)
    published(second, SUMS.derive(item(SUMS, 3, 5)), "1", "2")
    assert arrived(first, 3, 5)

    def left() -> bool:
        first.gather(ROUND), coder.gather(ROUND)
        return all(int(each.metrics().get("swarm/refused_environment") or 0) >= 2 for each in (first, coder))

    assert eventually(left)
    assert not any("refused_item" in name for name in first.metrics())
    published(second, SUMS.derive(item(SUMS, 3, 8)), "1", "2")
    assert arrived(first, 3, 8)


@pytest.mark.slow
def test_forged_places_are_dropped_and_counted(peers: list[HivemindSwarm]) -> None:
    first, second, _, _, liar = peers
    true = SUMS.derive(item(SUMS, 4, 1))
    forged = [
        replace(true, item=item(SUMS, 4, 2)),  # the id of another place
        replace(true, item=Item(SUMS.name, SUMS.digest, 5, 1)),
        replace(true, id="0" * 64),
    ]
    first.play(ROUND)
    for number, problem in enumerate(forged):
        published(liar, problem, f"{number}", "x")
    liar.offer(forged, ROUND)
    published(second, true, "1", "2")
    assert arrived(first, 4, 1) == true
    assert eventually(lambda: (first.proposals(ROUND), int(first.metrics().get("swarm/refused_item") or 0))[1] >= 3)
    assert {each.id for each in first.proposals(ROUND) if each.proposer == liar.peer_id} == set()
