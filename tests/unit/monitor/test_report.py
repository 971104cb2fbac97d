from pathlib import Path

import pytest
from builders.monitor import after, exam_row, folded, group, row, rows_of

from codezero.monitor.report import NOT_MEASURED, command, headline, write_report
from codezero.types import Metrics, ScoredGroup

PNG = b"\x89PNG\r\n\x1a\n"


def reported(folder: Path, rows: list[Metrics], problem: ScoredGroup | None = None) -> str:
    page = write_report(folder, folded(*rows), after(*rows), problem, "asked to stop")
    assert (folder / "curve.png").read_bytes().startswith(PNG)
    assert sorted(path.name for path in folder.iterdir()) == ["curve.png", "report.md"]
    return page.read_text()


def test_a_rise_is_told_with_its_intervals(tmp_path: Path) -> None:
    rows = [exam_row(0, 0.21), *(row(i, 0.3 + 0.01 * i) for i in range(1, 25)), row(25, 0.6) | exam_row(25, 0.52)]
    page = reported(tmp_path, rows, group())
    assert "rose by 31.0 points: 21.0 % [18.0, 24.0] to 52.0 % [49.0, 55.0]" in page
    assert "do not overlap" in page
    for wanted in (
        "pass@8", "|  | iteration 0 | iteration 25 |",
        "| executed average@8 | 21.0 % [18.0, 24.0] | 52.0 % [49.0, 55.0] |",
        "| level | iteration 0 | iteration 25 |", "| 1 | 31.0 % | 62.0 % |",
        "| AUROC within groups | AUROC over problems |", "| 0.71 [0.64, 0.77], of 695 pairs | 0.980 |",
        "12,346 tokens", "2 at the end", "return sum(numbers)",
    ):  # fmt: skip
        assert wanted in page, wanted
    assert "./run_swarm.sh swarm up --nodes 3" in page and "./run_swarm.sh run model=qwen" in page


def test_outside_of_a_checkout_the_installed_command_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert command() == "codezero"


@pytest.mark.parametrize(
    ("last", "words"),
    [(0.22, ["rose by 1.0 points", "may be chance"]), (0.1, ["fell by 11.0 points", "do not overlap"])],
)
def test_a_change_is_told_with_what_it_is_worth(last: float, words: list[str]) -> None:
    line = headline(after(*rows_of(1), exam_row(30, last)).exams)
    assert all(word in line for word in words)


@pytest.mark.parametrize(("last", "words"), [("8c" * 100, "hardly by chance"), ("20e9" * 50, "so it may be chance")])
def test_two_exams_of_the_same_problems_are_compared_by_pairs(last: str, words: str) -> None:
    """Though both averages' intervals overlap."""
    exams = [exam_row(0, 0.49) | {"eval/shares": "7d" * 100}, exam_row(25, 0.53) | {"eval/shares": last}]
    line = headline(after(*exams).exams)
    assert "by pairs of problems 95 % [" in line and line.endswith(words)


@pytest.mark.parametrize("rows", [[], [row(1), row(2)], [row(1, None)]])
def test_without_an_exam_it_says_so(tmp_path: Path, rows: list[Metrics]) -> None:
    page = reported(tmp_path, rows)
    assert page.count(NOT_MEASURED) >= 2
    assert "rose" not in page


def test_foreign_text_cannot_leave_its_fence_or_line(tmp_path: Path) -> None:
    attack = "````\n# owned\n<script>x</script>\x1b[2J"
    page = reported(tmp_path, [row(1)], group(attack, (f"code ````` {attack}", "ok"), "why` | <b>\n# owned"))
    assert "\x1b" not in page
    fence = ""
    for line in page.splitlines():
        run = line[: len(line) - len(line.lstrip("`"))]
        if not fence and len(run) >= 3:
            fence = run
        elif fence and line == fence:
            fence = ""
        elif not fence:
            assert "owned" not in line or not line.startswith("#")
            assert "<" not in line
    assert not fence


PROPOSED: Metrics = {
    "proposer/written": 12, "proposer/refused_tests": 3, "proposer/refused_json": 0, "proposer/refused_size": 1,
    "proposer/values_right": 2, "proposer/values_wrong": 28, "proposer/wrong_value_share": 28 / 30,
    "problems/refused_near_duplicate": 4, "problems/refused": 4,
}  # fmt: skip


def test_what_became_of_proposals_is_told(tmp_path: Path) -> None:
    page = reported(tmp_path, [row(1), row(2) | PROPOSED])
    for line in (
        "- proposals: 12 problems written, 4 refused as they came: 3 tests, 1 size",
        "- expected values: 93.3 % of 30 executed are wrong",
        "- problems refused: 4: 4 near duplicate",
    ):
        assert line in page.splitlines(), page


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        ({"proposer/written": 1}, "claims, never executed"),
        ({"proposer/written": 1, "proposer/values_right": 0, "proposer/values_wrong": 0}, "none executed yet"),
    ],
)
def test_values_that_nobody_executed_are_not_called_right(measured: Metrics, words: str, tmp_path: Path) -> None:
    assert words in reported(tmp_path, [row(1) | measured])
    assert "## Problems" not in reported(tmp_path, [row(1)])


def test_tolerated_errors_are_counted_over_restarts(tmp_path: Path) -> None:
    counts = [1, 1, 3, None, 1, 2]
    rows: list[Metrics] = [row(i) | ({} if c is None else {"tolerated/SwarmError": c}) for i, c in enumerate(counts)]
    assert folded(*rows).survived == {"SwarmError": 5}
    assert "tolerated errors: SwarmError (5)" in reported(tmp_path, rows)
