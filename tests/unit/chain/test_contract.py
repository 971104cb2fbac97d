"""The contract through JSON-RPC: what is read, sent, refused and explained, and what a bad endpoint can do."""

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders.anvil import BACKENDS
from builders.chain import Scripted, Swarm, endpoint, found, reward_of
from eth_utils import to_checksum_address

from codezero.chain import errors
from codezero.chain.contract import LARGEST_SPAN, MAX_GAS, NOBODY, ContractCoordinator, Sender
from codezero.chain.errors import ChainUnreachableError, ContractError, RpcError, WrongChainError
from codezero.chain.provider import ChainClient
from codezero.chain.rounds import RoundWatch
from codezero.chain.wallet import KeystoreWallet
from codezero.errors import ChainError, ConfigError
from codezero.system.http_client import check_url


@pytest.fixture(scope="module", params=BACKENDS)
def swarm(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Swarm]:
    with found(tmp_path_factory.mktemp("swarm"), request.param) as swarm:
        yield swarm


@contextmanager
def refused(name: str) -> Iterator[None]:
    with pytest.raises(ContractError, match=errors.TEXTS[name]) as caught:
        yield
    assert caught.value.name == name


@pytest.fixture(scope="module")
def member(swarm: Swarm, tmp_path_factory: pytest.TempPathFactory) -> ContractCoordinator:
    return swarm.member(tmp_path_factory.mktemp("member") / "key.json")


def test_rounds_move_and_only_their_manager_moves_them(swarm: Swarm, member: ContractCoordinator) -> None:
    before = swarm.owner.read_round()
    swarm.open_round(before + 1)
    assert swarm.owner.read_round() == before + 1
    assert swarm.owner.has_role("OWNER_ROLE", swarm.owner.account)
    assert not swarm.owner.has_role("STAGE_MANAGER_ROLE", member.account)
    with refused("OnlyStageManager"):
        member.send("updateStageAndRound")


def test_a_peer_is_registered_once_and_for_all(swarm: Swarm, member: ContractCoordinator) -> None:
    member.register("QmMine")
    member.register("QmMine")
    assert member.owners(["QmMine", "QmNobody"]) == {"QmMine": member.account, "QmNobody": None}


def test_another_accounts_peer_is_refused_with_the_remedy(swarm: Swarm, member: ContractCoordinator) -> None:
    swarm.owner.register("QmSquatted")
    with pytest.raises(errors.ForeignOwnerError) as caught:
        member.register("QmSquatted")
    for word in (swarm.owner.account, member.account, "QmSquatted", "swarm.pem"):
        assert word in str(caught.value)


def test_a_reward_counts_once(swarm: Swarm, member: ContractCoordinator) -> None:
    member.register("QmReward")
    assert reward_of(member, 0, "QmReward") is None
    member.send("submitReward", 0, 0, -5, "QmReward")
    assert reward_of(member, 0, "QmReward") == -5
    with refused("RewardAlreadySubmitted"):
        member.send("submitReward", 0, 0, 7, "QmReward")
    with refused("InvalidRoundNumber"):
        member.send("submitReward", 10**6, 0, 7, "QmReward")
    with refused("InvalidVoterPeerId"):
        swarm.owner.send("submitReward", 0, 0, 7, "QmMineNot")


def test_the_contracts_own_words_arrive(member: ContractCoordinator) -> None:
    with pytest.raises(ContractError, match="Start index must be"):
        member._ask("winnerLeaderboard", 2, 1)


def test_bootnodes_are_told(swarm: Swarm, member: ContractCoordinator) -> None:
    swarm.owner.send("addBootnodes", ["/ip4/127.0.0.1/tcp/1/p2p/Qm"])
    assert member.bootnodes() == ["/ip4/127.0.0.1/tcp/1/p2p/Qm"]
    with refused("OnlyBootnodeManager"):
        member.send("addBootnodes", ["/ip4/127.0.0.1/tcp/2/p2p/Qm"])


