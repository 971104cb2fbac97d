"""What each question of a judge is worth on a policy's own attempts: AUROC over all of them, within groups, and cost.

A group is the attempts at one problem. Those that the static pass decides, or that execution cannot, are left out and
counted. Attempts and outcomes are kept in a file, so that another judge reads the same ones."""

import argparse
import json
import time
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
from judge_cost import Report, say

from codezero.code.worker import StaticGuard
from codezero.evaluator.build import find_probe
from codezero.evaluator.judge import LikelihoodJudge, with_own_solutions
from codezero.evaluator.judge_prompts import LIKELIHOOD, SCORES
from codezero.evaluator.types import Program
from codezero.models.build import load
from codezero.models.load import LoadedModel
from codezero.ops.judge import Wanted, attempts_of, readable
from codezero.settings import compose
from codezero.stats import auroc_over_groups, group_order, within_groups

Labelled = tuple[int, float, bool]  # number of the group, score, passed


def worth_of(rows: Sequence[Labelled]) -> Report:
    groups: dict[int, list[tuple[float, bool]]] = {}
    for number, score, passed in rows:
        groups.setdefault(number, []).append((score, passed))
    within = within_groups(map(group_order, groups.values()))
    return {
        "over_problems": auroc_over_groups(rows),
        "within_groups": within and list(within[:3]),
        "pairs": within.pairs if within else 0,
        "groups": within.groups if within else 0,
        "attempts": len(rows),
    }


def asked(loaded: LoadedModel, guard: StaticGuard, question: str, items: Sequence[tuple[int, Program, bool]]) -> Report:
    """What each score of the question is worth, and the seconds that it takes for each distinct program."""
    judge = LikelihoodJudge(loaded, questions=[question], probe=find_probe(loaded, "auto"))
    if not judge.names:
        return {"unused": judge.unused or "no probe is known for this judge"}
    reader = with_own_solutions(judge, guard) if question == LIKELIHOOD else judge
    programs = [read for _, read, _ in items]
    began = time.perf_counter()
    readings = reader.read(programs, frozenset(reader.names))
    seconds = (time.perf_counter() - began) / max(1, len(set(programs)))
    scores = {
        name: worth_of(
            [
                (number, score, passed)
                for (number, _, passed), reading in zip(items, readings, strict=True)
                if reading.scores is not None and (score := reading.scores[place]) is not None
            ]
        )
        for place, name in enumerate(reader.names)
    }
    return {"seconds_an_attempt": seconds, "scores": scores}


def skill(options: argparse.Namespace) -> Report:
    config = compose([f"model.solver={json.dumps(options.solver)}", f"evaluator.model={json.dumps(options.judge)}"])
    wanted = Wanted(
        options.problems, options.rows, options.samples, options.new_tokens, options.seed, kept=options.attempts
    )
    with ExitStack() as stack:
        attempts = attempts_of(config, wanted, stack, say)
        guard = stack.enter_context(StaticGuard())
        items = list(readable(guard, attempts))
        judge = load(config, config.evaluator.model, "judge", say)
        questions: Report = {}
        for question in SCORES:
            say(f"asking {question} about {len(items)} attempts")
            questions[question] = asked(judge, guard, question, items)
    outcomes = [passed for each in attempts for passed in each.passed]
    decided = [passed for passed in outcomes if passed is not None]
    return {
        "solver": options.solver,
        "judge": options.judge,
        "problems": len(attempts),
        "attempts": len(outcomes),
        "undecided": len(outcomes) - len(decided),
        "decided_by_the_static_pass": len(decided) - len(items),
        "passed_share": float(np.mean(decided)) if decided else None,
        "questions": questions,
    }
