"""The styles that are kept from whoever improves a judge, by kind: sequences and operators."""

from styles_parts.rewriting import Rule, everywhere, over, stands

TESTS = ("X > K", "X < K", "X % K == 0", "X % K == 1")
CHANGES = ("X + K", "X - K", "X * K", "X // K", "X % K")

SEQUENCES = {
    "list of a generator": (
        Rule("[E for X in S]", "list(E for X in S)"),
        Rule("[E for X in S if C]", "list(E for X in S if C)"),
        Rule("(E for X in S)", "tuple([E for X in S])"),
        Rule("(E for X in S if C)", "tuple(E for X in S if C)"),
    ),
    "altered once it is made": (
        Rule("return A[::-1]", "out = list(A)\nout.reverse()\nreturn out"),
        Rule("return sorted(A, reverse=True)", "out = sorted(A)\nout.reverse()\nreturn out"),
        Rule("return A[:K]", "out = list(A)\nwhile len(out) > K:\n    out.pop()\nreturn out"),
        Rule("return A[-K:]", "out = list(A)\nwhile len(out) > K:\n    out.pop(0)\nreturn out"),
        Rule("return A[K:]", "out = list(A)\nfor _ in range(K):\n    if out:\n        out.pop(0)\nreturn out"),
        Rule("return A[0]", "out = list(A)\nreturn out.pop(0)"),
        Rule("return A[-1]", "out = list(A)\nreturn out.pop()"),
    ),
    "neighbours swapped": tuple(
        rule
        for call, sign in (("sorted(A)", ">"), ("sorted(A, reverse=True)", "<"))
        for rule in (
            Rule(
                f"return {call}",
                "items = list(A)\nfor i in range(len(items)):\n    for j in range(len(items) - 1 - i):\n"
                f"        if items[j] {sign} items[j + 1]:\n"
                "            items[j], items[j + 1] = items[j + 1], items[j]\nreturn items",
            ),
            Rule(
                f"return {call}",
                "out = []\nfor item in A:\n    at = len(out)\n"
                f"    while at > 0 and out[at - 1] {sign} item:\n        at -= 1\n"
                "    out.insert(at, item)\nreturn out",
            ),
        )
    ),
    "text that grows": (
        Rule("return X[::-1]", "out = ''\nfor letter in X:\n    out = letter + out\nreturn out"),
        Rule("return A * K", "out = ''\nfor _ in range(K):\n    out += A\nreturn out"),
        Rule("return A[:K]", "out = ''\nfor letter in A:\n    if len(out) < K:\n        out += letter\nreturn out"),
        Rule(
            "return A.replace(T, '')",
            "out = ''\nfor letter in A:\n    if letter != T:\n        out = out + letter\nreturn out",
        ),
        Rule("return A + T", "out = A\nout += T\nreturn out"),
        Rule("return T + A", "out = T\nfor letter in A:\n    out += letter\nreturn out"),
        *(
            Rule(f"return A.{name}()", f"out = ''\nfor letter in A:\n    out += letter.{name}()\nreturn out")
            for name in ("upper", "lower")
        ),
        *(
            Rule(
                f"return A.replace(T, '').{last}",
                f"text = ''\nfor letter in A:\n    if letter != T:\n        text += letter\nreturn text.{last}",
            )
            for last in ("upper()", "lower()", "title()")
        ),
    ),
    "flags beside the list": (
        *over("flags = [C for X in S]", kept="", value="[E for X, flag in zip(S, flags) if flag]"),
        *over(
            "flags = []\nfor X in S:\n    flags.append(...)",
            kept="C",
            value="[E for flag, X in zip(flags, S) if flag]",
        ),
        *stands(
            "A if C else B for X in S", "flags = [C for X in S]", "[A if flag else B for X, flag in zip(S, flags)]"
        ),
    ),
    "lists of one": (
        *everywhere("E for X in S if C", "[value for X in S if C for value in [E]]"),
        *everywhere("E for X in S if C", "sum(([E] if C else [] for X in S), [])"),
        *everywhere("E for X in S", "sum([[E] for X in S], [])"),
        *everywhere("E for X in S", "[value for X in S for value in [E]]"),
    ),
}

