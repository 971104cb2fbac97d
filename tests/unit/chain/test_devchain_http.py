"""What strangers can do to the embedded chain over HTTP: nothing, and it goes on answering."""

import json
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from builders.devchain import Client, RpcFailure, Sender
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codezero.chain.devchain_process import DevChainHandle
from codezero.chain.devchain_server import METHODS

QUIET = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
SOMEBODY = "0x" + "11" * 20
CHAIN_ID = b'{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}'
words = st.text(max_size=20) | st.sampled_from(["latest", "0x", "0x0", SOMEBODY, "0x" + "22" * 32, "0x" + "f" * 65])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with DevChainHandle(tmp_path_factory.mktemp("hostile")) as chain:
        client = Client(chain)
        Sender(client)
        yield client
        assert client.ask("eth_chainId") == hex(chain.chain_id)
        assert (chain.path / "chain.log").read_text() == ""


@pytest.mark.parametrize(
    ("header", "values", "expected"),
    [
        ("Host", ["evil.example", "127.0.0.1", "localhost:1", "127.0.0.1:{port}.evil.example", ""], (400, 403)),
        ("Host", ["127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}"], (200,)),
        ("Origin", ["http://evil.example", "null", "http://127.0.0.1", ""], (403,)),
        ("Content-Type", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", "", "json"], (415,)),
        ("Content-Type", ["application/json; charset=utf-8"], (200,)),
        ("Content-Encoding", ["gzip"], (415,)),
    ],
)
def test_a_page_and_a_foreign_host_are_refused_and_this_machine_is_served(
    client: Client, header: str, values: list[str], expected: tuple[int, ...]
) -> None:
    for value in values:
        assert client.post(CHAIN_ID, {header: value.format(port=client.port)})[0] in expected, value


@pytest.mark.parametrize("method", ["GET", "OPTIONS", "PUT", "DELETE"])
def test_only_post_is_served(client: Client, method: str) -> None:
    assert client.post(CHAIN_ID, method=method)[0] == 405


def test_two_hosts_are_refused(client: Client) -> None:
    head = head_of(client) + b"Host: evil.example\r\nContent-Length: 2\r\n\r\n[]"
    assert b" 200 " not in raw_answer(client, head)


def test_a_body_over_the_bound_is_refused(client: Client) -> None:
    assert client.post(b"[" + b" " * (1 << 20) + b"]")[0] == 413
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    assert b" 413 " in raw_answer(client, head_of(client) + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 17)


def head_of(client: Client) -> bytes:
    return f"POST / HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\nContent-Type: application/json\r\n".encode()


def raw_answer(client: Client, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", client.port), timeout=120) as connection:
        connection.sendall(request)
        return connection.recv(65536)


def test_batches_have_a_bound(client: Client) -> None:
    assert len(json.loads(client.post(b"[" + b",".join([CHAIN_ID] * 256) + b"]")[1])) == 256
    assert json.loads(client.post(b"[" + b",".join([CHAIN_ID] * 257) + b"]")[1])["error"]["code"] == -32600
    assert json.loads(client.post(b"[]")[1])["error"]["code"] == -32600


def test_one_bad_request_does_not_spoil_a_batch(client: Client) -> None:
    answers = json.loads(client.post(b"[1, " + CHAIN_ID + b', {"jsonrpc":"2.0","id":2,"method":"no"}]')[1])
    assert [answer.get("error", {}).get("code") for answer in answers] == [-32600, None, -32601]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff\xfe", b"[" * 500_000, b'{"a":' * 100_000, b"nul", b"1", b'"x"', b"[[[]]]"]
    + [b'{"jsonrpc":"2.0","id":1,"method":"eth_call","params":' + deep + b"}" for deep in (b"[" * 9, b"[" * 9**5)],
)
def test_garbage_gets_an_error(client: Client, body: bytes) -> None:
    status, answer = client.post(body)
    answers = json.loads(answer)
    answers = answers if isinstance(answers, list) else [answers]
    assert status == 200 and all(each["error"]["code"] in (-32700, -32600) for each in answers)


@pytest.mark.parametrize(
    "changes",
    [{"jsonrpc": "1.0"}, {"id": 0.5}, {"id": [1]}, {"id": 2**70}, {"id": "x" * 999}, {"method": 3},
     {"method": "x" * 65}],
)  # fmt: skip
def test_a_request_out_of_form_is_refused(client: Client, changes: dict[str, object]) -> None:
    _, answer = client.post(json.dumps(json.loads(CHAIN_ID) | changes).encode())
    assert json.loads(answer)["error"]["code"] == -32600


@pytest.mark.parametrize("method", ["eth_newFilter", "eth_newBlockFilter", "eth_getFilterChanges", "eth_subscribe"])
def test_an_absent_filter_says_what_to_use(client: Client, method: str) -> None:
    with pytest.raises(RpcFailure, match="keeps no filters; ask eth_blockNumber, and eth_getLogs") as failure:
        client.ask(method, {})
    assert failure.value.code == -32601


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("eth_getBalance", ["0x12"]), ("eth_getBalance", []), ("eth_getBalance", [SOMEBODY + "\n", "latest"]),
        ("eth_getBalance", [SOMEBODY, "latest", "more"]), ("eth_getBalance", {"address": SOMEBODY}),
        ("eth_call", [{"to": SOMEBODY, "data": "0x1"}]), ("eth_call", [{"to": SOMEBODY, "accessList": [{}]}]),
        ("eth_call", [{"to": SOMEBODY}, "latest", {SOMEBODY: {"balance": "0x1"}}]),
        ("eth_sendRawTransaction", ["0x" + "00" * (128 * 1024 + 1)]), ("eth_getLogs", [{"topics": [None] * 5}]),
        ("eth_getLogs", [{"address": [SOMEBODY] * 257}]), ("eth_getLogs", [{"fromBlock": "0x5", "toBlock": "0x1"}]),
        ("codezero_fund", ["me"]),
    ],
)  # fmt: skip
def test_parameters_out_of_form_are_refused(client: Client, method: str, params: object) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    assert json.loads(client.post(json.dumps(body).encode())[1])["error"]["code"] == -32602