def test_names_that_are_no_text_do_not_break_the_leaderboard(member: ContractCoordinator) -> None:
    member.register("QmOdd")
    data = bytearray(member.encode("submitWinners", 0, ["QmXYZ"], "QmOdd"))
    data[data.index(b"QmXYZ")] = 0xFF
    assert member._sender is not None
    member._sender.transact(member.contract, bytes(data), seconds=30)
    assert member._ask("getVoterVotes", 0, "QmOdd") == ["\ufffdmXYZ"]


def test_history_resumes_where_it_ended(swarm: Swarm, member: ContractCoordinator) -> None:
    pages = list(member.history(0, ["PeerRegistered"]))
    seen = [event["args"]["peerId"] for page in pages for event in page.events]
    assert len(seen) == len(set(seen)) and pages[-1].cursor == pages[-1].head + 1
    member.register("QmLater")
    later = [event for page in member.history(pages[-1].cursor, ["PeerRegistered"]) for event in page.events]
    assert [(event["event"], event["args"]) for event in later] == [
        ("PeerRegistered", {"eoa": member.account, "peerId": "QmLater"})
    ]


@pytest.mark.parametrize("limit", [10, 333, 5000, 10**6])
def test_a_scan_costs_few_requests_more_than_it_must(limit: int) -> None:
    since, blocks = 1_000_000, 150 * min(limit, 400)
    ranges: list[int] = []

    def provider(request: dict[str, Any]) -> bytes:
        search = request["params"][0] if request["method"] == "eth_getLogs" else None
        if search is None:
            return answer(request, hex(1 if request["method"] == "eth_chainId" else since + blocks - 1))
        assert int(search["fromBlock"], 16) >= since
        ranges.append(int(search["toBlock"], 16) - int(search["fromBlock"], 16) + 1)
        refused = {"id": request["id"], "error": {"code": -32600, "message": f"up to a {limit} block range"}}
        return answer(request, []) if ranges[-1] <= limit else msgspec.json.encode(refused)

    with endpoint(provider) as url:
        client = ChainClient([url], 1, since=since)
        pages = list(ContractCoordinator(client, NOBODY).history(0, ["PeerRegistered"]))
    assert pages[-1].cursor == since + blocks
    refused = sum(size > limit for size in ranges)
    best = blocks / min(limit, LARGEST_SPAN)
    assert refused <= 0.2 * best + 12, ranges
    assert len(ranges) - refused <= 1.5 * best + 20, len(ranges)


@pytest.mark.parametrize("shared", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_who_shares_an_account_does_not_get_in_anothers_way(
    swarm: Swarm, member: ContractCoordinator, shared: bool
) -> None:
    """Threads with one sender, and senders that know nothing of each other, as those of several processes."""
    assert member._sender is not None
    wallet, peers = member._sender.wallet, [f"QmShared{shared}{number}" for number in range(4)]
    others = [ContractCoordinator(swarm.client, swarm.contract, Sender(swarm.client, wallet)) for _ in peers]
    pairs = zip([member] * 4 if shared else others, peers, strict=True)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda pair: pair[0].register(pair[1]), pairs))
    assert set(member.owners(peers).values()) == {member.account}


def test_an_empty_account_is_told_so(swarm: Swarm, tmp_path: Path) -> None:
    poor = ContractCoordinator(
        swarm.client, swarm.contract, Sender(swarm.client, KeystoreWallet.ephemeral(tmp_path / "key.json"))
    )
    with pytest.raises((errors.InsufficientFundsError, RpcError), match=r"send it some|insufficient funds"):
        poor.register("QmPoor")


def test_an_address_without_a_contract_is_told_so(swarm: Swarm) -> None:
    with pytest.raises(ChainUnreachableError, match="is the contract's address right"):
        ContractCoordinator(swarm.client, "0x" + "11" * 20).read_round()
    with pytest.raises(ConfigError, match="is no address"):
        ContractCoordinator(swarm.client, "0x12")


def test_without_an_account_it_only_reads(swarm: Swarm) -> None:
    reader = ContractCoordinator(swarm.client, swarm.contract)
    assert reader.read_round() == swarm.owner.read_round()
    with pytest.raises(ChainError, match="needs an account"):
        reader.register("QmReader")


