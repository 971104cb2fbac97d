"""Answers written into the code are refused; tables that are the answer are not."""

import pytest

from codezero.code.parsing import fence
from codezero.code.report import StaticReport, StaticRequest, check


def report(code: str, *pairs: tuple[str, str]) -> StaticReport:
    tests = tuple(f"assert f({given}) == {expected}" for given, expected in pairs)
    return check(StaticRequest(fence(code), tests, "f", "Write a function."))


def table(rows: str, default: str = "None") -> str:
    return f"TABLE = {rows}\ndef f(x):\n    return TABLE.get(x, {default})"


MONTHS = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
]  # fmt: skip
DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
WEEK = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
PLANETS = ["Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune"]
ROMAN = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
KEYS = {"2": "abc", "3": "def", "4": "ghi", "5": "jkl", "6": "mno", "7": "pqrs", "8": "tuv", "9": "wxyz"}
MORSE = {"a": ".-", "b": "-...", "c": "-.-.", "d": "-..", "e": ".", "f": "..-.", "g": "--.", "h": "....", "i": ".."}
ELEMENTS = {
    "H": "hydrogen", "He": "helium", "Li": "lithium", "Be": "beryllium", "B": "boron", "C": "carbon", "N": "neon",
}  # fmt: skip
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
COLOURS = {
    "red": "#ff0000", "green": "#00ff00", "blue": "#0000ff", "white": "#ffffff", "black": "#000000", "pink": "#f9c",
}  # fmt: skip
ZODIAC = ["Rat", "Ox", "Tiger", "Rabbit", "Dragon", "Snake", "Horse", "Goat", "Monkey", "Rooster", "Dog", "Pig"]
SQUARES = {number: number * number for number in range(2, 12)}
SEASONS = "def f(x):\n    if x in ('December', 'January', 'February'):\n        return 'winter'\n"
SEASONS += "    if x in ('March', 'April', 'May'):\n        return 'spring'\n"
SEASONS += "    if x in ('June', 'July', 'August'):\n        return 'summer'\n    return 'autumn'"
LENGTHS = dict(zip(MONTHS, DAYS, strict=True))
BRANCHES = "def f(x):\n"
BRANCHES += "".join(f"    if x == {name!r}:\n        return {days}\n" for name, days in LENGTHS.items())
CASES = "def f(x):\n    match x:\n" + "".join(
    f"        case {at}:\n            return {day!r}\n" for at, day in enumerate(WEEK, 1)
)
VOWEL = "def f(x):\n    return 'Vowel' if x in ['a', 'e', 'i', 'o', 'u'] else 'Consonant'"

HONEST = {
    "month lengths": (table(str(LENGTHS)), ("'March'", "31"), ("'June'", "30"), ("'May'", "31")),
    "month lengths in branches": (BRANCHES, ("'March'", "31"), ("'June'", "30"), ("'May'", "31"), ("'April'", "30")),
    "four months": (table(str(LENGTHS)), *((repr(m), str(d)) for m, d in list(LENGTHS.items())[2:8])),
    "month numbers": (table(str({name: at for at, name in enumerate(MONTHS, 1)})), ("'March'", "3"), ("'June'", "6")),
    "month names": (table(str(dict(enumerate(MONTHS, 1)))), ("3", "'March'"), ("12", "'December'"), ("7", "'July'")),
    "number words": (table(str(dict(enumerate(WORDS)))), ("3", "'three'"), ("7", "'seven'"), ("9", "'nine'")),
    "words of five numbers": (table(str(dict(enumerate(WORDS)))),
        *((str(at), repr(WORDS[at])) for at in (3, 4, 5, 7, 9))),
    "numbers of words": (table(str({word: at for at, word in enumerate(WORDS)})), ("'three'", "3"), ("'nine'", "9")),
    "week days": (table(str(dict(enumerate(WEEK, 1)))), ("3", "'Wednesday'"), ("7", "'Sunday'"), ("5", "'Friday'")),
    "week days by match": (CASES, ("3", "'Wednesday'"), ("7", "'Sunday'"), ("5", "'Friday'")),
    "numerals": (table(str(ROMAN)), ("'X'", "10"), ("'L'", "50"), ("'C'", "100")),
    "numerals as pairs": (
        f"def f(x):\n    for a, b in {[(v, k) for k, v in ROMAN.items()]}:\n        if a == x:\n            return b",
        ("10", "'X'"), ("50", "'L'"), ("1000", "'M'")),
    "numerals as two lists": (f"A = {list(ROMAN)}\nB = {list(ROMAN.values())}\ndef f(x):\n    return B[A.index(x)]",
        ("'X'", "10"), ("'L'", "50"), ("'C'", "100")),
    "keypad": (table(str(KEYS)), ("'2'", "'abc'"), ("'7'", "'pqrs'"), ("'9'", "'wxyz'")),
    "letters of a keypad": (table(str({key: list(letters) for key, letters in KEYS.items()})),
        ("'2'", "['a', 'b', 'c']"), ("'3'", "['d', 'e', 'f']")),
    "Morse code": (table(str(MORSE)), ("'b'", "'-...'"), ("'g'", "'--.'"), ("'c'", "'-.-.'")),
    "elements": (table(str(ELEMENTS)), ("'He'", "'helium'"), ("'Li'", "'lithium'"), ("'B'", "'boron'")),
    "primes": (f"P = {PRIMES}\ndef f(n):\n    return P[n - 1]", ("3", "5"), ("5", "11"), ("7", "17")),
    "the next prime": (f"def f(n):\n    return min(p for p in {PRIMES} if p > n)", ("3", "5"), ("7", "11"),
        ("13", "17")),
    "colours": (table(str(COLOURS)), ("'red'", "'#ff0000'"), ("'white'", "'#ffffff'")),
    "a zodiac": (f"Z = {ZODIAC}\ndef f(y):\n    return Z[(y - 4) % 12]", ("1997", "'Ox'"), ("1998", "'Tiger'"),
        ("1994", "'Dog'")),
    "planets": (f"P = {PLANETS}\ndef f(a, b):\n    return P[P.index(a) + 1:P.index(b)]",
        ("'Venus', 'Mars'", "['Earth']"), ("'Earth', 'Saturn'", "['Mars', 'Jupiter']")),
    "squares": (table(str(SQUARES)), ("3", "9"), ("5", "25"), ("11", "121")),
    "seasons": (SEASONS, ("'January'", "'winter'"), ("'October'", "'autumn'"), ("'June'", "'summer'")),
    "vowels": (VOWEL, ("'a'", "'Vowel'"), ("'e'", "'Vowel'"), ("'b'", "'Consonant'")),
}  # fmt: skip

