"""Every figure of README.md is a claim, and holds against its stored result; sections of docs/ have data or say no."""

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from codezero.cli import main

ROOT = Path(__file__).parents[3]
NO_DATA = "are of an earlier commit and have no data file"
bench: Any = importlib.import_module("all")
MADE, CLAIMS, WITHOUT_DATA = bench.read_claims(ROOT / "results" / "claims.toml")
STORED = {path.stem: json.loads(path.read_text()) for path in (ROOT / "results").glob("*.json")}
PARTS = {"gossip_real", "learn_swarm"}  # programs that another benchmark starts


def numbers(text: str) -> set[float]:
    found = re.findall(r"-?\d[\d,]*\.?\d*|\.\d+", text.replace("average@8", ""))
    return {float(number.replace(",", "")) for number in found}


def visible(markdown: str) -> str:
    return " ".join(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", markdown).split())


def sections(page: Path) -> dict[str, str]:
    """By anchor."""
    found = re.split(r"^#+ (.+)\n", page.read_text(), flags=re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-"): text
        for name, text in zip(found[1::2], found[2::2], strict=True)
    }


def test_every_claim_holds_against_its_stored_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--report", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["claims"]
    states = [row["state"] for row in rows]
    assert states == ["holds"] * len(CLAIMS) + ["no data"] * len(WITHOUT_DATA) and len(CLAIMS) >= 20
    assert STORED.keys() == MADE.keys() == {claim.result for claim in CLAIMS}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.text)
def test_a_claim_is_what_its_page_says(claim: Any) -> None:
    page = (ROOT / claim.page).read_text()
    assert claim.text in visible(page)
    assert claim.page == "README.md" or f"results/{claim.result}.json" in page
    assert not numbers(claim.text) or numbers(claim.text) <= {*claim.value, claim.least, claim.most}


def test_every_figure_of_the_table_is_a_claim_whose_data_the_row_links() -> None:
    table = sections(ROOT / "README.md")["results"]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 9
    for _, measured, data in rows:
        text = visible(measured)
        own = [claim for claim in CLAIMS if claim.page == "README.md" and claim.text in text]
        assert numbers(text) <= {number for claim in own for number in numbers(claim.text)}, text
        linked = set(re.findall(r"\(results/(\w+)\.json\)", data))
        assert linked == {claim.result for claim in own}, text


@pytest.mark.parametrize("name", sorted(STORED))
def test_a_stored_result_says_where_it_comes_from_and_names_no_machine(name: str) -> None:
    stored, made = STORED[name], MADE[name]
    assert re.fullmatch("[0-9a-f]{40}", stored["commit"])
    assert not bench.PATH.search(json.dumps(stored["result"]))
    assert stored["seconds"] > 0 and stored["command"] == f"codezero bench {made.command}"
    assert stored["machine"].keys() == {"processor", "cores", "memory_gib", "python", "torch"}


def test_every_figure_of_the_pages_has_its_data_or_says_that_it_has_none() -> None:
    pages = {page.name: sections(page) for page in (ROOT / "docs").glob("*.md")}
    said = {f"docs/{page}#{anchor}" for page, found in pages.items() for anchor, text in found.items()
            if NO_DATA in " ".join(text.split())}  # fmt: skip
    assert said == WITHOUT_DATA.keys()
    table = sections(ROOT / "docs" / "reproduce.md")["every-figure"]
    figures = {f"docs/{page}#{anchor}" for page, anchor in re.findall(r"\((\w+\.md)#([\w-]+)\)", table)}
    assert said <= figures
    for page, anchor in (figure[5:].split("#") for figure in figures - said):
        assert "`results/" in pages[page][anchor], f"{page}#{anchor}"


def claim(**given: Any) -> Any:
    return bench.Claim(**{"text": "1 %", "result": "r", "path": ("a", "*", "b")} | given)


@pytest.mark.parametrize(
    ("given", "measured", "held"),
    [
        ({"value": (1, 2), "tolerance": 0.1}, [1.1, 1.9], True),
        ({"value": (1, 2), "tolerance": 0.1}, [1.2, 2], False),
        ({"value": (1, 2), "tolerance": 9}, [1], False),
        ({"value": (1,), "tolerance": 9}, [1, 2], False),
        ({"most": 3}, [3, 3.1], False),
        ({"least": 3}, [2.9], False),
        ({"value": (300,), "times": 100, "total": True}, [1, 2], True),
        ({"value": (1,), "tolerance": 9}, [float("nan")], False),
    ],
)
def test_a_claim_holds_within_its_tolerance_and_bounds(given: Any, measured: list[float], held: bool) -> None:
    made = claim(**given)
    for node in (
        {"a": [{"b": each} for each in measured]},
        {"a": {str(at): {"b": x} for at, x in enumerate(measured)}},
    ):
        assert made.holds(made.figures(node)) is held


BENCHMARK = """
import json, sys, pathlib
if "--broken" in sys.argv: sys.exit("no figure today")
print(json.dumps({"value": float(sys.argv[2]), "said": f"kept in {pathlib.Path.cwd()}/it", "arm": "4/12"}))
"""
TABLE = """
[results.good]
command = "one 1"
minutes = 1
seeds = [0]
[results.moved]
command = "one 2"
minutes = 2
[results.broken]
command = "one --broken"
[results.long]
command = "one 1"
minutes = 90
[results.sets]
command = "one {data}"
[without_data]
"docs/results.md#past" = "one 3"
""" + "".join(
    f"[[claims]]\ntext = '1'\nresult = '{name}'\npath = ['value']\nvalue = [1]\n"
    for name in ("good", "moved", "broken", "long", "sets")
)


@pytest.fixture
def other_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one benchmark."""
    (tmp_path / "results").mkdir()
    (tmp_path / "one.py").write_text(BENCHMARK)
    (tmp_path / "results" / "claims.toml").write_text(TABLE)
    monkeypatch.setattr(bench, "BENCHMARKS", tmp_path)
    monkeypatch.setattr(bench, "STORED", tmp_path / "results")
    return tmp_path


def test_a_check_runs_what_has_time_and_says_what_holds(other_claims: Path, capsys: pytest.CaptureFixture[str]) -> None:
    into = other_claims / "new"
    assert bench.main(["--check", "--json", "--minutes", "60", "--into", str(into)]) == 1
    out, err = capsys.readouterr()
    rows = {row["result"]: (row["state"], row["found"]) for row in json.loads(out)["claims"]}
    assert rows["good"] == ("holds", "1 (commit None)") and rows["moved"] == ("fails", "2 (commit None)")
    assert rows["broken"][0] == "fails" and "exit code 1" in rows["broken"][1]
    assert {name: state for name, (state, _) in rows.items() if name in ("long", "sets")} == dict.fromkeys(
        ("long", "sets"), "not run"
    )
    assert rows[""] == ("no data", "earlier commit: codezero bench one 3")
    assert "good, usually 1 minutes: codezero bench one 1" in err
    made = json.loads((into / "good.json").read_text())
    assert made["result"] == {"value": 1, "said": "kept in PATH", "arm": "4/12"} and made["seeds"] == [0]
    assert made["commit"] is None and made["machine"]["cores"] >= 1


def test_the_list_describes_every_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    files = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text()}
    assert {row["name"] for row in rows} == files - PARTS and all(row["measures"] for row in rows)
    assert all(row["minutes"] > 0 for row in rows) and {row["name"]: row["minutes"] for row in rows}["card"] == 9
    assert main(["bench", "list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(rows)
    assert main(["bench", "list", "--fast"]) == 2
