"""Lessons of the embedded model of the gym: short tasks on words and numbers, by level and index.

Answers are spoilt on purpose like the solver's, more so at higher levels, but not from the start. The tokenizer is
learned from the questions, and the chat template shortens their fixed words.
"""

from collections.abc import Callable, Iterator
from itertools import count, islice
from random import Random

from codezero.problems.synthetic.tasks import LEVELS
from codezero.types import is_exam_question
from tools.nano.lessons import TEXTS
from tools.nano.train import Pair, chat_template

Drill = Callable[[int, int], Pair]
"""Question and answer by level and index."""
INDICES = 400_000
"""Of each level, from which it is taught and examined."""
SEEN = (0.22, 0.22, 0.20, 0.18, 0.18)
"""How often it saw each level."""
NOISE = (0.40, 0.43, 0.46, 0.48, 0.50)
"""Share of spoilt answers, by level."""
ANSWER_TOKENS = 24

SPELL = "Spell this word backward (example: sun -> nus):"
"""The word behind it is shown letter by letter."""
SHORTER = {
    "Your task is to count how many legs there are in total when given a list of animals.": " ",
    "Now, how many legs are there in total if you have": "~",
    " is married to ": "+",
    "They have a child called ": "^",
    "They have children called ": "^",
    "Answer with a single word.": " ",
    "Respond only with the word that describes their relationship.": " ",
    "Provide the relationship in one word.": " ",
    "Consider these statements:": " ",
    "Does it logically follow that:": "?",
    "(Answer Yes or No)": " ",
}
"""What the chat template makes of the questions' fixed words: nothing that could complete a special token."""
TEMPLATE = chat_template(
    "{%- if text.startswith('" + SPELL + "') -%}<{{ text.split('):')[1] | trim | list | join('|') }}"
    "{%- else -%}{{ text"
    + "".join(f" | replace('{long}', '{short}')" for long, short in SHORTER.items())
    + " | trim }}{%- endif -%}"
)


def gym_texts(drill: Drill, random: Random) -> Iterator[str]:
    """What the tokenizer is learned from: no words that are to be spelt, so that it leaves them in short pieces."""
    for question, answer in islice(gym_pairs(drill, random, TEXTS), TEXTS):
        if question.startswith(SPELL):
            continue
        for long, short in SHORTER.items():
            question = question.replace(long, short)
        yield f"{question}\n{answer}\n"


def gym_pairs(drill: Drill, random: Random, clean: int = 0) -> Iterator[Pair]:
    """The first `clean` are not spoilt: what is learned from them is what reinforcement can find again."""
    for number in count():
        level = random.choices(LEVELS, SEEN)[0]
        question, answer = drawn(drill, level, random, held_out=False)
        spoil = number >= clean and random.random() < NOISE[level - 1]
        yield question, spoilt(answer, random) if spoil else answer


def drawn(drill: Drill, level: int, random: Random, *, held_out: bool) -> Pair:
    while True:
        question, answer = drill(level, random.randrange(INDICES))
        if is_exam_question(question) == held_out:
            return question, answer


def spoilt(answer: str, random: Random) -> str:
    """Another answer, one slip away: a sign or a character too many or too few, a neighbouring digit, or two changed
    places."""
    at = random.randrange(len(answer))
    before, here, after = answer[:at], answer[at], answer[at + 1 :]
    slips = [before + after, before + here + here + after, before + after[:1] + here + after[1:]]
    if here.isdigit():
        slips += [f"{before}{(int(here) + step) % 10}{after}" for step in (1, 9)] * 2
    slips.append(answer.removeprefix("-") if answer.startswith("-") else f"-{answer}")
    return random.choice([slip for slip in slips if slip and slip != answer])
