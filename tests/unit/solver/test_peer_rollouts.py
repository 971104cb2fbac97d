"""What strangers can and cannot do to a policy."""

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from builders.models import EOS, judged
from hypothesis import given, settings
from hypothesis import strategies as st

from codezero.config import ExternalConfig, SolverConfig
from codezero.solver.advantages import merged_advantages
from codezero.solver.peer_rollouts import MAX_PEERS, External, PeerReader, choose
from codezero.types import Completion, Problem, ScoredGroup, Status


def bytes_of(texts: Sequence[str]) -> list[tuple[int, ...]]:
    return [tuple(text.encode()) for text in texts]


class BytesReader(PeerReader):
    """A tokenizer of bytes."""

    def completion_ids(self, completions: Sequence[Completion]) -> list[tuple[int, ...]]:
        ids = bytes_of([one.text for one in completions])
        return [(*one, EOS) if c.finished else one for one, c in zip(ids, completions, strict=True)]

    def offsets(self, completions: Sequence[Completion]) -> list[list[tuple[int, int]]]:
        return [[(at, at + 1) for at in range(len(one.text))] for one in completions]

    def prompt_ids(self, problems: Sequence[Problem]) -> list[tuple[int, ...]]:
        return bytes_of([one.question for one in problems])


def reader(
    logprob: float = -1.0, max_prompt_tokens: int = 100, scale: str = "none", least_rows: int = 2, **external: Any
) -> PeerReader:
    """Of a policy to which every token is equally likely, but for "?", which it abhors."""

    def logprobs(prompts: Sequence[tuple[int, ...]], completions: Sequence[tuple[int, ...]]):
        assert len(prompts) == len(completions)
        return [tuple(-50.0 if token == ord("?") else logprob for token in one) for one in completions]

    config = SolverConfig(max_prompt_tokens=max_prompt_tokens, max_new_tokens=20, scale_rewards=scale)
    unused: Any = None
    return BytesReader(unused, unused, logprobs, "me", config, ExternalConfig(**external), least_rows)


def read(
    peers: Sequence[ScoredGroup],
    source: PeerReader | None = None,
    local: Sequence[ScoredGroup] = (),
    max_rows: int = 1000,
    passing: Callable[[Sequence[str]], set[str]] = set,
    **changes: Any,
) -> External:
    return (source or reader(**changes)).rows(peers, local, max_rows, passing, random.Random(0))


def test_only_rows_with_positive_advantage_push_and_the_others_count():
    found = read([judged(0, [1.0, 0.0, 0.0, 1.0], ["right", "wrong", "bad", "fine"])])
    assert [(row.completion_ids, row.advantage) for row in found.rows] == [
        ((*b"right", EOS), 0.5),
        ((*b"fine", EOS), 0.5),
    ]
    assert (len(found.chosen), found.idle_tokens) == (1, len("wrong") + len("bad") + 2)


def test_a_sender_s_ids_and_logprobs_are_never_used():
    honest = judged(0, [1.0, 0.0], ["right", "wrong"])
    lying = judged(0, [1.0, 0.0], ["right", "wrong"], tokens=[(7, 7, 7), (9,)])
    assert read([honest]).rows == read([lying]).rows
    assert read([honest], policy="sapo").rows == read([lying], policy="sapo").rows
    assert read([honest]).rows[0].logprobs == (-1.0,) * 6


def test_eos_is_pushed_only_where_the_attempt_was_finished():
    group = judged(0, [1.0, 0.0], ["right", "wrong"])
    cut = dataclasses.replace(group.group.completions[0], finished=False)
    group = dataclasses.replace(
        group, group=dataclasses.replace(group.group, completions=(cut, group.group.completions[1]))
    )
    assert read([group]).rows[0].completion_ids == tuple(b"right")


