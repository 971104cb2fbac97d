"""What strangers can and cannot do to a policy."""

import dataclasses
import math
import random
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from builders.models import EOS, byte_tokenizer, judged
from hypothesis import given, settings
from hypothesis import strategies as st

from codezero.config import ExternalConfig, SolverConfig
from codezero.errors import CheckpointError
from codezero.models.chat import encode_completions
from codezero.solver.batch import merged_advantages
from codezero.solver.peer_rollouts import (
    LEAST_LOGPROB,
    LEAST_MEAN_LOGPROB,
    MARGIN,
    MAX_PEERS,
    STORED_PEERS,
    WINDOW,
    External,
    OwnMeasure,
    PeerFilter,
    PeerReader,
    choose,
    least_window,
    limited_weights,
    program_weights,
)
from codezero.types import ScoredGroup, Status

TOKENIZER = byte_tokenizer()


def ids(text: str) -> tuple[int, ...]:
    (row,) = encode_completions(TOKENIZER, [text])
    return tuple(row)


def reader(
    logprob: float = -1.0, max_prompt_tokens: int = 100, scale: str = "none", least_rows: int = 2, **external: Any
) -> PeerReader:
    """Of a policy to which every token is equally likely, but for "?", which it abhors."""

    def logprobs(prompts: Sequence[tuple[int, ...]], completions: Sequence[tuple[int, ...]]):
        assert len(prompts) == len(completions)
        return [tuple(-50.0 if token == ids("?")[0] else logprob for token in item) for item in completions]

    config = SolverConfig(max_prompt_tokens=max_prompt_tokens, max_new_tokens=20, scale_rewards=scale)
    return PeerReader(TOKENIZER, attrgetter("question"), logprobs, "me", config, ExternalConfig(**external), least_rows)


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
    result = read([judged(0, [1.0, 0.0, 0.0, 1.0], ["right", "wrong", "bad", "fine"])])
    assert [(row.completion_ids, row.advantage) for row in result.rows] == [
        ((*ids("right"), EOS), 0.5),
        ((*ids("fine"), EOS), 0.5),
    ]
    assert (len(result.chosen), result.idle_tokens) == (1, len("wrong") + len("bad") + 2)


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
    assert read([group]).rows[0].completion_ids == ids("right")


def test_groups_without_spread_are_dropped():
    result = read([judged(0, [1.0] * 4), judged(1, [0.0] * 4), judged(2, [0.3, 0.3 + 1e-6])])
    assert result == External(refused=(("no_spread", 3),), peers=(("peer", 3, 0),))


def test_what_was_used_of_each_peer_is_told_of_few_peers():
    groups = [judged(number, [1.0, 0.0], peer_id=f"peer{number % 3}") for number in range(6)]
    flat = judged(6, [1.0, 1.0], peer_id="flat")
    assert read([*groups, flat]).peers == (("peer0", 2, 2), ("peer1", 2, 2), ("peer2", 2, 2), ("flat", 1, 0))
    crowd = [judged(number, [1.0, 0.0], peer_id=f"peer{number}") for number in range(40)]
    reports = read(crowd).peers
    assert len(reports) == MAX_PEERS and sum(used for _, _, used in reports) == 16


def test_rows_that_could_not_be_judged_neither_push_nor_set_the_mean():
    statuses = [Status.JUDGED, Status.JUDGED, Status.QUARANTINED, Status.UNAVAILABLE]
    result = read([judged(0, [1.0, 0.0, 1.0, 1.0], status=statuses)])
    assert [row.advantage for row in result.rows] == [0.5]


def test_what_the_policy_would_never_write_is_dropped():
    result = read([judged(0, [1.0, 1.0, 0.0, 0.0], ["ok", "????", "a", "b"])])
    assert [row.completion_ids for row in result.rows] == [(*ids("ok"), EOS)]
    assert dict(result.refused)["row_unlikely"] == 1
    assert read([judged(0, [1.0, 0.0])], reader(logprob=-3.99)).rows
    assert not read([judged(0, [1.0, 0.0])], reader(logprob=-4.01)).rows


