"""What of Python and its library a program may call and still be read: it changes nothing and needs nothing."""

PURE = frozenset((
    "abs", "all", "any", "bool", "chr", "dict", "divmod", "enumerate", "filter", "float", "int", "isinstance", "len",
    "list", "map", "max", "min", "ord", "pow", "range", "repr", "reversed", "round", "set", "slice", "sorted", "str",
    "sum", "tuple", "zip", "frozenset", "True", "False", "None",
))  # fmt: skip
LIBRARY = frozenset(("operator", "functools", "itertools", "math"))
IMPURE = frozenset(("itertools.groupby", "itertools.tee", "itertools.cycle", "itertools.count", "functools.lru_cache"))
KEYWORDS = {
    "sorted": frozenset(("key", "reverse")), "max": frozenset(("key", "default")), "min": frozenset(("key", "default")),
}  # fmt: skip
METHODS = frozenset((
    "upper", "lower", "title", "strip", "lstrip", "rstrip", "replace", "capitalize", "swapcase", "join", "zfill",
    "format", "count", "index", "find", "rfind", "isdigit", "isalpha", "isalnum", "isupper", "islower", "isspace",
    "startswith", "endswith", "split", "splitlines", "get", "keys", "values", "items", "copy", "removeprefix",
    "removesuffix", "center", "ljust", "rjust", "bit_count", "__len__",
))  # fmt: skip
