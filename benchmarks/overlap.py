"""Do static pass and sandbox keep up with a sampler, whose groups end one after the other? 256 attempts, no model.

A sampler that takes as long as judging and executing do by themselves hands over a group every so often. An iteration
is timed with everything judged at the end, and with groups begun as they end. MONTY or bubblewrap executes for real.
"""

import argparse
import json
import os
import random
import time
from collections.abc import Callable

from codezero.code.parsing import fence
from codezero.code.worker import WORKERS, StaticGuard
from codezero.evaluator.evaluator import ExecutedEvaluator
from codezero.problems.synthetic.tasks import worked
from codezero.sandbox.bubblewrap import open_sandbox
from codezero.types import Completion, RolloutGroup, ScoredGroup

PROBLEMS, ATTEMPTS = 32, 8


def recorded(seed: int) -> list[RolloutGroup]:
    """Right and wrong programs for embedded problems, no two of a group alike."""
    chance, groups = random.Random(seed), list[RolloutGroup]()
    for _ in range(PROBLEMS):
        known = worked(chance)
        texts = [known.right[0] if at % 2 else known.wrong[0] for at in range(ATTEMPTS)]
        unlike = [f"{text}\n\n\ndef unused_{at}():\n    return {at}\n" for at, text in enumerate(texts)]
        completions = tuple(Completion(fence(text), (), (), finished=True) for text in unlike)
        groups.append(RolloutGroup(known.problem, completions, "here", 0, 0))
    return groups


def timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sandbox", choices=["auto", "monty", "bubblewrap"], default="auto")
    parser.add_argument("--json", action="store_true", help="nothing else is printed in any case")
    options = parser.parse_args()
    workers = max(1, min(16, (os.cpu_count() or 1) - 1))

    def iteration(sampling: float, *, stream: bool) -> tuple[float, list[ScoredGroup]]:
        """Seconds, and the verdicts, of attempts that nobody has seen yet."""
        scored = list[ScoredGroup]()
        with StaticGuard() as guard, open_sandbox(options.sandbox, workers=workers) as sandbox:
            evaluator = ExecutedEvaluator(guard, sandbox)
            evaluator.score(recorded(1)[:1])  # children are there

            def act() -> None:
                for group in groups:
                    time.sleep(sampling / len(groups))
                    if stream:
                        evaluator.begin(group)
                scored.extend(evaluator.score(groups))

            return timed(act), scored

    groups = recorded(0)
    judging, plain = iteration(0.0, stream=False)
    in_order, _ = iteration(judging, stream=False)
    streamed, verdicts = iteration(judging, stream=True)
    print(
        json.dumps(
            {
                "attempts": sum(len(group.completions) for group in groups),
                "children": {"static pass": WORKERS, "sandbox": workers},
                "seconds": {"judging": judging, "in order": in_order, "as they end": streamed},
                "in order / sum": in_order / (2 * judging),
                "as they end / longest stage": streamed / judging,
                "verdicts equal": verdicts == plain,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
