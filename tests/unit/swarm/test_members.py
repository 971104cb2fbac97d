"""Who belongs: the allow-list's mistakes, its edits while the node runs, and files made to harm. A fake clock."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import base58
import pytest
from builders.swarm import Clock, fast_identity
from hypothesis import given
from hypothesis import strategies as st

from codezero.errors import ConfigError
from codezero.swarm import identity
from codezero.swarm.identity import CHECK_SECONDS, MAX_LIST, AllowList, Members, open_to_all, peer_id_of

ALICE, BOB, CAROL = fast_identity(1).peer_id, fast_identity(2).peer_id, peer_id_of(bytes(300))


def listing(folder: Path, content: str | bytes) -> Path:
    path = folder / "peers.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def complaint(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        AllowList(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def running(folder: Path, content: str) -> tuple[AllowList, Clock, Callable[[str | bytes], None]]:
    """A list, its clock, and a way to edit the file so that the next question looks at it."""
    path, clock = listing(folder, content), Clock()
    allowed = AllowList(path, clock)

    def edit(new: str | bytes) -> None:
        before = path.stat().st_mtime_ns
        listing(folder, new)
        os.utime(path, ns=(before + 1, before + 1))
        clock.now += CHECK_SECONDS

    return allowed, clock, edit


def test_open_to_all_lets_everybody_in_who_has_a_peer_id() -> None:
    everybody: Members = open_to_all
    assert everybody(ALICE) and everybody(CAROL)
    assert not everybody("") and not everybody("x" * 10_000) and not everybody(ALICE + "\n")


def test_a_list_admits_only_whom_it_names(tmp_path: Path) -> None:
    allowed: Members = AllowList(listing(tmp_path, f"{ALICE}\n{CAROL}\n"))
    assert allowed(ALICE) and allowed(CAROL) and not allowed(BOB)


def test_comments_blank_lines_and_a_windows_editor_do_no_harm(tmp_path: Path) -> None:
    text = f"# ours\r\n\r\n  {ALICE}  # alice's laptop\r\n\t\r\n{CAROL}\r\n{CAROL}"
    allowed = AllowList(listing(tmp_path, b"\xef\xbb\xbf" + text.encode()))
    assert allowed(ALICE) and allowed(CAROL)


def test_an_empty_list_admits_nobody(tmp_path: Path) -> None:
    allowed = AllowList(listing(tmp_path, "# nobody yet\n"))
    assert not allowed(ALICE) and not allowed("")


@pytest.mark.parametrize(
    "line",
    [
        f"/ip4/10.0.0.1/tcp/38331/p2p/{ALICE}",
        f"{ALICE} {BOB}",
        "12D3KooW0000000000000000000000000000000000000000",
        CAROL[:-1],
        ALICE[:-1],
        ALICE + "1",
        "11",
        "z" * 100_000,
        base58.b58encode(b"\x12\x14" + bytes(32)).decode(),
        base58.b58encode(b"\x00\x2b" + bytes(43)).decode(),
    ],
)
def test_a_bad_line_is_named_by_file_and_number(tmp_path: Path, line: str) -> None:
    message = complaint(listing(tmp_path, f"# first\n{BOB}\n{line}\n"))
    assert message.startswith(f"{tmp_path / 'peers.txt'}, line 3: ") and "is no peer id" in message
    assert len(message) < len(str(tmp_path)) + 250


def test_a_bad_line_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    assert complaint(listing(tmp_path, b"\x1b[2J\xff\xfe\r\x00evil")).isprintable()


def test_a_missing_list_a_folder_and_a_pipe_are_told_and_do_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "cannot read the allow-list" in complaint(tmp_path / "missing.txt")
    assert "Is a directory" in complaint(tmp_path)
    assert "not a regular file" in complaint(tmp_path / "pipe")


def test_a_list_has_a_bound(tmp_path: Path) -> None:
    AllowList(listing(tmp_path, b"#" * MAX_LIST))
    assert "larger than" in complaint(listing(tmp_path, b"#" * (MAX_LIST + 1)))
    assert "not a regular file" in complaint(Path("/dev/zero"))


def test_an_edit_counts_without_a_restart(tmp_path: Path) -> None:
    allowed, _, edit = running(tmp_path, ALICE)
    edit(BOB)
    assert allowed(BOB) and not allowed(ALICE)


def test_the_file_is_looked_at_every_few_seconds_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed, clock, edit = running(tmp_path, ALICE)
    looks: list[Path] = []
    real = identity._stamp
    monkeypatch.setattr(identity, "_stamp", lambda path: looks.append(path) or real(path))
    edit(BOB)
    clock.now -= 0.01
    assert allowed(ALICE) and not looks
    clock.now += 0.01
    assert allowed(BOB)
    assert [allowed(BOB) for _ in range(1000)] and len(looks) == 1


def test_an_unchanged_file_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed, clock, _ = running(tmp_path, ALICE)
    monkeypatch.setattr(identity, "_read_list", lambda path: pytest.fail("read again"))
    clock.now += 10 * CHECK_SECONDS
    assert allowed(ALICE)


@pytest.mark.parametrize("broken", [f"{BOB}\nnonsense\n", b"#" * (MAX_LIST + 1)])
def test_a_broken_edit_keeps_the_old_list_and_warns_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: str | bytes
) -> None:
    allowed, clock, edit = running(tmp_path, ALICE)
    edit(broken)
    for _ in range(5):
        assert allowed(ALICE) and not allowed(BOB)
        clock.now += CHECK_SECONDS
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "the 1 peers named before remain" in caplog.text
    edit(BOB)
    assert allowed(BOB) and not allowed(ALICE)


def test_a_list_that_is_deleted_keeps_its_peers_until_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    allowed, clock, edit = running(tmp_path, ALICE)
    (tmp_path / "peers.txt").rename(tmp_path / "away.txt")
    for _ in range(3):
        clock.now += CHECK_SECONDS
        assert allowed(ALICE) and not allowed(BOB)
    assert len(caplog.records) == 1
    (tmp_path / "away.txt").rename(tmp_path / "peers.txt")
    edit(f"{ALICE}\n{BOB}")
    assert allowed(BOB)


def test_a_list_put_in_place_with_the_same_time_and_length_counts(tmp_path: Path) -> None:
    allowed, clock, _ = running(tmp_path, ALICE)
    old, new = (tmp_path / "peers.txt").stat(), tmp_path / "new.txt"
    new.write_text(BOB)
    os.utime(new, ns=(old.st_mtime_ns, old.st_mtime_ns))
    os.replace(new, tmp_path / "peers.txt")
    clock.now += CHECK_SECONDS
    assert allowed(BOB) and not allowed(ALICE)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_list_or_one_clear_error(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = listing(tmp_path_factory.mktemp("list"), raw)
    try:
        AllowList(path)
    except ConfigError as error:
        assert str(error).startswith(f"{path}, line ") and "\n" not in str(error)


@given(st.binary(min_size=32, max_size=400))
def test_every_peer_id_that_a_key_has_may_be_named(key: bytes) -> None:
    assert identity._is_peer_id(peer_id_of(key)) and open_to_all(peer_id_of(key))
