"""Lessons, tokenizer and supervised training of a small Qwen2-architecture model: next-token loss on the answer alone.

The lessons are endless (user text, answer) pairs from the training side of the split. The solver's are spoilt on
purpose, more so at higher levels: a policy that starts half right is one that reinforcement can improve. The judge's
are clean, because it is the ceiling of what the solver can learn.

The tokenizer is a byte-level BPE of 768 tokens. It splits text as Qwen2's does (digits stay single), because that is
how `AutoTokenizer` splits for every model of that architecture, whatever `tokenizer.json` says. The chat template drops
a solver's instructions on the form of the answer and shrinks a proposer's to the level: so small a model uses no more.

Muon (Jordan et al. 2024) for the matrices and AdamW for the rest: half the steps of AdamW alone at this size.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import functools
import json
from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import Any, cast

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from torch.optim.lr_scheduler import LambdaLR
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

from codezero.code.canonical import canonical
from codezero.code.parsing import fence
from codezero.models.chat import encode_completions, encode_prompts
from codezero.problems.synthetic.programs import Spec
from codezero.problems.synthetic.tasks import LEVELS, SyntheticTask, corrupt_text, draw_cases, make_task, mutate, render
from codezero.proposer.parsing import proposal_prompt

Pair = tuple[str, str]
Lessons = Callable[[Random], Iterator[Pair]]

SOLVER_LEVELS = (0.37, 0.22, 0.22, 0.10, 0.09)
"""How often the solver saw each level."""
JUDGE_LEVELS = (0.10, 0.28, 0.24, 0.10, 0.28)
"""More of the levels with several constants: which belongs where is what is hardest to learn."""
SOLVER_NOISE = (0.20, 0.40, 0.48, 0.70, 0.72)
"""Share of spoilt answers, by level."""
SLIPS = 0.2
"""Share of spoilt answers that are spoilt as text; the rest answer another question."""


def solver_pairs(random: Random) -> Iterator[Pair]:
    while True:
        task = make_task(random, random.choices(LEVELS, SOLVER_LEVELS)[0])
        level = LEVELS.index(task.spec.level)
        spoil = random.random() < SOLVER_NOISE[level]
        code = render(task.spec, task.problem.entry_point, random)
        yield task.problem.question, _spoilt(task, code, random) if spoil else fence(code)


def judge_pairs(random: Random) -> Iterator[Pair]:
    """Canonical code only, because that is what a judge is shown (codezero.code.canonical)."""
    while True:
        task = make_task(random, random.choices(LEVELS, JUDGE_LEVELS)[0])
        code = _canonical(task.spec).replace(_ENTRY, task.problem.entry_point, 1)
        yield task.problem.question, fence(code)


_ENTRY = "program"


@functools.lru_cache(maxsize=100_000)
def _canonical(spec: Spec) -> str:
    return canonical(render(spec, _ENTRY), _ENTRY, parameters=spec.arguments.split(", "))


def plain_pairs(random: Random) -> Iterator[Pair]:
    """As the problems' references are written."""
    while True:
        task = make_task(random, random.choices(LEVELS, JUDGE_LEVELS)[0])
        yield task.problem.question, fence(render(task.spec, task.problem.entry_point))


def proposer_pairs(random: Random) -> Iterator[Pair]:
    while True:
        task = make_task(random)
        yield proposal_prompt(task.spec.level), proposal(task)


def tests_pairs(random: Random) -> Iterator[Pair]:
    """Two cases for a question, of short inputs half of the time: a model this small computes little else."""
    while True:
        task = make_task(random)
        cases = draw_cases(task.spec, random, 2, short=random.random() < 0.5)
        written = [{"input": ", ".join(map(repr, inputs)), "output": repr(output)} for inputs, output in cases]
        yield task.problem.question, f"```json\n{json.dumps(written)}\n```"


LESSONS = {"solver": solver_pairs, "judge": judge_pairs, "proposer": proposer_pairs, "tests": tests_pairs}
"""By role."""


def proposal(task: SyntheticTask) -> str:
    """The problem as a proposer writes it."""
    content = {"question": task.problem.question, "tests": list(task.problem.tests)}
    return f"```json\n{json.dumps(content)}\n```"


def _spoilt(task: SyntheticTask, code: str, random: Random) -> str:
    """An answer to another question; or a slip of the pen, no fence, or a fence that is never closed."""
    name = task.problem.entry_point
    if random.random() >= SLIPS:
        return fence(render(mutate(task.spec, random), name, random))
    roll = random.random()
    if roll < 0.7:
        return fence(corrupt_text(code, name, random))
    return code if roll < 0.85 else f"```python\n{code}"


MUON_RATE, ADAMW_RATE = 0.005, 0.004
WARM_UP = 30
"""Steps in which the rate rises."""
HOLD, FLOOR = 0.4, 0.05
"""Share of the steps at the full rate; then it falls in a line to FLOOR."""
BATCH_ROWS = 32
BUCKET = 32
"""Batches that are drawn together and divided by length."""
CONTEXT = 512
VOCABULARY = 768
HIDDEN, HEADS, FEED_FORWARD = 96, 4, 256
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


