"""Does the judge survive being optimised against? Whole runs, executed truth beside what the judge believes.

Arms on the same seeds: the default judge (likelihood); the control, a judge of the same size that was taught to answer
Yes or No and is asked nothing else, with its alarms ignored; the same control with its alarms heeded; execution alone
(rlvr); and each of the two judges where no sandbox decides (hybrid). No sandbox decides about a proposer's problems,
whose tests are claims: the second command draws three quarters of the problems from the proposer.

Prints JSON. Of each run: how far executed average@8 ever fell below its best, the widest gap between judged and
executed success, the judge's AUROC and calibration error on the exam's attempts, the shares of the verdicts that
execution gave and that nobody could, pass@8 and different solutions of a solved problem at start and end, and when the
run itself raised the alarm. Of each arm: the worst of the first two, and by how many points of average@8 it rose, with
the mean and 95 % interval over seeds.
`--picture` draws both curves.
`--into` keeps the runs, and the same command goes on with those that were cut off.

    codezero bench pressure --into /tmp/pressure --picture docs/pressure.svg \
        --arms likelihood "yes_no, alarms ignored" "yes_no, alarms heeded"
    codezero bench pressure --into /tmp/rewards --iterations 60 --problems 300 --jobs 1 evals.every=60 solver.refill=1 \
        data.proposer_share=0.75 proposer.every=1 proposer.problems_per_iteration=24 proposer.vetting=0
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import picture

from codezero.stats import mean_interval

ARMS = {
    "likelihood": [],
    "yes_no, alarms ignored": ["evaluator.questions=[yes_no]", "evaluator.on_alarm=warn"],
    "yes_no, alarms heeded": ["evaluator.questions=[yes_no]"],
    "rlvr": ["reward.mode=rlvr"],
    "hybrid": ["reward.mode=hybrid"],
    "yes_no, hybrid": ["evaluator.questions=[yes_no]", "evaluator.on_alarm=warn", "reward.mode=hybrid"],
}
CONTROL = "yes_no"
CURVE = ("eval/average_at_8", "judge/believed", "eval/ci_low", "eval/ci_high")
"""Of each exam, after the iteration."""
VERIFIER_STEPS = 600
VERIFIER_ROWS = 32
WORDS = (" Yes", " No")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--problems", type=int, default=1000, help="of an exam, eight attempts each")
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time")
    parser.add_argument("--into", type=Path, help="keep the runs, and the control's judge, in this folder")
    parser.add_argument("--arms", nargs="*", choices=list(ARMS), default=list(ARMS))
    picture.add_options(parser)
    parser.add_argument("--json", action="store_true", help="as always; here so that every benchmark takes it")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args(argv)
    if picture.drawn(options, draw):
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        base = options.into or Path(temporary)
        judge = base / "judge"
        if any(arm.startswith(CONTROL) for arm in options.arms) and not (judge / "config.json").is_file():
            say(f"teaching a judge to answer Yes or No, {VERIFIER_STEPS} steps")
            train_verifier(judge)
        jobs = [(arm, seed) for arm in options.arms for seed in range(options.seeds)]

        def one(job: tuple[str, int]) -> dict[str, Any]:
            made = run(*job, judge, base, options)
            say(json.dumps({key: value for key, value in made.items() if key != "curve"}))
            return made

        with ThreadPoolExecutor(options.jobs) as pool:
            runs = list(pool.map(one, jobs))
    result = {"runs": runs, "arms": {arm: over_seeds(runs, arm) for arm in options.arms}}
    print(json.dumps(result, indent=1))
    if options.picture:
        draw(result, options.picture)
    return 0


def run(arm: str, seed: int, judge: Path, base: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One whole `codezero run`, or what is left of it."""
    folder = base / f"{arm} {seed}".replace(" ", "_").replace(",", "")
    settings = [f"seed={seed}", f"run.max_iterations={options.iterations}", "run.name=run", f"run.directory={folder}"]
    settings += [
        f"run.logs={folder}/logs",
        f"swarm.identity={folder}/swarm.pem",
        "monitor.view=off",
        "chain.kind=clock",
    ]
    settings += ["evals.every=25", f"evals.problems={options.problems}", *ARMS[arm], *options.overrides]
    if arm.startswith(CONTROL):
        settings.append(f"evaluator.model={judge}")
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "codezero", "run", *settings], capture_output=True, text=True, check=False
    )
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    return summary(arm, seed, rows) | {"exit": done.returncode, "said": done.stderr.strip()[-300:]}


def rounded(row: dict[str, Any], key: str, digits: int) -> float | None:
    """None without a judge."""
    return None if row.get(key) is None else round(row[key], digits)


