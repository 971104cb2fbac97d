"""The styles that a judge may be improved with, by kind: sequences and operators."""

from styles_parts.rewriting import Rule, over

SEQUENCES = {
    "slice with both ends": (
        Rule("A[:K]", "A[0:K]"),
        Rule("X[K:]", "X[K:len(X)]"),
        Rule("X[-K:]", "X[max(0, len(X) - K):]"),
        Rule("X[-1]", "X[len(X) - 1]"),
        Rule("X[0]", "X[-len(X)]"),
    ),
    "reversed": (Rule("A[::-1]", "list(reversed(A))"), Rule("A[::-1]", "''.join(reversed(A))")),
    "ones that are summed": (
        Rule("len([E for X in S if C])", "sum(1 for X in S if C)"),
        Rule("len(X)", "sum(1 for _ in X)"),
        Rule("A.count(T)", "sum(1 for letter in A if letter == T)"),
    ),
    "sorted and turned": (Rule("sorted(A, reverse=True)", "sorted(A)[::-1]"),),
    "largest by sorting": (
        Rule("max(A, B)", "sorted([A, B])[1]"),
        Rule("min(A, B)", "sorted([A, B])[0]"),
        Rule("max(A)", "sorted(A)[-1]"),
        Rule("min(A)", "sorted(A)[0]"),
    ),
    "star": (
        Rule("[X for X in S if C]", "[*filter(lambda X: C, S)]"),
        Rule("[E for X in S]", "[*map(lambda X: E, S)]"),
        Rule("A[::-1]", "[*reversed(A)]"),
        Rule("A[0]", "(lambda first, *rest: first)(*A)"),
        Rule("def F(S):\n    return S[-1]", "def F(S):\n    *_, last = S\n    return last"),
        Rule("def F(S):\n    return S[0]", "def F(S):\n    first, *_ = S\n    return first"),
    ),
    "letter by letter": (
        Rule("A.replace(T, '')", "''.join(letter for letter in A if letter != T)"),
        Rule("A.upper()", "''.join([letter.upper() for letter in A])"),
        Rule("A.lower()", "''.join([letter.lower() for letter in A])"),
        Rule("A[:K]", "''.join(letter for i, letter in enumerate(A) if i < K)"),
        Rule("A[K:]", "''.join([letter for i, letter in enumerate(A) if i >= K])"),
        Rule("X[::-1]", "''.join([X[i] for i in range(len(X) - 1, -1, -1)])"),
    ),
    "f-string": (
        Rule("A + T", "f'{A}{T}'"),
        Rule("T + A", "f'{T}{A}'"),
        Rule("A * K", "''.join([A] * K)"),
        Rule("A + B", "f'{A}{B}'"),
    ),
    "turned by index": (
        Rule("X[::-1]", "[X[-i - 1] for i in range(len(X))]"),
        Rule("X[::-1]", "''.join(X[-i - 1] for i in range(len(X)))"),
        Rule("A[:K]", "A[slice(K)]"),
        Rule("A[-K:]", "A[::-1][:K][::-1]"),
        Rule("A[K:]", "A[slice(K, None)]"),
    ),
    "sorted by hand": (
        Rule("return sorted(A)", "items = list(A)\nitems.sort()\nreturn items"),
        Rule("return sorted(A, reverse=True)", "items = list(A)\nitems.sort(reverse=True)\nreturn items"),
        Rule("sorted(A, reverse=True)", "sorted(A, key=lambda item: -item)"),
        Rule(
            "return sorted(A)",
            "items = list(A)\nout = []\nwhile items:\n    low = min(items)\n    items.remove(low)\n"
            "    out.append(low)\nreturn out",
        ),
    ),
    "by any and all": (
        Rule(
            "return max(A)",
            "values = list(A)\nreturn next(item for item in values if all(item >= other for other in values))",
        ),
        Rule(
            "return min(A)",
            "values = list(A)\nreturn [item for item in values if not any(other < item for other in values)][0]",
        ),
    ),
    "joined and split": (
        Rule("A + T", "''.join([A, T])"),
        Rule("T + A", "'{}{}'.format(T, A)"),
        Rule("A * K", "''.join(A for _ in range(K))"),
        Rule("A.replace(T, '')", "''.join(A.split(T))"),
        Rule("A.count(T)", "len(A) - len(A.replace(T, ''))"),
        Rule("A.title()", "' '.join(word.capitalize() for word in A.split(' '))"),
        Rule("A.upper()", "''.join(map(str.upper, A))"),
    ),
    "walrus": (
        Rule("[E for X in S if C]", "[value for X in S if C and (value := E) is not None]"),
        Rule("[E for X in S]", "[value for X in S if (value := E) is not None]"),
        Rule("return max(A) - min(B)", "return (high := max(A)) - (low := min(B))"),
        Rule("A if B % K == 0 else D", "D if (left := B % K) else A"),
        Rule("return A if C else B", "if (holds := C):\n    return A\nreturn B"),
    ),
}

