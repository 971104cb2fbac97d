"""A checkpoint that is not this program's, not this model's, or not plain files is refused by name.

Does not show: that the digests keep a forger out; they do not."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.solver.test_checkpoint import Counter

from codezero.errors import CheckpointError
from codezero.solver import checkpoint as manifest
from codezero.solver.checkpoint import BYTES_BESIDES, BYTES_PER_PARAMETER, FORMAT, CheckpointStore, PolicyFingerprint

KIND = PolicyFingerprint("a" * 64, {"head.weight": (4, 2), "norm.weight": (4,)})


def save(directory: Path, *iterations: int, fingerprint: PolicyFingerprint = KIND) -> None:
    store = CheckpointStore(directory, 3, fingerprint=fingerprint)
    for iteration in iterations:
        store.save(iteration, {"part": Counter(iteration)})


def restored(directory: Path, fingerprint: PolicyFingerprint = KIND) -> int:
    return CheckpointStore(directory, 3, fingerprint=fingerprint).restore({"part": Counter()})


def change(folder: Path, **fields: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def of_earlier_version(folder: Path) -> None:
    (folder / "manifest.json").write_text(json.dumps({"format": FORMAT - 1, "parts": ["part"]}, indent=1))


def cut(folder: Path) -> None:
    os.truncate(folder / "part/inner/bulk.bin", 10)


def link(name: str) -> Callable[[Path], None]:
    """What has this name in the folder, or the folder itself, moves and a link leads there."""

    def harm(folder: Path) -> None:
        Path(folder, name).rename(folder.parent / "moved")
        Path(folder, name).symlink_to(folder.parent / "moved")

    return harm


def pipe(name: str) -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return harm


def plain_file(folder: Path) -> None:
    folder.rename(folder.parent / "moved")
    folder.write_text("no folder")


HARMS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a later version": (
        lambda folder: change(folder, format=FORMAT + 1, new=[1, {"and": "unheard of"}]),
        f"manifest.json says format {FORMAT + 1}, and this program reads",
    ),
    "an earlier version": (of_earlier_version, f"manifest.json says format {FORMAT - 1}, and this program reads"),
    "another iteration": (
        lambda folder: change(folder, iteration=7),
        "manifest.json says iteration 7, and the folder is called 00000009",
    ),
    "other parts": (
        lambda folder: change(folder, parts=["part", "wings"]),
        "manifest.json says parts part, wings; this node has part",
    ),
    "another tokenizer": (
        lambda folder: change(folder, tokenizer="b" * 64),
        f"manifest.json says tokenizer {'b' * 64}; this node has {'a' * 64}",
    ),
    "another shape": (
        lambda folder: change(folder, parameters={"head.weight": [4, 3], "norm.weight": [4]}),
        "head.weight is of shape (4, 3); this model has (4, 2)",
    ),
    "other names": (
        lambda folder: change(folder, parameters={"head.weight": [4, 2], "norm.bias": [4]}),
        "norm.bias is of shape (4,); this model has none",
    ),
    "an unknown field": (
        lambda folder: change(folder, extra=1),
        "manifest.json cannot be read: Object contains unknown field `extra`",
    ),
    "deep": (lambda folder: (folder / "manifest.json").write_text("[" * 200_000), "manifest.json cannot be read"),
    "no manifest": (lambda folder: (folder / "manifest.json").unlink(), "manifest.json cannot be read"),
    "a huge manifest": (
        lambda folder: os.truncate(folder / "manifest.json", manifest.MOST_MANIFEST_BYTES + 1),
        "manifest.json cannot be read: larger than 8388608 bytes",
    ),
    "a file cut": (cut, "part/inner/bulk.bin has 10 bytes, and 160000 were written"),
    "a file swapped": (
        lambda folder: (folder / "part/inner/bulk.bin").write_bytes(b"x" * 160_000),
        "part/inner/bulk.bin is not what was written",
    ),
    "a file lost": (lambda folder: (folder / "part/value.json").unlink(), "part/value.json is missing"),
    "a file added": (
        lambda folder: (folder / "part/adapter_config.json").write_text("{}"),
        "part/adapter_config.json is not in manifest.json",
    ),
    "a link to a file": (link("part/value.json"), "part/value.json is a link"),
    "a link to a folder": (link("part/inner"), "part/inner is a link"),
    "a link of the whole": (link(""), "00000009 is a link"),
    "a link as manifest": (link("manifest.json"), "manifest.json is a link"),
    "a pipe": (pipe("part/value.json"), "part/value.json is neither a file nor a folder"),
    "a pipe as manifest": (pipe("manifest.json"), "manifest.json cannot be read"),
    "depth": (lambda folder: (folder / "part" / Path(*"abcdefghij")).mkdir(parents=True), "lies deeper than 8 folders"),
    "a plain file": (plain_file, "manifest.json cannot be read: Not a directory"),
}


@pytest.mark.parametrize("harm", HARMS)
def test_the_previous_one_is_used_and_one_warning_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: str
) -> None:
    save(tmp_path, 8, 9)
    damage, reason = HARMS[harm]
    damage(tmp_path / "00000009")
    assert restored(tmp_path) == 8
    (record,) = caplog.records
    assert record.levelname == "WARNING" and "\n" not in record.message
    assert "going on from checkpoint 00000008; refused: 00000009" in record.message and reason in record.message


@pytest.mark.parametrize("harm", [link(""), plain_file, pipe("part/value.json")])
def test_what_was_refused_is_replaced_and_what_a_link_led_to_stays(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    save(tmp_path, 8, 9)
    harm(tmp_path / "00000009")
    store = CheckpointStore(tmp_path, 1, fingerprint=KIND)
    store.flush_seconds = 0.0
    store.restore({"part": Counter()})
    store.save(9, {"part": Counter(9)})
    assert restored(tmp_path) == 9
    moved = tmp_path / "moved"
    assert not moved.exists() or (moved / "manifest.json").is_file()


def test_when_all_are_refused_the_error_says_what_to_do(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    cut(tmp_path / "00000001")
    of_earlier_version(tmp_path / "00000002")
    refusals = rf"00000002 \(.*format {FORMAT - 1}.*00000001 \(.*--fresh.*--fork RUN"
    with pytest.raises(CheckpointError, match=refusals) as caught:
        restored(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_of_a_larger_model_than_it_says_is_not_read(tmp_path: Path) -> None:
    small = PolicyFingerprint("a" * 64, {"weight": (3, 2)})
    assert small.most_bytes == 6 * BYTES_PER_PARAMETER + BYTES_BESIDES
    save(tmp_path, 1, fingerprint=small)
    bulk = tmp_path / "00000001/part/inner/bulk.bin"
    os.truncate(bulk, small.most_bytes)  # sparse: takes no room
    files = json.loads((tmp_path / "00000001/manifest.json").read_text())["files"]
    files["part/inner/bulk.bin"][0] = small.most_bytes
    change(tmp_path / "00000001", files=files)
    with pytest.raises(CheckpointError, match="one of this model can have"):
        restored(tmp_path, small)


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1)
    monkeypatch.setattr(manifest, "MOST_FILES", 2)
    for number in range(3):
        (tmp_path / f"00000001/part/{number}").write_text("")
    with pytest.raises(CheckpointError, match="more than 2 files"):
        restored(tmp_path)


def test_names_that_are_none_of_a_checkpoint_are_left_alone(tmp_path: Path) -> None:
    save(tmp_path, 3)
    for name in ("٣٣٣٣٣٣٣٣", "123", "9" * 30, "00000004.bak"):
        (tmp_path / name).mkdir()
    assert restored(tmp_path) == 3
    assert len(list(tmp_path.iterdir())) == 5