# ---- the open round, for the training loop


def test_the_open_round_is_read_in_the_background(swarm: Swarm) -> None:
    reader = ContractCoordinator(swarm.client, swarm.contract)
    assert reader.current_round() == swarm.owner.read_round()
    reader.close()
    reader.close()


def test_an_unreachable_chain_is_told_and_forgotten_when_it_is_back() -> None:
    away = threading.Event()
    away.set()

    def read() -> int:
        if away.is_set():
            raise ChainUnreachableError("gone")
        return 4

    watch = RoundWatch(read, every=0.01)
    with pytest.raises(ChainUnreachableError, match="gone"):
        watch.current()
    away.clear()
    for _ in itertools.count():  # the test's time limit ends this
        with contextlib.suppress(ChainUnreachableError):
            assert watch.current() == 4
            break
    watch.close()


def test_an_old_reading_is_not_handed_out() -> None:
    watch = RoundWatch(lambda: 1, every=60.0, stale=0.0)
    with pytest.raises(ChainUnreachableError):
        watch.current()
        watch.current()
    watch.close()


# ---- endpoints that are broken or hostile


def answer(request: dict[str, object], result: object) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request["id"], "result": result})


def honest_then(body: object) -> Callable[[dict[str, object]], object]:
    """Chain 1, then whatever."""
    return lambda request: answer(request, "0x1") if request["method"] == "eth_chainId" else body


def honest_then_result(result: object) -> Callable[[dict[str, object]], bytes]:
    return lambda request: answer(request, "0x1" if request["method"] == "eth_chainId" else result)


def endless(handler: Scripted) -> None:
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" " * 65536)
    except OSError:
        pass


def dripping(handler: Scripted) -> None:
    try:
        for _ in range(100):
            handler.wfile.write(b"H")
            threading.Event().wait(0.05)
    except OSError:
        pass


def elsewhere(handler: Scripted) -> None:
    handler.send_response(307)
    handler.send_header("Location", "http://127.0.0.1:9/")
    handler.send_header("Content-Length", "0")
    handler.end_headers()


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[]", b"{}", b'"0x1"', b"[" * 100_000, b"\xff", b'{"id":1,"result":"0x1"}',
        b'{"id":2,"result":{"a":1}}', b'{"id":2,"result":"0xzz"}', b'{"id":2,"result":5}', b'{"id":2,"error":"no"}',
        b'[{"id":2,"result":"0x1"},{"id":2,"result":"0x2"}]', None, endless, dripping, elsewhere,
    ],
)  # fmt: skip
def test_nonsense_is_an_unreachable_chain(body: object) -> None:
    with endpoint(honest_then(body)) as url:
        client = ChainClient([f"{url}/v1/api-key"], 1, seconds=1.0)
        with pytest.raises(ChainUnreachableError) as caught:
            client.eth.get_block_number()
    assert "api-key" not in str(caught.value)


@pytest.mark.parametrize(
    "result",
    [{"number": "0x1"}, {"number": "0x1", "timestamp": "0x1", "baseFeePerGas": 7}, None, "0x", hex(1 << 64)],
)
def test_a_block_of_another_shape_and_a_nonce_that_no_account_reaches_are_not_believed(result: object) -> None:
    with endpoint(honest_then_result(result)) as url:
        eth = ChainClient([url], 1, seconds=1.0).eth
        nobody = to_checksum_address(NOBODY)
        for request in (lambda: eth.get_block("latest"), lambda: eth.get_transaction_count(nobody)):
            with pytest.raises(ChainUnreachableError, match="in a form that is not known here"):
                request()


def pointing(entries: int, text: int) -> str:
    """A list whose entries all point to the same long text."""
    words = [32, entries, *[32 * entries] * entries, text]
    return "0x" + (b"".join(word.to_bytes(32) for word in words) + bytes(text)).hex()


