"""The market's contract: anchors in the open round by the peer's account, ballots within bounds, one slot a peer."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from builders.evm import Contract, Evm, account, deployed, refused, register
from eth_utils.address import to_canonical_address
from eth_utils.crypto import keccak

from codezero.chain.contract import ARTIFACTS, MARKET, read_artifact
from codezero.chain.errors import TEXTS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "contract.md").read_text()
FOUNDER, ALICE, BOB = account(0), account(1), account(2)
PEER_A, PEER_B, PEER_C, NOBODYS = ("Qm" + letter * 44 for letter in "ABCD")
LETTER = keccak(text="root")


def digests(count: int) -> list[bytes]:
    return [keccak(text=f"game {count} {number}") for number in range(count)]


class Market:
    """A market beside a coordinator on one EVM. Alice has peers A and C, Bob has B."""

    def __init__(self) -> None:
        self.evm = Evm()
        self.coordinator = deployed(self.evm, FOUNDER)
        artifact = read_artifact(MARKET)
        code = bytes.fromhex(artifact.bytecode[2:])
        self.contract: Contract = self.evm.deploy(code, artifact.abi, FOUNDER, self.coordinator.address)
        register(self.coordinator, **{PEER_A: ALICE, PEER_B: BOB, PEER_C: ALICE})

    def next_round(self) -> None:
        for _ in range(3):
            self.coordinator.send("updateStageAndRound", sender=FOUNDER)

    def anchor(self, round_number: int, peer: str, sender: str, root: bytes = LETTER) -> Any:
        return self.contract.send("anchor", round_number, root, peer, sender=sender)

    def judge(self, count: int, sender: str = ALICE, peer: str = PEER_A, answers: int | None = None) -> Any:
        numbers = [number % 4 for number in range(count if answers is None else answers)]
        return self.contract.send("judge", digests(count), numbers, keccak(text="shown"), peer, sender=sender)

    def slots(self) -> dict[str, int]:
        """The contract's storage as it is now, by slot, where it is not zero: fixed slots and those of all peers."""
        state, address = self.evm.vm.state, to_canonical_address(self.contract.address)
        places = {str(number): number for number in range(8)}
        places |= {
            peer: int.from_bytes(keccak(keccak(text=peer) + bytes(32))) for peer in (PEER_A, PEER_B, PEER_C, NOBODYS)
        }
        return {name: value for name, slot in places.items() if (value := state.get_storage(address, slot))}


@pytest.fixture
def market() -> Market:
    return Market()


def test_the_artifact_is_of_this_source() -> None:
    source = ROOT / "contracts" / "SwarmMarket.sol"
    artifact = json.loads((ARTIFACTS / "SwarmMarket.json").read_bytes())
    assert hashlib.sha256(source.read_bytes()).hexdigest() == artifact["sourceSha256"], (
        "the contract was changed and not compiled: run `npm ci && npm run compile` in contracts/"
    )
    assert artifact["compiler"].startswith("0.8.29+")


def test_an_anchor_is_one_event_and_one_slot(market: Market) -> None:
    done = market.anchor(0, PEER_A, ALICE)
    [event] = done.events
    assert (event.name, event.args) == ("Anchored", {"peer": keccak(text=PEER_A), "round": 0, "root": LETTER})
    assert market.slots() == {PEER_A: 1}
    assert market.contract.call("anchored", PEER_A) == 1
    assert market.contract.call("anchored", PEER_B) == 0


def test_storage_is_one_slot_a_peer_however_many_rounds(market: Market) -> None:
    for number in range(5):
        market.anchor(number, PEER_A, ALICE)
        market.anchor(number, PEER_B, BOB)
        market.judge(32)
        market.next_round()
    assert market.slots() == {PEER_A: 5, PEER_B: 5}


