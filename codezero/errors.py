"""Every failure that this package names: one tree below CodeZeroError; chain/errors.py has the contract's refusals."""

from collections.abc import Generator
from contextlib import contextmanager


class CodeZeroError(Exception):
    """Base class: catch this to catch anything raised on purpose here."""


class ConfigError(CodeZeroError, ValueError):
    """The run cannot start as configured. The message is one line that names the key and the remedy."""


class ModelError(CodeZeroError):
    """A model or tokenizer cannot be loaded, or does not fit its role."""


class ModelChoiceError(ModelError, ConfigError):
    """The settings name a model or a device that is not there or cannot play its role."""


class RankError(CodeZeroError):
    """A process of the trainer is gone. The node goes on from its newest checkpoint with new ones."""


class RankMemoryError(RankError):
    """A pass of a rank did not fit its memory."""


class ProblemError(CodeZeroError, ValueError):
    """A problem is malformed or unusable."""


class ProposalError(CodeZeroError, ValueError):
    """The proposer's output broke its contract."""


class OwnCodeError(CodeZeroError):
    """Code of the user's own left, or failed too often: the run ends. The message names the setting and the place."""


class FailedRunError(CodeZeroError):
    """The run reached its end, and nothing came of any of its iterations."""


class EndpointError(CodeZeroError):
    """An HTTP endpoint did not answer as it should. The message continues its name."""


class EvaluatorError(CodeZeroError):
    """The frozen judge did not answer."""


class AlarmError(CodeZeroError):
    """The policy exploits the judge, and a new calibration did not help. Ends the run: learning on would harm."""


class SandboxError(CodeZeroError):
    """The sandbox itself failed. Code that fails *inside* it is an outcome, not an error."""


class CheckpointError(CodeZeroError):
    """A checkpoint is missing a part or cannot be read."""


class WeightsError(CodeZeroError, ValueError):
    """Published weights, or a change of them, are broken or of another model; nothing was touched."""


class RolloutError(CodeZeroError):
    """No rollout server could decode a group in time, or one cannot be started."""


class DiskFullError(CodeZeroError):
    """The disk is full; nothing was written in part."""


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


class MarketError(CodeZeroError):
    """A market's file cannot be used, or what a player posted broke a rule."""


class InviteError(ChainError, ValueError):
    """An invitation is malformed, was changed after it was signed, or leads to another swarm."""


class LoginError(CodeZeroError):
    """The page cannot be served, or the login's files cannot be used."""


class HttpRefusal(LoginError):
    """A request to the page is refused. `text` is shown to the requester. retry_after: seconds."""

    def __init__(self, status: int, text: str, *, retry_after: int | None = None) -> None:
        super().__init__(text)
        self.status, self.text, self.retry_after = status, text, retry_after


class UnreadableError(CodeZeroError):
    """A file of a run cannot be read, now or for good. The message names it."""


@contextmanager
def translated(
    kind: type[CodeZeroError], what: str, *causes: type[Exception], mend: str = "", reason: bool = True
) -> Generator[None]:
    """Raise `kind` for any of `causes` in the block: what failed, the cause's own words and the mend.

    reason: False where the cause's words say nothing more."""
    try:
        yield
    except causes as error:
        words = f": {getattr(error, 'strerror', None) or error}" if reason else ""
        raise kind(f"{what}{words}{mend and f'; {mend}'}") from error
