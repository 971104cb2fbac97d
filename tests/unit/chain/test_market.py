"""The market's contract through JSON-RPC: what is anchored and cast is what is read, whatever an endpoint shows."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from builders.chain import Swarm, found
from eth_abi.abi import encode
from eth_utils.crypto import keccak
from hexbytes import HexBytes

from codezero.chain import market as chain_market
from codezero.chain.contract import MARKET, ContractCoordinator, deploy
from codezero.chain.errors import ContractError
from codezero.chain.market import VOID, BallotSheet, ContractMarket, checked_ballot, peer_key
from codezero.errors import ChainError, ConfigError

SHOWN = keccak(text="shown")


def root(text: str) -> bytes:
    return keccak(text=text)


@pytest.fixture(scope="module")
def swarm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    with found(tmp_path_factory.mktemp("swarm")) as swarm:
        yield swarm


@pytest.fixture(scope="module")
def address(swarm: Swarm) -> str:
    assert swarm.owner._sender is not None
    return deploy(swarm.owner._sender, MARKET, swarm.contract)


@pytest.fixture(scope="module")
def member(swarm: Swarm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContractCoordinator]:
    member = swarm.member(tmp_path_factory.mktemp("member") / "key.json")
    for peer in ("QmA", "QmB"):
        member.register(peer)
    yield member
    member.close()


@pytest.fixture
def market(member: ContractCoordinator, address: str) -> ContractMarket:
    """New each time: it knows of no round yet."""
    return ContractMarket(member, address)


def test_what_is_anchored_is_read_by_round(swarm: Swarm, market: ContractMarket) -> None:
    first = swarm.owner.read_round()
    market.send("anchor", first, root("a0"), "QmA")
    swarm.open_round(first + 1)
    market.send("anchor", first + 1, root("b1"), "QmB")
    market.send("anchor", first + 1, root("a1"), "QmA")
    assert market.anchors(first) == {peer_key("QmA"): root("a0")}
    assert list(market.anchors(first + 1).items()) == [(peer_key("QmB"), root("b1")), (peer_key("QmA"), root("a1"))]
    assert market.anchors(first + 2) == {}  # not open yet
    swarm.open_round(first + 2)
    assert market.anchors(first + 2) == {}


def test_refusals_have_names(swarm: Swarm, market: ContractMarket) -> None:
    now = swarm.owner.read_round()
    market.send("anchor", now, root("once"), "QmA")
    for name, arguments in (
        ("AlreadyAnchored", ("anchor", now, root("twice"), "QmA")),
        ("NotTheOpenRound", ("anchor", now + 1, root("early"), "QmA")),
        ("NotYourPeer", ("anchor", now, root("foreign"), "QmForeign")),
        ("InvalidBallot", ("judge", [], [], SHOWN, "QmA")),
    ):
        with pytest.raises(ContractError) as caught:
            market.send(*arguments)
        assert caught.value.name == name


def test_ballots_are_of_the_round_in_which_they_were_cast(swarm: Swarm, market: ContractMarket) -> None:
    now = swarm.owner.read_round() + 1
    swarm.open_round(now)
    market.send("judge", [root("g1"), root("g2")], [3, VOID], SHOWN, "QmB")
    market.send("judge", [root("g1")], [0], SHOWN, "QmA")
    swarm.open_round(now + 1)
    market.send("judge", [root("g1")], [1], SHOWN, "QmB")
    first, second = market.ballots(now, ["QmA", "QmB", "QmNobodys"])
    assert first == ("QmB", BallotSheet((root("g1"), root("g2")), (3, VOID), SHOWN))
    assert (second.peer, second.ballot.answers) == ("QmA", (0,))
    assert [cast.ballot.answers for cast in market.ballots(now + 1, ["QmA", "QmB"])] == [(1,)]
    assert [cast.peer for cast in market.ballots(now, ["QmA"])] == ["QmA"]
    assert market.ballots(now, []) == market.ballots(now, ["QmNobodys"]) == []


def test_what_a_stranger_can_fill_is_bounded(
    swarm: Swarm, market: ContractMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_market, "MOST_ANCHORS", 1)
    monkeypatch.setattr(chain_market, "MOST_BALLOTS", 2)
    now = swarm.owner.read_round() + 1
    swarm.open_round(now)
    for peer in ("QmB", "QmA"):
        market.send("anchor", now, root(peer), peer)
    for answer in range(3):
        market.send("judge", [root("g")], [answer], SHOWN, "QmA")
    market.send("judge", [root("g")], [7], SHOWN, "QmB")
    assert market.anchors(now) == {peer_key("QmB"): root("QmB")}
    assert [cast.ballot.answers for cast in market.ballots(now, ["QmA", "QmB"])] == [(0,), (1,), (7,)]
    with pytest.raises(ChainError, match="257 peers"):
        market.ballots(now, [f"Qm{number}" for number in range(257)])


def test_a_market_of_another_coordinator_is_noticed(swarm: Swarm, member: ContractCoordinator, address: str) -> None:
    ContractMarket(member, address).check()
    assert swarm.owner._sender is not None
    foreign = deploy(swarm.owner._sender, MARKET, swarm.owner.account)
    with pytest.raises(ConfigError, match="not to this swarm's"):
        ContractMarket(member, foreign).check()
    with pytest.raises(ConfigError, match=r"chain\.market='0x12' is no address"):
        ContractMarket(member, "0x12")


@pytest.mark.parametrize(
    ("games", "answers", "shown"),
    [
        ([], [], SHOWN),
        ([b"short"], [0], SHOWN),
        ([root("g")] * 33, [0] * 33, SHOWN),
        ([root("g")], [256], SHOWN),
        ([root("g")], [-1], SHOWN),
        ([root("g")] * 2, [0], SHOWN),
        ([root("g")], [0], b""),
    ],
)
def test_what_is_no_ballot_is_refused_before_it_costs_anything(
    games: list[bytes], answers: list[int], shown: bytes
) -> None:
    with pytest.raises(ChainError, match="no ballot"):
        checked_ballot(games, answers, shown)


def test_a_ballot_has_one_form_in_a_file() -> None:
    ballot = checked_ballot([root("g")], [2], SHOWN)
    raw = msgspec.json.encode(ballot, order="sorted")
    assert msgspec.json.decode(raw, type=BallotSheet) == ballot
    assert raw == msgspec.json.encode(msgspec.json.decode(raw, type=BallotSheet), order="sorted")


# ---- an endpoint that makes events up


def word(number: int) -> HexBytes:
    return HexBytes(number.to_bytes(32))


def judged(games: int, answers: int) -> HexBytes:
    types = ["bytes32[]", "uint8[]", "bytes32"]
    return HexBytes(encode(types, [[root(f"g{number}") for number in range(games)], [1] * answers, SHOWN]))


Spoil = Callable[[dict[str, Any]], None]
SPOILT: dict[str, Spoil] = {
    "of another contract": lambda log: log.update(address="0x" + 40 * "1"),
    "of another round": lambda log: log["topics"].__setitem__(2, word(10**6)),
    "of another kind": lambda log: log["topics"].__setitem__(0, HexBytes(keccak(text="Judged()"))),
    "without a topic": lambda log: log.update(topics=[]),
    "with a topic too few": lambda log: log["topics"].pop(),
    "with a topic too many": lambda log: log["topics"].append(word(1)),
    "without data": lambda log: log.update(data=HexBytes("0x")),
    "with half of its data": lambda log: log.update(data=log["data"][:16]),
    "of a block before": lambda log: log.update(blockNumber=0),
    "of a block to come": lambda log: log.update(blockNumber=10**9),
    "of a place before the round": lambda log: log.update(logIndex=-1, blockNumber=log["blockNumber"] - 1),
}


class Lying:
    """In the place of `client.eth`: answers with what was found and with spoilt copies, before and after it."""

    def __init__(self, eth: Any, topic: bytes, spoil: Callable[[dict[str, Any]], None]) -> None:
        self._eth, self._topic, self._spoil = eth, topic, spoil
        self.lies = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._eth, name)

    def get_logs(self, search: Any) -> list[Any]:
        logs = list(self._eth.get_logs(search))
        lies: list[Any] = []
        for log in logs:
            if log["topics"][0] == self._topic:
                lie = dict(log) | {"topics": list(log["topics"])}
                self._spoil(lie)
                lies.append(lie)
        self.lies += len(lies)
        return [*lies, *logs, *lies]


@pytest.mark.slow
@pytest.mark.parametrize("how", SPOILT)
def test_anchors_that_were_made_up_do_not_count(
    swarm: Swarm, market: ContractMarket, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    now = swarm.owner.read_round() + 1
    swarm.open_round(now)
    market.send("anchor", now, root("true"), "QmA")
    eth = Lying(swarm.client.eth, keccak(text="Anchored(bytes32,uint256,bytes32)"), SPOILT[how])
    monkeypatch.setattr(swarm.client, "eth", eth)
    assert market.anchors(now) == {peer_key("QmA"): root("true")}
    assert eth.lies


BALLOTS: dict[str, Spoil] = {
    "with fewer answers": lambda log: log.update(data=judged(2, 1)),
    "with too many games": lambda log: log.update(data=judged(33, 33)),
    "with no game": lambda log: log.update(data=judged(0, 0)),
    "with an answer too large": lambda log: log.update(data=judged(1, 1).replace(bytes(31) + b"\1", b"\1" * 32)),
    "of a peer that was not asked for": lambda log: log["topics"].__setitem__(1, word(7)),
    "of nonsense": lambda log: log.update(data=HexBytes(b"\xff" * 320)),
    "of a length that is not there": lambda log: log.update(data=HexBytes(log["data"][:96] + b"\x7f" * 32)),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", BALLOTS)
def test_ballots_that_were_made_up_do_not_count(
    swarm: Swarm, market: ContractMarket, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    now = swarm.owner.read_round() + 1
    swarm.open_round(now)
    market.send("judge", [root("g")], [2], SHOWN, "QmA")
    eth = Lying(swarm.client.eth, keccak(text="Judged(bytes32,bytes32[],uint8[],bytes32)"), BALLOTS[how])
    monkeypatch.setattr(swarm.client, "eth", eth)
    assert [cast.ballot.answers for cast in market.ballots(now, ["QmA"])] == [(2,)]
    assert eth.lies
