"""What the estimate has to depend on; `test_profile_memory.py` holds it against what a process really took."""

import pytest

from codezero.models.generation import CACHE_BUDGET
from codezero.models.memory import (
    ADAM_8BIT,
    GIB,
    LARGE,
    PIECE,
    SMALL,
    ModelShape,
    Need,
    Role,
    Texts,
    Training,
    adapter_numbers,
    node_need,
    sampling_bytes,
    shape_of,
    update_bytes,
)
from codezero.solver import loss as head

WHOLE, ADAPTER = Training(0, True, True, 4), Training(9_000_000, True, True, 4)
TEXTS = Texts(512, 256, 8, 16)


def small() -> ModelShape:
    return shape_of(SMALL, "solver")


def update(training: Training, texts: Texts = TEXTS, device: str = "cpu", number: int = 4) -> float:
    return update_bytes(small(), training, texts, device=device, number=number)


def of_node(training: Training, *others: Role) -> Need:
    return node_need([Role("solver", small(), TEXTS, training), *others], device="cpu", number=4)


def test_the_shapes_of_the_pool_are_those_of_the_published_models():
    """Parameters as their model cards give them: 0.49 and 1.54 billion."""
    assert (small().parameters, shape_of(LARGE, "solver").parameters) == (494_032_768, 1_543_714_304)
    assert (small().attention, small().keys, len(small().linear)) == (896, 128, 24 * 7)


def test_an_adapter_has_as_many_numbers_as_peft_gives_it():
    by_hand = 24 * 16 * (2 * (896 + 896) + 2 * (896 + 128) + 3 * (896 + 4864))
    assert adapter_numbers(small(), 16, None) == by_hand
    assert adapter_numbers(small(), 16, ["q_proj"]) == 24 * 16 * (896 + 896)


def test_the_copy_that_is_sampled_from_is_counted_where_there_is_one():
    policy = Role("solver", small(), Texts(512, 256, 8, 1), WHOLE)
    for device, number, is_there in (("cuda", 2, True), ("cpu", 2, True), ("cpu", 4, False)):
        parts = dict(node_need([policy], device=device, number=number).always)
        assert parts.get("solver's copy") == (2 * small().parameters if is_there else None)


def test_what_saves_memory_saves_it_in_the_estimate():
    plain = Training(0, True, False, 4)
    assert update(WHOLE) < update(plain) and update(Training(0, True, True, 2)) < update(WHOLE)
    assert update(ADAPTER) < update(WHOLE) and update(WHOLE, Texts(512, 64, 8, 16)) < update(WHOLE)
    assert update(plain, number=2, device="cuda") < update(plain, device="cuda")
    need, without_kl = of_node(WHOLE), of_node(Training(0, False, True, 4))
    assert dict(need.always)["solver's KL copy"] == 4 * small().parameters
    assert dict(without_kl.always) == {name: size for name, size in need.always if "KL" not in name}
    in_eight = Training(0, False, True, 4, ADAM_8BIT)
    assert sum(size for _, size in of_node(in_eight).always) < 9 * 494_032_768
    packed = small()._replace(nf4=True)
    assert 0.4 * small().stored(2) < packed.stored(2) < 0.5 * small().stored(2)  # a quarter of it is the embedding
    judge = Role("judge", shape_of(LARGE, "judge"), Texts(512, 256, 8, 1))
    assert of_node(WHOLE, judge).total > need.total + 4 * judge.shape.parameters
    shared = of_node(WHOLE, judge._replace(shared=True))
    assert shared.always == need.always and shared.at_times == of_node(WHOLE, judge).at_times


def test_sampling_few_short_texts_needs_little_and_many_no_more_than_the_budget_of_keys_and_values():
    few, many, item = Texts(512, 256, 8, 2), Texts(512, 256, 8, 1000), Texts(512, 256, 4096, 1)
    cache = 2 * 24 * 128 * 4 * (512 + 256) * 8
    assert 2 * cache < sampling_bytes(small(), few, number=4) < 3 * cache
    assert CACHE_BUDGET < sampling_bytes(small(), many, number=4) < 1.5 * CACHE_BUDGET
    assert sampling_bytes(small(), item, number=4) > 4096 / 8 * cache


def test_only_the_busiest_of_what_is_never_at_once_counts():
    need = Need((("solver", 10.0 * GIB),), (("update", 2.0 * GIB), ("sampling", 5.0 * GIB)), 1.0 * GIB)
    assert need.total == pytest.approx((1 + 1.1 * 15) * GIB)
    assert str(need) == "17.5 GiB (solver 10.0; update 2.0, sampling 5.0)"


def test_the_piece_of_logits_is_that_of_the_learner():
    assert PIECE == head.WHOLE