@QUIET
@given(method=st.sampled_from(sorted(METHODS)), params=values)
def test_any_parameters_get_an_answer(client: Client, method: str, params: object) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    status, answer = client.post(json.dumps(body).encode())
    reply = json.loads(answer)
    assert status == 200 and ("result" in reply) != (reply.get("error", {}).get("code") in (-32602, -32000))


@QUIET
@given(raw=st.binary(max_size=200) | st.binary(max_size=60).map(lambda tail: b"\x02" + tail))
def test_any_bytes_are_no_transaction(client: Client, raw: bytes) -> None:
    with pytest.raises(RpcFailure) as failure:
        client.ask("eth_sendRawTransaction", "0x" + raw.hex())
    assert failure.value.code == -32000


@QUIET
@given(data=st.data())
def test_a_damaged_transaction_is_refused_or_somebody_elses(client: Client, data: st.DataObject) -> None:
    raw = bytearray.fromhex(SIGNED.setdefault("raw", Sender(client, fund=False).sign("0x" + "55" * 20))[2:])
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(RpcFailure) as failure:
        client.ask("eth_sendRawTransaction", "0x" + raw.hex())
    assert failure.value.code == -32000


SIGNED: dict[str, str] = {}


def test_deeply_nested_rlp_is_refused(client: Client) -> None:
    raw = b""
    while len(raw) < 60_000:
        size = len(raw)
        length = size.to_bytes(max(1, (size.bit_length() + 7) // 8))
        raw = (bytes([0xC0 + size]) if size < 56 else bytes([0xF7 + len(length)]) + length) + raw
    for kind in (b"", b"\x01", b"\x02", b"\x04"):
        with pytest.raises(RpcFailure) as failure:
            client.ask("eth_sendRawTransaction", "0x" + (kind + raw).hex())
        assert failure.value.code == -32000


def test_any_code_is_run_or_refused(client: Client) -> None:
    sender = Sender(client)

    @QUIET
    @given(code=st.binary(max_size=120))
    def run(code: bytes) -> None:
        call = {"from": sender.address, "data": "0x" + code.hex(), "gas": hex(300_000)}
        try:
            client.ask("eth_call", call, "latest")
        except RpcFailure as failure:
            assert failure.code in (-32000, 3)

    run()


@pytest.mark.slow
def test_slow_bodies_keep_nobody_waiting(client: Client) -> None:
    sender = Sender(client, fund=False)
    with ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", client.port))) for _ in range(140)]
        for connection in slow:
            connection.sendall(head_of(client) + b"Content-Length: 1048576\r\n\r\n{")
        assert int(client.ask("eth_getBalance", sender.address), 16) == 0
        assert not select.select(slow, [], [], 0)[0]
