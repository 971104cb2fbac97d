"""What each profile takes of a card, part by part, as a node estimates it before anything is loaded. Measures nothing.

Prints JSON, GiB: what is always allocated, what only at times (the largest of these counts), and the sum with the
margin. Words behind are settings, for example `model.solver=Qwen/Qwen2.5-Coder-3B-Instruct`.

    .venv/bin/python benchmarks/memory.py gpu-8g gpu-12g solver.micro_batch_rows=1
"""

import json
import sys
from typing import Any

from codezero.fitting import LARGEST_FIRST
from codezero.models.hardware import estimate
from codezero.models.memory import GIB
from codezero.settings import compose

HALF = 2
"""Bytes of a number in bfloat16, in which a card computes."""


def main(words: list[str]) -> None:
    profiles = [word for word in words if "=" not in word and word != "--json"] or [
        name for name in LARGEST_FIRST if name != "solo"
    ]
    settings = [word for word in words if "=" in word]
    print(json.dumps({name: parts(name, settings) for name in profiles}, indent=2))


def parts(profile: str, settings: list[str]) -> dict[str, Any]:
    need = estimate(compose([f"profile={profile}", *settings]), "cuda", HALF)
    if need is None:
        return {"total": 0.0}
    lists = {"always": need.always, "at times": need.at_times}
    sizes = {kind: {name: round(size / GIB, 2) for name, size in found} for kind, found in lists.items()}
    return sizes | {"process": round(need.process / GIB, 2), "total": round(need.total / GIB, 1)}


if __name__ == "__main__":
    main(sys.argv[1:])
