"""What a run left behind and cannot be shown."""

from codezero.errors import CodeZeroError


class UnreadableError(CodeZeroError):
    """A file of the run cannot be read, now or for good. The message names it."""
