"""A judge of your own: does an answer use the numbers and the comparisons that the question names?

    codezero run evaluator.kind=custom evaluator.object=examples/own_judge.py:WordJudge run.max_iterations=3

It is measured on known solutions like any other judge, believed as far as it tells right from wrong there, and watched
for being exploited: metrics.jsonl has `judge/canary_auroc` and `judge/weight`. One without skill gets no weight.
"""

import re

SIGNS = {"greater": ">", "less": "<", "equal": "==", "divided": "%", "times": "*", "plus": "+", "minus": "-"}
NUMBER = re.compile(r"\d+")


class WordJudge:
    def __init__(self, weight: float = 0.5) -> None:
        self.weight = weight

    def score(self, question: str, code: str) -> float | None:
        """Higher: more likely right. None: it says nothing of this one."""
        asked, used = set(NUMBER.findall(question)), set(NUMBER.findall(code))
        signs = [sign in code for word, sign in SIGNS.items() if word in question]
        if not asked and not signs:
            return None
        return len(asked & used) - len(asked ^ used) + self.weight * (2 * sum(signs) - len(signs))
