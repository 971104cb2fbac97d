"""A real model on this machine: sampler, learner and judge beside what the machine can do, and beside other programs.

machine: operations a second of products of matrices and bytes a second of its memory, measured in this run; all shares
are of these. sampler: the same prompts, in groups of 8 at temperature 1, by the node's sampler and by `generate` of
transformers, in one precision; rows end where the model ends them, and tokens are counted up to there. Decoding's share
of the bandwidth counts weights once a step and keys and values once a row; its share of the products counts every
weight once for each token. prefill: reading those prompts. judge: the default questions, by distinct programs of the
sampler's attempts, what comes before the judge left out. step: one GRPO step with a scripted reward by the node and by
TRL's `GRPOTrainer`, each in a process of its own, sampling and updating timed apart; the learner's share of the
products counts what has to be computed (`card_parts/roofline.py`), each prompt once.

Prints one JSON object. Usage: python benchmarks/real.py --model DIR [--judge DIR] --json"""

import argparse
import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "rollout_ways"))
sys.path.insert(0, str(Path(__file__).parent))

import torch
from card_parts.roofline import bandwidth, matmul_flops, update_flops
from rollout import Turn, Way
from turns import Job

from codezero.code.worker import StaticGuard
from codezero.config.judging import QUESTIONS
from codezero.environments.code import solver_prompt
from codezero.evaluator.judge import LikelihoodJudge
from codezero.evaluator.types import Program, program, request
from codezero.models.chat import encode_prompts, pad
from codezero.models.decoders import heads_of
from codezero.models.generation import Sampler
from codezero.models.load import LoadedModel, load_model, use_threads
from codezero.problems.synthetic.tasks import held_out
from codezero.types import Completion, Problem

GROUP = 8
STEP_PROMPTS, STEP_TOKENS = 2, 64
"""Of the GRPO step: groups, and most tokens of a completion."""
Report = dict[str, Any]


def measured_machine() -> Report:
    cpu = torch.device("cpu")
    formats = {"bfloat16": torch.bfloat16, "float32": torch.float32}
    return {
        "threads": torch.get_num_threads(),
        "matmul_flops": {name: matmul_flops(cpu, dtype, 3, 2048) for name, dtype in formats.items()},
        "bandwidth_bytes": bandwidth(cpu, 3, 512),
    }


