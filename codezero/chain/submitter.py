"""One sealed submission: the call that it is, and what the chain shows of it when an answer was lost."""

from functools import partial

from codezero.chain.contract import STAGE, ContractCoordinator
from codezero.chain.errors import REWARDED, VOTED, ChainUnreachableError, ContractError
from codezero.chain.outbox_db import OutboxStore, Submission

TRY_SECONDS = 15.0
"""For one try of one submission; what was sent by then is looked at again in the next."""
UNREGISTERED = "InvalidVoterPeerId"


class Submitter:
    """Of one peer."""

    def __init__(self, store: OutboxStore, coordinator: ContractCoordinator, peer: str) -> None:
        self._store, self._coordinator, self._peer = store, coordinator, peer
        self._registered = False

    def settle(self, submission: Submission) -> str:
        """Have it accepted, or say why it is refused for good. Raises ChainError when neither is so yet."""
        if not self._registered:
            self._coordinator.register(self._peer)
            self._registered = True
        try:
            self._store.settle(submission, "accepted", hash=self._submit(submission))
        except ContractError as error:
            if error.name in (REWARDED, VOTED) and (reason := self._find(submission)):
                # The peer is this account's, so an earlier process submitted it and was not answered.
                self._store.settle(submission, "accepted", reason=reason)
            elif error.name in (REWARDED, VOTED):
                raise ChainUnreachableError("the chain contradicts itself about what was submitted already") from None
            elif error.final:
                self._store.settle(submission, "refused", reason=str(error))
                return f"{submission.kind} refused: {error}"
            else:
                self._registered = error.name != UNREGISTERED
                raise
        return ""

    def _find(self, submission: Submission) -> str:
        """How the chain shows a submission that is there already; empty: it does not."""
        number = submission.round
        if submission.kind == "reward":
            reward = self._coordinator.reward_of(number, self._peer)
            values = [] if reward is None else [str(reward)]
        else:
            values = self._coordinator.ballot_of(number, self._peer)
        if not values:
            return ""
        return "found on the chain" + ("" if values == [submission.value] else " with another value")

    def _submit(self, submission: Submission) -> str:
        """The hash of the transaction that took effect."""
        number, value = submission.round, submission.value
        if submission.kind == "reward":
            name, arguments = "submitReward", (number, STAGE, int(value))
        else:
            name, arguments = "submitWinners", (number, [value])
        earlier, record = self._store.signed_for(submission), partial(self._store.record, submission)
        receipt = self._coordinator.send(
            name, *arguments, self._peer, seconds=TRY_SECONDS, earlier=earlier, record=record
        )
        return receipt["transactionHash"].to_0x_hex()
