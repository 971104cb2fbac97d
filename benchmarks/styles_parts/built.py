"""The styles that a judge may be improved with, by kind: loops, functions, choices, and those of the other module."""

from styles_parts.built_sequences import OPERATORS, SEQUENCES
from styles_parts.rewriting import KEPT, MAPPED, Rule, everywhere, kinds, over

LOOPS = {
    "append in a loop": over("out = []\nfor X in S:\n    ...\n", "out.append(E)", "if C:\n        out.append(E)"),
    "extended in a loop": over("out = []\nfor X in S:\n    ...\n", "out += [E]", "if C:\n        out += [E]"),
    "skipped in a loop": over(
        "out = []\nfor X in S:\n    ...\n    out.append(E)", "pass", "if not C:\n        continue"
    ),
    "summed in a loop": (
        Rule("return sum(E for X in S)", "total = 0\nfor X in S:\n    total += E\nreturn total"),
        Rule("return sum(E for X in S if C)", "total = 0\nfor X in S:\n    if C:\n        total += E\nreturn total"),
        Rule("return len([E for X in S if C])", "count = 0\nfor X in S:\n    if C:\n        count += 1\nreturn count"),
        Rule("return sum(S)", "total = 0\nfor item in S:\n    total += item\nreturn total"),
        Rule("return len(X)", "count = 0\nfor _ in X:\n    count += 1\nreturn count"),
        Rule(
            "return A.count(T)",
            "count = 0\nfor letter in A:\n    if letter == T:\n        count += 1\nreturn count",
        ),
    ),
    "while with an index": (
        *over(
            "out = []\ni = 0\nwhile i < len(S):\n    X = S[i]\n    ...\n    i += 1",
            "out.append(E)",
            "if C:\n        out.append(E)",
        ),
        Rule("for X in range(A, B):\n    P", "X = A\nwhile X < B:\n    P\n    X += 1"),
        Rule("for X in range(A):\n    P", "X = 0\nwhile X < A:\n    P\n    X += 1"),
        Rule("for X in Y:\n    P", "i = 0\nwhile i < len(Y):\n    X = Y[i]\n    P\n    i += 1"),
        Rule("return sum(S)", "total = i = 0\nwhile i < len(S):\n    total += S[i]\n    i += 1\nreturn total"),
    ),
    "for over a range": (
        *over(
            "out = []\nfor i in range(len(S)):\n    X = S[i]\n    ...",
            "out.append(E)",
            "if C:\n        out.append(E)",
        ),
        Rule("for X in Y:\n    P", "for i in range(len(Y)):\n    X = Y[i]\n    P"),
    ),
    "best in a loop": tuple(
        Rule(
            f"return {name}(E for X in S{condition})",
            f"best = None\nfor X in S:\n{test}    {indent}if best is None or E {sign} best:\n        {indent}best = E\n"
            "return best",
        )
        for name, sign in (("max", ">"), ("min", "<"))
        for condition, test, indent in (("", "", ""), (" if C", "    if C:\n", "    "))
    )
    + tuple(
        Rule(
            f"return {name}(X)",
            f"best = X[0]\nfor item in X[1:]:\n    if item {sign} best:\n        best = item\nreturn best",
        )
        for name, sign in (("max", ">"), ("min", "<"))
    ),
    "taken off until empty": (
        Rule("for X in S:\n    P", "rest = list(S)\nwhile rest:\n    X = rest.pop(0)\n    P"),
        *over(
            "rest = list(S)\nout = []\nwhile rest:\n    X = rest.pop(0)\n    ...",
            "out.append(E)",
            "if C:\n        out.append(E)",
        ),
    ),
    "enumerate": (
        *everywhere("X for X in S if C", "[S[i] for i, X in enumerate(S) if C]"),
        Rule("for X in Y:\n    P", "for i, _ in enumerate(Y):\n    X = Y[i]\n    P"),
        *over("out = []\nfor i, X in enumerate(S):\n    ...", "out.insert(i, E)", "if C:\n        out.append(E)"),
    ),
}

