"""`codezero status --watch`: the status again and again, until somebody has seen enough."""

import signal
import sys
import time
from pathlib import Path

from rich.console import Group
from rich.live import Live

from codezero.config import NodeConfig
from codezero.errors import ConfigError
from codezero.inspection.run_files import RunFiles
from codezero.inspection.status import MAX_BYTES, Status, as_json, headline, newest_run, page, plain_line, read_run
from codezero.monitor.errors import UnreadableError
from codezero.monitor.plain import print_flushed
from codezero.monitor.terminal import terminal_console
from codezero.system.signals import Stop

LEAST_SECONDS, MOST_SECONDS = 0.2, 3600.0


def watch(config: NodeConfig, seconds: float, *, as_lines: bool) -> bool:
    """Until SIGINT or SIGTERM; True when it was SIGINT. `as_lines`: one JSON object a line.

    Raises ConfigError when there is no run to watch, and UnreadableError when its first look fails.
    """
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise ConfigError(f"--every={seconds:g} is out of bounds; it must be {LEAST_SECONDS:g} to {MOST_SECONDS:g}")
    stop, newest = Stop(), _Newest(config)
    console = None if as_lines else terminal_console()
    if console is None:
        with stop.on_signals():
            while not stop:
                told = newest.look()
                print_flushed(as_json(told) if as_lines else f"{time.strftime('%H:%M:%S')} · {plain_line(told)}")
                stop.wait(seconds)
    else:
        with stop.on_signals(), Live(console=console, auto_refresh=False) as live:
            while not stop:
                told = newest.look()
                live.update(Group(headline(told), page(told)), refresh=True)
                stop.wait(seconds)
    return stop.received is signal.SIGINT


class _Newest:
    """The run that is meant, which may be another one as time goes by. What was read once is not read again."""

    def __init__(self, config: NodeConfig) -> None:
        self._base, self._name = Path(config.run.directory), config.run.name
        self._files: RunFiles | None = None
        self._told: Status | None = None

    def look(self) -> Status:
        folder = newest_run(self._base, self._name)
        if self._files is None or self._files.folder != folder:
            self._files = RunFiles(folder, budget=MAX_BYTES)
        try:
            self._told = read_run(folder, self._files)
        except UnreadableError as error:
            if self._told is None:
                raise
            print(f"codezero: {error}", file=sys.stderr, flush=True)
        return self._told