def build_tokenizer(seed: int, role: str) -> Qwen2Tokenizer:
    """Of programs as the role's lessons spell them; the same for the same seed."""
    pairs = {"solver": solver_pairs, "judge": judge_pairs}.get(role, plain_pairs)
    return tokenizer_of(_texts(Random(seed), pairs), CHAT_TEMPLATE)


def tokenizer_of(texts: Iterator[str], chat_template: str) -> Qwen2Tokenizer:
    """Learned from the texts."""
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
    tokenizer.train_from_iterator(texts, trainer)
    learned = json.loads(tokenizer.to_str())["model"]
    return Qwen2Tokenizer(
        vocab=learned["vocab"],
        merges=[tuple(merge) for merge in learned["merges"]],  # pyright: ignore[reportArgumentType]
        eos_token=END,
        pad_token=END,
        unk_token=END,
        additional_special_tokens=[USER, ASSISTANT],
        padding_side="left",
        chat_template=chat_template,
        clean_up_tokenization_spaces=False,
    )


def _texts(random: Random, pairs: Lessons) -> Iterator[str]:
    for question, answer in islice(pairs(random), SAMPLES):
        yield f"{question}\n{answer}\n"
        task = make_task(random)
        if random.random() < 0.3:
            yield f"{proposal(task)}\nLevel {task.spec.level}"


def new_model(layers: int, tokenizer: Qwen2Tokenizer, seed: int) -> Qwen2ForCausalLM:
    """Random weights, the same for the same seed; embeddings tied."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=-(-len(tokenizer) // 64) * 64,
        hidden_size=HIDDEN,
        intermediate_size=FEED_FORWARD,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        rope_parameters={"rope_theta": 10_000.0, "rope_type": "default"},
        bos_token_id=None,
        eos_token_id=end_of(tokenizer),
        pad_token_id=end_of(tokenizer),
    )
    return Qwen2ForCausalLM(config)


def train(
    model: Qwen2ForCausalLM,
    batches: Iterator[tuple[list[list[int]], list[list[int]]]],
    *,
    steps: int,
    on_step: Callable[[], None] = lambda: None,
) -> float:
    """Train in place on batches of (prompts, answers), as ids.

    Returns the mean loss of the last 50 steps, in nats per token of the answer.
    """
    optimizers = _optimizers(model)
    schedules = [LambdaLR(optimizer, lambda step: rate(step, steps)) for optimizer in optimizers]
    losses: list[float] = []
    model.train()
    for prompts, answers in islice(batches, steps):
        loss = answer_loss(model, prompts, answers)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        on_step()
    model.eval()
    return sum(losses[-50:]) / len(losses[-50:])


def rate(step: int, steps: int) -> float:
    """Share of the full learning rate: up, level, down."""
    falling = 1 - (step / steps - HOLD) / (1 - HOLD)
    return min(1.0, (step + 1) / WARM_UP) * min(1.0, max(FLOOR, falling))


def answer_loss(model: Qwen2ForCausalLM, prompts: list[list[int]], answers: list[list[int]]) -> Tensor:
    """Mean cross entropy over the answers' tokens. Rows are right-padded; causal attention needs no mask."""
    rows = list(zip(prompts, answers, strict=True))
    ids = pad_sequence([torch.tensor(prompt + answer) for prompt, answer in rows], batch_first=True)
    labels = [torch.tensor([-1] * len(prompt) + answer) for prompt, answer in rows]
    target = pad_sequence(labels, batch_first=True, padding_value=-1)[:, 1:]
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    return cross_entropy(model.lm_head(hidden[target >= 0]), target[target >= 0])


def end_of(tokenizer: Qwen2Tokenizer) -> int:
    return cast(int, tokenizer.eos_token_id)


def batches_of(
    tokenizer: Qwen2Tokenizer, pairs: Iterator[Pair], random: Random
) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
    """Endless batches of (prompts, answers) alike in length, as ids, in random order."""
    while True:
        drawn = list(islice(pairs, BATCH_ROWS * BUCKET))
        prompts = encode_prompts(tokenizer, [prompt for prompt, _ in drawn])
        answers = [[*ids, end_of(tokenizer)] for ids in encode_completions(tokenizer, [a for _, a in drawn])]
        order = sorted(range(len(drawn)), key=lambda i: len(prompts[i]) + len(answers[i]))
        batches = [order[at : at + BATCH_ROWS] for at in range(0, len(order), BATCH_ROWS)]
        random.shuffle(batches)
        for batch in batches:
            yield [prompts[i] for i in batch], [answers[i] for i in batch]


def _optimizers(model: Qwen2ForCausalLM) -> list[Any]:
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    rest = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    return [
        torch.optim.Muon(matrices, lr=MUON_RATE, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=ADAMW_RATE, weight_decay=0.0, betas=(0.9, 0.98)),
    ]