FUNCTIONS = {
    "map and filter": (
        *everywhere("X for X in S if C", "list(filter(lambda X: C, S))"),
        *everywhere(KEPT, "list(map(lambda X: E, filter(lambda X: C, S)))"),
        *everywhere(MAPPED, "list(map(lambda X: E, S))"),
        Rule("Y = []\nfor X in S:\n    Y.append(E)\nreturn Y", "return [E for X in S]"),
        Rule("Y = []\nfor X in S:\n    if C:\n        Y.append(E)\nreturn Y", "return [E for X in S if C]"),
        Rule("Y = 0\nfor X in S:\n    Y += E\nreturn Y", "return sum(E for X in S)"),
    ),
    "reduce": (
        Rule("sum(E for X in S)", "reduce(lambda total, X: total + E, S, 0)", "from functools import reduce"),
        Rule(
            "sum(E for X in S if C)",
            "reduce(lambda total, X: total + (E if C else 0), S, 0)",
            "from functools import reduce",
        ),
        Rule("sum(S)", "reduce(lambda a, b: a + b, S, 0)", "from functools import reduce"),
        Rule("max(S)", "reduce(lambda a, b: a if a > b else b, S)", "from functools import reduce"),
        Rule("min(S)", "reduce(lambda a, b: a if a < b else b, S)", "from functools import reduce"),
        Rule("[E for X in S]", "reduce(lambda out, X: out + [E], S, [])", "from functools import reduce"),
        Rule(
            "[E for X in S if C]",
            "reduce(lambda out, X: out + [E] if C else out, S, [])",
            "from functools import reduce",
        ),
    ),
    "recursion": (
        Rule(
            "def F(S):\n    return [E for X in S]",
            "def F(S):\n    if not S:\n        return []\n    X = S[0]\n    return [E] + F(S[1:])",
        ),
        Rule(
            "def F(S):\n    return [E for X in S if C]",
            "def F(S):\n    if not S:\n        return []\n    X = S[0]\n    rest = F(S[1:])\n"
            "    if C:\n        return [E] + rest\n    return rest",
        ),
        Rule(
            "def F(S):\n    return sum(E for X in S)",
            "def F(S):\n    if not S:\n        return 0\n    X = S[0]\n    return E + F(S[1:])",
        ),
        Rule(
            "def F(S):\n    return sum(E for X in S if C)",
            "def F(S):\n    if not S:\n        return 0\n    X = S[0]\n    return (E if C else 0) + F(S[1:])",
        ),
        Rule("def F(S):\n    return sum(S)", "def F(S):\n    return S[0] + F(S[1:]) if S else 0"),
        Rule("def F(S):\n    return len(S)", "def F(S):\n    return 1 + F(S[1:]) if S else 0"),
        Rule("def F(S):\n    return S[::-1]", "def F(S):\n    return F(S[1:]) + S[:1] if S else S"),
    ),
    "helper inside": (
        *over("def change(X):\n    return E", mapped="", value="[change(X) for X in S]"),
        *over("def keeps(X):\n    return C", kept="", value="[E for X in S if keeps(X)]"),
        Rule("def F(X):\n    P", "def F(X):\n    def value(X):\n        P\n    return value(X)"),
        Rule("def F(X, Y):\n    P", "def F(X, Y):\n    def value(X, Y):\n        P\n    return value(X, Y)"),
    ),
    "lambda with a name": (
        *over("change = lambda X: E", mapped="", value="[change(X) for X in S]"),
        *over("keeps = lambda X: C", kept="", value="[E for X in S if keeps(X)]"),
        Rule("return A if X % K == 0 else B", "test = lambda X: X % K == 0\nreturn A if test(X) else B"),
        Rule("def F(X):\n    return A", "F = lambda X: A"),
    ),
    "helper outside": (
        Rule(
            "def F(X):\n    return A if C else B",
            "def test(X):\n    return C\n\ndef F(X):\n    return A if test(X) else B",
        ),
        *(
            Rule(
                f"def F(S):\n    return {fold}(E for X in S if C)",
                f"def test(X):\n    return C\n\ndef F(S):\n    return {fold}([E for X in S if test(X)])",
            )
            for fold in ("sum", "max", "min", "sorted")
        ),
        Rule(
            "def F(S):\n    return [E for X in S if C]",
            "def test(X):\n    return C\n\ndef F(S):\n    return [E for X in S if test(X)]",
        ),
        Rule(
            "def F(S):\n    return [E for X in S]",
            "def one(X):\n    return E\n\ndef F(S):\n    return [one(X) for X in S]",
        ),
        Rule("def F(X):\n    P", "def value_of(X):\n    P\n\ndef F(X):\n    return value_of(X)"),
        Rule("def F(X, Y):\n    P", "def value_of(X, Y):\n    P\n\ndef F(X, Y):\n    return value_of(X, Y)"),
    ),
    "itertools": (
        Rule("[X for X in S if C]", "list(filterfalse(lambda X: not C, S))", "from itertools import filterfalse"),
        Rule("[X for X in S if C]", "list(compress(S, [C for X in S]))", "from itertools import compress"),
        Rule("A[:K]", "list(islice(A, K))", "from itertools import islice"),
        Rule("sum(A)", "[0, *accumulate(A)][-1]", "from itertools import accumulate"),
        Rule("[E for X in S if C]", "list(chain(*([E] if C else [] for X in S)))", "from itertools import chain"),
    ),
    "recursion with what is left": (
        Rule(
            "def F(S):\n    return [E for X in S]",
            "def F(S):\n    def go(rest, out):\n        if not rest:\n            return out\n        X, *rest = rest\n"
            "        return go(rest, out + [E])\n    return go(S, [])",
        ),
        Rule(
            "def F(S):\n    return [E for X in S if C]",
            "def F(S):\n    def go(rest, out):\n        if not rest:\n            return out\n        X, *rest = rest\n"
            "        return go(rest, out + [E] if C else out)\n    return go(S, [])",
        ),
        Rule(
            "def F(S):\n    return sum(E for X in S if C)",
            "def F(S):\n    def go(i):\n        if i == len(S):\n            return 0\n        X = S[i]\n"
            "        return (E if C else 0) + go(i + 1)\n    return go(0)",
        ),
        Rule("def F(S):\n    return max(S)", "def F(S):\n    return S[0] if len(S) == 1 else max(S[0], F(S[1:]))"),
        Rule("def F(S):\n    return min(S)", "def F(S):\n    return S[0] if len(S) == 1 else min(S[0], F(S[1:]))"),
    ),
}

