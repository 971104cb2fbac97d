"""Problem sets from the hub and from a disk: the same rows become the same problems, and a lost hub ends nothing."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from builders.data_sets import contests, mbpp, sanitized, write
from fakes.hub_server import Hub, serving

from codezero.cli import main
from codezero.errors import ProblemError
from codezero.problems import rows as row_module
from codezero.problems.rows import read_row
from codezero.problems.sources import SETS, RowSet, open_rows
from codezero.types import Style

MBPP_CARD = b"""---
configs:
- config_name: full
  data_files:
  - split: train
    path: full/train-*
  - split: test
    path: full/test-*
---
"""


def opened(path: Path) -> RowSet:
    return open_rows(str(path))


def problems(rows: RowSet) -> list[str]:
    read = [read_row(row) for shard in rows.shards() for row in rows.rows(shard, 0)]
    return [worked.problem.id for worked in read]


@pytest.mark.parametrize("make", [mbpp, sanitized], ids=["full", "sanitized"])
def test_a_line_and_a_parquet_row_are_the_same_problem(make, tmp_path: Path):
    rows = [make(number) for number in range(50)]
    ids = [problems(opened(write(tmp_path / f"rows{suffix}", rows))) for suffix in (".jsonl", ".parquet")]
    assert ids[0] == ids[1] and len(set(ids[0])) == 50


def test_code_contests_from_parquet_with_empty_tests_and_inputs_of_a_megabyte(tmp_path: Path):
    rows = opened(write(tmp_path / "data.parquet", contests(50)))
    read, refused = [], 0
    for row in rows.rows(rows.shards()[0], 0):
        try:
            read.append(read_row(row))
        except ProblemError as error:
            assert "no tests" in str(error)
            refused += 1
    assert (len(read), refused) == (45, 5)
    assert all(row.problem.style is Style.STDIO and len(row.problem.tests) >= 2 for row in read)
    assert all(sum(map(len, row.problem.tests)) < 70_000 for row in read)
    assert all(row.right == (row.problem.reference,) and row.wrong == ("print(input())",) for row in read)


def test_a_directory_gives_its_training_files_and_begins_where_it_is_told(tmp_path: Path):
    write(tmp_path / "full" / "test-0.parquet", [mbpp(0)])
    write(tmp_path / "full" / "train-0.parquet", [mbpp(number) for number in range(1, 6)])
    rows = opened(tmp_path)
    assert len(rows.shards()) == 1
    last = [read_row(row).problem.entry_point for row in rows.rows(rows.shards()[0], 3)]
    assert last == ["solve_4", "solve_5"]
    lines = opened(write(tmp_path / "other" / "x.jsonl", [mbpp(1), mbpp(2)]))
    assert len(list(lines.rows(lines.shards()[0], 1))) == 1


def test_a_line_that_is_too_long_costs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(row_module, "MAX_ROW", 2000)
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(mbpp(1)) + "\n\n" + "x" * 9000 + "\n" + json.dumps(mbpp(2)))
    lines = list(opened(path).rows(str(path), 0))
    assert [len(line) > 2000 for line in lines] == [False, True, False]


def test_what_cannot_be_read_is_named(tmp_path: Path):
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(ProblemError, match=r"broken\.parquet cannot be read"):
        problems(opened(tmp_path / "broken.parquet"))
    with pytest.raises(ProblemError, match="neither a file nor a directory"):
        problems(opened(tmp_path / "none"))
    with pytest.raises(ProblemError, match="40 hex digits"):
        open_rows("mbpp@main")
    with pytest.raises(ProblemError, match="mbpp cannot be read"):
        open_rows("mbpp@" + "0" * 40).shards()  # HF_HUB_OFFLINE is set here, and nothing is in the cache


def test_a_set_is_read_from_the_cache_only_where_all_its_files_are_there(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    place = SETS["code_contests"]
    folder = tmp_path / f"datasets--{place.repository.replace('/', '--')}" / "snapshots" / place.revision / "data"
    write(folder / "train-00000-of-00002.parquet", contests(3))
    with pytest.raises(ProblemError, match="it is not whole in the cache"):
        open_rows("code_contests").shards()
    write(folder / "train-00001-of-00002.parquet", contests(3))
    assert [Path(shard).name[6:11] for shard in open_rows("code_contests").shards()] == ["00000", "00001"]


def a_hub(tmp_path: Path, train: Sequence[dict] = (), test: Sequence[dict] = ()) -> Hub:
    """train, test: the rows of MBPP; empty: made ones."""

    def parquet(rows: list[dict]) -> bytes:
        return write(tmp_path / "made.parquet", rows).read_bytes()

    small, large, rows = SETS["mbpp"], SETS["code_contests"], contests(60)
    return Hub({
        (small.repository, small.revision): {
            "README.md": MBPP_CARD,
            "full/train-00000-of-00001.parquet": parquet([*(train or map(mbpp, range(50)))]),
            "full/test-00000-of-00001.parquet": parquet([*(test or map(mbpp, range(90, 130)))]),
        },
        (large.repository, large.revision): {
            "README.md": b"---\nlicense: cc-by-4.0\n---\n",
            "data/train-00000-of-00002.parquet": parquet(rows[:30]),
            "data/train-00001-of-00002.parquet": parquet(rows[30:]),
        },
    })  # fmt: skip


def run(tmp_path: Path, url: str, *command: str) -> subprocess.CompletedProcess[str]:
    settings = {"HF_ENDPOINT": url, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "0"}
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, env={**os.environ, **settings})


@pytest.mark.slow
def test_mbpp_comes_from_the_hub_at_its_revision_and_later_from_the_cache(tmp_path: Path):
    check = ("-m", "codezero", "data", "check", "mbpp", "--json")
    with serving(a_hub(tmp_path)) as hub:
        done = run(tmp_path, hub.url, *check)
        assert json.loads(done.stdout)["usable"] == 50, done.stderr  # and nothing of the test split
        assert any(SETS["mbpp"].revision in asked and "train-0" in asked for asked in hub.asked)
    done = run(tmp_path, hub.url, *check)  # nobody listens there any more
    assert json.loads(done.stdout)["usable"] == 50 and "hub" not in done.stderr
    done = run(tmp_path, hub.url, "-m", "codezero", "data", "check", "code_contests")
    assert done.returncode == 2 and "does not answer, and it is not whole in the cache" in done.stderr


def test_data_check_shows_the_reasons_and_show_the_problems(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    proposals = [
        {"question": "Return f(x), which doubles x.", "tests": ["assert f(1) == 2", "assert f(2) == 4"], "level": 1},
        {"question": "Return f(x), which halves x.", "tests": ["assert f(1) == 2", "assert f(1) == 4"], "level": 1},
    ]
    wrong = mbpp(3, code="def solve_3(n):\n    return 7")
    path = str(write(tmp_path / "rows.jsonl", [mbpp(1), mbpp(1), mbpp(2, test_list=["assert"]), *proposals, wrong]))
    assert main(["data", "check", path, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["rows"], report["usable"]) == (6, 2)
    assert report["refused"] == {"duplicate": 1, "malformed": 1, "contradiction": 1, "reference": 1}
    assert report["examples"]["reference"] == ["row 6: fails its own tests: test 1 fails"]
    assert report["references"] == {"pass": 1, "fail": 1}
    assert main(["data", "check", path]) == 0
    assert "2 of 6 usable" in (out := capsys.readouterr().out) and "row 5: two values" in out
    assert main(["data", "show", path, "--count", "1"]) == 0 and "---" in capsys.readouterr().out
    assert main(["data", "show", "synthetic", "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert main(["data", "list", "data.sources=[mbpp:3,synthetic]", "--json"]) == 0
    shares = {row["name"]: row["share"] for row in json.loads(capsys.readouterr().out)}
    assert shares.pop("synthetic") == 0.25 and shares.pop("mbpp") == 0.75
    assert shares == {"mbpp_sanitized": 0.0, "code_contests": 0.0, "deepcoder": 0.0}
    assert main(["data", "check", str(tmp_path / "no.jsonl")]) == 2
