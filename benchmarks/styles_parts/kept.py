"""The styles that are kept from whoever improves a judge, by kind: they measure what it makes of ways it never saw.

Loops, functions, choices, and those of the other module.
"""

from styles_parts.kept_sequences import OPERATORS, SEQUENCES
from styles_parts.rewriting import FOLDS, KEPT, LISTS, MAPPED, Rule, kinds, over, stands

STEPS = ("A + B", "A - B", "A * B", "A // B", "A % B", "-A", "abs(A)")
"""What is made of a number."""
FORMS = tuple(holder.format(f"[{inner}]") for holder in LISTS for inner in (MAPPED, KEPT)) + tuple(
    holder.format(f"({inner})") for holder in FOLDS for inner in (MAPPED, KEPT)
)
"""What is returned of a list or a generator."""
TYPED = (
    ("nums: list[int]", "list[int]", "the numbers asked for", (
        "[E for X in S]", "[E for X in S if C]", "sorted(A)", "sorted(A, reverse=True)", "A[::-1]", "A[:K]", "A[-K:]",
        "A[K:]",
    )),
    ("nums: list[int]", "int", "one number for the list", (
        "sum(A)", "max(A)", "min(A)", "len(A)", "A[0]", "A[-1]", "A - B",
    )),
    ("s: str", "str", "the text that is made of s", (
        "A + B", "A * B", "A[::-1]", "A[:K]", "A[K:]", "A[-K:]", "A[0]", "A[-1]", "A.upper()", "A.lower()",
        "A.title()", "A.replace(T, '')",
    )),
    ("s: str", "int", "a number of characters", ("len(A)", "A.count(T)")),
    ("x: int", "int", "the result for x", (*STEPS, "A if C else B")),
    ("x: int", "bool", "whether x is one of them", ("A > B", "A < B", "A == B")),
    ("a: int, b: int", "int", "the result for both", (*STEPS, "max(A, B)", "min(A, B)")),
)  # fmt: skip
"""Arguments, what is returned, how that is said, and expressions of that type."""


def nothing_of(form: str) -> str:
    """What an empty list gives."""
    if form.startswith(("sum", "len")):
        return "0"
    return "None" if form.startswith(("max", "min")) else "[]"


def passing(inner: str, own: str, value: str) -> tuple[Rule, ...]:
    """A function of one's own that takes a function, and what is returned by its help."""
    return tuple(
        Rule(
            f"def F(S):\n    return {holder.format(brackets.format(inner))}",
            f"{own}\n\ndef F(S):\n    return {holder.format(value)}",
        )
        for brackets, holders in (("[{}]", LISTS), ("({})", FOLDS))
        for holder in holders
    )


LOOPS = {
    "every step with a name": over(
        "out = []\nfor X in S:\n    ...",
        "value = E\n    out.append(value)",
        "wanted = C\n    if wanted:\n        value = E\n        out.append(value)",
    ),
    "array that is filled": (
        *over("size = len(S)\nout = [0] * size\nfor i in range(size):\n    X = S[i]\n    out[i] = ...", "E"),
        *over(
            "out = [0] * len(S)\nsize = 0\nfor X in S:\n    ...",
            kept="if C:\n        out[size] = E\n        size += 1",
            value="out[:size]",
        ),
        Rule(
            "return X[::-1]",
            "size = len(X)\nout = [0] * size\nfor i in range(size):\n    out[size - 1 - i] = X[i]\nreturn out",
        ),
    ),
    "copy that is changed": (
        *over("out = list(S)\nfor i in range(len(out)):\n    X = out[i]\n    out[i] = ...", "E"),
        *stands("X for X in S if C", "out = S.copy()\nfor X in S:\n    if not C:\n        out.remove(X)"),
        Rule(
            "return X[::-1]",
            "out = X.copy()\nfor i in range(len(out) // 2):\n    out[i], out[-1 - i] = out[-1 - i], out[i]\nreturn out",
        ),
    ),
    "stopped when there is enough": (
        Rule(
            "return [E for X in S][:K]",
            "out = []\nfor X in S:\n    if len(out) == K:\n        break\n    out.append(E)\nreturn out",
        ),
        Rule(
            "return [E for X in S if C][:K]",
            "out = []\nfor X in S:\n    if C:\n        out.append(E)\n        if len(out) == K:\n            break\n"
            "return out",
        ),
        Rule(
            "return [E for X in S][-K:]",
            "out = []\nfor X in S:\n    out.append(E)\n    if len(out) > K:\n        out.pop(0)\nreturn out",
        ),
        Rule(
            "return [E for X in S if C][-K:]",
            "out = []\nfor X in reversed(S):\n    if C and len(out) < K:\n        out.insert(0, E)\nreturn out",
        ),
        Rule("return X[:K]", "out = []\nfor item in X:\n    if len(out) < K:\n        out.append(item)\nreturn out"),
        Rule("return X[0]", "for item in X:\n    return item"),
        Rule("return X[-1]", "last = None\nfor item in X:\n    last = item\nreturn last"),
    ),
}

