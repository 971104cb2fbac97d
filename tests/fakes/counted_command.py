"""Runs in the container of test_docker_fresh.py: a command that nobody attends, and what it wanted from somebody.

    python3 counted_command.py ROWS COMMAND

The command gets a session without a terminal, and a standard input that holds answers to any question: what is missing
from it at the end was read. ROWS > 0: once a run below runs/ has so many lines, all of them new, the command is told
to end by SIGTERM. The last line on stdout is JSON: exit code, characters read, lines of metrics.jsonl, output."""

import array
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

ANSWERS = b"y\n" * 1000
LOOKING_SECONDS = 0.5


def rows() -> int:
    """Lines of every run's metrics.jsonl."""
    return sum(len(path.read_bytes().splitlines()) for path in Path("runs").glob("*/metrics.jsonl"))


def waiting(pipe: int) -> int:
    """Bytes that nobody has read yet."""
    counted = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, counted)
    return counted[0]


def main() -> None:
    wanted, command = rows() + int(sys.argv[1]), sys.argv[2]
    inner, outer = os.pipe()
    os.write(outer, ANSWERS)
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            ["bash", "-c", command], stdin=inner, stdout=output, stderr=output, start_new_session=True
        )
        told = int(sys.argv[1]) == 0
        while process.poll() is None:
            if not told and rows() >= wanted:
                process.send_signal(signal.SIGTERM)
                told = True
            time.sleep(LOOKING_SECONDS)
        output.seek(0)
        said = output.read().decode(errors="replace")
    print(json.dumps({"code": process.returncode, "read": len(ANSWERS) - waiting(inner), "rows": rows(), "said": said}))


if __name__ == "__main__":
    main()
