"""The stream: shares, orders, no repeats, and a resume that cannot be told from an uninterrupted run."""

import dataclasses
import hashlib
from collections import Counter
from pathlib import Path

import pytest
from builders.problems import proposed
from hypothesis import given, settings
from hypothesis import strategies as st

from codezero.config import DataConfig
from codezero.environments.code import CodeEnvironment
from codezero.errors import CheckpointError
from codezero.problems.stream import MixedStream
from codezero.problems.synthetic.tasks import LEVELS, held_out, is_held_out, parse_question
from codezero.types import Problem, Source


def stream(peer_id: str = "peer", seed: int = 0, batch: int = 8, proposer_share: float = 0.25) -> MixedStream:
    return MixedStream(
        CodeEnvironment(), DataConfig(proposer_share=proposer_share), seed=seed, peer_id=peer_id, batch=batch
    )


def synthetic(source: MixedStream, batches: int) -> list[str]:
    return [problem.id for _ in range(batches) for problem in source.next_batch([])]


def test_two_peers_and_two_seeds_see_two_orders_and_the_same_node_sees_its_own() -> None:
    orders = [synthetic(stream(peer, seed), 4) for peer, seed in (("a", 0), ("b", 0), ("a", 1))]
    assert len({tuple(order) for order in orders}) == 3
    assert synthetic(stream("a", 0), 4) == orders[0]


def test_proposals_take_their_share_newest_first_and_synthetic_fills_the_rest() -> None:
    proposals = [proposed(number) for number in range(5)]
    batch = stream().next_batch(proposals)
    assert batch[:2] == proposals[:2]
    assert {problem.source for problem in batch[2:]} == {Source.SYNTHETIC}
    assert len(batch) == 8


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (0.3, 2), (1.0, 5)])
def test_the_share_is_an_upper_bound(share: float, expected: int) -> None:
    batch = stream(proposer_share=share).next_batch([proposed(number) for number in range(5)])
    assert sum(problem.source is Source.PROPOSER for problem in batch) == expected


BEFORE = {
    (0, "peer"): "a3ce1199f984f5fd09927ded885d01c83862ba899017e3097932dd0f4691842d",
    (7, "12D3KooWother"): "e0d84d5be18a9491bbcdad3809af586b6e17c78af048afbf1900a8d1081389ce",
}
"""sha256 of the first 200 ids, from before there were other sources than the synthetic one."""


@pytest.mark.parametrize(("seed", "peer_id"), list(BEFORE), ids=["0", "7"])
def test_the_default_stream_is_what_it_always_was(seed: int, peer_id: str) -> None:
    ids = synthetic(stream(peer_id, seed, batch=16), 13)[:200]
    assert hashlib.sha256("".join(ids).encode()).hexdigest() == BEFORE[seed, peer_id]


def test_a_checkpoint_from_before_there_were_other_sources_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "stream.json").write_text('{"cursor": 8, "synthetic": ["ab"], "proposals": []}')
    later = stream()
    later.load(tmp_path)
    assert synthetic(later, 1) == synthetic(stream(), 2)[8:]


def by(peer: str, number: int, level: int = 2) -> Problem:
    return dataclasses.replace(proposed(number, level=level), proposer=peer)


def test_no_stranger_fills_the_share_alone_and_everybody_has_a_turn() -> None:
    loud = [by("loud", number, 2 + number % 2) for number in range(50)]
    batch = stream(batch=16, proposer_share=0.5).next_batch([*loud, by("quiet", 60), by("third", 61)])
    taken = Counter(problem.proposer for problem in batch if problem.proposer)
    assert taken == {"loud": 4, "quiet": 1, "third": 1}
    levels = {problem.level for problem in batch if problem.proposer == "loud"}
    assert levels == {2, 3}


def test_a_proposal_that_is_not_usable_is_refused_once_and_counted() -> None:
    source = stream()
    broken = dataclasses.replace(proposed(0), tests=("assert f(1) == 1", "assert f(1) == 2"))
    again = dataclasses.replace(proposed(1), id="0" * 64)
    for _ in range(3):
        source.next_batch([broken, proposed(1), again])
    told = source.metrics()
    assert (told["problems/refused_contradiction"], told["problems/refused_duplicate"]) == (1, 1)
    assert (told["problems/refused"], told["problems/drawn_proposals"]) == (2, 1)


def test_a_proposal_is_used_once_however_often_it_is_offered() -> None:
    source = stream()
    offered = [proposed(0), proposed(0), proposed(1)]
    assert source.next_batch(offered)[:2] == [proposed(0), proposed(1)]
    assert all(problem.source is Source.SYNTHETIC for problem in source.next_batch(offered))


def test_no_synthetic_problem_comes_twice_and_none_is_held_out() -> None:
    source = stream(batch=100)
    problems = [problem for _ in range(20) for problem in source.next_batch([])]
    assert len({problem.id for problem in problems}) == 2000
    assert {problem.level for problem in problems} == set(LEVELS)
    assert not any((parsed := parse_question(problem.question)) and is_held_out(parsed[1]) for problem in problems)


def test_a_proposal_that_asks_an_exam_question_is_never_trained_on() -> None:
    exam = held_out(5, seed=1)
    leaked = [proposed(number, problem.question) for number, problem in enumerate(exam)]
    assert all(problem.source is Source.SYNTHETIC for problem in stream(proposer_share=1.0).next_batch(leaked))


@given(before=st.integers(0, 5), after=st.integers(1, 5), seed=st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_a_resumed_stream_goes_on_as_if_nothing_had_happened(
    tmp_path_factory: pytest.TempPathFactory, before: int, after: int, seed: int
) -> None:
    offered = [proposed(number) for number in range(9)]
    whole, first = stream(seed=seed), stream(seed=seed)
    assert [whole.next_batch(offered) for _ in range(before)] == [first.next_batch(offered) for _ in range(before)]
    folder = tmp_path_factory.mktemp("stream")
    first.save(folder)
    second = stream(seed=seed)
    second.load(folder)
    assert [whole.next_batch(offered) for _ in range(after)] == [second.next_batch(offered) for _ in range(after)]


@pytest.mark.slow
def test_a_long_run_keeps_a_small_state(tmp_path: Path) -> None:
    source = stream(batch=4500, proposer_share=1.0)
    source.next_batch([proposed(number) for number in range(4500)])
    source.next_batch([])
    source.save(tmp_path)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 600_000
    stream().load(tmp_path)


@pytest.mark.parametrize("content", [None, "", "{}", '{"cursor": -1, "synthetic": [], "proposals": []}', "[1]"])
def test_a_broken_state_is_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "stream.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"stream\.json"):
        stream().load(tmp_path)
