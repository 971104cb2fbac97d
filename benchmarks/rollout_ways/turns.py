"""What every way of `rollout.py` has in common: what it is to do, and turns that it takes one at a time.

Standard library alone: genrl's environment reads it too. A way is a process of its own. It says once that it is ready,
then answers each line of its standard input with one line of JSON: how long sampling and updating took, the processor
time of both, in seconds, and how many tokens were made."""

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Job:
    """The same for all ways. A turn samples prompts x group_size completions and learns from all of them."""

    model: str  # directory with model and tokenizer. A random one never samples EOS, so that every completion is full.
    prompts: list[str]
    group_size: int
    new_tokens: int  # of every completion
    optimizer_steps: int  # A turn's rows are divided into so many
    threads: int  # of torch
    precision: str = "float32"  # bfloat16: computed in it, with float32 weights that learn

    @property
    def rows(self) -> int:
        return len(self.prompts) * self.group_size

    @property
    def tokens(self) -> int:
        """Most that are sampled, and learned from, in one turn."""
        return self.rows * self.new_tokens

    def reward(self, place: int) -> float:
        """Of the attempt with this place in its group: never the same twice, so that every row carries gradient."""
        return (place + 1) / self.group_size

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> "Job":
        return cls(**json.loads(path.read_text()))


class Turns:
    """This process's side of the talk. What libraries print goes to standard error from here on."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._cpu = 0.0

    def ready(self) -> None:
        self._say(ready=True)

    def wanted(self) -> bool:
        """Waits. Is another turn wanted? It begins when this returns."""
        line = sys.stdin.readline()
        self._cpu = time.process_time()
        return bool(line)

    def done(self, *, sample: float, update: float, tokens: int) -> None:
        """The turn is over."""
        self._say(sample=sample, update=update, tokens=tokens, cpu=time.process_time() - self._cpu)

    def _say(self, **values: Any) -> None:
        self._out.write(json.dumps(values) + "\n")
        self._out.flush()
