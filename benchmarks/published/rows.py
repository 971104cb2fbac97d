"""Rows as items: a task to execute, a problem to filter, and the authors' solution."""

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from codezero.evals.sets import read_tasks
from codezero.evals.task import EvalTask
from codezero.problems.filters import FilterRefusal
from codezero.problems.sources import read_entry
from codezero.types import Problem, Source, problem_id

Report = dict[str, Any]


@dataclass(frozen=True)
class Item:
    """A row that was read."""

    task: EvalTask
    problem: Problem
    reference: str

    @property
    def name(self) -> str:
        return self.task.name


def rows(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        yield from (json.loads(line) for line in file if line.strip())


def human_eval_items(path: Path) -> tuple[list[Item], Report]:
    """The eval reader's tasks. Raises ProblemError for a row that it cannot read, as `codezero eval` ends with one."""
    written = {row["task_id"]: row["prompt"] + row["canonical_solution"] for row in rows(path)}
    items: list[Item] = []
    for task in read_tasks("humaneval", [path]):
        key, reference = problem_id(task.prompt, task.tests), written[task.name]
        problem = Problem(key, task.prompt, task.tests, task.entry_point, Source.MBPP, reference=reference)
        items.append(Item(task, problem, reference))
    return items, {"in_file": len(written), "eval_tasks": len(items), "problems": len(items), "refused": []}


def mbpp_items(path: Path) -> tuple[list[Item], Report]:
    """The problem reader's problems, and the eval reader's tasks where the row is of the test split.

    Raises ProblemError for a row that the eval reader cannot read.
    """
    tasks = {task.name: task for task in read_tasks("mbpp", [path])}
    items, refused, count = [], [], 0
    for row in rows(path):
        count += 1
        name, entry = f"mbpp/{row['task_id']}", read_entry(row)
        if isinstance(entry, FilterRefusal):
            refused.append(f"{name}: {entry.detail}")
            continue
        task = EvalTask(name, entry.question, entry.tests, entry.entry_point)
        if name in tasks and replace(tasks[name], prompt=task.prompt) != task:
            refused.append(f"{name}: the two readers differ")
        items.append(Item(task, entry, str(entry.reference)))
    return items, {"in_file": count, "eval_tasks": len(tasks), "problems": len(items), "refused": refused}


READERS: dict[str, Callable[[Path], tuple[list[Item], Report]]] = {"humaneval": human_eval_items, "mbpp": mbpp_items}