@pytest.mark.parametrize(
    ("entries", "text", "refused"), [(1000, 64_000, True), (100_000, 1_000_000, True), (1000, 32_000, False)]
)
def test_pointers_cannot_blow_an_answer_up(entries: int, text: int, refused: bool) -> None:
    with endpoint(honest_then_result(pointing(entries, text))) as url:
        client = ChainClient([url], 1, seconds=3.0)
        coordinator = ContractCoordinator(client, "0x" + "11" * 20)
        if refused:
            with pytest.raises(ChainUnreachableError):
                coordinator.bootnodes()
        else:
            assert sum(map(len, coordinator.bootnodes())) <= 32 << 20


@pytest.mark.parametrize("raw", [b"", bytes(31), (1 << 255).to_bytes(32), bytes(32) + b"\xff" * 64])
def test_malformed_return_data_is_not_believed(raw: bytes) -> None:
    with endpoint(honest_then_result("0x" + raw.hex())) as url:
        client = ChainClient([url], 1, seconds=3.0)
        with pytest.raises(ChainUnreachableError, match="nothing or something malformed"):
            ContractCoordinator(client, "0x" + "11" * 20).bootnodes()


def test_another_chain_is_refused_and_the_next_endpoint_is_asked(swarm: Swarm) -> None:
    with endpoint(lambda request: answer(request, "0x1")) as wrong:
        client = ChainClient([wrong], swarm.chain_id, seconds=2.0)
        with pytest.raises(WrongChainError, match=f"serves chain 1, not {swarm.chain_id}"):
            client.eth.get_block_number()
        both = ChainClient([wrong, swarm.url], swarm.chain_id)
        assert ContractCoordinator(both, swarm.contract).read_round() == swarm.owner.read_round()


@pytest.mark.slow
def test_a_silent_endpoint_leaves_time_for_the_next(swarm: Swarm) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        client = ChainClient([f"http://127.0.0.1:{silent.getsockname()[1]}", swarm.url], swarm.chain_id, seconds=4.0)
        assert ContractCoordinator(client, swarm.contract).read_round() == swarm.owner.read_round()


def test_absurd_fees_are_not_signed(swarm: Swarm, tmp_path: Path) -> None:
    """An endpoint can make us pay a bounded sum, whatever it says about gas, fees and our riches."""
    wallet = KeystoreWallet.ephemeral(tmp_path / "key.json")
    block = {"number": "0x1", "timestamp": "0x1", "baseFeePerGas": hex(1 << 100)}
    results = {
        "eth_chainId": "0x1", "eth_call": "0x", "eth_estimateGas": hex(1 << 200), "eth_getTransactionCount": "0x0",
        "eth_getBalance": hex(1 << 255), "eth_getBlockByNumber": block, "eth_maxPriorityFeePerGas": "0x1",
    }  # fmt: skip
    with endpoint(lambda request: answer(request, results[str(request["method"])])) as url:
        client = ChainClient([url], 1, seconds=2.0)
        with pytest.raises(ChainUnreachableError, match="more than 2000 gwei"):
            Sender(client, wallet).transact("0x" + "11" * 20, b"", seconds=0.0)
    assert MAX_GAS < 30_000_000


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://10.0.0.1:8545", "use https"), ("http://localhost.evil.example", "use https"),
        ("http://user:secret@127.0.0.1", "no password"), ("ftp://127.0.0.1", "no http"), ("127.0.0.1:8545", "no http"),
        ("http://127.0.0.1:99999", "no http"), ("http://[::1", "no http"), ("http://127.0.0.1/\n", "no http"),
        ("", "no http"),
    ],
)  # fmt: skip
def test_addresses_that_are_not_asked(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        check_url(url, "chain.rpc_urls")
    assert "secret" not in str(caught.value)


def test_plain_http_stays_on_this_machine_unless_allowed() -> None:
    for url in ("http://127.0.0.1:1", "http://[::1]:1", "http://localhost", "https://rpc.example/key"):
        assert check_url(url, "chain.rpc_urls") == url
    assert check_url("http://chain:8545", "chain.rpc_urls", plain_http=True)
