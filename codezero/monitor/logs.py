"""`swarm.log` and the warnings a person sees. Foreign text in a message cannot forge a line or drive the terminal.

The file is rotated: it and its backups stay below 40 MiB. Secrets of this process are hidden in both.
"""

import json
import logging
import sys
import time
from logging.handlers import RotatingFileHandler
from pathlib import Path

from codezero.monitor.secrets import Secrets
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

    def __init__(self, pattern: str, secrets: Secrets) -> None:
        super().__init__(pattern)
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        record.asctime = self.formatTime(record)
        line = clean(self._secrets.hide(self.formatMessage(record)), MAX_MESSAGE)
        trace = self.trace(record)
        return f"{line}\n{trace}" if trace else line

    def trace(self, record: logging.LogRecord) -> str:
        """Empty when the record has no exception."""
        if not record.exc_info:
            return ""
        # Not from `record.exc_text`, where another handler may have left it as it came.
        return clean(self._secrets.hide(self.formatException(record.exc_info)), MAX_TRACEBACK, lines=True)


class JsonFormatter(CleanFormatter):
    """One JSON object a line: time (RFC 3339, UTC), level, logger, message, process, and of errors `error` and `trace`.

    `error` is the kind: what the record gives as `error_kind`, else the name of its exception's class.
    """

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry: dict[str, str | int] = {
            "time": f"{seconds}.{int(record.msecs):03}Z",
            "level": record.levelname,
            "logger": clean(record.name),
            "message": clean(self._secrets.hide(record.getMessage()), MAX_MESSAGE),
            "process": record.process or 0,
        }
        raised = record.exc_info[0] if record.exc_info else None
        kind = str(getattr(record, "error_kind", "") or (raised.__name__ if raised else ""))
        if kind:
            entry["error"] = clean(kind)
        if trace := self.trace(record):
            entry["trace"] = trace
        return json.dumps(entry, ensure_ascii=False)


class CurrentStderr(logging.StreamHandler):  # pyright: ignore[reportMissingTypeArgument]
    """Writes to what `sys.stderr` is at that moment: while a live view runs, that is the space above the view."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


class LogFile(RotatingFileHandler):
    """On a full disk a line is lost and the first loss told, in one line and without what the line said.

    `logging` would print a trace for each, with the message as it came, secrets and all.
    """

    _told = False

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._told:
            self._told = True
            print(f"codezero: {self.baseFilename} cannot be written: {error.strerror}", file=sys.stderr)


def setup_logging(folder: Path, form: str = "text", secrets: Secrets | None = None) -> list[logging.Handler]:
    """INFO and above into `folder/swarm.log` (rotated), WARNING and above also to stderr, which stays text.

    `form` is text or json; `secrets` are hidden, with those that look like one. Returns the handlers, now on the root
    logger in place of those of an earlier call.
    """
    root, secrets = logging.getLogger(), secrets or Secrets()
    for handler in [handler for handler in root.handlers if handler.get_name() == MARK]:
        root.removeHandler(handler)
        handler.close()
    folder.mkdir(parents=True, exist_ok=True)
    file = LogFile(folder / FILE_NAME, maxBytes=MAX_BYTES, backupCount=BACKUPS, encoding="utf-8")
    formatter = JsonFormatter if form == "json" else CleanFormatter
    file.setFormatter(formatter("%(asctime)s %(levelname)s %(name)s %(message)s", secrets))
    console = CurrentStderr()
    console.setLevel(logging.WARNING)
    console.setFormatter(CleanFormatter("%(levelname)s %(message)s", secrets))
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
