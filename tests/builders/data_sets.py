"""Rows in the forms that MBPP and CodeContests have on the hub, as many as are wanted, and a hub to serve them."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ADJECTIVES = "red blue green quick slow tall short warm cold loud quiet bright dark soft hard round flat deep"
NOUNS = "rivers stones clouds trees lamps boats roads towers bells kites doors cups maps seeds wheels nests"
VERBS = "count sort merge split reverse rotate filter group double halve shift join rank trim swap mark"


def words(number: int) -> str:
    """A phrase of its own for each number."""
    random = Random(f"phrase {number}")
    parts = [" ".join(random.choice(kind.split()) for kind in (VERBS, ADJECTIVES, NOUNS)) for _ in range(4)]
    return f"{' and then '.join(parts)}, case {number}"


def mbpp(number: int, **changes: Any) -> dict[str, Any]:
    """The full set; `text` is `prompt` in the sanitised one."""
    name = f"solve_{number}"
    return {
        "task_id": number,
        "text": f"Write a function to {words(number)}.",
        "code": f"def {name}(n):\r\n  return n + {number}",
        "test_list": [f"assert {name}({n}) == {n + number}" for n in (1, 2, 3)],
        "test_setup_code": "",
        "challenge_test_list": [],
    } | changes


def sanitized(number: int) -> dict[str, Any]:
    row = mbpp(number)
    kept = {key: row[key] for key in ("task_id", "code", "test_list")}
    return {"source_file": "a.ipynb", "prompt": row["text"], "test_imports": ["import math"], **kept}


def contest(number: int, **changes: Any) -> dict[str, Any]:
    """Languages: 1 Python 2, 2 C++, 3 Python 3, 4 Java."""
    cases = {"input": [f"{n}\n" for n in (1, 2)], "output": [f"{n + number}\n" for n in (1, 2)]}
    return {
        "name": f"{number}_A. Sums",
        "description": f"You are asked to {words(number)}. Read n and write the answer.",
        "public_tests": cases,
        "private_tests": {"input": ["7\n"], "output": [f"{7 + number}\n"]},
        "generated_tests": {"input": [], "output": []},
        "source": 2,
        "difficulty": 7,
        "solutions": {
            "language": [2, 3, 1, 4],
            "solution": ["int main(){}", f"print(int(input()) + {number})", "print 1", "class A {}"],
        },
        "incorrect_solutions": {"language": [3], "solution": ["print(input())"]},
        "cf_rating": 800,
        "time_limit": {"seconds": 2, "nanos": 0},
    } | changes


def contests(count: int) -> list[dict[str, Any]]:
    """Of each ten one has no tests at all, and one has a test with an input of 1 MB beside usable ones."""
    none, long = {"input": [], "output": []}, {"input": ["x" * (1 << 20), "9\n"], "output": ["1\n", "10\n"]}
    changes: dict[int, dict[str, Any]] = {3: {"public_tests": none, "private_tests": none}, 7: {"private_tests": long}}
    return [contest(number, **changes.get(number % 10, {})) for number in range(count)]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """As Parquet or JSONL, by the suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
