"""What a verdict costs: CPU-seconds for each solution, by every way, on one random-weight model in one process."""

import argparse
import json
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from codezero.code.assertions import Example
from codezero.evaluator.judge import LikelihoodJudge
from codezero.evaluator.judge_prompts import SCORES, YES_NO
from codezero.evaluator.types import Program
from codezero.models.generation import Sampler
from codezero.models.load import LoadedModel

VOCABULARY = 151_936
PROBLEM_TOKENS, SOLUTION_TOKENS = 400, 170
TESTS = tuple(Example(f"scale([{n}, {n + 4}], {n})", f"[{n * n}, {n * (n + 4)}]") for n in (2, 3, 5))
DRY_RUN = (
    "{question}\n\nSolution:\n```python\n{code}\n```\n\nWalk through each test with this solution, step by step. Then "
    'give your verdict as JSON in a ```json block: {{"is_correct": true | false}}'
)
"""The original's request, in our words: problem, whole solution, an explanation, a verdict to be parsed."""
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
Report = dict[str, Any]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def stdlib_tokenizer() -> Any:
    """Byte-level BPE that splits like Qwen2's, learned from Python's standard library: English and code at hand."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import Qwen2Tokenizer

    splitter = Qwen2Tokenizer().backend_tokenizer
    learned = Tokenizer(models.BPE())
    learned.normalizer, learned.pre_tokenizer = splitter.normalizer, splitter.pre_tokenizer
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=16_384,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    learned.train_from_iterator((source.read_text(errors="replace") for source in sources), trainer)
    model = json.loads(learned.to_str())["model"]
    tokenizer = Qwen2Tokenizer(
        vocab=model["vocab"],
        merges=[tuple(merge) for merge in model["merges"]],
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token="<|endoftext|>",
        additional_special_tokens=special,
        chat_template=CHATML,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.add_tokens([" Yes", " No", "Yes", "No"])
    return tokenizer


def random_judge(layers: int) -> LoadedModel:
    """Hidden 896, 14 heads, 2 of keys and values, feed-forward 4,864."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tokenizer = stdlib_tokenizer()
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=layers,
        num_attention_heads=14,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen2ForCausalLM(config).eval().requires_grad_(False)
    return LoadedModel(model, tokenizer, f"random, {layers} layers", model.device)


def grown(loaded: LoadedModel, start: str, line: Callable[[int], str], tokens: int) -> str:
    """`start` and as many lines as make about `tokens` tokens."""
    text, count = start, 0
    while len(loaded.tokenizer(text, add_special_tokens=False)["input_ids"]) < tokens:
        text, count = text + line(count), count + 1
    return text


def material(loaded: LoadedModel, solutions: int) -> list[Program]:
    """Different solutions of one problem, of the usual lengths."""
    tests = "\n".join(f"assert {test.input} == {test.output}" for test in TESTS)
    question = grown(
        loaded,
        f"Write a function scale(nums, a) that returns the numbers in nums times a.\n{tests}\n",
        lambda n: f"Note {n}: the list nums has at most {n + 9} numbers, none is less than {-n}.\n",
        PROBLEM_TOKENS,
    )
    codes = [
        grown(
            loaded,
            "def scale(nums, a):",
            lambda n, k=k: f"\n    v{n} = [x * a + {n * k} for x in nums]",
            SOLUTION_TOKENS,
        )
        for k in range(solutions)
    ]
    return [Program(question, code, TESTS) for code in codes]


def cpu_seconds(act: Callable[[], object]) -> float:
    """Of all threads of this process."""
    began = time.process_time()
    act()
    return time.process_time() - began


def costs(options: argparse.Namespace) -> Report:
    """CPU-seconds for each solution, by way; the least of `repeats` readings, the mean of the dry runs."""
    say(f"making a random model of {options.layers} layers")
    loaded = random_judge(options.layers)
    programs = material(loaded, options.solutions)
    sampler = Sampler(loaded)
    ways = {
        "logit": ({"questions": [YES_NO]}, programs),
        "all_questions": ({"questions": list(SCORES)}, programs),
        "full_prompts": ({"questions": list(SCORES), "share_prefix": False}, programs),
    }

    def read(way: str) -> float:
        settings, given = ways[way]
        judge = LikelihoodJudge(loaded, **settings)  # a new one has nothing cached
        return cpu_seconds(lambda: judge.read(given, frozenset(judge.names))) / len(given)

    def dry_run(program: Program, number: int, tokens: int) -> int:
        prompt = DRY_RUN.format(question=program.question, code=program.code)
        ((completion,),) = sampler.sample(
            [prompt], group_size=1, max_new_tokens=tokens, temperature=1.0, generator_seed=number
        )
        return len(completion.token_ids)

    read("logit")  # warms up
    dry_run(programs[0], 0, 2)
    made: Report = {}
    for way in ways:
        made[way] = min(read(way) for _ in range(options.repeats))
        say(f"{way}: {made[way]:.3f} CPU-seconds for a solution")
    seconds, written = [], []
    for number, program in enumerate(programs[: options.dry_runs]):
        seconds.append(cpu_seconds(lambda p=program, n=number: written.append(dry_run(p, n, options.tokens))))
        say(f"dry_run: {seconds[-1]:.3f} CPU-seconds for {written[-1]} tokens")
    made["dry_run"] = sum(seconds) / len(seconds)
    tokens = loaded.tokenizer([programs[0].question, programs[0].code], add_special_tokens=False)["input_ids"]
    return {
        "ratio_dry_run_over_logit": made["dry_run"] / made["logit"],
        "ratio_dry_run_over_all_questions": made["dry_run"] / made["all_questions"],
        "ratio_full_prompts_over_shared": made["full_prompts"] / made["all_questions"],
        "cpu_seconds": made,
        "dry_run_tokens": written,
        "problem_tokens": len(tokens[0]),
        "solution_tokens": len(tokens[1]),
        "layers": options.layers,
        "solutions": options.solutions,
    }
