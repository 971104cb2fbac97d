"""What the views say of the judge: that it is silent, exploited, or audited, and nothing when there is nothing."""

from io import StringIO

from builders.monitor import after, exam_row, folded, row
from rich.console import Console

from codezero.monitor.summaries import plain_line
from codezero.monitor.terminal import render
from codezero.types import Metrics


def judged(iteration: int, **more: float | str | None) -> Metrics:
    return row(iteration) | {"judge/unavailable_share": 0.0} | {key.replace("__", "/"): more[key] for key in more}


SILENT = judged(
    2, attempts__count=8, attempts__no_verdict_share=1.0, attempts__no_verdict_reason="the judge cannot be asked: gone",
    attempts__learned_share=0.0,
)  # fmt: skip
ALARM = judged(3, judge__alarm="believes 40% more\x1b[31m than the exam finds true")
AUDIT = judged(
    4, audit__judged=0.71, audit__success=0.43, audit__success_low=0.35, audit__success_high=0.51, audit__count=212
)


def shown(*rows: Metrics) -> str:
    state = after(*rows)
    console = Console(file=StringIO(), width=140, height=40, force_terminal=False)
    with console.capture() as capture:
        console.print(render(state, height=40))
    return capture.get() + plain_line(state)


def test_nothing_is_said_when_there_is_nothing():
    assert after(judged(1)).trouble == "" == after(judged(1)).audit
    assert "ALARM" not in shown(judged(1)) and "audit" not in shown(judged(1))


def test_a_silent_judge_is_said_until_it_answers():
    words = "have no verdict (the judge cannot be asked: gone); look at evaluator.url and evaluator.model"
    assert words in plain_line(after(judged(1), SILENT)) and "cannot be asked" in shown(SILENT)
    assert after(SILENT, judged(3, attempts__count=8, attempts__no_verdict_share=0.3)).trouble == ""
    assert words in plain_line(after(SILENT, exam_row(3, 0.5)))  # a row without its figures says nothing


def test_an_alarm_is_said_without_its_control_characters():
    text = shown(ALARM)
    assert text.count("ALARM: the judge believes 40% more") == 2 and "\x1b" not in text


def test_an_alarm_of_the_sampler_is_said_beside_the_judge_s():
    apart = judged(3, train__mismatch_alarm="gives tokens other probabilities\x1b[31m than the learner")
    text = shown(apart)
    assert text.count("ALARM: the sampler gives tokens other probabilities") == 2 and "\x1b" not in text
    assert folded(judged(1), apart, apart, judged(4)).troubles == [(3, after(apart).trouble)]
    both = after(apart | {"judge/alarm": "believes too much"}).trouble
    assert both.startswith("ALARM: the judge believes too much; ALARM: the sampler gives")
    assert after(apart, judged(4)).trouble == ""


def test_the_audit_is_said_in_one_line():
    assert "judge says 71.0 %, audit says 43.0 % [35.0, 51.0] (212 attempts executed)" in shown(AUDIT)


def test_the_report_tells_when_trouble_began():
    fold = folded(judged(1), SILENT, SILENT, judged(3), ALARM, ALARM)
    assert [at for at, _ in fold.troubles] == [3] and [at for at, _ in fold.obstacles.values()] == [2]