def test_what_a_group_says_twice_pushes_twice():
    assert len(read([judged(7, [1.0, 1.0, 0.0], ["same", "same", "wrong"])]).rows) == 2


def test_the_same_answer_pushes_once_however_many_send_it():
    groups = [judged(7, [1.0, 0.0], ["same", f"wrong {i}"], peer_id=f"peer {i}") for i in range(6)]
    result = read(groups)
    assert len(result.rows) == 1 and dict(result.refused)["row_duplicate"] == len(result.chosen) - 1
    assert result.idle_tokens == sum(len(c.text) + 1 for item in result.chosen for c in item.group.completions) - 5
    other = read([judged(7, [1.0, 0.0], ["same", "x"]), judged(8, [1.0, 0.0], ["same", "x"])])
    assert len(other.rows) == 2  # the same words to another question are another answer


@pytest.mark.parametrize("text", ["", "x" * 21])
def test_empty_and_endless_rows_are_dropped(text: str):
    group = judged(0, [1.0, 0.0], [text, "wrong"])
    bare = tuple(dataclasses.replace(item, finished=False) for item in group.group.completions)
    group = dataclasses.replace(group, group=dataclasses.replace(group.group, completions=bare))
    result = read([group])
    assert result.rows == () and dict(result.refused) == {"row_length": 1}
    assert result.idle_tokens <= 2 * 20


def test_a_question_that_would_have_to_be_cut_is_dropped():
    assert dict(read([judged(0, [1.0, 0.0])], reader(max_prompt_tokens=10)).refused) == {"long_prompt": 1}