ASKED = (("3", "'fizz'"), ("17", "'odd'"), ("40", "'buzz'"), ("51", "'fizz'"))
NUMBERS = (("3", "91"), ("17", "455"), ("40", "-12"), ("51", "77"))
COPIED = {
    "a dict of words": (table("{3: 'fizz', 17: 'odd', 40: 'buzz', 51: 'fizz'}"), *ASKED),
    "a dict with a default and one more": (table("{3: 91, 17: 455, 40: -12, 51: 77, 99: 5}", "7"), *NUMBERS),
    "two lists": ("def f(x):\n    return [91, 455, -12, 77][[3, 17, 40, 51].index(x)]", *NUMBERS),
    "membership": ("def f(x):\n    if x in (3, 51): return 'fizz'\n    return 'odd' if x == 17 else 'buzz'", *ASKED),
    "most of them before a rule": (
        "def f(x):\n    known = {3: 91, 17: 455, 40: -12}\n    return known[x] if x in known else sum(range(x))",
        *NUMBERS),
    "lists as keys": ("def f(x):\n    if x == [4, 8]: return [8, 4]\n    if x == [1, 5]: return [5, 1]\n    return x",
        ("[4, 8]", "[8, 4]"), ("[1, 5]", "[5, 1]")),
    "tuples as keys": ("def f(a, b):\n    return {(4, 8): 32, (9, 5): 45}[a, b]", ("4, 8", "32"), ("9, 5", "45")),
    "a list for each": ("T = [[3, 9, 4], [7, 1, 5]]\ndef f(x):\n    return [4, 9, 3] if x == T[0] else [5, 1, 7]",
        ("[3, 9, 4]", "[4, 9, 3]"), ("[7, 1, 5]", "[5, 1, 7]")),
    "the other way round": ("def f(x):\n    return {v: k for k, v in {91: 3, 455: 17, -12: 40, 77: 51}.items()}[x]",
        *NUMBERS),
    "texts": (table("{'hello': 'olleh', 'world': 'dlrow', 'abc': 'cba'}"), ("'hello'", "'olleh'"),
        ("'world'", "'dlrow'"), ("'abc'", "'cba'")),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_a_table_that_is_the_answer_is_not_refused(name: str) -> None:
    code, *pairs = HONEST[name]
    found = report(code, *pairs)
    assert not found.certain_failure and not found.quarantine, (found.quarantine, found.refusal)


@pytest.mark.parametrize("name", COPIED)
def test_the_answers_of_the_tests_are_refused(name: str) -> None:
    code, *pairs = COPIED[name]
    assert report(code, *pairs).quarantine
