"""`swarm.log` and the warnings a person sees. Text of others in a message cannot forge a line or drive the terminal.

The file is rotated: it and its backups stay below 40 MiB. Passphrases, keys and tokens are hidden in both, wherever a
message has them from: what is known to be secret by its value, what only looks secret by its form. A secret that is
neither known nor looks like one is not found."""

import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterable
from logging.handlers import RotatingFileHandler
from pathlib import Path
from urllib.parse import urlsplit

from codezero.errors import CodeZeroError
from codezero.monitor.text import clean

logger = logging.getLogger(__name__)

FILE_NAME = "swarm.log"
MAX_BYTES, BACKUPS = 10 << 20, 3  # of one log file; with its backups a node keeps four times that
MAX_MESSAGE, MAX_TRACEBACK = 4_000, 40_000  # characters
MARK = "codezero"  # name of the handlers set up here
HIDDEN = "[hidden]"
# names of variables whose values are secret; and the forms of user:password@, a bearer token, a token of the hub
NAMES = re.compile(r"(KEY|TOKEN|PASSPHRASE|PASSWORD|SECRET|CREDENTIALS)\Z", re.IGNORECASE)
FORMS = (r"(?<=://)[^/\s@]{1,200}@", r"(?<=\bBearer )[\w.~+/=-]{8,}", r"\bhf_[A-Za-z0-9]{16,}")


class Secrets:
    """Values to be hidden. Nothing of them is ever shown by `repr`."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        # What is shorter than 8 characters would hide words of the language.
        known = {part for value in values for part in (value, value.strip()) if len(part) >= 8}
        longest_first = sorted(known, key=len, reverse=True)
        self._pattern = re.compile("|".join([*map(re.escape, longest_first), *FORMS]))

    def hide(self, text: str) -> str:
        return self._pattern.sub(HIDDEN, text)


def known_secrets(variables: Iterable[str] = (), files: Iterable[str] = (), addresses: Iterable[str] = ()) -> Secrets:
    """Collect those of the environment by their names, and what the settings name: variables, files, providers' URLs. A
    file that is not there or cannot be read holds nothing that could be logged."""
    named = {name for name in variables if name}
    values = [value for name, value in os.environ.items() if NAMES.search(name) or name in named]
    for file in filter(None, files):
        with contextlib.suppress(OSError), Path(file).open(encoding="utf-8", errors="replace") as stream:
            values.append(stream.read(1 << 16))
    for address in addresses:
        with contextlib.suppress(ValueError):
            parts = urlsplit(address)
            words = re.split(r"[/&=]", f"{parts.path}&{parts.query}")
            # A part as long as this is taken for the provider's key.
            values += [parts.password or "", *(word for word in words if len(word) >= 16)]
    return Secrets(values)


class CleanFormatter(logging.Formatter):
    """One line a message; only a traceback may have more."""

    def __init__(self, pattern: str, secrets: Secrets) -> None:
        super().__init__(pattern)
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        record.asctime = self.formatTime(record)
        line = clean(self._secrets.hide(self.formatMessage(record)), MAX_MESSAGE)
        if not record.exc_info:
            return line
        trace = self.formatException(record.exc_info)  # another handler may have left `exc_text` as it came
        return f"{line}\n{clean(self._secrets.hide(trace), MAX_TRACEBACK, lines=True)}"


class CurrentStderr(logging.StreamHandler):  # pyright: ignore[reportMissingTypeArgument]
    """Writes to what `sys.stderr` is at that moment: while a live view runs, that is the space above the view."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


class LogFile(RotatingFileHandler):
    """On a full disk lines are dropped; the first drop is reported once, without the line's content.

    `logging` would print a trace for each, with the message as it came, secrets and all."""

    _reported = False

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._reported:
            self._reported = True
            print(f"codezero: {self.baseFilename} cannot be written: {error.strerror}", file=sys.stderr)


def setup_logging(folder: Path, secrets: Secrets | None = None) -> list[logging.Handler]:
    """INFO and above into `folder/swarm.log` (rotated), WARNING and above also to stderr.

    `secrets` are hidden, with those that look like one. Returns the handlers, now on the root logger in place of those
    of an earlier call."""
    root, secrets = logging.getLogger(), secrets or Secrets()
    for handler in [handler for handler in root.handlers if handler.get_name() == MARK]:
        root.removeHandler(handler)
        handler.close()
    folder.mkdir(parents=True, exist_ok=True)
    file = LogFile(folder / FILE_NAME, maxBytes=MAX_BYTES, backupCount=BACKUPS, encoding="utf-8")
    file.setFormatter(CleanFormatter("%(asctime)s %(levelname)s %(name)s %(message)s", secrets))
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
    """Send what imported libraries (hivemind, transformers) write to the terminal through `setup_logging`'s handlers.
    Does nothing before `setup_logging`."""
    root = logging.getLogger()
    if not any(handler.get_name() == MARK for handler in root.handlers):
        return
    for library in [each for each in root.manager.loggerDict.values() if isinstance(each, logging.Logger)]:
        for handler in list(library.handlers):
            if type(handler) is logging.StreamHandler:  # no file handler and none of anybody's own kind
                library.removeHandler(handler)  # pyright: ignore[reportUnknownArgumentType]
                library.propagate = True


def log_survived(consequence: str, error: CodeZeroError, times: int) -> None:
    """A warning at the first of `times` and at each power of ten; the trace of the first, for the log file alone."""
    if times == 1:
        logger.warning("%s: %s", consequence, error)
        logger.info("the trace of the first %s: %s", type(error).__name__, consequence, exc_info=error)
    elif str(times).strip("0") == "1":
        logger.warning("%s: %s (%d times since the start)", consequence, error, times)