def test_own_groups_that_come_back_are_dropped():
    result = read([judged(0, [1.0, 0.0], peer_id="me")])
    assert result == External(refused=(("own", 1),))


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
    assert sum(len(item.verdicts) for item, _ in chosen) <= max_rows
    assert len({item.group.problem.id for item, _ in chosen}) == len(chosen)
    peers = [item.group.peer_id for item, _ in chosen]
    if len({peer for peer, _ in sent}) >= 4:
        assert max(map(peers.count, peers), default=0) <= max(1, min(max_groups, len(sent)) // 4)


def test_a_flood_from_one_peer_leaves_the_others_their_turns():
    flood = [judged(i, [1.0, 0.0], peer_id="loud") for i in range(100)]
    quiet = [judged(1000 + i, [1.0, 0.0], peer_id=f"quiet {i}") for i in range(3)]
    result = read([*flood, *quiet], groups=8)
    pushed = {row.prompt_ids for row in result.rows}
    assert {(*ids(item.group.problem.question), 258) for item in quiet} <= pushed
    assert len(result.chosen) == 5  # a fourth of eight, and three


def test_groups_at_one_problem_are_one_group_whoever_sampled_them():
    own = judged(3, [0.0, 0.0], peer_id="me")
    result = read([judged(3, [1.0, 0.0], ["right", "wrong"], peer_id="other")], local=[own])
    assert [row.advantage for row in result.rows] == [0.75]
    assert merged_advantages([own, *result.chosen], "none")[id(own)] == [-0.25, -0.25]
    strangers = [judged(4, [1.0, 1.0], ["a", "b"], peer_id="one"), judged(4, [1.0, 0.0], ["c", "d"], peer_id="two")]
    assert [row.advantage for row in read(strangers[1:]).rows] == [0.5]
    spread = [strangers[1], dataclasses.replace(strangers[1], group=strangers[0].group)]
    assert {row.advantage for row in read(spread).rows} == {0.5}


def test_few_attempts_say_too_little():
    assert dict(read([judged(0, [1.0, 0.0, 0.0])], least_rows=4).refused) == {"few_rows": 1}
    assert read([judged(0, [1.0, 0.0, 0.0])], local=[judged(0, [0.0], peer_id="me")], least_rows=4).rows


def test_policies_differ_in_what_they_push_down():
    groups = [judged(0, [1.0, 0.0], ["right", "wrong"])]
    assert [row.advantage for row in read(groups, policy="sapo").rows] == [0.5, -0.5]
    assert read(groups, policy="off") == External(refused=(("off", 1),), peers=(("peer", 1, 0),))


def test_peers_that_do_not_pass_are_left_out():
    groups = [judged(0, [1.0, 0.0], peer_id="good"), judged(1, [1.0, 0.0], peer_id="bad")]
    result = read(groups, passing=lambda peers: set(peers) - {"bad"})
    assert [item.group.peer_id for item in result.chosen] == ["good"] and dict(result.refused)["gate"] == 1


LETTERS = [(at, at + 1) for at in range(6)]


def test_tokens_outside_the_program_have_no_weight_and_the_end_has() -> None:
    assert program_weights(((1, 3), (4, 5)), LETTERS, finished=True) == (0, 1, 1, 0, 1, 0, 1)
    assert program_weights(((1, 3),), [(0, 2), (2, 3), (2, 6)], finished=False) == (0, 1, 0)  # half in is not in
    assert program_weights((), LETTERS, finished=False) == (0,) * 6
    assert program_weights(None, LETTERS, finished=False) == (1,) * 6
    assert program_weights(((0, 6),), [(0, 0), (0, 9)], finished=False) == (0, 0)  # no place, and beyond the text


@given(st.lists(st.floats(-50, 0), min_size=1, max_size=60))
def test_no_stretch_is_less_likely(logprobs: list[float]) -> None:
    stretches = [logprobs[at : at + WINDOW] for at in range(max(1, len(logprobs) - WINDOW + 1))]
    means = [math.fsum(stretch) / len(stretch) for stretch in stretches]
    assert least_window(logprobs) == pytest.approx(min(means), abs=1e-9)


def test_a_row_with_a_stretch_that_own_attempts_do_not_have_does_not_push() -> None:
    slogan, own = [-0.1] * 50 + [-3.0] * WINDOW, OwnMeasure(-1.0, 100)
    assert limited_weights((1.0,) * len(slogan), slogan, own) == ()
    assert limited_weights((1.0,) * 50 + (0.0,) * WINDOW, slogan, own)  # where it is no program it does not count
    assert limited_weights((1.0,) * 2, (LEAST_MEAN_LOGPROB - 1,) * 2, OwnMeasure()) == ()
    assert limited_weights((0.0,) * 2, (-0.1,) * 2, OwnMeasure()) == ()


def test_a_token_that_is_next_to_impossible_is_not_pushed_and_its_row_is() -> None:
    logprobs = [-0.1] * 30 + [LEAST_LOGPROB - 0.1]
    assert limited_weights((1.0,) * 31, logprobs, OwnMeasure()) == (1.0,) * 30 + (0.0,)


def test_a_longer_row_than_own_ones_pushes_no_more_than_those() -> None:
    weights = limited_weights((1.0,) * 40, (-0.1,) * 40, OwnMeasure(longest=10))
    assert math.fsum(weights) == pytest.approx(10)


def test_the_own_measure_is_of_the_own_attempts() -> None:
    def group(logprobs: list[list[float]]):
        scored = judged(0, [1.0] * len(logprobs), peer_id="me")
        attempts = tuple(
            dataclasses.replace(each, token_ids=(1,) * len(nats), logprobs=tuple(nats))
            for each, nats in zip(scored.group.completions, logprobs, strict=True)
        )
        return dataclasses.replace(scored, group=dataclasses.replace(scored.group, completions=attempts))

    rows = [[-0.1] * length for length in range(1, 21)]
    measure = OwnMeasure.of([group(rows)])
    assert measure.least_window == pytest.approx(-0.1) and measure.longest == 19
    assert OwnMeasure.of([group([[-9.0] * 5] * 20)]).least_window == LEAST_MEAN_LOGPROB
    assert OwnMeasure.of([]) == OwnMeasure()


def passes(gate: PeerFilter, peer: str) -> float:
    """Share of iterations in which the peer may be learned from."""
    chance = random.Random(0)
    return sum(peer in gate.passing([peer], chance) for _ in range(1000)) / 1000


def taught(own: float, peer: float, times: int = 5) -> PeerFilter:
    gate = PeerFilter()
    for _ in range(times):
        gate.observe([judged(0, [own] * 4, peer_id="me")], [judged(1, [peer] * 4, peer_id="other")])
    return gate


def test_who_was_never_compared_may_be_learned_from():
    assert passes(PeerFilter(), "stranger") == 1


def test_a_better_or_equal_peer_passes_and_a_worse_one_is_only_probed():
    assert passes(taught(0.4, 0.8), "other") == passes(taught(0.5, 0.5), "other") == 1
    assert 0.05 < passes(taught(0.8, 0.4), "other") < 0.15


def test_chance_shuts_no_equal_peer_out():
    gate, chance = PeerFilter(), random.Random(0)
    passed = 0
    for _ in range(500):
        mine, theirs = ([float(chance.random() < 0.5) for _ in range(2)] * 4 for _ in range(2))
        gate.observe([judged(0, mine)], [judged(1, theirs, peer_id="other")])
        passed += gate.lead("other") >= -MARGIN
    assert passed > 400


def test_a_peer_that_gets_better_comes_back():
    gate = taught(0.8, 0.4)
    for _ in range(20):
        gate.observe([], [judged(1, [1.0] * 4, peer_id="other")])
    assert gate.lead("other") > 0 and passes(gate, "other") == 1


def test_only_what_could_be_compared_counts():
    gate = PeerFilter()
    gate.observe([], [judged(1, [0.0] * 4, peer_id="other")])  # nothing own to compare with
    gate.observe([judged(0, [0.8] * 4)], [judged(1, [0.0], peer_id="other", status=[Status.UNAVAILABLE])])
    assert gate.lead("other") == 0


def test_it_is_kept(tmp_path: Path):
    gate, again = taught(0.8, 0.4), PeerFilter()
    gate.save(tmp_path)
    again.load(tmp_path)
    assert again.lead("other") == gate.lead("other") < 0
    for item in (gate, again):
        item.observe([judged(0, [0.1] * 4)], [judged(1, [0.9] * 4, peer_id="other")])
    assert again.lead("other") == gate.lead("other")


@pytest.mark.parametrize("text", ["", "{}", '{"own": {}, "leads": {"peer": 7}}', '{"own": {"1": NaN}, "leads": {}}'])
def test_a_damaged_memory_is_named(tmp_path: Path, text: str):
    (tmp_path / "gate.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"gate\.json"):
        PeerFilter().load(tmp_path)


@settings(max_examples=20)
@given(st.lists(st.integers(0, 3000), max_size=50))
def test_a_crowd_of_names_fills_no_memory(peers: list[int]):
    gate = PeerFilter()
    gate.observe([judged(0, [0.5] * 4)], [judged(1, [0.1] * 4, peer_id=f"{i}") for i in range(STORED_PEERS)])
    gate.observe([], [judged(1, [0.1] * 4, peer_id=f"{i}") for i in peers])
    assert len(gate.memory.leads) <= STORED_PEERS
    assert all(gate.lead(str(i)) < 0 for i in peers)


def test_a_reward_that_is_no_number_says_nothing():
    gate = taught(0.5, 0.4)
    gate.observe([judged(0, [float("nan")] * 4)], [judged(1, [float("inf")] * 4, peer_id="other")])
    assert gate.lead("other") == taught(0.5, 0.4).lead("other")
