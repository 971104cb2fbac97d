"""A model that knows nothing still writes whole JSON when it is held to the form; and only then."""

import json
import re
from collections.abc import Sequence

import pytest
import torch
from builders.models import tiny_policy
from transformers import ByT5Tokenizer
from unit.models.test_generation import small_tokenizer, tiny_model

from codezero.errors import ModelError, ProposalError
from codezero.models.generation import OwnLoop, Sampler
from codezero.models.grammar import Structure
from codezero.models.load import LoadedModel, load_model
from codezero.nano import weights_directory
from codezero.proposer.parsing import ProposalReason, parse_proposal, proposal_grammar, proposal_prompt
from codezero.types import Completion


def random_bpe() -> LoadedModel:
    """Qwen2's architecture and a real byte-level BPE with merges; 20 ids of the model mean nothing."""
    return LoadedModel(tiny_model(max_position_embeddings=2048), small_tokenizer(), "random", torch.device("cpu"))


def sample(
    loaded: LoadedModel, structured: bool, *, slots: bool = True, most: int = 256, temperature: float = 1.0,
    seed: int = 0,
) -> list[Completion]:  # fmt: skip
    loop = OwnLoop(loaded, Structure(loaded, proposal_grammar) if structured else None)
    loop.slots = slots
    groups = Sampler(loaded, loop).sample(
        [proposal_prompt(level) for level in (1, 2, 3, 4, 5)], group_size=2, max_new_tokens=most,
        temperature=temperature, generator_seed=seed,
    )  # fmt: skip
    return [item for group in groups for item in group]


def whole(completions: Sequence[Completion]) -> float:
    """Share that is one fence with JSON of the right shape inside."""
    return sum(map(is_whole, completions)) / len(completions)


def is_whole(completion: Completion) -> bool:
    result = re.fullmatch(r"```json\n(.*)\n```", completion.text, re.DOTALL)
    try:
        proposal = json.loads(result[1]) if result else None
    except ValueError:
        return False
    return (
        isinstance(proposal, dict)
        and set(proposal) == {"question", "tests"}
        and len(proposal["tests"]) == 3
        and all(item.startswith("assert ") for item in proposal["tests"])
        and bool(proposal["question"])
    )


@pytest.mark.slow
@pytest.mark.parametrize("slots", [True, False])
@pytest.mark.parametrize("temperature", [0.7, 2.0])
def test_random_weights_write_whole_json_under_the_form_and_none_without(slots: bool, temperature: float) -> None:
    loaded = random_bpe()
    held = sample(loaded, True, slots=slots, temperature=temperature)
    assert whole(held) == 1.0 and all(item.finished for item in held)
    assert whole(sample(loaded, False, slots=slots, temperature=temperature)) == 0.0


@pytest.mark.parametrize("most", [100, 192, 384])
def test_however_few_tokens_there_are_nothing_is_cut_off(most: int) -> None:
    held = sample(random_bpe(), True, most=most)
    assert whole(held) == 1.0 and max(len(item.token_ids) for item in held) <= most


@pytest.mark.parametrize("most", [8, 40])
def test_too_few_tokens_are_sampled_freely(most: int) -> None:
    loaded = random_bpe()
    assert sample(loaded, True, most=most) == sample(loaded, False, most=most)


def test_a_tokenizer_without_merges_is_held_to_it_too() -> None:
    assert whole(sample(tiny_policy(), True)) == 1.0


@pytest.mark.slow
def test_decoding_in_parts_after_memory_ran_out_begins_each_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = random_bpe()
    loop, failed = OwnLoop(loaded, Structure(loaded, proposal_grammar)), list[int]()
    free = loop._loop

    def tight(waiting: object, size: int, *rest: object) -> object:
        if size > 3:
            failed.append(1)
            raise torch.OutOfMemoryError
        return free(waiting, size, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "_loop", tight)
    groups = Sampler(loaded, loop).sample(
        ["a", "b"], group_size=4, max_new_tokens=128, temperature=1.0, generator_seed=0
    )
    assert failed and whole([item for group in groups for item in group]) == 1.0


@pytest.mark.slow
def test_the_embedded_proposer_is_as_good_under_the_form() -> None:
    loaded = load_model(str(weights_directory("proposer")), device="cpu", role="proposer")

    def accepted(structured: bool) -> int:
        texts = [item.text for seed in range(10) for item in sample(loaded, structured, seed=seed)]
        return sum(parses(text) is None for text in texts)

    assert whole(sample(loaded, True)) == 1.0
    assert min(accepted(True), accepted(False)) > 80


def parses(text: str) -> str | None:
    """Why not; None when it does."""
    try:
        parse_proposal(text, 1, "peer")
    except ProposalError as error:
        return str(error).partition(":")[0]
    return None


def test_what_is_whole_is_still_parsed_strictly() -> None:
    refused = {parses(item.text) for item in sample(random_bpe(), True)}
    assert refused and refused <= set(ProposalReason) - {ProposalReason.FENCE, ProposalReason.JSON, ProposalReason.SIZE}


def test_a_tokenizer_of_another_kind_is_named() -> None:
    loaded = random_bpe()
    slow = ByT5Tokenizer()
    with pytest.raises(ModelError, match="nothing is constrained"):
        Structure(LoadedModel(loaded.model, slow, "slow", loaded.device), proposal_grammar)


def test_a_grammar_that_is_none_is_no_silent_freedom() -> None:
    loaded = random_bpe()
    broken = Structure(loaded, lambda room, cost: "start: (")
    with pytest.raises(ValueError, match="grammar"):
        broken.begin(1, 64)
