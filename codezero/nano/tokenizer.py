"""The embedded models' tokenizer: byte-level BPE of 768 tokens, trained on the problems they see.

It splits text as Qwen2's does (digits stay single, so that a constant is copied and not guessed), because that is
how `AutoTokenizer` splits for every model of that architecture, whatever `tokenizer.json` says. The chat template
keeps the user's text, except that a solver's instructions on the form of the answer are dropped and a proposer's
shrink to the level they ask for: a model this small can use no more.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import json
from collections.abc import Iterator
from itertools import islice
from random import Random

from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import Qwen2Tokenizer

from codezero.nano.corpus import judge_pairs, proposal
from codezero.problems.synthetic.tasks import make_task

VOCABULARY = 768
SAMPLES = 4_000
END, USER, ASSISTANT = "<|endoftext|>", "<|user|>", "<|assistant|>"
LEVEL_MARK = "DIFFICULTY REQUIREMENTS ("
"""What stands before `Level N` in a proposal's instructions."""
FORM_MARK = "ANSWER FORMAT:"
"""What stands before the form of the answer in a solver's instructions."""

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'user' -%}" + USER + "{%- set text = message['content'] -%}"
    "{%- if '" + LEVEL_MARK + "Level ' in text -%}{{ text.split('" + LEVEL_MARK + "')[1][:7] }}"
    "{%- else -%}{{ text.split('" + FORM_MARK + "')[0] | trim }}{%- endif -%}"
    "{%- elif message['role'] == 'assistant' -%}" + ASSISTANT + "{{ message['content'] }}" + END + "{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}" + ASSISTANT + "{%- endif -%}"
)


def build_tokenizer(seed: int) -> Qwen2Tokenizer:
    """The same for the same seed."""
    splitter = Qwen2Tokenizer().backend_tokenizer
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = splitter.normalizer
    tokenizer.pre_tokenizer = splitter.pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END, USER, ASSISTANT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(Random(seed)), trainer)
    learned = json.loads(tokenizer.to_str())["model"]
    return Qwen2Tokenizer(
        vocab=learned["vocab"],
        merges=[tuple(merge) for merge in learned["merges"]],  # pyright: ignore[reportArgumentType]
        eos_token=END,
        pad_token=END,
        unk_token=END,
        additional_special_tokens=[USER, ASSISTANT],
        padding_side="left",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def _texts(random: Random) -> Iterator[str]:
    for question, answer in islice(judge_pairs(random), SAMPLES):
        yield f"{question}\n{answer}\n"
        task = make_task(random)
        if random.random() < 0.3:
            yield f"{proposal(task)}\nLevel {task.spec.level}"
