"""Random operations on the coordinator and on a model of it: answers, errors, events and every view agree.

Most operations are made to be accepted, because a contract that refuses everything would agree with any model on the
rest. The limits on how many (peers, winners, bootnodes) and the second page of a leaderboard are in `test_contract.py`.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from builders.evm import Event, Evm, Reverted, account, deployed
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from oracles.contract_model import ACCOUNTS, FOUNDER, PEERS, ROLES, STRANGERS, Model, Ranking, Refused

REWARDS = st.one_of(st.integers(-50, 50), st.sampled_from([2**127 - 1, -(2**127)]))
BAD_REWARDS = st.sampled_from([2**127, -(2**127) - 1, 2**255 - 1, -(2**255)])


class Comparison(RuleBasedStateMachine):
    """The same operation on both; they must say the same."""

    seen: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.swarm = deployed(Evm(), FOUNDER)
        self.model = Model()

    def both(self, sender: str, name: str, args: tuple[Any, ...], expected: Callable[[], list[Event]]) -> None:
        try:
            events, refusal = expected(), None
        except Refused as refused:
            events, refusal = [], str(refused)
        try:
            receipt = self.swarm.send(name, *args, sender=sender)
        except Reverted as reverted:
            assert (reverted.name, refusal) == (refusal, reverted.name)
        else:
            assert refusal is None and list(receipt.events) == events
            assert receipt.result == ([self.model.round, self.model.stage] if name == "updateStageAndRound" else None)
        self.seen[refusal or "accepted"] += 1

    def owned(self) -> st.SearchStrategy[tuple[str, str]]:
        return st.sampled_from(sorted(self.model.owners.items()))

    @rule(data=st.data(), sender=st.sampled_from(ACCOUNTS))
    def register(self, data: st.DataObject, sender: str) -> None:
        peer = data.draw(st.sampled_from([peer for peer in PEERS if peer not in self.model.owners] or PEERS))
        self.both(sender, "registerPeer", (peer,), lambda: self.model.register(sender, peer))

    @precondition(lambda self: self.model.owners)
    @rule(data=st.data(), reward=REWARDS)
    def reward(self, data: st.DataObject, reward: int) -> None:
        peer, sender = data.draw(self.owned())
        when = [(a, b) for a in range(self.model.round + 1) for b in range(self.model.stage + 1)]
        open_ = [(a, b) for a, b in when if (a, b, peer) not in self.model.rewards]
        at = (*data.draw(st.sampled_from(open_ or when)), reward, peer)
        self.both(sender, "submitReward", at, lambda: self.model.reward(sender, *at))

    @precondition(lambda self: self.model.owners)
    @rule(data=st.data())
    def vote(self, data: st.DataObject) -> None:
        peer, sender = data.draw(self.owned())
        others = [other for other in [*PEERS[:6], STRANGERS[-1]] if other != peer]  # few, so that they climb
        winners = data.draw(st.lists(st.sampled_from(others), min_size=1, max_size=4, unique=True))
        ballot = (data.draw(st.integers(0, self.model.round)), winners, peer)
        self.both(sender, "submitWinners", ballot, lambda: self.model.vote(sender, *ballot))
        assert self.swarm.call("winnerLeaderboard", 0, 100) == self.model.winners.page(0, 100)

    @rule(sender=st.sampled_from([FOUNDER] * 7 + ACCOUNTS[1:2]))
    def advance(self, sender: str) -> None:
        self.both(sender, "updateStageAndRound", (), lambda: self.model.advance(sender))

    @rule(added=st.lists(st.text(min_size=1, max_size=60), max_size=3))
    def add_bootnodes(self, added: list[str]) -> None:
        self.both(FOUNDER, "addBootnodes", (added,), lambda: self.model.bootnode(FOUNDER, "addBootnodes", added))

    @rule(sender=st.sampled_from([FOUNDER] * 7 + ACCOUNTS[1:2]), back=st.integers(0, 4), clear=st.booleans())
    def drop_bootnodes(self, sender: str, back: int, clear: bool) -> None:
        index = max(0, len(self.model.bootnodes) - back)
        name, args = ("clearBootnodes", ()) if clear else ("removeBootnode", (index,))
        self.both(sender, name, args, lambda: self.model.bootnode(sender, name, index))

    @rule(sender=st.sampled_from([FOUNDER] * 7 + ACCOUNTS[1:2]), role=st.sampled_from(ROLES), data=st.data())
    def change_role(self, sender: str, role: bytes, data: st.DataObject) -> None:
        who, grant = data.draw(st.sampled_from(ACCOUNTS)), data.draw(st.booleans())
        name, event = ("grantRole", "RoleGranted") if grant or who == FOUNDER else ("revokeRole", "RoleRevoked")
        self.both(sender, name, (role, who), lambda: self.model.change_role(sender, event, role, who))

    @rule(data=st.data(), sender=st.sampled_from(ACCOUNTS), peer=st.sampled_from([*PEERS, *STRANGERS]))
    def anything(self, data: st.DataObject, sender: str, peer: str) -> None:
        """Mostly refused."""
        number, stage = data.draw(st.integers(0, self.model.round + 1)), data.draw(st.integers(0, 3))
        what = data.draw(st.sampled_from(["register", "reward", "vote", "owned reward", "owned vote"]))
        if what.startswith("owned") and self.model.owners:
            peer, sender = data.draw(self.owned())
        if what == "register":
            self.both(sender, "registerPeer", (peer,), lambda: self.model.register(sender, peer))
        elif what.endswith("reward"):
            at = (number, stage, data.draw(st.one_of(REWARDS, BAD_REWARDS)), peer)
            self.both(sender, "submitReward", at, lambda: self.model.reward(sender, *at))
        else:
            ballot = (number, data.draw(st.lists(st.sampled_from([*PEERS[:3], *STRANGERS]), max_size=3)), peer)
            self.both(sender, "submitWinners", ballot, lambda: self.model.vote(sender, *ballot))

    @rule(start=st.integers(0, 12), end=st.integers(0, 12), board=st.sampled_from(["winner", "voter"]))
    def read_a_page(self, start: int, end: int, board: str) -> None:
        ranking = self.model.winners if board == "winner" else self.model.voters
        try:
            expected = ranking.page(start, end)
        except Refused:
            with pytest.raises(Reverted):
                self.swarm.call(f"{board}Leaderboard", start, end)
        else:
            assert self.swarm.call(f"{board}Leaderboard", start, end) == expected

    def teardown(self) -> None:
        for (name, *args), expected in self.model.views().items():
            assert self.swarm.call(name, *args) == expected, (name, args)


def compare(operations: int, steps: int) -> None:
    Comparison.seen.clear()
    while (left := operations - Comparison.seen.total()) > 0:
        chosen = settings(
            max_examples=left // steps + 2,  # the first is always trivial
            stateful_step_count=steps,
            phases=[Phase.generate],  # shrinking would outlast the time limit and hide what was found
            suppress_health_check=list(HealthCheck),
            database=None,
        )
        run_state_machine_as_test(Comparison, settings=chosen)
    print(dict(Comparison.seen))
    assert Comparison.seen["accepted"] > 0.4 * Comparison.seen.total()


def test_the_boards_stay_sorted_vote_by_vote() -> None:
    swarm, chance, winners, voters = deployed(Evm(), FOUNDER), random.Random(1), Ranking(), Ranking()
    names = [f"voter {number}" for number in range(6)]
    for number, name in enumerate(names):
        swarm.send("registerPeer", name, sender=account(number))
    for round_number in range(12):
        for number in sorted(chance.sample(range(6), 4)):
            chosen = chance.sample([f"winner {letter}" for letter in "ABCDEFGH"], chance.randint(1, 3))
            swarm.send("submitWinners", round_number, chosen, names[number], sender=account(number))
            for winner in chosen:
                winners.add(winner)
            voters.add(names[number])
            assert swarm.call("winnerLeaderboard", 0, 100) == winners.page(0, 100)
            assert swarm.call("voterLeaderboard", 0, 100) == voters.page(0, 100)
        for _ in range(3):
            swarm.send("updateStageAndRound", sender=FOUNDER)


def test_the_contract_does_what_the_model_does() -> None:
    compare(operations=200, steps=60)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_thousand_operations_agree() -> None:
    compare(operations=2000, steps=100)
