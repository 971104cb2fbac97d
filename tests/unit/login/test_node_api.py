"""The original's routes: what programs of this node send reaches the contract, and nothing else does."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from builders.node_api import ADDRESS, Client, Member, contract, serving
from hypothesis import given
from hypothesis import strategies as st

from codezero.chain.errors import (
    TEXTS,
    ChainUnreachableError,
    ContractError,
    InsufficientFundsError,
    UnknownOutcomeError,
)
from codezero.errors import ChainError, WalletError
from codezero.login.guard import MAX_BODY
from codezero.login.node_api import MAX_WAITING, REFUSALS

HASH = "0x" + "5a" * 32
CALLS: dict[str, dict[str, Any]] = {
    "register-peer": {"peerId": "QmX"},
    "submit-reward": {"roundNumber": 0, "stageNumber": 0, "reward": -3, "peerId": "QmX"},
    "submit-winner": {"roundNumber": 0, "winners": ["QmY"], "peerId": "QmX"},
}


class Noting:
    """Answers as it is told, and notes what it was asked."""

    def __init__(self, answer: Callable[[], str] = lambda: HASH) -> None:
        self.answer = answer
        self.asked: list[tuple[object, ...]] = []

    def __call__(self, *asked: object) -> str:
        self.asked.append(asked)
        return self.answer()


def failing(error: ChainError) -> Noting:
    def answer() -> str:
        raise error

    return Noting(answer)


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Member]]:
    with contract(tmp_path_factory.mktemp("swarm")) as found:
        yield found


@pytest.fixture(scope="module")
def noted() -> Iterator[tuple[Noting, Client]]:
    gateway = Noting()
    with serving(gateway) as client:
        yield gateway, client


def test_a_peer_registers_earns_and_votes(members: list[Member]) -> None:
    ours, contract = members[0], members[0].coordinator
    with serving(ours.transact) as client:
        status, told = client.ask("register-peer", {"peerId": "QmOurs"})
        assert (status, contract.owners(["QmOurs"])) == (200, {"QmOurs": contract.account})
        assert isinstance(told, dict) and told["hash"].startswith("0x") and len(told["hash"]) == 66
        assert client.ask("submit-reward", CALLS["submit-reward"] | {"peerId": "QmOurs"})[0] == 200
        assert contract.reward_of(0, "QmOurs") == -3
        assert client.ask("submit-winner", {"roundNumber": 0, "winners": ["QmY"], "peerId": "QmOurs"})[0] == 200
        assert contract.ballot_of(0, "QmOurs") == ["QmY"]


def test_what_the_contract_refuses_is_told_by_its_name(members: list[Member]) -> None:
    with serving(members[0].transact) as client:

        def refused(path: str, body: dict[str, object]) -> object:
            status, told = client.ask(path, body)
            assert status == 400 and isinstance(told, dict)
            return told["error"]

        assert client.ask("register-peer", {"peerId": "QmAgain"})[0] == 200
        reward, vote = CALLS["submit-reward"] | {"peerId": "QmAgain"}, CALLS["submit-winner"] | {"peerId": "QmAgain"}
        assert refused("register-peer", {"peerId": "QmAgain"}) == "PeerIdAlreadyRegistered"
        assert refused("register-peer", {"peerId": ""}) == "InvalidPeerId"
        assert [client.ask("submit-reward", reward)[0], refused("submit-reward", reward)] == [
            200,
            "RewardAlreadySubmitted",
        ]
        assert [client.ask("submit-winner", vote)[0], refused("submit-winner", vote)] == [200, "WinnerAlreadyVoted"]
        assert refused("submit-reward", reward | {"roundNumber": 9}) == "InvalidRoundNumber"
        assert refused("submit-reward", reward | {"stageNumber": 9}) == "InvalidStageNumber"
        assert refused("submit-reward", reward | {"peerId": "QmNobody"}) == "InvalidVoterPeerId"
        assert refused("submit-winner", vote | {"peerId": "QmNobody"}) == "InvalidVoterPeerId"


def test_a_peer_of_another_account_is_no_success(members: list[Member]) -> None:
    ours, theirs = members
    theirs.transact("registerPeer", "QmTheirs")
    with serving(ours.transact) as client:
        status, told = client.ask("register-peer", {"peerId": "QmTheirs"})
        assert status == 400 and isinstance(told, dict)
        assert theirs.coordinator.account in told["error"] and ours.coordinator.account in told["error"]


def test_an_invalid_vote_is_told_by_its_name(members: list[Member]) -> None:
    members[0].transact("registerPeer", "QmVoter")
    with serving(members[0].transact) as client:
        for winners in ([], ["QmVoter"], ["QmY", "QmY"]):
            status, told = client.ask("submit-winner", {"roundNumber": 0, "winners": winners, "peerId": "QmVoter"})
            assert status == 400 and isinstance(told, dict) and told["error"] == "InvalidVote"


def test_calls_made_at_once_all_take_effect(members: list[Member]) -> None:
    statuses: list[int] = []
    with serving(members[1].transact) as client:

        def register(number: int) -> None:
            statuses.append(client.ask("register-peer", {"peerId": f"QmAtOnce{number}"})[0])

        threads = [threading.Thread(target=register, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    owners = members[0].coordinator.owners([f"QmAtOnce{number}" for number in range(6)])
    assert statuses == [200] * 6 and set(owners.values()) == {members[1].coordinator.account}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ChainUnreachableError("the chain cannot be reached"), 503),
        (InsufficientFundsError("send it some"), 503),
        (UnknownOutcomeError("it was sent and not seen"), 504),
        (WalletError("nobody is logged in"), 409),
        (ContractError("Reverted", "the contract refused: no"), 400),
    ],
)
def test_other_failures_are_one_line(error: ChainError, status: int) -> None:
    with serving(failing(error)) as client:
        assert client.ask("register-peer", CALLS["register-peer"]) == (status, {"error": str(error)})


def test_each_error_of_the_contract_that_a_call_can_meet_has_its_name_here() -> None:
    elsewhere = {"InvalidBootnodeIndex", "OnlyOwner", "OnlyStageManager", "OnlyBootnodeManager", "StageOutOfBounds",
                 "InvalidInitialization", "InvalidOwner", "InvalidBootnode", "TooManyBootnodes",
                 "AlreadyAnchored", "InvalidBallot", "NotTheOpenRound", "NotYourPeer"}  # fmt: skip
    assert TEXTS.keys() == REFUSALS | elsewhere


def test_whether_somebody_is_logged_in_is_plain_text(noted: tuple[Noting, Client]) -> None:
    _, client = noted
    assert client.ask("get-api-key-status") == client.ask("get-api-key-status?orgId=any") == (200, "activated")
    with serving(Noting(), address=None) as locked:
        assert locked.ask("get-api-key-status") == (200, "pending")


def test_the_key_is_only_an_address_and_is_never_changed(noted: tuple[Noting, Client]) -> None:
    _, client = noted
    told = (200, {"publicKey": ADDRESS})
    assert client.ask("get-api-key") == client.ask("get-api-key", {"whoamiStamp": {"url": "x", "body": [1]}}) == told
    stored = {"deferredActionDigest": "0x12", "accountAddress": "0x" + "66" * 20, "initCode": "0x"}
    assert client.ask("set-api-key-activated", {"apiKey": ADDRESS, **stored}) == (200, {"activated": True})
    assert client.ask("set-api-key-activated", {"apiKey": "0x" + "66" * 20, **stored})[0] == 400
    assert client.ask("get-api-key") == told


def test_nobody_logged_in_is_a_conflict() -> None:
    with serving(Noting(), address=None) as client:
        assert client.ask("get-api-key")[0] == client.ask("set-api-key-activated", {"apiKey": ADDRESS})[0] == 409


@pytest.mark.parametrize("name", [*CALLS, "get-api-key-status", "get-api-key", "set-api-key-activated"])
@pytest.mark.parametrize(
    ("header", "status"),
    [
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer another"}, 401),
        ({"Authorization": "Basic YTpi"}, 401),
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec_Fetch_Site": "same-origin"}, 403),
    ],
)
def test_only_programs_with_the_token_are_answered(
    noted: tuple[Noting, Client], name: str, header: dict[str, str], status: int
) -> None:
    gateway, client = noted
    before = len(gateway.asked)
    body = None if name.endswith("status") else CALLS.get(name, {"apiKey": ADDRESS})
    answered, told = client.ask(name, body, **header)
    assert answered == status and isinstance(told, dict) and set(told) == {"error"}
    assert len(gateway.asked) == before


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("register-peer", {}),
        ("register-peer", {"peerId": 7}),
        ("register-peer", {"peerId": "x" * 1025}),
        ("register-peer", {"peerId": "QmX", "more": 1}),
        ("register-peer", {"peerId": "QmX", "a\nforged line": 1}),
        ("register-peer", [1]),
        ("register-peer", b"\xff\xfe"),
        ("register-peer", b"[" * 60_000),
        ("submit-reward", CALLS["submit-reward"] | {"reward": 0.5}),
        ("submit-reward", CALLS["submit-reward"] | {"reward": 1 << 63}),
        ("submit-reward", CALLS["submit-reward"] | {"roundNumber": -1}),
        ("submit-reward", CALLS["submit-reward"] | {"roundNumber": True}),
        ("submit-winner", CALLS["submit-winner"] | {"winners": "QmY"}),
        ("submit-winner", CALLS["submit-winner"] | {"winners": ["x"] * 1025}),
        ("get-api-key-status?who=me", None),
    ],
)
def test_malformed_requests_never_reach_the_chain(noted: tuple[Noting, Client], path: str, body: object) -> None:
    gateway, client = noted
    before = len(gateway.asked)
    status, told = client.ask(path, body)
    assert status == 400 and isinstance(told, dict) and "\n" not in told["error"]
    assert len(gateway.asked) == before


def test_a_body_is_json_and_bounded(noted: tuple[Noting, Client]) -> None:
    _, client = noted
    body = CALLS["register-peer"]
    assert client.ask("register-peer", body, Content_Type="text/plain")[0] == 415
    assert client.ask("register-peer", body, Content_Encoding="deflate")[0] == 415
    assert client.ask("register-peer", b" " * (MAX_BODY + 1))[0] == 413


@given(
    st.dictionaries(
        st.sampled_from(["orgId", "peerId", "roundNumber", "stageNumber", "reward", "winners"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text() | st.integers()),
    )
)
def test_whatever_is_sent_is_answered_in_form(noted: tuple[Noting, Client], body: dict[str, object]) -> None:
    gateway, client = noted
    before = len(gateway.asked)
    for path in CALLS:
        status, told = client.ask(path, body)
        assert isinstance(told, dict) and (told == {"hash": HASH} if status == 200 else set(told) == {"error"})
    for name, *arguments in gateway.asked[before:]:
        assert {"registerPeer": 1, "submitReward": 4, "submitWinners": 3}[str(name)] == len(arguments)


def test_a_crowd_is_turned_away() -> None:
    gate, entered = threading.Event(), threading.Event()

    def answer() -> str:
        entered.set()
        gate.wait()
        return HASH

    statuses: list[int] = []
    with serving(Noting(answer)) as client:

        def ask() -> None:
            statuses.append(client.ask("register-peer", CALLS["register-peer"])[0])
            if statuses[-1] == 503:
                gate.set()

        threads = [threading.Thread(target=ask) for _ in range(MAX_WAITING + 1)]
        for thread in threads:
            thread.start()
        assert entered.wait(60)
        for thread in threads:
            thread.join()
    assert sorted(statuses) == [200] * MAX_WAITING + [503]
