"""Every failure this package names.

* CodeZeroError
  - ConfigError       the run cannot start as configured
  - ModelError        a model or tokenizer cannot be loaded or does not fit its role
    - ModelChoiceError  the settings name a model or device that is not one; a ConfigError too
  - RankError         another process of this node, which computes with another card, is gone
  - ProblemError      a problem is malformed or unusable
  - ProposalError     the proposer's output broke its contract
  - EndpointError     a server that was asked did not answer as it should
  - EvaluatorError    the frozen judge could not be asked
  - AlarmError        the judge was found exploited and cannot be mended: learning on would only make it worse
  - SandboxError      the sandbox itself failed (never: the code in it failed)
  - CheckpointError   a checkpoint is missing a part or cannot be read
  - DiskFullError     there is no room left to write to
  - SwarmError        peers or the network process unreachable
    - UnreachableError  a peer, or the network as a whole, did not answer in time
    - WireError       bytes from a peer broke the schema or a bound
    - IdentityError   the identity file is missing, unreadable or exposed
  - ChainError        the coordinator refused a call or could not be reached; chain/errors.py names each refusal
    - WalletError     the account's key cannot be read, opened or used
    - InviteError     an invitation is malformed, changed, or of another swarm
  - LoginError        the page cannot be served, or the login's files cannot be used
    - HttpRefusal     a request to the page is refused, with an HTTP status
      - LockedError   the account's key is sealed
  - UnreadableError   a file of a run cannot be read
"""


class CodeZeroError(Exception):
    """Base class: catch this to catch anything raised on purpose here."""


class ConfigError(CodeZeroError, ValueError):
    """The run cannot start as configured. The message is one line that names the key and the remedy."""


class ModelError(CodeZeroError):
    """A model or tokenizer cannot be loaded, or does not fit its role."""


class ModelChoiceError(ModelError, ConfigError):
    """The settings name a model or a device that is not there or cannot play its role."""


class RankError(CodeZeroError):
    """Another process of this node, which computes with another card, is gone or does not answer. Ends the run."""


class ProblemError(CodeZeroError, ValueError):
    """A problem is malformed or unusable."""


class ProposalError(CodeZeroError, ValueError):
    """The proposer's output broke its contract."""


class EndpointError(CodeZeroError):
    """A server that was asked did not answer as it should. The message reads on after its name."""


class EvaluatorError(CodeZeroError):
    """The frozen judge could not be asked."""


class AlarmError(CodeZeroError):
    """The judge was found exploited, and calibrating it anew did not help. Ends the run."""


class SandboxError(CodeZeroError):
    """The sandbox itself failed. Code that fails *inside* it is an outcome, not an error."""


class CheckpointError(CodeZeroError):
    """A checkpoint is missing a part or cannot be read."""


class DiskFullError(CodeZeroError):
    """There is no room left to write to; what was to be written is not there in part either."""


class SwarmError(CodeZeroError):
    """Peers or the network process are unreachable."""


class UnreachableError(SwarmError):
    """A peer, or the network as a whole, did not answer in time."""


class WireError(SwarmError, ValueError):
    """Bytes from a peer broke the schema or a bound; the sender pays, nobody else."""


class IdentityError(SwarmError):
    """The identity file is missing, unreadable, or open to others."""


class ChainError(CodeZeroError):
    """The coordinator refused a call or could not be reached."""


class WalletError(ChainError):
    """The account's key cannot be read, opened or used."""


class InviteError(ChainError, ValueError):
    """An invitation is malformed, was changed after it was signed, or leads to another swarm."""


class LoginError(CodeZeroError):
    """The page cannot be served, or the login's files cannot be used."""


class HttpRefusal(LoginError):
    """A request to the page is refused. `text` is shown to the requester. retry_after: seconds."""

    def __init__(self, status: int, text: str, *, retry_after: int | None = None) -> None:
        super().__init__(text)
        self.status, self.text, self.retry_after = status, text, retry_after


class LockedError(HttpRefusal):
    """The key is sealed, and only its owner can open it."""

    def __init__(self) -> None:
        super().__init__(409, "the node's key is locked; log in at this page to unlock it")


class UnreadableError(CodeZeroError):
    """A file of a run cannot be read, now or for good. The message names it."""