OPERATORS = {
    "numbers with names": (
        *(
            Rule(f"def F(Y):\n    return {form}", f"LIMIT = K\n\ndef F(Y):\n    return {form.replace('K', 'LIMIT')}")
            for test in TESTS
            for form in (test, f"[E for X in Y if {test}]", f"A if {test} else B")
        ),
        *(
            rule
            for test in TESTS
            for rule in stands(
                f"E for X in S if {test}", "limit = K", f"[E for X in S if {test.replace('K', 'limit')}]"
            )
        ),
        *(
            rule
            for change in CHANGES
            for rule in stands(f"{change} for X in S", "number = K", f"[{change.replace('K', 'number')} for X in S]")
        ),
        *(Rule(f"return {test}", f"limit = K\nreturn {test.replace('K', 'limit')}") for test in TESTS),
        *(
            Rule(f"return {change}", f"number = K\nreturn {change.replace('K', 'number')}")
            for change in ("A + K", "A - K", "A * K", "A // K", "A % K", "A[:K]", "A[-K:]", "A[K:]")
        ),
        Rule("return A.replace(T, '')", "letter, nothing = T, ''\nreturn A.replace(letter, nothing)"),
    ),
    "difference with zero": (
        Rule("A > B", "A - B > 0"),
        Rule("A < B", "B - A > 0"),
        Rule("A < B", "A - B < 0"),
        Rule("A % K == 0", "not A % K > 0"),
        Rule("A % 2 == 1", "A % 2 > 0"),
        Rule("A % 2 == 1", "A % 2 - 1 == 0"),
        Rule("return max(A, B)", "return A if A - B > 0 else B"),
        Rule("return abs(A)", "return A * (1 if A > 0 else -1)"),
    ),
    "real division": (
        Rule("A // K", "int(A / K // 1)"),
        Rule("A // K", "math.floor(A / K)", "import math"),
        Rule("A // K", "floor(A / K)", "from math import floor"),
        Rule("A % K == 0", "A / K == A // K"),
        Rule("A % K == 0", "A / K == int(A / K)"),
        Rule("A % 2 == 1", "A / 2 != A // 2"),
        Rule("A * A", "int(math.pow(A, 2))", "import math"),
        Rule("abs(A)", "int(math.fabs(A))", "import math"),
        Rule("abs(A)", "int((A ** 2) ** 0.5)"),
    ),
    "truth as a number": (
        Rule("len([E for X in S if C])", "sum(C for X in S)"),
        Rule("len([E for X in S if C])", "[C for X in S].count(True)"),
        Rule("sum(E for X in S if C)", "sum((E) * (C) for X in S)"),
        Rule("sum(E for X in S if C)", "sum(int(C) * (E) for X in S)"),
        Rule("[E for X in S if C]", "[E for X in S for _ in range(C)]"),
        Rule("(E for X in S if C)", "(E for X in S for _ in range(int(C)))"),
        Rule("A if C else B", "(A) * (C) + (B) * (not C)"),
        Rule("A if C else B", "(B) + ((A) - (B)) * (C)"),
        Rule("max(A, B)", "A * (A >= B) + B * (A < B)"),
        Rule("min(A, B)", "A + (B - A) * (B < A)"),
        Rule("abs(A)", "A * ((A > 0) - (A < 0))"),
        Rule("A.count(T)", "sum(letter == T for letter in A)"),
    ),
    "shifts and complements": (
        *(
            rule
            for number, shift in ((2, 1), (4, 2), (8, 3))
            for rule in (
                Rule(f"A * {number}", f"A << {shift}"),
                Rule(f"A // {number}", f"A >> {shift}"),
            )
        ),
        *(Rule(f"A % {number}", f"A & {number - 1}") for number in (4, 8)),
        Rule("A % 2 == 0", "A >> 1 << 1 == A"),
        Rule("A % 2 == 1", "A >> 1 << 1 != A"),
        Rule("-V", "~V + 1"),
        Rule("A - K", "A + ~K + 1"),
        Rule("A < 0", "A >> 63 == -1"),
    ),
}
