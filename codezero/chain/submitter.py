"""One sealed submission: the call that it is, and what the chain shows of it when an answer was lost."""

from functools import partial

import msgspec

from codezero.chain.contract import STAGE, ContractCoordinator
from codezero.chain.errors import ANCHORED, NOT_OPEN, REWARDED, VOTED, ChainUnreachableError, ContractError
from codezero.chain.market import BallotSheet, ContractMarket, peer_key
from codezero.chain.outbox_db import MARKET_KINDS, OutboxStore, Submission

TRY_SECONDS, MARKET_SECONDS = 15.0, 5.0
"""For one try of one submission; what was sent by then is looked at again in the next. The market's hold up points."""
UNREGISTERED = ("InvalidVoterPeerId", "NotYourPeer")


class Submitter:
    """Of one peer."""

    def __init__(
        self, store: OutboxStore, coordinator: ContractCoordinator, market: ContractMarket | None, peer: str
    ) -> None:
        self._store, self._coordinator, self._market, self._peer = store, coordinator, market, peer
        self._registered = False

    def settle(self, submission: Submission) -> str:
        """Have it accepted, or why it is refused for good; an anchor before its round waits. Raises ChainError when
        neither is so yet."""
        if not self._registered:
            self._coordinator.register(self._peer)
            self._registered = True
        try:
            if submission.kind == "anchor" and (current := self._coordinator.read_round()) != submission.round:
                if current < submission.round:
                    return ""
                raise ContractError(NOT_OPEN)
            self._store.settle(submission, "accepted", hash=self._submit(submission))
        except ContractError as error:
            if error.name in (REWARDED, VOTED, ANCHORED, NOT_OPEN) and (reason := self._find(submission)):
                # The peer is this account's, so an earlier process submitted it and was not answered.
                self._store.settle(submission, "accepted", reason=reason)
            elif error.name in (REWARDED, VOTED, ANCHORED):
                raise ChainUnreachableError("the chain contradicts itself about what was submitted already") from None
            elif error.final or (error.name == NOT_OPEN and self._coordinator.read_round() > submission.round):
                self._store.settle(submission, "refused", reason=str(error))
                late = submission.kind == "anchor" and error.name == NOT_OPEN  # its round is over: nothing is wrong
                return "" if late else f"{submission.kind} refused: {error}"
            else:
                self._registered = error.name not in UNREGISTERED
                raise
        return ""

    def _find(self, submission: Submission) -> str:
        """How the chain shows a submission that is there already; empty: it does not."""
        number = submission.round
        if submission.kind == "reward":
            reward = self._coordinator.reward_of(number, self._peer)
            values = [] if reward is None else [str(reward)]
        elif submission.kind == "vote":
            values = self._coordinator.ballot_of(number, self._peer)
        else:
            root = self._market.anchors(number).get(peer_key(self._peer)) if self._market else None
            values = [] if root is None else [root.hex()]
        if not values:
            return ""
        return "found on the chain" + ("" if values == [submission.value] else " with another value")

    def _submit(self, submission: Submission) -> str:
        """The hash of the transaction that took effect."""
        number, value = submission.round, submission.value
        match submission.kind:
            case "reward":
                name, arguments = "submitReward", (number, STAGE, int(value))
            case "vote":
                name, arguments = "submitWinners", (number, [value])
            case "anchor":
                name, arguments = "anchor", (number, bytes.fromhex(value))
            case "ballot":
                ballot = msgspec.json.decode(value, type=BallotSheet)
                name, arguments = "judge", (ballot.games, ballot.answers, ballot.shown)
        earlier, record = self._store.signed_for(submission), partial(self._store.record, submission)
        target, seconds = self._coordinator, TRY_SECONDS
        if self._market is not None and submission.kind in MARKET_KINDS:
            target, seconds = self._market, MARKET_SECONDS
        receipt = target.send(name, *arguments, self._peer, seconds=seconds, earlier=earlier, record=record)
        return receipt["transactionHash"].to_0x_hex()
