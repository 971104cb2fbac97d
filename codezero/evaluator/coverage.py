"""What a judge's canaries cover. Of problems unlike theirs its probabilities say nothing, so none are given.

A problem is compared by its question and never by an attempt, so that no attempt gains by being strange: by style, by
length, and by the share of its words that no canary's question has. Bounds are quantiles of the same figures of each
canary's question against the others', so that at most ALPHA of the canaries' own kind is left out by each (jackknife
prediction intervals, Barber et al. 2021, arXiv 1905.02928).
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from codezero.evaluator.canaries import CanaryKind
from codezero.evaluator.evidence import JudgedCanary
from codezero.types import Problem, Style

ALPHA = 0.02
NEW_WORDS = 1
"""Any question may have as many: a rare way to say the same."""
LEAST = 20
"""Fewest different questions that say what others of their kind are like."""
_WORD = re.compile(r"[a-z]+")


class Covered(msgspec.Struct, frozen=True):
    """What is known of the canaries' questions of one style."""

    fewest: float
    most: float
    """Words of a question."""
    unseen: float
    """Most of its different words that `vocabulary` lacks, as a share."""
    vocabulary: tuple[str, ...]


Coverage = dict[Style, Covered]


def coverage_of(canaries: Sequence[JudgedCanary]) -> Coverage:
    """A transplant's problem is one that the node learns from, so it covers nothing. Empty for few questions."""
    programs = [canary.program for canary in canaries if canary.kind is not CanaryKind.TRANSPLANT]
    coverage: Coverage = {}
    for style in Style:
        own = {
            program.question: _words(program.question, program.entry_point)
            for program in programs
            if program is not None and program.stdio is (style is Style.STDIO)
        }
        if len(own) >= LEAST:
            counts = Counter(word for words in own.values() for word in set(words))
            lengths = [len(words) for words in own.values()]
            alone = [_share(words, {word for word, times in counts.items() if times > 1}) for words in own.values()]
            fewest, most = np.quantile(lengths, (ALPHA / 2, 1 - ALPHA / 2)).tolist()
            coverage[style] = Covered(fewest / 2, most * 2, float(np.quantile(alone, 1 - ALPHA)), tuple(sorted(counts)))
    return coverage


def limits(coverage: Coverage, problems: Iterable[Problem]) -> dict[str, str]:
    """By id, of the problems that are not covered, why not. None for an empty coverage: nothing is known."""
    why = {problem.id: _why_not(coverage, problem) for problem in problems} if coverage else {}
    return {key: reason for key, reason in why.items() if reason}


def _why_not(coverage: Coverage, problem: Problem) -> str:
    covered = coverage.get(problem.style)
    if covered is None:
        return f"the judge was measured on no {'programs' if problem.style is Style.STDIO else 'functions'}"
    words = _words(problem.question, problem.entry_point)
    if not covered.fewest <= len(words) <= covered.most:
        bounds = f"{covered.fewest:.0f} to {covered.most:.0f}"
        return f"the judge was measured on questions of some {bounds} words; this one has {len(words)}"
    share, least = _share(words, covered.vocabulary), NEW_WORDS / max(1, len(set(words)))
    if share > max(covered.unseen, least):
        return f"{share:.0%} of the question's words are new to what the judge was measured on ({covered.unseen:.0%})"
    return ""


def _words(question: str, entry: str) -> list[str]:
    """Of the question, without the function's name, which every problem chooses anew."""
    text = question.lower()
    return _WORD.findall(text.replace(entry.lower(), " ") if entry else text)


def _share(words: Sequence[str], known: Iterable[str]) -> float:
    """Of the different words, those that are not known."""
    different = set(words)
    return len(different.difference(known)) / max(1, len(different))
