"""One identity, one living node; and what a dead one left running is ended."""

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest
from builders.swarm import eventually, started

from codezero.errors import IdentityError
from codezero.swarm.identity import Identity
from codezero.swarm.supervisor import FILE, IdentityLock, NetworkReady


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


def test_a_node_refuses_to_start_where_another_lives(tmp_path: Path) -> None:
    with started(tmp_path, "alice"), pytest.raises(IdentityError, match="in use"), started(tmp_path, "alice"):
        pass


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
