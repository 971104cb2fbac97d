"""The form of a proposal as a grammar, for a model that can be held to it: what is sampled then always parses as JSON.

One fence, one object, a question and three tests, as the prompt asks for it. Text is printable ASCII without quotation
marks and backslashes, so that a string can be ended anywhere when its tokens are used up, and the whole is never cut
off. Whether the tests are Python, and the question names their function, is for `parsing.py` to say.
"""

from collections.abc import Callable

TESTS = 3
QUESTION_SHARE = 0.3
"""Of the tokens that are left for text; the tests share the rest."""
LEAST = 8
"""Tokens of one test below which nothing sensible is written."""
SLACK = 8
"""Tokens for the end, and for punctuation that grows together with text otherwise than the tokenizer says."""
_BEGIN, _BETWEEN, _NEXT, _END = '```json\n{"question": "', '", "tests": ["', '", "', '"]}\n```'
_TEXT = r"[ -!#-\[\]-~]"


def proposal_grammar(max_new_tokens: int, cost: Callable[[str], int]) -> str:
    """In llguidance's Lark dialect, of what fits into so many tokens; empty where nothing does.

    cost: tokens of a text.
    """
    fixed = cost(_BEGIN) + cost(_BETWEEN) + (TESTS - 1) * cost(_NEXT) + cost(_END) + SLACK
    room = max_new_tokens - fixed
    question = int(QUESTION_SHARE * room)
    test = (room - question) // TESTS
    if test < LEAST:
        return ""
    tests = f" {_literal(_NEXT)} ".join(["test"] * TESTS)
    return "\n".join(
        [
            f"start: {_literal(_BEGIN)} question {_literal(_BETWEEN)} {tests} {_literal(_END)}",
            f"question[max_tokens={question}]: /{_TEXT}+/",
            f"test[max_tokens={test}]: /assert {_TEXT}+/",
        ]
    )


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
