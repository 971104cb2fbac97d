"""The coordinator as docs/contract.md describes it, written without a look at how the contract does it."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from builders.evm import Event, account
from eth_utils import keccak

FOUNDER = account(0)
ACCOUNTS = [account(number) for number in range(5)]
ROLES = [keccak(text=name) for name in ("OWNER_ROLE", "STAGE_MANAGER_ROLE", "BOOTNODE_MANAGER_ROLE", "OTHER")]
OWNER, STAGE_MANAGER, BOOTNODE_MANAGER, _ = ROLES
NOBODY = "0x" + "00" * 20
PEERS = [*(f"QmPeer{number}" for number in range(8)), "é" * 64, "null\0byte"]
STRANGERS = ["", "x" * 129, "never registered", "QmPeer0 "]


class Refused(Exception):
    """The model's way to say no."""


def need(holds: bool, error: str) -> None:
    if not holds:
        raise Refused(error)


class Ranking:
    """Counts in descending order; who climbs changes places with the first of the lower ones."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.counts: Counter[str] = Counter()

    def add(self, peer: str) -> None:
        if peer not in self.counts:
            self.order.append(peer)
        self.counts[peer] += 1
        here = self.order.index(peer)
        there = min(
            place for place, other in enumerate(self.order) if other == peer or self.counts[other] < self.counts[peer]
        )
        self.order[here], self.order[there] = self.order[there], self.order[here]

    def page(self, start: int, end: int) -> list[Any]:
        need(start <= end, "Error")
        shown = self.order[start:end][:100]
        return [shown, [self.counts[peer] for peer in shown]]


@dataclass
class Model:
    """What docs/contract.md says."""

    roles: set[tuple[bytes, str]] = field(default_factory=lambda: {(role, FOUNDER) for role in ROLES[:3]})
    round: int = 0
    stage: int = 0
    owners: dict[str, str] = field(default_factory=dict)
    rewards: dict[tuple[int, int, str], int] = field(default_factory=dict)
    ballots: dict[tuple[int, str], list[str]] = field(default_factory=dict)
    winners: Ranking = field(default_factory=Ranking)
    voters: Ranking = field(default_factory=Ranking)
    bootnodes: list[str] = field(default_factory=list)

    def change_role(self, sender: str, name: str, role: bytes, who: str) -> list[Event]:
        need((OWNER, sender) in self.roles, "OnlyOwner")
        (self.roles.add if name == "RoleGranted" else self.roles.discard)((role, who))
        return [Event(name, {"role": role, "account": who, "sender": sender})]

    def advance(self, sender: str) -> list[Event]:
        need((STAGE_MANAGER, sender) in self.roles, "OnlyStageManager")
        self.round, self.stage = divmod(self.round * 3 + self.stage + 1, 3)
        moved = [] if self.stage else [Event("RoundAdvanced", {"newRoundNumber": self.round})]
        return [*moved, Event("StageAdvanced", {"roundNumber": self.round, "newStage": self.stage})]

    def register(self, sender: str, peer: str) -> list[Event]:
        need(1 <= len(peer.encode()) <= 128, "InvalidPeerId")
        need(peer not in self.owners, "PeerIdAlreadyRegistered")
        self.owners[peer] = sender
        return [Event("PeerRegistered", {"eoa": sender, "peerId": peer})]

    def reward(self, sender: str, round_: int, stage: int, reward: int, peer: str) -> list[Event]:
        need(round_ <= self.round, "InvalidRoundNumber")
        need(stage <= self.stage, "InvalidStageNumber")
        need((round_, stage, peer) not in self.rewards, "RewardAlreadySubmitted")
        need(self.owners.get(peer) == sender, "InvalidVoterPeerId")
        need(-(2**127) <= reward < 2**127, "InvalidReward")
        self.rewards[round_, stage, peer] = reward
        paid = {"account": sender, "roundNumber": round_, "stageNumber": stage, "reward": reward, "peerId": peer}
        total = Event("CumulativeRewardsUpdated", {"account": sender, "peerId": peer, "totalRewards": self.total(peer)})
        return [total, Event("RewardSubmitted", paid)]

    def vote(self, sender: str, round_: int, winners: list[str], peer: str) -> list[Event]:
        need(round_ <= self.round, "InvalidRoundNumber")
        need((round_, peer) not in self.ballots, "WinnerAlreadyVoted")
        need(self.owners.get(peer) == sender, "InvalidVoterPeerId")
        fit = all(1 <= len(winner.encode()) <= 128 and winner != peer for winner in winners)
        need(bool(winners) and fit and len(set(winners)) == len(winners), "InvalidVote")
        self.ballots[round_, peer] = winners
        for winner in winners:
            self.winners.add(winner)
        self.voters.add(peer)
        ballot = {"account": sender, "peerId": peer, "roundNumber": round_, "winners": winners}
        return [Event("WinnerSubmitted", ballot)]

    def bootnode(self, sender: str, name: str, argument: Any) -> list[Event]:
        need((BOOTNODE_MANAGER, sender) in self.roles, "OnlyBootnodeManager")
        if name == "clearBootnodes":
            self.bootnodes.clear()
            return [Event("AllBootnodesCleared", {"manager": sender})]
        if name == "addBootnodes":
            need(len(self.bootnodes) + len(argument) <= 64, "TooManyBootnodes")
            need(all(1 <= len(text.encode()) <= 256 for text in argument), "InvalidBootnode")
            self.bootnodes += argument
            return [Event("BootnodesAdded", {"manager": sender, "count": len(argument)})]
        need(argument < len(self.bootnodes), "InvalidBootnodeIndex")
        last = self.bootnodes.pop()
        if argument < len(self.bootnodes):
            self.bootnodes[argument] = last
        return [Event("BootnodeRemoved", {"manager": sender, "index": argument})]

    def total(self, peer: str) -> int:
        return sum(reward for (_, _, who), reward in self.rewards.items() if who == peer)

    def views(self) -> dict[tuple[Any, ...], Any]:
        """By call, what it answers."""
        peers, rounds = [*PEERS, *STRANGERS], range(self.round + 2)
        of = {who: [peer for peer, owner in self.owners.items() if owner == who] for who in ACCOUNTS}
        calls: dict[tuple[Any, ...], Any] = {
            ("currentRound",): self.round,
            ("currentStage",): self.stage,
            ("getEoa", tuple(peers)): [self.owners.get(peer, NOBODY) for peer in peers],
            ("getPeerId", tuple(ACCOUNTS)): list(of.values()),
            ("getTotalRewards", tuple(peers)): [self.total(peer) for peer in peers],
            ("getBootnodes",): self.bootnodes,
            ("getBootnodesCount",): len(self.bootnodes),
            ("uniqueVoters",): len(self.voters.order),
            ("uniqueVotedPeers",): len(self.winners.order),
            ("winnerLeaderboard", 0, 100): self.winners.page(0, 100),
            ("voterLeaderboard", 0, 100): self.voters.page(0, 100),
        }
        calls |= {("hasRole", role, who): (role, who) in self.roles for role in ROLES for who in ACCOUNTS}
        calls |= {("getTotalWins", peer): self.winners.counts[peer] for peer in peers}
        calls |= {("getVoterVoteCount", peer): self.voters.counts[peer] for peer in peers}
        for number in rounds:
            calls |= self.views_of_round(number, peers, of)
        return calls

    def views_of_round(self, number: int, peers: list[str], of: dict[str, list[str]]) -> dict[tuple[Any, ...], Any]:
        cast = Counter(winner for (when, _), ballot in self.ballots.items() if when == number for winner in ballot)
        calls: dict[tuple[Any, ...], Any] = {("getPeerVoteCount", number, peer): cast[peer] for peer in peers}
        calls |= {("getVoterVotes", number, peer): self.ballots.get((number, peer), []) for peer in peers}
        for stage in range(4):
            found = [self.rewards.get((number, stage, peer)) for peer in peers]
            by_peer = [[value is not None for value in found], [value or 0 for value in found]]
            calls["getPeerRoundStageReward", number, stage, tuple(peers)] = by_peer
            sums = [sum(self.rewards.get((number, stage, peer), 0) for peer in mine) for mine in of.values()]
            calls["getRoundStageReward", number, stage, tuple(ACCOUNTS)] = sums
            for who, mine in of.items():
                asked = ("hasSubmittedRoundStageReward", number, stage, who)
                calls[asked] = any((number, stage, peer) in self.rewards for peer in mine)
        return calls