def test_groups_without_spread_are_dropped():
    found = read([judged(0, [1.0] * 4), judged(1, [0.0] * 4), judged(2, [0.3, 0.3 + 1e-6])])
    assert found == External(refused=(("no_spread", 3),), peers=(("peer", 3, 0),))


def test_what_was_used_of_each_peer_is_told_of_few_peers():
    groups = [judged(number, [1.0, 0.0], peer_id=f"peer{number % 3}") for number in range(6)]
    flat = judged(6, [1.0, 1.0], peer_id="flat")
    assert read([*groups, flat]).peers == (("peer0", 2, 2), ("peer1", 2, 2), ("peer2", 2, 2), ("flat", 1, 0))
    crowd = [judged(number, [1.0, 0.0], peer_id=f"peer{number}") for number in range(40)]
    told = read(crowd).peers
    assert len(told) == MAX_PEERS and sum(used for _, _, used in told) == 16


def test_rows_that_could_not_be_judged_neither_push_nor_set_the_mean():
    statuses = [Status.JUDGED, Status.JUDGED, Status.QUARANTINED, Status.UNAVAILABLE]
    found = read([judged(0, [1.0, 0.0, 1.0, 1.0], status=statuses)])
    assert [row.advantage for row in found.rows] == [0.5]


def test_what_the_policy_would_never_write_is_dropped():
    found = read([judged(0, [1.0, 1.0, 0.0, 0.0], ["ok", "????", "a", "b"])])
    assert [row.completion_ids for row in found.rows] == [(*b"ok", EOS)]
    assert dict(found.refused)["row_unlikely"] == 1
    assert read([judged(0, [1.0, 0.0])], reader(logprob=-3.99)).rows
    assert not read([judged(0, [1.0, 0.0])], reader(logprob=-4.01)).rows


def test_what_a_group_says_twice_pushes_twice():
    assert len(read([judged(7, [1.0, 1.0, 0.0], ["same", "same", "wrong"])]).rows) == 2


def test_the_same_answer_pushes_once_however_many_send_it():
    groups = [judged(7, [1.0, 0.0], ["same", f"wrong {i}"], peer_id=f"peer {i}") for i in range(6)]
    found = read(groups)
    assert len(found.rows) == 1 and dict(found.refused)["row_duplicate"] == len(found.chosen) - 1
    assert found.idle_tokens == sum(len(each.text) + 1 for one in found.chosen for each in one.group.completions) - 5
    other = read([judged(7, [1.0, 0.0], ["same", "x"]), judged(8, [1.0, 0.0], ["same", "x"])])
    assert len(other.rows) == 2  # the same words to another question are another answer


@pytest.mark.parametrize("text", ["", "x" * 21])
def test_empty_and_endless_rows_are_dropped(text: str):
    group = judged(0, [1.0, 0.0], [text, "wrong"])
    bare = tuple(dataclasses.replace(one, finished=False) for one in group.group.completions)
    group = dataclasses.replace(group, group=dataclasses.replace(group.group, completions=bare))
    found = read([group])
    assert found.rows == () and dict(found.refused) == {"row_length": 1}
    assert found.idle_tokens <= 2 * 20


def test_a_question_that_would_have_to_be_cut_is_dropped():
    assert dict(read([judged(0, [1.0, 0.0])], reader(max_prompt_tokens=10)).refused) == {"long_prompt": 1}


def test_own_groups_that_come_back_are_dropped():
    found = read([judged(0, [1.0, 0.0], peer_id="me")])
    assert found == External(refused=(("own", 1),))


def test_the_judge_s_scale_is_the_one_used():
    assert read([judged(0, [0.6, 0.5, 0.5])], scale="group").rows[0].advantage > 1
    assert read([judged(0, [0.6, 0.5, 0.5])]).rows[0].advantage < 0.1


def test_no_peers_nothing():
    assert read([]) == External()
    assert read([judged(0, [1.0, 0.0])], max_rows=0).rows == ()
    assert read([judged(0, [1.0, 0.0])], groups=0).rows == ()