def seconds_of(act: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    made = act()
    return time.perf_counter() - began, made


def parts_of(loaded: LoadedModel) -> tuple[int, int]:
    """Numbers in the body, through which every token passes, and in the head."""
    text = loaded.model.config.get_text_config()
    head = text.vocab_size * text.hidden_size
    untied = 0 if text.tie_word_embeddings else head
    return loaded.model.num_parameters() - head - untied, head


def decode_bytes(loaded: LoadedModel, prompts: Sequence[int], lengths: Sequence[int]) -> float:
    """Read by all steps but the first, which reads the prompts. prompts, lengths: tokens of each row."""
    config, number = loaded.model.config, loaded.model.dtype.itemsize
    _, pairs, size = heads_of(config)
    seen = sum(prompt + at for prompt, length in zip(prompts, lengths, strict=True) for at in range(1, length))
    return (max(lengths) - 1) * sum(
        parts_of(loaded)
    ) * number + seen * 2 * config.num_hidden_layers * pairs * size * number


def generated(loaded: LoadedModel, prompts: Sequence[Sequence[int]], tokens: int) -> list[int]:
    """Tokens of each row, by transformers' own loop."""
    ids, real = pad(prompts, loaded.pad_id, loaded.device, left=True)
    torch.manual_seed(0)
    drawn = loaded.model.generate(
        ids,
        attention_mask=real.long(),
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        repetition_penalty=1.0,
        max_new_tokens=tokens,
        num_return_sequences=GROUP,
        pad_token_id=loaded.pad_id,
    )
    stops = torch.tensor(loaded.stop_ids)
    ended = torch.isin(drawn[:, ids.shape[1] :], stops).long().cumsum(-1)
    return [int(length) for length in ((ended - torch.isin(drawn[:, ids.shape[1] :], stops).long()) == 0).sum(-1)]


def sampling(
    loaded: LoadedModel, texts: Sequence[str], tokens: int, machine: Report
) -> tuple[Report, Report, list[list[Completion]]]:
    """Sampler and prefill, and the attempts."""
    sampler, prompts = Sampler(loaded), encode_prompts(loaded.tokenizer, texts)

    def draw(texts: Sequence[str], group: int, tokens: int) -> list[list[Completion]]:
        options = {"group_size": group, "max_new_tokens": tokens, "temperature": 1.0, "generator_seed": 0}
        return sampler.sample(texts, **options)

    draw(texts[:1], 1, 2)  # warms up
    reading, _ = seconds_of(lambda: draw(texts, GROUP, 1))
    once, _ = seconds_of(lambda: draw(texts, 1, 1))
    whole, groups = seconds_of(lambda: draw(texts, GROUP, tokens))
    theirs, other = seconds_of(lambda: generated(loaded, prompts, tokens))
    lengths = [len(each.token_ids) for each in chain(*groups)]
    body, head = parts_of(loaded)
    peak = machine["matmul_flops"][str(loaded.model.dtype).removeprefix("torch.")]
    read, decoding = sum(map(len, prompts)), whole - reading
    ours, generate = sum(lengths) / whole, sum(other) / theirs
    moved = decode_bytes(loaded, [len(prompt) for prompt in prompts for _ in range(GROUP)], lengths)
    sampler_report = {
        "rows": len(lengths),
        "prompt_tokens": read,
        "new_tokens": sum(lengths),
        "tokens_per_second": round(ours, 1),
        "generate_tokens_per_second": round(generate, 1),
        "ratio_vs_generate": round(ours / generate, 2),
        "step_seconds": round(decoding / max(1, max(lengths) - 1), 4),
        "decode_share_of_bandwidth": round(moved / decoding / machine["bandwidth_bytes"], 3),
        "decode_share_of_matmul": round(2 * (body + head) * (sum(lengths) - len(lengths)) / decoding / peak, 3),
    }
    flops = 2 * (body * read + head * len(prompts))
    prefill = {"tokens_per_second": round(read / once, 1), "share_of_matmul": round(flops / once / peak, 3)}
    return sampler_report, prefill, groups


def readable(problems: Sequence[Problem], groups: Sequence[Sequence[Completion]]) -> list[Program]:
    """Distinct programs that the static pass leaves to a judge."""
    with StaticGuard() as guard:
        pairs = [(problem, each.text) for problem, group in zip(problems, groups, strict=True) for each in group]
        reports = guard.check_many([request(*pair) for pair in pairs])
    found = [program(problem, report) for (problem, _), report in zip(pairs, reports, strict=True)]
    return list(dict.fromkeys(each for each in found if each is not None))


def judging(name: str, programs: Sequence[Program]) -> Report:
    loaded = load_model(name, role="judge")
    judge = LikelihoodJudge(loaded, questions=QUESTIONS)
    judge.read(programs[:1], frozenset(judge.names))  # warms up, and is known from then on
    seconds, _ = seconds_of(lambda: judge.read(programs[1:], frozenset(judge.names)))
    return {
        "precision": str(loaded.model.dtype).removeprefix("torch."),
        "questions": list(QUESTIONS),
        "programs": len(programs) - 1,
        "seconds_an_attempt": round(seconds / max(1, len(programs) - 1), 3),
    }


def one_step(job: Job, script: str) -> Turn:
    """A first turn of a fresh process, without what loads it."""
    with tempfile.TemporaryDirectory() as folder:
        job.write(Path(folder) / "job.json")
        return Way([sys.executable, script], Path(folder) / "job.json", stay=False).turn(warm=False)


def stepping(job: Job, parts: tuple[int, int], read: int, machine: Report) -> Report:
    """read: tokens of the prompts."""
    report, speeds = Report(), list[float]()
    for name, script in (("ours", "with_codezero.py"), ("trl", "with_trl.py")):
        say(f"a GRPO step: {name}")
        turn = one_step(job, script)
        speeds.append(turn.tokens / (turn.sample + turn.update))
        report[name] = {
            "sample_seconds": round(turn.sample, 2),
            "update_seconds": round(turn.update, 2),
            "tokens": turn.tokens,
            "tokens_per_second": round(speeds[-1], 2),
        }
    ours = report["ours"]
    flops = update_flops(*parts, read, ours["tokens"], 6)
    share = flops / ours["update_seconds"] / machine["matmul_flops"][job.precision]
    return report | {
        "rows": job.rows,
        "ratio_vs_trl": round(speeds[0] / speeds[1], 2),
        "learner_share_of_matmul": round(share, 3),
    }


def measure(options: argparse.Namespace) -> Report:
    began = time.monotonic()
    say("the machine")
    machine = measured_machine()
    problems = held_out(max(1, options.rows // GROUP), 0)
    texts = [solver_prompt(problem) for problem in problems]
    say("sampler and generate")
    loaded = load_model(options.model, role="solver")
    use_threads(loaded.model, 0)
    precision, parts = str(loaded.model.dtype).removeprefix("torch."), parts_of(loaded)
    sampler, prefill, groups = sampling(loaded, texts, options.tokens, machine)
    few = texts[:STEP_PROMPTS]
    read = sum(map(len, encode_prompts(loaded.tokenizer, few)))
    tokens = min(STEP_TOKENS, options.tokens)
    job = Job(str(Path(options.model).resolve()), few, GROUP, tokens, 1, torch.get_num_threads(), precision)
    del loaded
    gc.collect()
    report: Report = {"model": options.model, "precision": precision, "machine": machine}
    report |= {"sampler": sampler, "prefill": prefill, "judge": None}
    programs = readable(problems, groups) if options.judge else []
    if len(programs) > 1:
        say(f"judge: {len(programs)} programs")
        report["judge"] = judging(options.judge, programs)
    gc.collect()
    report["step"] = stepping(job, parts, read, machine)
    return report | {"seconds": round(time.monotonic() - began, 1)}


def say(doing: str) -> None:
    print(f"real: {doing}", file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # pyright: ignore[reportOptionalMemberAccess]
    parser.add_argument("--json", action="store_true", help="one line instead of many")
    parser.add_argument("--model", required=True, metavar="DIR", help="solver, as from_pretrained loads it")
    parser.add_argument("--judge", metavar="DIR", help="judge; without one nothing is judged")
    parser.add_argument("--rows", type=int, default=64, help="attempts that are sampled, in groups of 8")
    parser.add_argument("--tokens", type=int, default=96, help="most new ones of an attempt")
    options = parser.parse_args(argv)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    print(json.dumps(measure(options), indent=None if options.json else 1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
