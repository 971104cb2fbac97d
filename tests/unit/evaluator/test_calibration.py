"""The figures against independent formulas, and the gate against judges that must not be believed."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from codezero.errors import EvaluatorError
from codezero.evaluator import calibration
from codezero.evaluator.calibration import PART, SKILL, TRIES, calibrate, fit_positive, logistic, read_all
from codezero.evaluator.types import Program, Reading
from codezero.stats import auroc, auroc_interval

RNG = np.random.default_rng(3)


def sample(n: int, distance: float, seed: int = 0):
    """n canaries, half right; one score, `distance` standard deviations apart."""
    rng = np.random.default_rng(seed)
    right = [i % 2 == 0 for i in range(n)]
    scores = [(float(rng.normal(distance if r else 0.0)),) for r in right]
    return scores, right, [f"p{i // 2}" for i in range(n)]


def test_logistic_recovers_a_known_rule():
    x = RNG.normal(size=(20_000, 1))
    y = (RNG.random(20_000) < 1 / (1 + np.exp(-(0.5 + 2.0 * x[:, 0])))).astype(float)
    intercept, weight = logistic(x, y)
    assert intercept == pytest.approx(0.5, abs=0.1)
    assert weight == pytest.approx(2.0, abs=0.15)


def test_logistic_stays_finite_on_separable_canaries():
    x = np.array([[-1.0]] * 50 + [[1.0]] * 50)
    solution = logistic(x, np.array([0.0] * 50 + [1.0] * 50))
    p = 1 / (1 + math.exp(-solution.sum()))
    assert 0.9 < p < 1


def test_a_skilful_judge_is_believed_and_its_probabilities_fit():
    scores, right, problems = sample(1_000, 2.0)
    made = calibrate(("s",), scores, right, problems)
    assert made.fit is not None and made.fit.weights[0] > 0
    assert made.auroc is not None and made.auroc > 0.9 and (made.auroc_low or 0) > 0.88
    assert made.ece is not None and made.ece < 0.06
    assert made.probability((4.0,)) > 0.9 > 0.1 > made.probability((-2.0,))


@pytest.mark.parametrize("distance", [0.0, -2.0])
def test_a_judge_without_skill_or_with_the_wrong_sign_gets_weight_zero(distance: float):
    """Turning an anti-calibrated judge round would trust a channel that is known to be confused."""
    scores, right, problems = sample(400, distance, seed=5)
    made = calibrate(("s",), scores, right, problems)
    assert made.fit is None and made.reasons
    assert made.probability((99.0,)) == made.probability((-99.0,)) == 0.5


def test_a_score_with_skill_is_not_asked_for_it_again_by_a_part_of_its_canaries():
    for seed in range(20):
        scores, right, problems = sample(80, 0.8, seed)
        area, low, _ = auroc_interval([score for (score,) in scores], right)
        unseen = calibrate(("s",), scores, right, problems).auroc
        assert low < SKILL or (unseen is not None and unseen > area - 0.04)


def test_too_few_canaries_prove_nothing():
    scores, right, problems = sample(30, 9.0)
    assert calibrate(("s",), scores, right, problems).fit is None
    assert calibrate(("s",), [], [], []).fit is None


def test_each_score_must_prove_itself():
    good, right, problems = sample(400, 2.0)
    noise = RNG.normal(size=400)
    made = calibrate(("good", "noise"), [(g, float(n)) for (g,), n in zip(good, noise, strict=True)], right, problems)
    assert made.fit is not None
    assert made.fit.weights[0] > 0 and made.fit.weights[1] == 0
    assert any("noise" in reason for reason in made.reasons)


def test_no_weight_is_ever_negative():
    """A score with skill of its own that only corrects another one downwards is left out."""
    right = np.array([float(i % 2 == 0) for i in range(600)])
    hidden = RNG.normal(size=600) * 3
    one = right * 4 + hidden + RNG.normal(size=600) * 0.1
    two = right * 1 + hidden
    fit, reasons = fit_positive(("one", "two"), np.column_stack([one, two]), right)
    assert fit is not None and min(fit.weights) >= 0
    assert auroc_interval(two, right)[1] < SKILL or any("backwards" in reason for reason in reasons)


def test_a_missing_score_counts_as_average():
    good, right, problems = sample(400, 2.0)
    made = calibrate(("a", "b"), [(g, None) for (g,) in good], right, problems)
    assert made.fit is not None and made.fit.weights[1] == 0
    full = calibrate(("a", "b"), [(g, g if i % 5 else None) for i, (g,) in enumerate(good)], right, problems)
    assert full.fit is not None
    assert full.probability((3.0, None)) == full.probability((3.0, full.fit.means[1]))


def test_canaries_are_judged_by_a_fit_that_has_not_seen_their_problem():
    """Scores that only tell problems apart would look skilful if the folds cut through problems."""
    rng = np.random.default_rng(0)
    right, scores = rng.integers(2, size=20).repeat(9), rng.normal(size=(20, 12)).repeat(9, axis=0)
    whole, cut = (
        auroc(calibration.unseen_probabilities("abcdefghijkl", scores.tolist(), right, problems, range(12)), right)
        for problems in ([f"p{i // 9}" for i in range(180)], [f"p{i}" for i in range(180)])
    )
    assert whole < 0.6 and cut > 0.7


PROGRAMS = [Program("double it", f"def f(x):\n    return x * {n}") for n in range(PART + 16)]
LATE, READ = Reading(None, "the judge did not answer in 1.5 s"), Reading((1.0,))


class SlowJudge:
    """Answers `rate` new programs for each reading, and remembers them; falls silent after `readings`."""

    names = ("yes",)

    def __init__(self, rate: int, readings: int = 1_000) -> None:
        self.rate, self.left = rate, readings
        self.known: set[Program] = set()
        self.asked: list[int] = []

    def read(self, programs: Sequence[Program], wanted: frozenset[str]) -> list[Reading]:
        if self.left == 0:
            raise EvaluatorError("the judge does not answer")
        self.left -= 1
        self.asked.append(len(programs))
        self.known |= {*[one for one in programs if one not in self.known][: self.rate]}
        return [READ if one in self.known else LATE for one in programs]

    def forget(self) -> None:
        """It goes on remembering."""


def unread(readings: dict[Program, Reading]) -> int:
    return sum(reading.scores is None for reading in readings.values())


def test_a_slow_judge_is_asked_until_it_has_read_everything():
    judge = SlowJudge(rate=20)
    assert unread(read_all(judge, PROGRAMS)) == 0
    assert judge.asked == [64, 44, 24, 4, 16]


def test_a_judge_without_another_word_is_asked_no_more():
    judge = SlowJudge(rate=0)
    readings = read_all(judge, PROGRAMS)
    assert unread(readings) == len(PROGRAMS) and len(judge.asked) == 4
    assert readings[PROGRAMS[0]].why_not == LATE.why_not


def test_patience_has_an_end():
    judge = SlowJudge(rate=1)
    assert unread(read_all(judge, PROGRAMS)) == len(PROGRAMS) - 2 * TRIES


def test_what_a_judge_said_before_it_fell_silent_counts():
    assert unread(read_all(SlowJudge(rate=20, readings=2), PROGRAMS[:PART])) == PART - 40


def test_a_judge_that_says_nothing_at_all_is_an_error():
    with pytest.raises(EvaluatorError, match="does not answer"):
        read_all(SlowJudge(rate=1, readings=0), PROGRAMS)