CHOICES = {
    "if and else": (
        Rule("return A if C else B", "if C:\n    return A\nelse:\n    return B"),
        Rule("if C:\n    return A\nreturn B", "if C:\n    return A\nelse:\n    return B"),
        Rule("return A == B", "if A == B:\n    return True\nelse:\n    return False"),
        Rule("return A > B", "if A > B:\n    return True\nelse:\n    return False"),
        Rule("return A < B", "if A < B:\n    return True\nelse:\n    return False"),
    ),
    "early return": (
        Rule("return A if C else B", "if C:\n    return A\nreturn B"),
        Rule("return A if C else B", "if not C:\n    return B\nreturn A"),
        Rule("if C:\n    return A\nelse:\n    return B", "if C:\n    return A\nreturn B"),
        Rule("return max(A, B)", "if A > B:\n    return A\nreturn B"),
        Rule("return min(A, B)", "if A < B:\n    return A\nreturn B"),
        Rule("return abs(A)", "if A < 0:\n    return -A\nreturn A"),
        Rule("return A > B", "if A > B:\n    return True\nreturn False"),
        Rule("return A < B", "if A < B:\n    return True\nreturn False"),
    ),
    "swapped arms": (
        Rule("A if C else B", "B if not C else A"),
        Rule("if C:\n    P\nelse:\n    Q", "if not C:\n    Q\nelse:\n    P"),
    ),
    "picked from a dict": (Rule("A if C else B", "{True: A, False: B}[C]"),),
    "chosen by hand": (
        Rule("abs(A)", "A if A >= 0 else -A"),
        Rule("return abs(A)", "value = A\nreturn value if value > 0 else -value"),
        Rule("max(A, B)", "A if A >= B else B"),
        Rule("min(A, B)", "A if A <= B else B"),
    ),
    "result that is replaced": (
        Rule("return A if C else B", "result = B\nif C:\n    result = A\nreturn result"),
        Rule("return A if C else B", "if C:\n    result = A\nelse:\n    result = B\nreturn result"),
        Rule("return max(A, B)", "result = A\nif B > A:\n    result = B\nreturn result"),
        Rule("return min(A, B)", "result = A\nif B < A:\n    result = B\nreturn result"),
    ),
    "picked by number": (
        Rule("A if C else B", "(B, A)[C]"),
        Rule("abs(A)", "max(A, -A)"),
        Rule("return A if C else B", "match C:\n    case True:\n        return A\n    case _:\n        return B"),
    ),
}

BUILT = kinds(loops=LOOPS, functions=FUNCTIONS, sequences=SEQUENCES, choices=CHOICES, operators=OPERATORS)