OPERATORS = {
    "power": (Rule("A * A", "A ** 2"),),
    "times minus one": (Rule("-V", "-1 * V"), Rule("-V", "V * -1")),
    "signs moved": (Rule("A - K", "A + -K"), Rule("A + K", "K + A"), Rule("A - B", "-B + A"), Rule("A * K", "K * A")),
    "divmod": (Rule("A // B", "divmod(A, B)[0]"), Rule("A % B", "divmod(A, B)[1]")),
    "remainder as truth": (
        Rule("A % B == 0", "not A % B"),
        Rule("A % 2 == 1", "A % 2 != 0"),
        Rule("A % 2 == 1", "bool(A % 2)"),
    ),
    "not the opposite": (
        Rule("A > B", "not A <= B"),
        Rule("A < B", "not A >= B"),
        Rule("A == B", "not A != B"),
        Rule("A >= B", "not A < B"),
        Rule("A <= B", "not A > B"),
    ),
    "turned around": (Rule("A > B", "B < A"), Rule("A < B", "B > A"), Rule("A == B", "B == A")),
    "step by step": tuple(
        Rule(f"return A {operator} B", f"result = A\nresult {operator}= B\nreturn result")
        for operator in ("+", "-", "*", "//", "%")
    )
    + tuple(Rule(f"X {operator}= A", f"X = X {operator} A") for operator in ("+", "-", "*", "//", "%")),
    "named parts": (
        *over("out = ...", "[E for X in S]", "[E for X in S if C]"),
        Rule("return max(A) - min(B)", "low = min(B)\nhigh = max(A)\nreturn high - low"),
        Rule("return A - B", "first = A\nsecond = B\nreturn first - second"),
        Rule("return A + B", "first = A\nsecond = B\nreturn first + second"),
        Rule("return A == B", "first = A\nsecond = B\nreturn first == second"),
    ),
    "other arithmetic": (
        Rule("A * A", "pow(A, 2)"),
        Rule("-V", "0 - V"),
        Rule("A + K", "A - -K"),
        Rule("A % K", "A - K * (A // K)"),
        Rule("X += A", "X -= -A"),
        Rule("A * 2", "A + A"),
        Rule("(A + B) // 2", "A + (B - A) // 2"),
        Rule("A // K", "(A - A % K) // K"),
    ),
    "next number": (
        Rule("A > K", "A >= NEXT_K"),
        Rule("A < K", "A <= PREV_K"),
        Rule("A >= K", "A > PREV_K"),
        Rule("A <= K", "A < NEXT_K"),
    ),
    "lowest bit": (Rule("A % 2 == 0", "A & 1 == 0"), Rule("A % 2 == 1", "A & 1 == 1"), Rule("A % 2 == 1", "A & 1")),
    "De Morgan": (
        Rule("A and B", "not (not A or not B)"),
        Rule("A or B", "not (not A and not B)"),
        Rule("A == B", "not (A < B or A > B)"),
        Rule("A % K == 0", "0 <= A % K < 1"),
    ),
    "unpacked": (
        Rule("X = A\nY = B", "X, Y = A, B"),
        *(
            Rule(f"return A {operator} B", f"first, second = A, B\nreturn first {operator} second")
            for operator in ("+", "-", "*", "//", "%", ">", "<", "==")
        ),
        *over("change, items = lambda X: E, S", mapped="", value="[change(X) for X in items]"),
        *over("keeps, items = lambda X: C, S", kept="", value="[E for X in items if keeps(X)]"),
    ),
}