def test_one_anchor_a_peer_and_round(market: Market) -> None:
    market.anchor(0, PEER_A, ALICE)
    for root in (LETTER, keccak(text="another")):
        refused("AlreadyAnchored", market.anchor, 0, PEER_A, ALICE, root)
    market.anchor(0, PEER_C, ALICE)  # the same account's other peer
    market.next_round()
    market.anchor(1, PEER_A, ALICE)
    refused("AlreadyAnchored", market.anchor, 1, PEER_A, ALICE)


def test_only_the_open_round_takes_anchors(market: Market) -> None:
    market.next_round()
    for number in (0, 2, 2**256 - 1):
        refused("NotTheOpenRound", market.anchor, number, PEER_A, ALICE)
    market.anchor(1, PEER_A, ALICE)


@pytest.mark.parametrize(
    ("peer", "sender"),
    [(PEER_A, BOB), (PEER_A, FOUNDER), (NOBODYS, ALICE), ("", ALICE), ("x" * 129, ALICE), (PEER_A[:-1], ALICE)],
)
def test_only_the_account_of_the_peer_speaks_for_it(market: Market, peer: str, sender: str) -> None:
    refused("NotYourPeer", market.anchor, 0, peer, sender)
    refused("NotYourPeer", market.judge, 1, sender, peer)
    assert market.slots() == {}


def test_a_ballot_is_one_event(market: Market) -> None:
    [event] = market.judge(3).events
    assert event.name == "Judged"
    assert event.args == {
        "peer": keccak(text=PEER_A), "games": digests(3), "answers": [0, 1, 2], "shown": keccak(text="shown"),
    }  # fmt: skip
    assert market.slots() == {}


@pytest.mark.parametrize(("games", "answers"), [(0, 0), (33, 33), (2, 1), (1, 2), (0, 1)])
def test_a_ballot_out_of_bounds_is_refused(market: Market, games: int, answers: int) -> None:
    refused("InvalidBallot", market.judge, games, answers=answers)


def test_an_answer_is_one_byte(market: Market) -> None:
    data = market.contract.encode("judge", digests(1), [255], LETTER, PEER_A)
    wide = data.replace((255).to_bytes(32), (256).to_bytes(32))
    done, _ = market.evm.execute(ALICE, to_canonical_address(market.contract.address), wide)
    assert wide != data and done.is_error


def test_limits_and_the_coordinator_can_be_read(market: Market) -> None:
    call = market.contract.call
    assert (call("MAX_GAMES"), call("MAX_PEER_ID_LENGTH")) == (32, 128)
    assert call("coordinator") == market.coordinator.address


def test_every_error_has_a_line_for_people_and_every_part_is_on_the_page() -> None:
    abi = read_artifact(MARKET).abi
    assert {entry["name"] for entry in abi if entry["type"] == "error"} <= TEXTS.keys()
    assert not [entry["name"] for entry in abi if "name" in entry and f"`{entry['name']}" not in PAGE]
    for entry in (entry for entry in abi if entry["type"] == "event"):
        parts = [f"{part['type']} {part['name']}{chr(92) + '*' if part['indexed'] else ''}" for part in entry["inputs"]]
        assert f"| `{entry['name']}` | {', '.join(parts)} |" in PAGE


def test_the_gas_on_the_page_is_what_it_costs(market: Market) -> None:
    assert market.contract.deployment is not None
    gas = {"deploy": market.contract.deployment.gas, "anchor, first of the peer": market.anchor(0, PEER_A, ALICE).gas}
    market.next_round()
    gas["anchor, later"] = market.anchor(1, PEER_A, ALICE).gas
    for count in (1, 8, 32):
        gas[f"judge, {count} game{'s' * (count > 1)}"] = market.judge(count).gas
    chapter = PAGE[PAGE.index("# The market contract") :]
    rows = {
        what: int(cost.replace(",", "")) for what, cost in re.findall(r"^\| ([^|]+?) \| ([\d,]+) gas \|", chapter, re.M)
    }
    assert rows.keys() == gas.keys()
    assert gas == {what: pytest.approx(cost, rel=0.01) for what, cost in rows.items()}
    print(gas)