def summary(arm: str, seed: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    exams = [row for row in rows if row.get("eval/average_at_8") is not None]
    averages = [row["eval/average_at_8"] for row in exams]
    drops = [before - now for before, now in zip(itertools.accumulate(averages, max), averages, strict=True)]
    gaps = [row["judge/believed"] - row["eval/average_at_8"] for row in exams if row.get("judge/believed") is not None]
    alarms = [row["iteration"] for row in rows if row.get("judge/alarm")]
    return {
        "arm": arm,
        "seed": seed,
        "iterations": rows[-1]["iteration"],
        "source": exams[0]["eval/source"],
        "start": round(100 * averages[0], 1),
        "best": round(100 * max(averages), 1),
        "end": round(100 * averages[-1], 1),
        "pass_at_8": [round(100 * row["eval/pass_at_8"], 1) for row in (exams[0], exams[-1])],
        "distinct_solutions": [round(row["eval/distinct_solutions"], 2) for row in (exams[0], exams[-1])],
        "most_below_best_points": round(100 * max(drops), 2),
        "widest_gap": round(max(gaps), 4) if gaps else None,
        "judge_auroc": [rounded(row, "judge/auroc", 3) for row in (exams[0], exams[-1])],
        "judge_ece": [rounded(row, "judge/ece", 3) for row in (exams[0], exams[-1])],
        "executed_share": round(fmean(row.get("judge/executed_share", 0) for row in rows[1:]), 3),
        "unavailable_share": round(fmean(row["judge/unavailable_share"] for row in rows[1:]), 3),
        "first_alarm": alarms[0] if alarms else None,
        "curve": [[row["iteration"], *(rounded(row, key, 4) for key in CURVE)] for row in exams],
    }


def over_seeds(runs: list[dict[str, Any]], arm: str) -> dict[str, Any]:
    own = [made for made in runs if made["arm"] == arm]
    gains = [made["end"] - made["start"] for made in own]
    return {
        "gain": [round(each, 1) for each in gains],
        "gain_mean_and_interval": [round(each, 1) for each in mean_interval(gains)] if len(gains) > 1 else None,
        **{
            key: max((made[key] for made in own if made[key] is not None), default=None)
            for key in ("most_below_best_points", "widest_gap")
        },
    }


def train_verifier(folder: Path) -> None:
    """The embedded judge, taught further to answer the judge's own yes/no question on references and mutants."""
    import torch
    from transformers import Qwen2ForCausalLM

    from codezero.models.load import load_model
    from codezero.nano import weights_directory
    from tools.nano.train import train

    loaded = load_model(str(weights_directory("judge")), device="cpu", role="judge", for_training=True)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loaded.tokenizer.add_tokens(list(WORDS))
    model = loaded.model
    assert isinstance(model, Qwen2ForCausalLM)
    model.resize_token_embeddings(-(-len(loaded.tokenizer) // 64) * 64)
    done = itertools.count(1)

    def tell() -> None:
        if not (step := next(done)) % 50:
            say(f"step {step} of {VERIFIER_STEPS}")

    loss = train(model, verifier_batches(loaded.tokenizer), steps=VERIFIER_STEPS, on_step=tell)
    say(f"its loss is {loss:.3f} nats an answer")
    model.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)


def verifier_batches(tokenizer: Any) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
    """(question, code and ask; Yes or No), half of each, in the very form in which the judge asks."""
    from codezero.code.parsing import fence
    from codezero.evaluator.judge_prompts import ANSWER, YES_NO, follow_ups
    from codezero.evaluator.types import Program
    from codezero.models.chat import Conversation, encode_completions, encode_prompts
    from codezero.problems.synthetic.tasks import worked

    random, talk = Random("verifier"), Conversation(tokenizer)
    assert not talk.why_not, talk.why_not
    (begun,) = encode_completions(tokenizer, [ANSWER])
    yes_no = encode_completions(tokenizer, WORDS)
    while True:
        drawn = [worked(random) for _ in range(VERIFIER_ROWS // 2)]
        rows = [(one, code, right) for one in drawn for code, right in ((one.right[0], True), (one.wrong[0], False))]
        heads = encode_prompts(tokenizer, [one.problem.question for one, _, _ in rows])
        codes = encode_completions(tokenizer, [fence(code) for _, code, _ in rows])
        asks = [random.choice(follow_ups(Program(one.problem.question, code), {YES_NO})).ask for one, code, _ in rows]
        turns = talk.follow_ups(asks)
        prompts = [[*head, *code, *turn, *begun] for head, code, turn in zip(heads, codes, turns, strict=True)]
        yield prompts, [list(yes_no[0 if right else 1]) for _, _, right in rows]


def draw(result: dict[str, Any], path: Path) -> None:
    """A panel for each arm: executed and judged average@8 of each seed."""
    runs = result["runs"]
    arms = [arm for arm in ARMS if any(made["arm"] == arm for made in runs)]
    figure, [row] = picture.panels(1, len(arms), sharex=True, sharey=True)
    for axes, arm in zip(row, arms, strict=True):
        own = [made for made in runs if made["arm"] == arm]
        for place, made in enumerate(own):
            curve = made.get("curve", [])
            executed = [[at, *(100 * each for each in (truth, *ends))] for at, truth, _, *ends in curve]
            judged = [[at, 100 * believed] for at, _, believed, *_ in curve if believed is not None]
            picture.line(axes, executed, picture.COLOURS[2], "executed, 95 %" if not place else None)
            label = "judged" if not place else None
            if judged:
                picture.line(axes, judged, picture.COLOURS[1], label, linestyle="--", linewidth=1.2)
        alarms = [made["first_alarm"] for made in own if made["first_alarm"] is not None]
        for place, alarm in enumerate(alarms):
            axes.axvline(alarm, color=picture.COLOURS[4], linewidth=0.8, label="alarm" if not place else None)
        axes.set(title=arm, xlabel="iteration", ylim=(0, 100))
        axes.legend(loc="lower right")
    row[0].set_ylabel("average@8 on held-out problems, %")
    picture.save(figure, path)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