FUNCTIONS = {
    "types and a docstring": tuple(
        Rule(
            f"def F({', '.join(part.split(':')[0] for part in arguments.split(', '))}):\n    return {form}",
            f'def F({arguments}) -> {result}:\n    """Return {words}."""\n    {body.format(result, form)}',
        )
        for arguments, result, words, forms in TYPED
        for form in forms
        for body in ("return {1}", "result: {0} = {1}\n    return result")
    ),
    "the empty list first": tuple(
        Rule(
            f"def F(S):\n    return {form}",
            f"def F(S):\n    if {test}:\n        return {nothing_of(form)}\n    return {form}",
        )
        for form in (*FORMS, "sum(S)", "max(S)", "min(S)", "len(S)", "sorted(S)", "S[::-1]", "S[:K]", "S[-K:]")
        for test in ("not S", "len(S) == 0")
    )
    + tuple(
        Rule(
            f"return {name}(E for X in S if C)",
            f"found = [E for X in S if C]\nif len(found) > 0:\n    return {name}(found)\nreturn None",
        )
        for name in ("max", "min")
    ),
    "one step at a time": tuple(
        rule
        for step in STEPS
        for setup, value in (
            (f"chosen = [X for X in S if C]\nvalues = [{step} for X in chosen]", "values"),
            ("chosen = [X for X in S if C]", f"[{step} for X in chosen]"),
        )
        for rule in stands(f"{step} for X in S if C", setup, value)
    )
    + stands(
        "A if C else B for X in S", "def pick(X):\n    if C:\n        return A\n    return B", "[pick(X) for X in S]"
    ),
    "functions that are passed": (
        *passing(
            "X for X in S if C",
            "def select(keep, items):\n    return [item for item in items if keep(item)]",
            "select(lambda X: C, S)",
        ),
        *passing(
            MAPPED,
            "def apply(change, items):\n    return [change(item) for item in items]",
            "apply(lambda X: E, S)",
        ),
        *(
            rule
            for step in STEPS
            for rule in passing(
                f"{step} for X in S if C",
                "def collect(items, keep, change):\n    out = []\n    for item in items:\n        if keep(item):\n"
                "            out.append(change(item))\n    return out",
                f"collect(S, lambda X: C, lambda X: {step})",
            )
        ),
    ),
    "procedure for each": (
        *over(
            "out = []\ndef visit(X):\n    ...\nfor item in S:\n    visit(item)",
            "out.append(E)",
            "if C:\n        out.append(E)",
        ),
        *(
            Rule(
                f"return sum(E for X in S{condition})",
                f"total = 0\ndef add(X):\n    nonlocal total\n    {line}\nfor item in S:\n    add(item)\nreturn total",
            )
            for condition, line in (("", "total += E"), (" if C", "if C:\n        total += E"))
        ),
    ),
}

CHOICES = {
    "if within the loop": (
        *stands(
            "A if C else B for X in S",
            "out = []\nfor X in S:\n    if C:\n        out.append(A)\n    else:\n        out.append(B)",
        ),
        *stands(
            "A if C else B for X in S",
            "out = []\nfor X in S:\n    value = B\n    if C:\n        value = A\n    out.append(value)",
        ),
        Rule(
            "return sum(A if C else B for X in S)",
            "total = 0\nfor X in S:\n    if C:\n        total += A\n    else:\n        total += B\nreturn total",
        ),
    ),
    "both heaps": (
        *over(
            "yes = []\nno = []\nfor X in S:\n    ...",
            kept="if C:\n        yes.append(E)\n    else:\n        no.append(X)",
            value="yes",
        ),
        *over(
            "heaps = {True: [], False: []}\nfor X in S:\n    heaps[...].append(E)",
            kept="C",
            value="heaps[True]",
        ),
    ),
    "truth spelled out": (
        *(Rule(f"return A {sign} B", f"return True if A {sign} B else False") for sign in (">", "<", "==")),
        *(
            Rule(f"return A {sign} B", f"found = False\nif A {sign} B:\n    found = True\nreturn found")
            for sign in (">", "<", "==")
        ),
        Rule("[E for X in S if C]", "[E for X in S if (C) == True]"),
        Rule("(E for X in S if C)", "(E for X in S if (C) is True)"),
        Rule("[E for X in S if C]", "[E for X in S if (C) is not False]"),
        Rule("A if C else B", "A if (C) == True else B"),
        Rule("A if C else B", "B if (C) == False else A"),
    ),
    "each case for itself": (
        Rule("return A if C else B", "if C:\n    return A\nif not C:\n    return B"),
        Rule("return A if C else B", "if C:\n    return A\nelif not C:\n    return B"),
        *stands(
            "A if C else B for X in S",
            "out = []\nfor X in S:\n    if C:\n        out.append(A)\n    if not C:\n        out.append(B)",
        ),
        Rule("return sum(A if C else B for X in S)", "return sum(A for X in S if C) + sum(B for X in S if not C)"),
        *(
            Rule(
                f"return {name}(A if C else B for X in S)",
                f"return {name}([A for X in S if C] + [B for X in S if not C])",
            )
            for name in ("max", "min", "sorted")
        ),
    ),
    "three ways": (
        Rule("return max(A, B)", "if A > B:\n    return A\nelif A < B:\n    return B\nelse:\n    return A"),
        Rule("return min(A, B)", "if A == B:\n    return A\nelif A < B:\n    return A\nelse:\n    return B"),
        Rule("return abs(A)", "if A > 0:\n    return A\nelif A == 0:\n    return 0\nelse:\n    return -A"),
        Rule("return A > B", "if A > B:\n    return True\nelif A == B:\n    return False\nelse:\n    return False"),
        Rule("return A < B", "if A == B:\n    return False\nelif A > B:\n    return False\nreturn True"),
        *(
            Rule(
                f"return A if D {sign} K else B",
                f"if D {sign} K:\n    return A\nelif D == K:\n    return B\nelse:\n    return B",
            )
            for sign in (">", "<")
        ),
        *(
            rule
            for sign in (">", "<")
            for rule in stands(
                f"E for X in S if D {sign} K",
                f"out = []\nfor X in S:\n    if D == K:\n        pass\n    elif D {sign} K:\n        out.append(E)",
            )
        ),
    ),
}

HELD_BACK = kinds(loops=LOOPS, functions=FUNCTIONS, sequences=SEQUENCES, choices=CHOICES, operators=OPERATORS)
