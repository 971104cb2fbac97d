"""Programs that were written by hand, without a look at the judge: six right and four near misses for each problem.

`natural.jsonl` has a problem a line: question, entry_point, level, tests, reference, set, right, wrong. Right programs
return what the reference does on 260 inputs and more, near misses differ on 3 to 90 % of them.
"""

import ast
import difflib
import json
from collections.abc import Iterator
from pathlib import Path

from codezero.code.assertions import as_problem
from styles_parts.programs import Pair, Program, Study

FILE = Path(__file__).with_name("natural.jsonl")


def natural() -> Iterator[tuple[Study, list[Pair]]]:
    """Each right program beside the near miss whose distance from the reference is the most like its own."""
    for row in map(json.loads, FILE.read_text().splitlines()):
        problem = as_problem(row["question"], row["tests"], row["entry_point"], row["level"])
        right, wrong = (
            [Program(row["set"], code, _distance(row["reference"], code)) for code in row[name]]
            for name in ("right", "wrong")
        )
        pairs = [Pair(each, min(wrong, key=lambda other: abs(other.distance - each.distance))) for each in right]
        used = {pair.wrong.code for pair in pairs}
        rest = [program for program in wrong if program.code not in used]
        nearest = [Pair(min(right, key=lambda other: abs(other.distance - each.distance)), each) for each in rest]
        yield Study(problem, row["reference"], ()), pairs + nearest


def _distance(reference: str, code: str) -> int:
    one, other = (ast.unparse(ast.parse(text)).split() for text in (reference, code))
    same = sum(block.size for block in difflib.SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks())
    return len(one) + len(other) - 2 * same
