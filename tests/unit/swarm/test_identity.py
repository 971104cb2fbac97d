"""Identities: who may read the file, what it proves, one living node of each, and who belongs to a swarm."""

import json
import logging
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import base58
import msgspec
import psutil
import pytest
from builders.swarm import Clock, eventually, fast_identity
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import given
from hypothesis import strategies as st

from codezero.cli import main
from codezero.errors import ConfigError, IdentityError
from codezero.swarm import identity
from codezero.swarm.identity import (
    CHECK_SECONDS,
    MAX_LIST,
    AllowList,
    Identity,
    Members,
    open_to_all,
    peer_id_of,
    verify,
)
from codezero.swarm.supervisor import FILE, IdentityLock, NetworkReady


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("identity") / "swarm.pem"
    Identity.load_or_create(path)
    return path


def write_ed25519(path: Path) -> ed25519.Ed25519PrivateKey:
    key = ed25519.Ed25519PrivateKey.generate()
    path.write_bytes(b"\x08\x01\x12\x40" + key.private_bytes_raw() + key.public_key().public_bytes_raw())
    path.chmod(0o600)
    return key


def test_the_same_file_is_the_same_peer(path: Path) -> None:
    assert Identity.load_or_create(path).peer_id == Identity.load(path).peer_id
    assert Identity.load(path).peer_id.startswith("Qm")


