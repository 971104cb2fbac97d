"""What the embedded proposer writes: how much of it parses, is new, and how many of its expected values are true.

Asks for the same number of proposals at each level, once each. `parses`: share that holds the contract of
`proposer/parsing.py`; `distinct`: different questions among these, function names aside. A question that is not of
the synthetic family has no known solution: it is counted in `unknown` and in nothing that follows. `at_level`: the
problem is one of the level asked for. `novel`: the program is of the part of the family that the proposer was never
taught. `wrong_values`: share of the tests whose expected value is not what the program in the question gives, by
execution in the sandbox; `wrong_problems`: of the problems, with such a test. Prints JSON over all and by level,
with 95 % intervals (Wilson).

    codezero bench proposals --json --count 500
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from codezero.errors import ProposalError
from codezero.models.load import load_model
from codezero.models.sampler import Sampler
from codezero.nano import weights_directory
from codezero.problems.programs import render
from codezero.problems.synthetic import LEVELS, is_held_out, parse_question
from codezero.proposer.parsing import parse_proposal
from codezero.proposer.prompts import proposal_prompt
from codezero.sandbox.execution import Job, Outcome
from codezero.sandbox.monty import MontySandbox
from codezero.skill import wilson

TOKENS = 192


@dataclass(frozen=True)
class Row:
    """One proposal."""

    asked: int
    refused: str = ""
    gist: str = ""
    """The question without the function's name."""
    level: int | None = None
    """None: of no known program."""
    novel: bool = False
    wrong: tuple[bool, ...] = ()
    """[tests] that execution refuted; those it could not tell of are left out."""


def look(text: str, asked: int, sandbox: MontySandbox) -> Row:
    try:
        problem = parse_proposal(text, asked, "")
    except ProposalError as error:
        return Row(asked, refused=str(error).partition(":")[0])
    gist = problem.question.replace(problem.entry_point, "")
    parsed = parse_question(problem.question)
    if parsed is None:
        return Row(asked, gist=gist)
    name, spec = parsed
    code = render(spec, name)
    shown = sandbox.run_many([Job(code, (test,)) for test in problem.tests])
    wrong = tuple(one.outcome is Outcome.FAIL for one in shown if one.outcome is not Outcome.UNKNOWN)
    return Row(asked, gist=gist, level=spec.level, novel=is_held_out(spec), wrong=wrong)


def summary(rows: Sequence[Row]) -> dict[str, object]:
    parsed = [row for row in rows if not row.refused]
    known = [row for row in parsed if row.level is not None]
    tests = [wrong for row in known for wrong in row.wrong]
    shares = {
        "parses": [not row.refused for row in rows],
        "at_level": [row.level == row.asked for row in known],
        "novel": [row.novel for row in known],
        "wrong_values": tests,
        "wrong_problems": [any(row.wrong) for row in known],
    }
    told: dict[str, object] = {"proposals": len(rows)}
    for name, seen in shares.items():
        share = sum(seen) / len(seen) if seen else None
        told[name] = None if share is None else round(share, 3)
        told[f"{name}_interval"] = None if share is None else [round(end, 3) for end in wilson(share, len(seen))]
    told["distinct"] = round(len({row.gist for row in parsed}) / len(parsed), 3) if parsed else None
    told["unknown"] = len(parsed) - len(known)
    told["tests"] = len(tests)
    told["refused"] = dict(Counter(row.refused for row in rows if row.refused))
    return told


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500, help="proposals in all, the same number for each level")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="as always; here so that every benchmark takes it")
    options = parser.parse_args(argv)
    if options.count < len(LEVELS) or not options.temperature > 0:
        parser.error(f"at least {len(LEVELS)} proposals, and a temperature above 0")
    sampler = Sampler(load_model(str(weights_directory("proposer")), device="cpu", role="proposer"))
    asked = [level for level in LEVELS for _ in range(options.count // len(LEVELS))]
    groups = sampler.sample(
        [proposal_prompt(level) for level in asked],
        group_size=1,
        max_new_tokens=TOKENS,
        temperature=options.temperature,
        generator_seed=options.seed,
    )
    with MontySandbox() as sandbox:
        rows = [look(group[0].text, level, sandbox) for group, level in zip(groups, asked, strict=True)]
    told: dict[str, object] = {
        f"level_{level}": summary([row for row in rows if row.asked == level]) for level in LEVELS
    }
    print(json.dumps({"all": summary(rows), **told, "settings": vars(options)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
