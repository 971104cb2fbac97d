"""Tokens per second of sampling and of updating, side by side: the node, genrl 0.3.0's trainer, TRL's `GRPOTrainer`.

All take the same model directory (random weights), prompts, group size and number of new tokens, in float32, on as many
threads, and sample and learn from every token: a model that never samples EOS fills every completion, and rewards that
differ within a group let every row carry gradient. Each way runs in a process of its own. They take turns over several
rounds, in an order that is turned round each time, after a turn that warms up. A model too large for several at once is
loaded anew for each turn. genrl comes from its package, into an environment of its own below --cache, once; where that
cannot be made its figures are null and `genrl_missing` says why. `genrl` is as shipped (a step for every 2 rows,
activations checkpointed), `genrl_tuned` takes as many steps as the others and checkpoints nothing.

Prints JSON: for each shape and way tokens per second, [median, least, most] over the rounds, and how many times faster
the node is (sampling and updating together), likewise; `cpu_ratio` by processor time, which other work on the machine
does not stretch. Usage: python benchmarks/rollout.py --json [--repeats 5]"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "rollout_ways"))

from environment import NoEnvironmentError, genrl_python
from model import NANO, QWEN, Shape, make_model, make_prompts
from turns import Job

WAYS = Path(__file__).parent / "rollout_ways"
SHAPES = {"nano": NANO, "qwen2.5-0.5b": QWEN}
SMALL = 50_000_000  # parameters up to which all ways stay in memory together
Report = dict[str, Any]


@dataclass(frozen=True)
class Turn:
    """One turn of one way, in seconds."""

    sample: float
    update: float
    cpu: float  # of all threads, for both together
    tokens: int = 0  # sampled and learned from


class Way:
    """A process that takes turns."""

    def __init__(self, command: list[str], job: Path, stay: bool):
        self.command, self.job, self.stay = command, job, stay
        self.process: subprocess.Popen[str] | None = None

    def turn(self, *, warm: bool = True) -> Turn:
        """warm: after one that is not counted. Raises RuntimeError when the process dies."""
        if self.process is None:
            # whose modules lie beside it
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
            self.process = subprocess.Popen(
                [self.command[0], str(WAYS / self.command[1]), str(self.job), *self.command[2:]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
            )
            self._answer()
            if warm:
                self._ask()
        turn = Turn(**self._ask())
        if not self.stay:
            self.close()
        return turn

    def close(self) -> None:
        if self.process is not None:
            self.process.communicate()  # no more lines: it ends
            self.process = None

    def _ask(self) -> Report:
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Report:
        assert self.process is not None and self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.command[1]} ended with exit code {self.process.wait()}")
        return json.loads(line)


def measure(shape: Shape, genrl: Path | None, options: argparse.Namespace) -> Report:
    """One shape: every way's turns, as tokens per second and as ratios."""
    with tempfile.TemporaryDirectory() as folder:
        parameters = make_model(Path(folder) / "model", shape)
        small = parameters <= SMALL
        threads = options.threads or (1 if small else os.cpu_count() or 1)
        prompts = make_prompts(shape)
        model = str(Path(folder) / "model")
        job = Job(model, prompts, shape.group_size, shape.new_tokens, options.steps, threads)
        job.write(Path(folder) / "job.json")
        commands = {"ours": [sys.executable, "with_codezero.py"], "trl": [sys.executable, "with_trl.py"]}
        if genrl is not None:
            commands["genrl"] = [str(genrl), "with_genrl.py", "shipped"]
            commands["genrl_tuned"] = [str(genrl), "with_genrl.py", "tuned"]
        ways = {name: Way(command, Path(folder) / "job.json", small) for name, command in commands.items()}
        took: dict[str, list[Turn]] = {name: [] for name in ways}
        try:
            for repeat in range(options.repeats):
                for name in list(ways)[:: -1 if repeat % 2 else 1]:
                    say(f"round {repeat + 1} of {options.repeats}: {name}")
                    took[name].append(turn := ways[name].turn())
                    if turn.tokens != job.tokens:
                        raise RuntimeError(f"{name} made {turn.tokens} tokens instead of {job.tokens}")
                    say(f"sampled in {turn.sample:.2f} s, updated in {turn.update:.2f} s, {turn.cpu:.2f} s of CPU")
        finally:
            for way in ways.values():
                way.close()
    work = {"parameters": parameters, "threads": threads, "rows": job.rows, "new_tokens": job.new_tokens}
    return work | {"optimizer_steps": job.optimizer_steps} | report(took, job.tokens)


def report(took: dict[str, list[Turn]], tokens: int) -> Report:
    """Tokens per second of each way; ratios are of turns in the same round, so that a busy moment counts for both."""
    made: Report = {
        name: {
            "sample_tokens_per_second": spread([tokens / turn.sample for turn in turns]),
            "update_tokens_per_second": spread([tokens / turn.update for turn in turns]),
            "tokens_per_second": spread([tokens / (turn.sample + turn.update) for turn in turns]),
        }
        for name, turns in took.items()
    }
    made |= {name: None for name in ("genrl", "genrl_tuned") if name not in took}
    for name in ("genrl", "genrl_tuned", "trl"):
        pairs = list(zip(took["ours"], took.get(name, []), strict=False))
        ratios = [(other.sample + other.update) / (own.sample + own.update) for own, other in pairs]
        made[f"ratio_vs_{name}"] = spread(ratios, 2) if ratios else None
        by_cpu = [other.cpu / own.cpu for own, other in pairs]
        made[f"cpu_ratio_vs_{name}"] = spread(by_cpu, 2) if by_cpu else None
    return made


def spread(values: list[float], digits: int = 1) -> list[float]:
    """[median, least, most]."""
    return [round(value, digits) for value in (statistics.median(values), min(values), max(values))]


def say(doing: str) -> None:
    print(f"rollout: {doing}", file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # pyright: ignore[reportOptionalMemberAccess]
    parser.add_argument("--json", action="store_true", help="one line instead of many")
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--layers", type=int, default=0, help="of every shape, instead of its own")
    parser.add_argument("--prompts", type=int, default=0, help="of every shape, instead of its own")
    parser.add_argument("--tokens", type=int, default=0, help="new ones of each completion, instead of the shape's own")
    parser.add_argument("--repeats", type=int, default=3, help="rounds")
    parser.add_argument("--steps", type=int, default=2, help="of the optimiser in a turn, for all but genrl as shipped")
    parser.add_argument("--threads", type=int, default=0, help="of torch; 0: one for a small model, else all cores")
    parser.add_argument("--no-genrl", action="store_true", help="leave genrl out")
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "codezero"
    parser.add_argument("--cache", type=Path, default=cache, help="folder of genrl's environment")
    options = parser.parse_args(argv)
    genrl, missing = None, "left out" if options.no_genrl else None
    if not options.no_genrl:
        try:
            genrl = genrl_python(options.cache)
        except NoEnvironmentError as error:
            missing = str(error)
            say(f"genrl's environment cannot be made, so it is left out: {missing}")
    given = {"layers": options.layers, "prompts": options.prompts, "new_tokens": options.tokens}
    changes = {key: value for key, value in given.items() if value}
    made = {name: measure(replace(SHAPES[name], **changes), genrl, options) for name in options.shapes}
    print(json.dumps({"shapes": made, "genrl_missing": missing}, indent=None if options.json else 1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
