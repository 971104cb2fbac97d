"""What the embedded proposer writes: how much of it parses, is usable, is new, and how many expected values are true.

Asks for the same number of proposals at each level, once each, held to the form as a node holds it; and, in the same
run, for as many without (`free`). `json`: share that is one whole fence of JSON; `parses`: share that holds the
contract of `proposer/parsing.py`; `hygiene_passed`: share that `problems/filters.py` lets through, of all that was
asked for, with `unusable` as the reasons; `withheld`: of these, what the exam asks; `new`: of these, no repeat of an
earlier one by `problems/novelty.py`, over all levels and within each level by itself. `distinct`: different questions
among those that parse, function names aside. A question that is not of the synthetic family has no known solution: it
is counted in `unknown` and in nothing that follows. `at_level`: the problem is one of the level asked for. `novel`: the
program is of the part of the family that the proposer was never taught. `wrong_values`: share of the tests whose
expected value is not what the program in the question gives, by execution in the sandbox; `wrong_problems`: of the
problems, with such a test. `seconds`: for one proposal, sampled in one batch. Prints JSON over all and by level, with
95 % intervals (Wilson).

    codezero bench proposals --json --count 500
"""

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from codezero.config import ProposerConfig
from codezero.environments.code import CodeEnvironment
from codezero.errors import ProposalError
from codezero.models.generation import OwnLoop, Sampler
from codezero.models.load import LoadedModel, load_model
from codezero.nano import weights_directory
from codezero.problems.filters import PROPOSED, Novelty, Screen, inspect
from codezero.problems.synthetic.tasks import LEVELS, is_held_out, parse_question, render
from codezero.proposer.build import structure_for
from codezero.proposer.parsing import parse_proposal, proposal_prompt
from codezero.sandbox.base import TRUTH, Job
from codezero.sandbox.monty import MontySandbox
from codezero.stats import wilson
from codezero.types import Problem

TOKENS = ProposerConfig().max_new_tokens


@dataclass(frozen=True)
class Row:
    """One proposal."""

    asked: int
    json: bool = False
    refused: str = ""
    problem: Problem | None = None
    unusable: str = ""  # the reason for which hygiene refuses it
    gist: str = ""  # the question without the function's name
    level: int | None = None  # None: of no known program
    novel: bool = False
    wrong: tuple[bool, ...] = ()  # [tests] that execution refuted; those it could not tell of are left out


def look(text: str, asked: int, sandbox: MontySandbox) -> Row:
    whole = is_json(text)
    try:
        problem = parse_proposal(text, asked, "")
    except ProposalError as error:
        return Row(asked, whole, refused=str(error).partition(":")[0])
    refusal = inspect(problem, PROPOSED)
    unusable = "" if refusal is None else str(refusal.reason)
    gist = problem.question.replace(problem.entry_point, "")
    parsed = parse_question(problem.question)
    if parsed is None:
        return Row(asked, whole, problem=problem, unusable=unusable, gist=gist)
    name, spec = parsed
    code = render(spec, name)
    shown = [TRUTH[one.outcome] for one in sandbox.run_many([Job(code, (test,)) for test in problem.tests])]
    wrong = tuple(not right for right in shown if right is not None)
    return Row(asked, whole, "", problem, unusable, gist, spec.level, is_held_out(spec), wrong)


def is_json(text: str) -> bool:
    found = re.fullmatch(r"\s*```json\n(.*)\n```\s*", text, re.DOTALL)
    try:
        return found is not None and isinstance(json.loads(found[1]), dict)
    except ValueError:
        return False


def repeats(usable: Sequence[Problem]) -> list[bool]:
    """Is each no repeat of an earlier one?"""
    novelty = Novelty()
    return [novelty.add(problem) is None for problem in usable]


def summary(rows: Sequence[Row]) -> dict[str, object]:
    parsed = [row for row in rows if not row.refused]
    known = [row for row in parsed if row.level is not None]
    usable = [row.problem for row in parsed if row.problem is not None and not row.unusable]
    shares = {
        "json": [row.json for row in rows],
        "parses": [not row.refused for row in rows],
        "hygiene_passed": [not row.refused and not row.unusable for row in rows],
        "withheld": [Screen(CodeEnvironment()).withholds(problem) for problem in usable],
        "new": repeats(usable),
        "at_level": [row.level == row.asked for row in known],
        "novel": [row.novel for row in known],
        "wrong_values": [wrong for row in known for wrong in row.wrong],
        "wrong_problems": [any(row.wrong) for row in known],
    }
    told: dict[str, object] = {"proposals": len(rows)}
    for name, seen in shares.items():
        share = sum(seen) / len(seen) if seen else None
        told[name] = None if share is None else round(share, 3)
        told[f"{name}_interval"] = None if share is None else [round(end, 3) for end in wilson(share, len(seen))]
    told["distinct"] = round(len({row.gist for row in parsed}) / len(parsed), 3) if parsed else None
    told["unknown"] = len(parsed) - len(known)
    told["tests"] = len(shares["wrong_values"])
    told["refused"] = dict(Counter(row.refused for row in rows if row.refused))
    told["unusable"] = dict(Counter(row.unusable for row in rows if row.unusable))
    return told


def write(
    loaded: LoadedModel, asked: Sequence[int], options: argparse.Namespace, *, structured: bool
) -> tuple[list[str], float]:
    """One text for each level, and the seconds that one took."""
    sampler = Sampler(loaded, OwnLoop(loaded, structure_for(loaded) if structured else None))
    began = time.perf_counter()
    groups = sampler.sample(
        [proposal_prompt(level) for level in asked],
        group_size=1,
        max_new_tokens=TOKENS,
        temperature=options.temperature,
        generator_seed=options.seed,
    )
    return [group[0].text for group in groups], (time.perf_counter() - began) / len(asked)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500, help="proposals in all, the same number for each level")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="as always; here so that every benchmark takes it")
    options = parser.parse_args(argv)
    if options.count < len(LEVELS) or not options.temperature > 0:
        parser.error(f"at least {len(LEVELS)} proposals, and a temperature above 0")
    loaded = load_model(str(weights_directory("proposer")), device="cpu", role="proposer")
    asked = [level for level in LEVELS for _ in range(options.count // len(LEVELS))]
    told: dict[str, object] = {}
    with MontySandbox() as sandbox:
        for way in ("structured", "free"):
            texts, seconds = write(loaded, asked, options, structured=way == "structured")
            rows = [look(text, level, sandbox) for text, level in zip(texts, asked, strict=True)]
            summed = summary(rows) | {"seconds": round(seconds, 4)}
            told |= {"free": summed} if way == "free" else {"all": summed}
            if way == "structured":
                told |= {f"level_{level}": summary([row for row in rows if row.asked == level]) for level in LEVELS}
    print(json.dumps({**told, "settings": vars(options)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