def test_only_the_owner_may_read_a_new_file(path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o400
    assert not list(path.parent.glob(".*")), "a temporary copy of the key was left behind"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
def test_an_exposed_file_is_refused_with_the_remedy(tmp_path: Path, path: Path, mode: int) -> None:
    copy = tmp_path / "swarm.pem"
    copy.write_bytes(path.read_bytes())
    copy.chmod(mode)
    with pytest.raises(IdentityError, match=f"chmod 600 {copy}"):
        Identity.load_or_create(copy)


def test_a_signature_holds_for_its_message_and_key_only(path: Path, tmp_path: Path) -> None:
    write_ed25519(tmp_path / "other.pem")
    mine, other = Identity.load(path), Identity.load(tmp_path / "other.pem")
    for signer, stranger in ((mine, other), (other, mine)):
        signature = signer.sign(b"message")
        assert verify(signer.public_key_bytes, signature, b"message")
        assert not verify(signer.public_key_bytes, signature, b"massage")
        assert not verify(stranger.public_key_bytes, signature, b"message")
        assert not verify(signer.public_key_bytes, signature[:-1], b"message")


def test_ed25519_files_are_accepted_and_name_the_key_itself(tmp_path: Path) -> None:
    key = write_ed25519(tmp_path / "swarm.pem")
    identity = Identity.load(tmp_path / "swarm.pem")
    assert identity.peer_id.startswith("12D3Koo")
    assert identity.public_key_bytes.endswith(key.public_key().public_bytes_raw())


def test_a_damaged_file_is_refused_and_kept(tmp_path: Path, path: Path) -> None:
    damaged = tmp_path / "swarm.pem"
    for content in (b"", b"\x08", path.read_bytes()[:-1], path.read_bytes() + b"x", os.urandom(9000)):
        damaged.write_bytes(content)
        damaged.chmod(0o600)
        with pytest.raises(IdentityError, match="not an identity file"):
            Identity.load_or_create(damaged)
        assert damaged.read_bytes() == content


def test_a_missing_directory_or_a_fifo_is_an_identity_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    with pytest.raises(IdentityError, match="No such file"):
        Identity.load_or_create(tmp_path / "absent" / "swarm.pem")
    with pytest.raises(IdentityError, match="not a regular file"):
        Identity.load_or_create(tmp_path / "fifo")


def test_the_key_shows_in_no_representation(path: Path) -> None:
    identity = Identity.load(path)
    assert repr(identity) == f"Identity({identity.peer_id})"


@given(st.binary(max_size=400), st.binary(max_size=600))
def test_foreign_bytes_are_never_a_valid_signature_nor_an_error(key: bytes, signature: bytes) -> None:
    assert verify(key, signature, b"message") is False


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_peer_to_peer_library_reads_the_same_peer_id(path: Path) -> None:
    from hivemind.p2p import PeerID
    from hivemind.proto import crypto_pb2

    raw = path.read_bytes()
    assert PeerID.from_identity(raw).to_base58() == Identity.load(path).peer_id
    message = crypto_pb2.PrivateKey.FromString(raw)
    assert message.SerializeToString() == raw
    assert serialization.load_der_private_key(message.data, password=None)


def test_the_commands_show_export_and_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here, there, back = (tmp_path / name for name in ("swarm.pem", "safe.pem", "back.pem"))
    peer = Identity.load_or_create(here).peer_id
    assert main(["identity", "show", "--json", f"swarm.identity={here}"]) == 0
    assert json.loads(capsys.readouterr().out)["peer_id"] == peer
    assert main(["identity", "export", str(there), f"swarm.identity={here}"]) == 0
    assert main(["identity", "import", str(there), f"swarm.identity={back}"]) == 0
    assert capsys.readouterr().out.count(peer) == 2
    Identity.load_or_create(tmp_path / "other.pem")
    assert main(["identity", "import", str(tmp_path / "other.pem"), f"swarm.identity={here}"]) == 2
    assert "never overwritten" in capsys.readouterr().err
    assert Identity.load(back).peer_id == Identity.load(here).peer_id == peer
    assert {file.stat().st_mode & 0o777 for file in (there, back)} == {0o400}


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    path = tmp_path / "swarm.pem"
    Identity.load_or_create(path)
    return path


def test_a_second_node_with_the_same_identity_is_refused_and_told_what_to_do(pem: Path) -> None:
    first, second = IdentityLock(pem, pem.parent), IdentityLock(pem, pem.parent)
    first.take()
    with pytest.raises(IdentityError, match=r"swarm\.identity=FILE"):
        second.take()
    first.release()
    second.take()
    second.release()


def test_the_identity_is_free_when_its_node_was_killed(pem: Path) -> None:
    script = f"""
import sys, time
from pathlib import Path
from codezero.swarm.supervisor import IdentityLock
lease = IdentityLock(Path({str(pem)!r}), Path({str(pem.parent)!r}))
lease.take()
print("held", flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout and holder.stdout.readline() == "held\n"
        with pytest.raises(IdentityError):
            IdentityLock(pem, pem.parent).take()
        holder.kill()
    lease = IdentityLock(pem, pem.parent)
    lease.take()
    lease.release()


def hung(folder: Path) -> tuple["subprocess.Popen[bytes]", NetworkReady]:
    """A process that looks like the daemon of a killed node, does not end on its own, and left its socket."""
    socket = folder / "hivemind-p2pd-x1.sock"
    command = [sys.executable, "-c", "import sys, time; time.sleep(600)", f"-listen=/unix{socket}"]
    os.mknod(socket, stat.S_IFSOCK | 0o600)
    process = subprocess.Popen(command)
    eventually(lambda: str(socket) in " ".join(psutil.Process(process.pid).cmdline()))
    process.send_signal(signal.SIGSTOP)
    return process, NetworkReady(addresses=[], daemon=process.pid, sockets=[str(socket)])


def test_what_a_killed_node_left_running_is_ended_at_the_next_start(tmp_path: Path, pem: Path) -> None:
    process, ready = hung(tmp_path)
    (tmp_path / FILE).write_bytes(msgspec.json.encode(ready))
    lease = IdentityLock(pem, tmp_path)
    lease.take()
    assert process.wait(120) == -signal.SIGKILL
    assert not Path(ready.sockets[0]).exists() and not (tmp_path / FILE).exists()
    lease.release()


def test_a_stranger_with_the_same_process_id_is_left_alone(tmp_path: Path, pem: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    precious = tmp_path / "precious"
    precious.write_text("not a socket")
    note = NetworkReady(
        addresses=[], daemon=stranger.pid, sockets=[str(tmp_path / "hivemind-p2pd-x2.sock"), str(precious)]
    )
    (tmp_path / FILE).write_bytes(msgspec.json.encode(note))
    lease = IdentityLock(pem, tmp_path)
    lease.take()
    lease.release()
    time.sleep(0.1)
    assert stranger.poll() is None and precious.exists()
    stranger.kill()
    stranger.wait()


@pytest.mark.parametrize("note", [b"", b"{", b"[]", b'{"type":"Stop"}', b"\xff" * 100])
def test_a_note_that_is_broken_stops_nobody(tmp_path: Path, pem: Path, note: bytes) -> None:
    (tmp_path / FILE).write_bytes(note)
    lease = IdentityLock(pem, tmp_path)
    lease.take()
    lease.release()


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


def test_comments_blank_lines_and_a_windows_editor_do_no_harm(tmp_path: Path) -> None:
    text = f"# ours\r\n\r\n  {ALICE}  # alice's laptop\r\n\t\r\n{CAROL}\r\n{CAROL}"
    allowed = AllowList(listing(tmp_path, b"\xef\xbb\xbf" + text.encode()))
    assert allowed(ALICE) and allowed(CAROL) and not allowed(BOB)


def test_an_empty_list_admits_nobody(tmp_path: Path) -> None:
    allowed = AllowList(listing(tmp_path, "# nobody yet\n"))
    assert not allowed(ALICE) and not allowed("")


@pytest.mark.parametrize("line", [
    f"/ip4/10.0.0.1/tcp/38331/p2p/{ALICE}", f"{ALICE} {BOB}", "12D3KooW0000000000000000000000000000000000000000",
    CAROL[:-1], ALICE[:-1], ALICE + "1", "11", "z" * 100_000, base58.b58encode(b"\x12\x14" + bytes(32)).decode(),
    base58.b58encode(b"\x00\x2b" + bytes(43)).decode(),
])  # fmt: skip
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


@given(st.binary(min_size=256, max_size=400) | st.binary(min_size=32, max_size=32).map(b"\x08\x01\x12\x20".__add__))
def test_every_peer_id_that_a_key_has_may_be_named(key: bytes) -> None:
    assert identity.LISTED.fullmatch(peer_id_of(key)) and open_to_all(peer_id_of(key))
