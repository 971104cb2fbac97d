"""Files: one creator wins, also where the file system has no hard links or modes."""

import gzip
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest
from builders.data_sets import mbpp

from codezero.commands.evaluate import read_groups
from codezero.errors import DiskFullError, ProblemError, WalletError
from codezero.evals.sets import read_rows
from codezero.problems.rows import read_row
from codezero.problems.sources import open_rows
from codezero.system import files
from codezero.system.files import BYTE_ORDER_MARK, data_files, read_private, write_new


def refused(*_: object, **__: object) -> None:
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.parametrize("lacking", [[], ["link"], ["link", "fchmod"]], ids=str)
def test_of_many_creators_one_wins_and_all_read_its_content(
    lacking: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in lacking:
        monkeypatch.setattr(os, name, refused)

    def create(number: int) -> tuple[bool, bytes]:
        return write_new(tmp_path / "key", str(number).encode() * 99), read_private(tmp_path / "key", 1 << 10)

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(create, range(10, 34)))
    assert sum(won for won, _ in made) == 1 and len({content for _, content in made}) == 1
    assert os.listdir(tmp_path) == ["key"]


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(("failing", "error"), [(full, DiskFullError), (refused, WalletError)])
def test_what_cannot_be_written_leaves_nothing(
    failing: Callable[..., None], error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(error, match="cannot write"):
        write_new(tmp_path / "key", b"secret")
    assert not os.listdir(tmp_path)


ROWS = [mbpp(number) for number in range(5)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
ARRAY = json.dumps(ROWS, indent=1).encode()
DRESSES = {
    "plain.jsonl": LINES,
    "marked.jsonl": BYTE_ORDER_MARK + LINES,
    "marked_blank.jsonl": BYTE_ORDER_MARK + b"\r\n\n" + LINES,
    "packed.jsonl.gz": gzip.compress(LINES),
    "packed_marked.jsonl.gz": gzip.compress(BYTE_ORDER_MARK + LINES),
    "array.json": ARRAY,
    "array.jsonl": b"\n " + ARRAY,
    "array_marked.json.gz": gzip.compress(BYTE_ORDER_MARK + ARRAY),
    "renamed.jsonl": gzip.compress(LINES),
}
BROKEN = {
    "text.jsonl": b"one, two\n",
    "utf16.jsonl": LINES.decode().encode("utf-16"),
    "zip.jsonl": b"PK\3\4" + bytes(99),
    "torn.jsonl.gz": gzip.compress(LINES)[:-20],
    "lie.jsonl.gz": b"\x1f\x8b" + bytes(99),
    "array.json": b"[1, 2",
    "bomb.jsonl.gz": gzip.compress(b"{") + gzip.compress(bytes(1 << 20)) * 200,
    "array_bomb.json.gz": gzip.compress(b"[") + gzip.compress(b" " * (1 << 20)) * 200,
}


def training(path: Path) -> list[object]:
    source = open_rows(str(path))
    return [row for shard in source.shards() for row in source.rows(shard, 0)]


def exam(path: Path) -> list[object]:
    return [row for _, row in read_rows(data_files(path), list(ROWS[0]))]


READERS: list[Callable[[Path], list[object]]] = [training, exam]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("name", sorted(DRESSES))
def test_the_rows_are_the_same_in_every_dress(name: str, read: Callable[[Path], list[object]], tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(DRESSES[name])
    assert [json.loads(row) if isinstance(row, bytes) else row for row in read(tmp_path / name)] == ROWS


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_what_is_none_of_them_is_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(BROKEN[name])
    for read in (*READERS, lambda path: list(read_groups(path))):
        with pytest.raises(ProblemError, match=name) as error:
            read(tmp_path / name)
        assert "\n" not in str(error.value) and len(str(error.value)) < 500


@pytest.mark.parametrize("dress", [bytes, gzip.compress])
def test_what_is_no_number_in_a_field_that_is_not_used_costs_nothing(
    dress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    odd = {"rating": float("nan"), "spread": [float("-inf"), {"a": float("inf")}], "note": 'NaN \\" -Infinity'}
    rows, path = [row | odd for row in ROWS], tmp_path / "rows.jsonl"
    attempts = {"question": "q", "tests": ["assert f() == 1"], "completions": ['NaN, "Infinity\\'], **odd}
    for write in (json.dumps, lambda rows: "\n".join(map(json.dumps, rows))):
        path.write_bytes(dress(write(rows).encode()))
        assert [read_row(cast(bytes, row)).problem.question for row in training(path)] == [row["text"] for row in ROWS]
        assert exam(path) == ROWS
        path.write_bytes(dress(write([attempts]).encode()))
        assert [group.completions[0].text for group in read_groups(path)] == attempts["completions"]
    with pytest.raises(ProblemError, match=r"null.*text"):
        read_row(json.dumps(ROWS[0] | {"text": float("nan")}).encode())


@pytest.mark.parametrize("read", READERS)
def test_a_pipe_is_named(read: Callable[[Path], list[object]], tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(LINES)
    os.mkfifo(tmp_path / "z.jsonl")
    for path in (tmp_path, tmp_path / "z.jsonl"):
        with pytest.raises(ProblemError, match=r"z\.jsonl is a pipe, a device or a folder"):
            read(path)


@pytest.mark.parametrize("dress", [bytes, BYTE_ORDER_MARK.__add__, gzip.compress])
def test_attempts_are_read_in_every_dress(dress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    attempts = [{"question": "q", "tests": ["assert f() == 1"], "completions": [str(number)]} for number in range(2)]
    for text in (json.dumps(attempts), "\n".join(map(json.dumps, attempts))):
        (tmp_path / "attempts").write_bytes(dress(text.encode()))
        groups = read_groups(tmp_path / "attempts")
        assert [group.completions[0].text for group in groups] == ["0", "1"]


def test_a_large_array_asks_for_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_ARRAY", 100)
    (tmp_path / "rows.json").write_bytes(ARRAY)
    with pytest.raises(ProblemError, match="write one row a line"):
        training(tmp_path / "rows.json")