GROUPS = st.lists(st.tuples(st.integers(0, 7), st.integers(2, 8)), max_size=40)


@settings(max_examples=60)
@given(GROUPS, st.integers(0, 20), st.integers(0, 60), st.integers(0, 9))
def test_bounds_hold_whatever_peers_send(sent: list[tuple[int, int]], max_groups: int, max_rows: int, seed: int):
    candidates = [
        (judged(i, [1.0] + [0.0] * (size - 1), peer_id=f"peer {peer}"), (1,)) for i, (peer, size) in enumerate(sent)
    ]
    chosen = choose(candidates, max_groups, max_rows, random.Random(seed))
    assert len(chosen) <= max_groups
    assert sum(len(one.verdicts) for one, _ in chosen) <= max_rows
    assert len({one.group.problem.id for one, _ in chosen}) == len(chosen)
    peers = [one.group.peer_id for one, _ in chosen]
    if len({peer for peer, _ in sent}) >= 4:
        assert max(map(peers.count, peers), default=0) <= max(1, min(max_groups, len(sent)) // 4)


def test_a_flood_from_one_peer_leaves_the_others_their_turns():
    flood = [judged(i, [1.0, 0.0], peer_id="loud") for i in range(100)]
    quiet = [judged(1000 + i, [1.0, 0.0], peer_id=f"quiet {i}") for i in range(3)]
    found = read([*flood, *quiet], groups=8)
    pushed = {row.prompt_ids for row in found.rows}
    assert {tuple(one.group.problem.question.encode()) for one in quiet} <= pushed
    assert len(found.chosen) == 5  # a fourth of eight, and three


def test_groups_at_one_problem_are_one_group_whoever_sampled_them():
    own = judged(3, [0.0, 0.0], peer_id="me")
    found = read([judged(3, [1.0, 0.0], ["right", "wrong"], peer_id="other")], local=[own])
    assert [row.advantage for row in found.rows] == [0.75]
    assert merged_advantages([own, *found.chosen], "none")[id(own)] == [-0.25, -0.25]
    strangers = [judged(4, [1.0, 1.0], ["a", "b"], peer_id="one"), judged(4, [1.0, 0.0], ["c", "d"], peer_id="two")]
    assert [row.advantage for row in read(strangers[1:]).rows] == [0.5]
    spread = [strangers[1], dataclasses.replace(strangers[1], group=strangers[0].group)]
    assert {row.advantage for row in read(spread).rows} == {0.5}


def test_without_peers_own_groups_keep_their_own_mean():
    own = [judged(3, [1.0, 0.0], peer_id="me"), judged(4, [1.0, 1.0], peer_id="me")]
    weights = merged_advantages(own, "none")
    assert [weights[id(one)] for one in own] == [[0.5, -0.5], [0.0, 0.0]]


def test_few_attempts_say_too_little():
    assert dict(read([judged(0, [1.0, 0.0, 0.0])], least_rows=4).refused) == {"few_rows": 1}
    assert read([judged(0, [1.0, 0.0, 0.0])], local=[judged(0, [0.0], peer_id="me")], least_rows=4).rows


def test_policies_differ_in_what_they_push_down():
    groups = [judged(0, [1.0, 0.0], ["right", "wrong"])]
    assert [row.advantage for row in read(groups, policy="sapo").rows] == [0.5, -0.5]
    assert read(groups, policy="off") == External(refused=(("off", 1),), peers=(("peer", 1, 0),))


def test_peers_that_do_not_pass_are_left_out():
    groups = [judged(0, [1.0, 0.0], peer_id="good"), judged(1, [1.0, 0.0], peer_id="bad")]
    found = read(groups, passing=lambda peers: set(peers) - {"bad"})
    assert [one.group.peer_id for one in found.chosen] == ["good"] and dict(found.refused)["gate"] == 1
