"""Every function, event and error of the coordinator on the real EVM, and the attacks that 0.4.2 let through."""

import random
from collections import Counter

import pytest
from builders.evm import ABI, CODE, Contract, Event, Evm, Reverted, account, deployed, refused, register
from eth_utils import keccak

FOUNDER, ALICE, BOB, MALLORY = (account(number) for number in range(4))
NOBODY = "0x" + "00" * 20
A, B, C = (f"QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx{letter}N" for letter in "ABC")
OWNER, STAGES, BOOTNODES = (keccak(text=f"{name}_ROLE") for name in ("OWNER", "STAGE_MANAGER", "BOOTNODE_MANAGER"))
SLOT = int.from_bytes(keccak(text="eip1967.proxy.implementation"), "big") - 1


@pytest.fixture
def evm() -> Evm:
    return Evm()


@pytest.fixture
def swarm(evm: Evm) -> Contract:
    return deployed(evm, FOUNDER)


def test_the_constructor_gives_the_founder_every_role_and_closes_initialize(swarm: Contract) -> None:
    roles = [OWNER, STAGES, BOOTNODES]
    assert [swarm.call(f"{name}_ROLE") for name in ("OWNER", "STAGE_MANAGER", "BOOTNODE_MANAGER")] == roles
    granted = [Event("RoleGranted", {"role": role, "account": FOUNDER, "sender": FOUNDER}) for role in roles]
    assert list(swarm.deployment.events) == [*granted, Event("Initialized", {"version": 1})]
    refused("InvalidInitialization", swarm.send, "initialize", MALLORY, sender=MALLORY)


def test_a_swarm_without_owner_cannot_be_deployed(evm: Evm, swarm: Contract) -> None:
    refused("InvalidOwner", evm.deploy, CODE, ABI, FOUNDER, NOBODY)
    refused("InvalidOwner", evm.proxy(swarm, FOUNDER).send, "initialize", NOBODY, sender=FOUNDER)


def test_only_the_owner_hands_out_roles(swarm: Contract) -> None:
    refused("OnlyOwner", swarm.send, "grantRole", OWNER, MALLORY, sender=MALLORY)
    refused("OnlyOwner", swarm.send, "revokeRole", OWNER, FOUNDER, sender=MALLORY)
    change = {"role": STAGES, "account": ALICE, "sender": FOUNDER}
    assert not swarm.call("hasRole", STAGES, ALICE)
    assert swarm.send("grantRole", STAGES, ALICE, sender=FOUNDER).events == (Event("RoleGranted", change),)
    assert swarm.call("hasRole", STAGES, ALICE)
    assert swarm.send("revokeRole", STAGES, ALICE, sender=FOUNDER).events == (Event("RoleRevoked", change),)
    assert not swarm.call("hasRole", STAGES, ALICE)


def test_an_owner_who_leaves_is_gone_for_ever(swarm: Contract) -> None:
    swarm.send("revokeRole", OWNER, FOUNDER, sender=FOUNDER)
    refused("OnlyOwner", swarm.send, "grantRole", OWNER, FOUNDER, sender=FOUNDER)
    assert swarm.send("updateStageAndRound", sender=FOUNDER).result == [0, 1]


def test_stages_make_rounds(swarm: Contract) -> None:
    assert swarm.call("stageCount") == 3
    refused("OnlyStageManager", swarm.send, "updateStageAndRound", sender=MALLORY)
    for expected in ([0, 1], [0, 2], [1, 0], [1, 1]):
        receipt = swarm.send("updateStageAndRound", sender=FOUNDER)
        stage = Event("StageAdvanced", dict(zip(("roundNumber", "newStage"), expected, strict=True)))
        moved = [Event("RoundAdvanced", {"newRoundNumber": expected[0]})] if expected[1] == 0 else []
        assert (receipt.result, list(receipt.events)) == (expected, [*moved, stage])
        assert [swarm.call("currentRound"), swarm.call("currentStage")] == expected


