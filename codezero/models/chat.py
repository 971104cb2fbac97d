"""Text to token ids, the same way for every role: prompts through the chat template, completions bare.

Text comes from strangers. Special tokens spelt out in a prompt are removed, so that nobody can end the user's turn
and speak as the assistant; in a completion they are read letter by letter, so that a judge sees what is there.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Sequence
from typing import cast

from transformers import PreTrainedTokenizerBase


def encode_prompts(
    tokenizer: PreTrainedTokenizerBase, user_texts: Sequence[str], max_tokens: int | None = None
) -> list[list[int]]:
    """Ids of one user turn each, ending where the assistant's answer begins.

    A prompt longer than `max_tokens` loses its beginning, so that it still ends in the generation prompt.
    """
    if not user_texts:
        return []
    turns = [[{"role": "user", "content": without_special_tokens(tokenizer, text)}] for text in user_texts]
    rendered = cast("list[str]", tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
    ids = cast("list[list[int]]", tokenizer(rendered, add_special_tokens=False)["input_ids"])
    return ids if max_tokens is None else [row[-max_tokens:] for row in ids]


def encode_completions(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """Ids of answers, without EOS and with no special token, whatever the text spells."""
    if not texts:
        return []
    ids = tokenizer([_valid(text) for text in texts], add_special_tokens=False, split_special_tokens=True)["input_ids"]
    return cast("list[list[int]]", ids)


def without_special_tokens(tokenizer: PreTrainedTokenizerBase, text: str) -> str:
    """`text` as valid UTF-8 that spells no special token, also not after one was cut out of it."""
    text = _valid(text)
    special = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
    while found := [token for token in special if token and token in text]:
        for token in found:
            text = text.replace(token, "")
    return text


def _valid(text: str) -> str:
    """Lone surrogates, which tokenizers refuse, as question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")
