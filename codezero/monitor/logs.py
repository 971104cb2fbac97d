"""`swarm.log` and the warnings a person sees. Foreign text in a message cannot forge a line or drive the terminal."""

import logging
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path

from codezero.monitor.text import clean

FILE_NAME = "swarm.log"
MAX_BYTES = 10 << 20
"""Of one log file; with its backups a node keeps four times that."""
BACKUPS = 3
MAX_MESSAGE = 4_000
"""Characters."""
MAX_TRACEBACK = 40_000
"""Characters."""
MARK = "codezero"
"""Name of the handlers set up here, by which a second call finds them."""


class CleanFormatter(logging.Formatter):
    """One line a message; only a traceback may have more."""

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        record.asctime = self.formatTime(record)
        line = clean(self.formatMessage(record), MAX_MESSAGE)
        if not record.exc_info:
            return line
        # Not from `record.exc_text`, where another handler may have left it as it came.
        return f"{line}\n{clean(self.formatException(record.exc_info), MAX_TRACEBACK, lines=True)}"


class CurrentStderr(logging.StreamHandler):  # pyright: ignore[reportMissingTypeArgument]
    """Writes to what `sys.stderr` is at that moment: while a live view runs, that is the space above the view."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def setup_logging(folder: Path) -> list[logging.Handler]:
    """INFO and above into `folder/swarm.log` (rotated), WARNING and above also to stderr.

    Returns the handlers, now on the root logger in place of those of an earlier call.
    """
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if handler.get_name() == MARK]:
        root.removeHandler(handler)
        handler.close()
    folder.mkdir(parents=True, exist_ok=True)
    file = RotatingFileHandler(folder / FILE_NAME, maxBytes=MAX_BYTES, backupCount=BACKUPS, encoding="utf-8")
    file.setFormatter(CleanFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    console = CurrentStderr()
    console.setLevel(logging.WARNING)
    console.setFormatter(CleanFormatter("%(levelname)s %(message)s"))
    for handler in (file, console):
        handler.set_name(MARK)
        root.addHandler(handler)
    root.setLevel(logging.INFO)
    quiet_libraries()
    return [file, console]


def quiet_libraries() -> None:
    """Send libraries that write to the terminal by themselves (hivemind, transformers) through `setup_logging`'s files.

    Does nothing when `setup_logging` was not called. Libraries imported later are not covered.
    """
    root = logging.getLogger()
    if not any(handler.get_name() == MARK for handler in root.handlers):
        return
    for library in list(root.manager.loggerDict.values()):
        if not isinstance(library, logging.Logger):
            continue
        for handler in list(library.handlers):
            if type(handler) is logging.StreamHandler:  # no file handler and none of anybody's own kind
                library.removeHandler(handler)  # pyright: ignore[reportUnknownArgumentType]
                library.propagate = True