def test_a_peer_id_belongs_to_the_first_who_names_it(swarm: Contract) -> None:
    receipt = swarm.send("registerPeer", A, sender=ALICE)
    assert receipt.events == (Event("PeerRegistered", {"eoa": ALICE, "peerId": A}),)
    for sender in (ALICE, BOB):
        refused("PeerIdAlreadyRegistered", swarm.send, "registerPeer", A, sender=sender)
    swarm.send("registerPeer", B, sender=ALICE)
    assert swarm.call("getEoa", [B, C, A, ""]) == [ALICE, NOBODY, ALICE, NOBODY]
    assert swarm.call("getPeerId", [BOB, ALICE]) == [[], [A, B]]


def test_peer_ids_are_bounded(swarm: Contract) -> None:
    longest = swarm.call("MAX_PEER_ID_LENGTH")
    for bad in ("", "x" * (longest + 1), "x" * 3000, "é" * (longest // 2 + 1)):
        refused("InvalidPeerId", swarm.send, "registerPeer", bad, sender=MALLORY)
    swarm.send("registerPeer", "x" * longest, sender=ALICE)
    assert swarm.call("getPeerId", [ALICE, MALLORY]) == [["x" * longest], []]


def test_one_account_cannot_hold_a_crowd(swarm: Contract) -> None:
    most = swarm.call("MAX_PEERS_PER_EOA")
    for number in range(most):
        swarm.send("registerPeer", f"sybil {number}", sender=MALLORY)
    refused("TooManyPeers", swarm.send, "registerPeer", "one more", sender=MALLORY)
    assert len(swarm.call("getPeerId", [MALLORY])[0]) == most
    swarm.send("registerPeer", "one more", sender=ALICE)


def test_each_peer_of_an_account_is_rewarded_once_a_stage(swarm: Contract) -> None:
    register(swarm, **{A: ALICE, B: ALICE, C: BOB})
    sent = swarm.send("submitReward", 0, 0, 5, A, sender=ALICE)
    assert sent.events == (
        Event("CumulativeRewardsUpdated", {"account": ALICE, "peerId": A, "totalRewards": 5}),
        Event("RewardSubmitted", {"account": ALICE, "roundNumber": 0, "stageNumber": 0, "reward": 5, "peerId": A}),
    )
    refused("RewardAlreadySubmitted", swarm.send, "submitReward", 0, 0, 5, A, sender=ALICE)
    swarm.send("submitReward", 0, 0, -7, B, sender=ALICE)
    assert swarm.call("getRoundStageReward", 0, 0, [BOB, ALICE]) == [0, -2]
    assert [swarm.call("hasSubmittedRoundStageReward", 0, 0, eoa) for eoa in (BOB, ALICE)] == [False, True]
    assert swarm.call("getPeerRoundStageReward", 0, 0, [A, B, C, "?"]) == [[True, True, False, False], [5, -7, 0, 0]]
    swarm.send("updateStageAndRound", sender=FOUNDER)
    swarm.send("submitReward", 0, 1, 0, A, sender=ALICE)
    assert swarm.call("getPeerRoundStageReward", 0, 1, [A]) == [[True], [0]]
    assert swarm.call("getTotalRewards", [B, A, "?"]) == [-7, 5, 0]


def test_rewards_are_checked_in_the_order_of_0_4_2(swarm: Contract) -> None:
    register(swarm, **{A: ALICE})
    swarm.send("submitReward", 0, 0, 1, A, sender=ALICE)
    refused("InvalidRoundNumber", swarm.send, "submitReward", 1, 1, 2**200, A, sender=MALLORY)
    refused("InvalidStageNumber", swarm.send, "submitReward", 0, 1, 2**200, A, sender=MALLORY)
    refused("RewardAlreadySubmitted", swarm.send, "submitReward", 0, 0, 2**200, A, sender=MALLORY)
    for peer in ("", B):
        refused("InvalidVoterPeerId", swarm.send, "submitReward", 0, 0, 2**200, peer, sender=MALLORY)
    for _ in range(3):
        swarm.send("updateStageAndRound", sender=FOUNDER)
    refused("InvalidVoterPeerId", swarm.send, "submitReward", 1, 0, 1, A, sender=MALLORY)
    refused("InvalidStageNumber", swarm.send, "submitReward", 0, 2, 1, A, sender=ALICE)
    swarm.send("submitReward", 1, 0, 1, A, sender=ALICE)


def test_no_reward_is_so_large_that_a_sum_overflows(swarm: Contract) -> None:
    """In 0.4.2 one is, and such a peer's own total blocks it for ever."""
    register(swarm, **{A: ALICE, B: ALICE})
    largest = 2**127 - 1
    for bad in (largest + 1, -largest - 2, 2**255 - 1, -(2**255)):
        refused("InvalidReward", swarm.send, "submitReward", 0, 0, bad, A, sender=ALICE)
    swarm.send("submitReward", 0, 0, largest, A, sender=ALICE)
    swarm.send("submitReward", 0, 0, largest, B, sender=ALICE)
    assert swarm.call("getRoundStageReward", 0, 0, [ALICE]) == [2 * largest]


def test_a_ballot_is_counted_everywhere(swarm: Contract) -> None:
    register(swarm, **{A: ALICE, B: BOB})
    sent = swarm.send("submitWinners", 0, [B, C], A, sender=ALICE)
    ballot = {"account": ALICE, "peerId": A, "roundNumber": 0, "winners": [B, C]}
    assert sent.events == (Event("WinnerSubmitted", ballot),)
    swarm.send("submitWinners", 0, [C], B, sender=BOB)
    assert swarm.call("getVoterVotes", 0, A) == [B, C]
    assert swarm.call("getVoterVotes", 1, A) == swarm.call("getVoterVotes", 0, C) == []
    assert [swarm.call("getPeerVoteCount", 0, peer) for peer in (A, B, C, "?")] == [0, 1, 2, 0]
    assert [swarm.call("getTotalWins", peer) for peer in (A, B, C, "?")] == [0, 1, 2, 0]
    assert [swarm.call("getVoterVoteCount", peer) for peer in (A, B, C)] == [1, 1, 0]
    assert (swarm.call("uniqueVoters"), swarm.call("uniqueVotedPeers")) == (2, 2)
    assert swarm.call("winnerLeaderboard", 0, 9) == [[C, B], [2, 1]]
    assert swarm.call("voterLeaderboard", 0, 9) == [[A, B], [1, 1]]
    swarm.send("registerPeer", C, sender=MALLORY)
    assert (swarm.call("getEoa", [C]), swarm.call("getTotalWins", C)) == ([MALLORY], 2)


def test_ballots_are_checked_in_the_order_of_0_4_2(swarm: Contract) -> None:
    register(swarm, **{A: ALICE, B: BOB})
    swarm.send("submitWinners", 0, [B], A, sender=ALICE)
    refused("InvalidRoundNumber", swarm.send, "submitWinners", 1, [], A, sender=MALLORY)
    refused("WinnerAlreadyVoted", swarm.send, "submitWinners", 0, [], A, sender=MALLORY)
    for voter in (B, C, ""):
        refused("InvalidVoterPeerId", swarm.send, "submitWinners", 0, [], voter, sender=MALLORY)
    refused("InvalidVote", swarm.send, "submitWinners", 0, [A, A], B, sender=BOB)


def test_an_empty_an_endless_and_an_own_ballot_are_no_vote(swarm: Contract) -> None:
    """In 0.4.2 four empty ballots make a vote count of 4, and one account with five peers gives itself five wins."""
    register(swarm, **{A: ALICE})
    most, longest = swarm.call("MAX_WINNERS"), swarm.call("MAX_PEER_ID_LENGTH")
    for bad in ([], [str(number) for number in range(most + 1)], [B, ""], [B, "x" * (longest + 1)], [A], [B, A]):
        refused("InvalidVote", swarm.send, "submitWinners", 0, bad, A, sender=ALICE)
    assert swarm.call("getVoterVoteCount", A) == swarm.call("uniqueVoters") == swarm.call("uniqueVotedPeers") == 0
    swarm.send("submitWinners", 0, [str(number) for number in range(most)], A, sender=ALICE)
    assert len(swarm.call("getVoterVotes", 0, A)) == most


def test_a_leaderboard_is_read_by_the_page(swarm: Contract) -> None:
    register(swarm, **{A: ALICE, B: BOB})
    names = [f"peer {number}" for number in range(104)]
    swarm.send("submitWinners", 0, names[:64], A, sender=ALICE)
    swarm.send("submitWinners", 0, names[64:], B, sender=BOB)
    page = swarm.call("MAX_LEADERBOARD_PAGE")
    assert swarm.call("winnerLeaderboard", 0, 2**256 - 1)[0] == names[:page]
    assert swarm.call("winnerLeaderboard", page, 1000)[0] == names[page:]
    for start, end in ((0, 0), (500, 900), (2**256 - 1, 2**256 - 1)):
        assert swarm.call("winnerLeaderboard", start, end) == [[], []]
    reason = "Start index must be less than or equal to end index"
    for board in ("winnerLeaderboard", "voterLeaderboard"):
        assert refused("Error", swarm.call, board, 2, 1) == (reason,)


class Ranking:
    """Counts in descending order; who climbs changes places with the first of the lower ones."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.counts: Counter[str] = Counter()

    def add(self, peer: str) -> None:
        if peer not in self.counts:
            self.order.append(peer)
        self.counts[peer] += 1
        here, lower = self.order.index(peer), self.counts[peer]
        there = next(at for at, other in enumerate(self.order) if other == peer or self.counts[other] < lower)
        self.order[here], self.order[there] = self.order[there], self.order[here]

    def page(self) -> list[object]:
        return [self.order, [self.counts[peer] for peer in self.order]]


def test_the_boards_stay_sorted_vote_by_vote(swarm: Contract) -> None:
    chance, winners, voters = random.Random(1), Ranking(), Ranking()
    names = [f"voter {number}" for number in range(6)]
    register(swarm, **{name: account(number) for number, name in enumerate(names)})
    for round_number in range(12):
        for number in sorted(chance.sample(range(6), 4)):
            chosen = chance.sample([f"winner {letter}" for letter in "ABCDEFGH"], chance.randint(1, 3))
            swarm.send("submitWinners", round_number, chosen, names[number], sender=account(number))
            for winner in chosen:
                winners.add(winner)
            voters.add(names[number])
            assert swarm.call("winnerLeaderboard", 0, 100) == winners.page()
            assert swarm.call("voterLeaderboard", 0, 100) == voters.page()
        for _ in range(3):
            swarm.send("updateStageAndRound", sender=FOUNDER)


def test_a_vote_costs_the_same_however_many_peers_there_are(swarm: Contract) -> None:
    """In 0.4.2 it rises to 745,268 gas for one winner, and to 9.38 million for fifty."""
    register(swarm, **{A: ALICE, B: BOB})
    costs = []
    for round_number in range(4):
        names = [f"peer {number}" for number in range(round_number * 40, round_number * 40 + 40)]
        swarm.send("submitWinners", round_number, [*names, C], A, sender=ALICE)
        costs.append(swarm.send("submitWinners", round_number, [C], B, sender=BOB).gas)
        for _ in range(3):
            swarm.send("updateStageAndRound", sender=FOUNDER)
    assert max(costs[1:]) <= 150_000
    assert max(costs[1:]) - min(costs[1:]) <= 30_000


def test_bootnodes_are_kept_by_their_manager(swarm: Contract) -> None:
    names = [f"/ip4/203.0.113.{number}/tcp/38331/p2p/{A}" for number in range(4)]
    for name, args in (("addBootnodes", [names]), ("removeBootnode", [0]), ("clearBootnodes", [])):
        refused("OnlyBootnodeManager", swarm.send, name, *args, sender=MALLORY)
    added = swarm.send("addBootnodes", names, sender=FOUNDER)
    assert added.events == (Event("BootnodesAdded", {"manager": FOUNDER, "count": 4}),)
    removed = swarm.send("removeBootnode", 1, sender=FOUNDER)
    assert removed.events == (Event("BootnodeRemoved", {"manager": FOUNDER, "index": 1}),)
    assert swarm.call("getBootnodes") == [names[0], names[3], names[2]]
    refused("InvalidBootnodeIndex", swarm.send, "removeBootnode", 3, sender=FOUNDER)
    for index, left in ((1, [names[0], names[2]]), (1, [names[0]])):  # the last but one, the last
        assert swarm.send("removeBootnode", index, sender=FOUNDER) and swarm.call("getBootnodes") == left
    cleared = swarm.send("clearBootnodes", sender=FOUNDER)
    assert cleared.events == (Event("AllBootnodesCleared", {"manager": FOUNDER}),)
    assert swarm.call("getBootnodesCount") == 0


def test_bootnodes_are_bounded(swarm: Contract) -> None:
    longest, most = swarm.call("MAX_BOOTNODE_LENGTH"), swarm.call("MAX_BOOTNODES")
    for bad in ("", "x" * (longest + 1)):
        refused("InvalidBootnode", swarm.send, "addBootnodes", ["x", bad], sender=FOUNDER)
    swarm.send("addBootnodes", ["x" * longest], sender=FOUNDER)
    refused("TooManyBootnodes", swarm.send, "addBootnodes", ["x"] * most, sender=FOUNDER)
    swarm.send("addBootnodes", ["x"] * (most - 1), sender=FOUNDER)
    assert swarm.call("getBootnodesCount") == most


def test_without_a_proxy_nobody_changes_the_rules(evm: Evm, swarm: Contract) -> None:
    assert swarm.call("UPGRADE_INTERFACE_VERSION") == "5.0.0"
    assert int.from_bytes(swarm.call("proxiableUUID"), "big") == SLOT
    other = deployed(evm, FOUNDER).address
    for sender in (FOUNDER, MALLORY):
        refused("UUPSUnauthorizedCallContext", swarm.send, "upgradeToAndCall", other, b"", sender=sender)


def behind_proxy(evm: Evm, swarm: Contract) -> Contract:
    proxy = evm.proxy(swarm, FOUNDER)
    assert not proxy.call("hasRole", OWNER, FOUNDER)
    with pytest.raises(Reverted):
        proxy.send("registerPeer", A, sender=MALLORY)
    proxy.send("initialize", ALICE, sender=FOUNDER)
    refused("InvalidInitialization", proxy.send, "initialize", MALLORY, sender=MALLORY)
    return proxy


def test_behind_a_proxy_the_owner_upgrades_and_the_state_stays(evm: Evm, swarm: Contract) -> None:
    proxy, other = behind_proxy(evm, swarm), deployed(evm, FOUNDER)
    register(proxy, **{A: BOB})
    refused("UUPSUnauthorizedCallContext", proxy.call, "proxiableUUID")
    refused("OnlyOwner", proxy.send, "upgradeToAndCall", other.address, b"", sender=MALLORY)
    grant = proxy.encode("grantRole", STAGES, BOB)
    events = proxy.send("upgradeToAndCall", other.address, grant, sender=ALICE).events
    granted = Event("RoleGranted", {"role": STAGES, "account": BOB, "sender": ALICE})
    assert events == (Event("Upgraded", {"implementation": other.address}), granted)
    assert proxy.call("getEoa", [A]) == [BOB]
    proxy.send("upgradeToAndCall", swarm.address, b"", sender=ALICE)


def test_an_upgrade_to_what_is_no_coordinator_is_refused(evm: Evm, swarm: Contract) -> None:
    proxy, uuid = behind_proxy(evm, swarm), SLOT.to_bytes(32, "big")
    wrong = evm.deploy_runtime(b"\x7f" + bytes(31) + b"\x01" + bytes.fromhex("60005260206000f3"), FOUNDER)
    right_but_mute = evm.deploy_runtime(  # answers a bare selector only
        bytes.fromhex("36600414600b57600080fd5b7f") + uuid + bytes.fromhex("60005260206000f3"), FOUNDER
    )

    def upgrade(to: str, data: bytes = b"", value: int = 0) -> None:
        proxy.send("upgradeToAndCall", to, data, sender=ALICE, value=value)

    assert refused("ERC1967InvalidImplementation", upgrade, MALLORY) == (MALLORY,)
    assert refused("UUPSUnsupportedProxiableUUID", upgrade, wrong) == (bytes(31) + b"\x01",)
    refused("FailedCall", upgrade, right_but_mute, bytes(5))
    refused("ERC1967NonPayable", upgrade, deployed(evm, FOUNDER).address, value=1)
    refused("InvalidInitialization", upgrade, deployed(evm, FOUNDER).address, proxy.encode("initialize", ALICE))
    assert proxy.call("hasRole", OWNER, ALICE)
