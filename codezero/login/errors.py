"""What a request is refused with: an HTTP status and one line that says what is wrong and how to mend it."""

from codezero.errors import LoginError


class Refusal(LoginError):
    """The request is not carried out. `text` is shown to whoever asked. retry_after: seconds."""

    def __init__(self, status: int, text: str, *, retry_after: int | None = None) -> None:
        super().__init__(text)
        self.status, self.text, self.retry_after = status, text, retry_after


class LockedError(Refusal):
    """The key is sealed, and only its owner can open it."""

    def __init__(self) -> None:
        super().__init__(409, "the node's key is locked; log in at this page to unlock it")
