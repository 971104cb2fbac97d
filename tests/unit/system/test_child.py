"""A child never outlives its parent, answers within its deadline or not at all, and is reaped with its last words."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing

import msgspec
import pytest
from builders.forked_runs import wait_for

from codezero.system.child import Child, how_it_ended, is_there, spawn

ECHO = """
from codezero.system import child
child.MAX_MESSAGE = 1000
channel = child.parent_channel()
while True:
    channel.send(channel.receive(str))
"""
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
FAITHFUL = "import time; from codezero.system.signals import end_with_parent; end_with_parent(); time.sleep(60)"
PARENT = f"""
import sys, time
from codezero.system.child import Child
child = Child([sys.executable, "-c", {FAITHFUL!r}])
print(child.pid, flush=True)
time.sleep(60)
"""


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def soon(seconds: float = 30.0) -> float:
    return time.monotonic() + seconds


@pytest.mark.timeout(120)
def test_no_child_survives_kill_9_of_its_parent() -> None:
    with subprocess.Popen(python(PARENT), stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_there(child)
        parent.kill()
    wait_for("the end of the child", 60, lambda: not is_there(child), every=0.05)


def test_messages_are_answered_and_the_end_of_the_channel_is_the_end_of_the_child() -> None:
    child, channel = spawn(python(ECHO), stderr=subprocess.DEVNULL)
    for text in ("one", "x" * 900):
        channel.send(text, soon())
        assert channel.receive(str, soon()) == text
    channel.close()
    assert child.wait(30) == 1  # an EOFError
    child.close()


def test_a_child_that_does_not_answer_is_left_at_the_deadline() -> None:
    child, channel = spawn(python("import time; time.sleep(60)"))
    with child, closing(channel), pytest.raises(TimeoutError):
        channel.receive(str, soon(0.05))


def test_a_message_above_the_bound_is_not_read() -> None:
    with tempfile.TemporaryFile() as errors:
        child, channel = spawn(python(ECHO), stderr=errors)
        channel.send("x" * 1001, soon())
        with closing(channel), pytest.raises(EOFError):
            channel.receive(str, soon())
        assert how_it_ended(child.wait(30), errors).startswith("ended with code 1: EOFError: a message of 1004 bytes")
        child.close()


def test_a_message_of_another_kind_is_refused() -> None:
    child, channel = spawn(python(ECHO), stderr=subprocess.DEVNULL)
    channel.send("text", soon())
    with child, closing(channel), pytest.raises(msgspec.ValidationError):
        channel.receive(int, soon())


@pytest.mark.timeout(120)
def test_who_ignores_sigterm_is_killed_and_reaped() -> None:
    child = Child(python(STUBBORN), stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"up\n"
    child.stdout.close()
    assert child.close(0.1) == child.close() == -signal.SIGKILL
    assert how_it_ended(child.returncode) == "was ended by SIGKILL"
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


def test_a_command_that_is_not_there_leaves_no_pipe_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(OSError):
            spawn(["/nonexistent"])
    assert len(os.listdir("/proc/self/fd")) == before
