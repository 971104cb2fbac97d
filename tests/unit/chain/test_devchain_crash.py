"""The embedded chain's process: killed at any moment, shared, alone, started twice, and left behind by its parent."""

import itertools
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from builders.devchain import WRITE, Client, RpcFailure, Sender, argument, write_in_parallel
from builders.swarm import eventually

from codezero.chain.devchain import DATABASE, FAUCET_KEY
from codezero.chain.devchain_process import ENDPOINT, DevChainHandle
from codezero.errors import ChainError

pytestmark = pytest.mark.slow
HOLD = """
import sys, time
from pathlib import Path
from codezero.chain.devchain_process import DevChainHandle
handle = DevChainHandle(Path(sys.argv[1]))
print(handle.endpoint.pid, flush=True)
time.sleep(600)
"""


def kill(handle: DevChainHandle) -> None:
    os.kill(handle.endpoint.pid, signal.SIGKILL)
    eventually(lambda: not psutil.pid_exists(handle.endpoint.pid))


def command(path: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "codezero", "chain", "dev", "--data", str(path), *options]


def test_kill_9_in_a_burst_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    chance = random.Random(5)
    with DevChainHandle(tmp_path) as chain:
        senders = [Sender(Client(chain)) for _ in range(3)]
        tiny = senders[0].deploy_tiny()
        url = chain.url
        for _ in range(4):
            batches = [
                [sender.sign(tiny, WRITE + argument(n), nonce=sender.nonce() + n) for n in range(8)]
                for sender in senders
            ]
            writers = write_in_parallel(senders[0].client, batches)
            time.sleep(chance.uniform(0.05, 0.4))
            kill(chain)
            acknowledged = [tx_hash for writer in writers for tx_hash in writer.result()]
            with closing(sqlite3.connect(tmp_path / DATABASE)) as database:
                assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert chain.revive() == url  # on the same port, so that clients find it
            ask = senders[0].client.ask
            assert all(ask("eth_getTransactionReceipt", tx_hash)["status"] == "0x1" for tx_hash in acknowledged)
            assert_whole(chain)


def assert_whole(chain: DevChainHandle) -> None:
    """Every block has its parent, its transaction and its events, and every account its nonce."""
    ask = Client(chain).ask
    last = int(ask("eth_blockNumber"), 16)
    blocks = [ask("eth_getBlockByNumber", hex(number), True) for number in range(last + 1)]
    sent: dict[str, int] = {}
    for parent, block in itertools.pairwise(blocks):
        assert block["parentHash"] == parent["hash"]
        (tx,) = block["transactions"]
        assert tx["nonce"] == hex(sent.get(tx["from"], 0))
        sent[tx["from"]] = sent.get(tx["from"], 0) + 1
        assert ask("eth_getTransactionReceipt", tx["hash"])["logs"] == ask("eth_getLogs", {"blockHash": block["hash"]})
    for address, nonce in sent.items():
        assert int(ask("eth_getTransactionCount", address, "latest"), 16) == nonce


def test_killed_at_birth_it_begins_anew(tmp_path: Path) -> None:
    chance = random.Random(6)
    for _ in range(2):
        with DevChainHandle(tmp_path) as chain:
            time.sleep(chance.uniform(0, 0.5))
            kill(chain)
    with DevChainHandle(tmp_path) as chain:
        assert Sender(Client(chain)).send("0x" + "55" * 20)["status"] == "0x1"


def test_its_parents_kill_9_leaves_no_orphan(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout as lines:
        pid = int(lines.readline())
        assert psutil.pid_exists(pid)
        parent.kill()
        parent.wait()
    eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def test_it_stays_while_anybody_uses_it(tmp_path: Path) -> None:
    first = DevChainHandle(tmp_path)
    second = DevChainHandle(tmp_path)
    assert (first.endpoint.pid, first.url, first.chain_id) == (second.endpoint.pid, second.url, second.chain_id)
    first.close()
    time.sleep(1)
    assert second.endpoint.answers()
    second.close()
    second.close()
    eventually(lambda: not psutil.pid_exists(second.endpoint.pid))
    assert not second.endpoint.answers()


def test_ten_callers_at_once_share_one_process(tmp_path: Path) -> None:
    with ThreadPoolExecutor(10) as pool:
        handles = list(pool.map(DevChainHandle, [tmp_path] * 10))
    assert len({handle.endpoint.pid for handle in handles}) == 1
    for handle in handles:
        handle.close()


def test_another_program_on_its_old_port_is_not_taken_for_it(tmp_path: Path) -> None:
    with DevChainHandle(tmp_path) as chain:
        port, chain_id = Client(chain).port, chain.chain_id
    with socket.create_server(("127.0.0.1", port)), DevChainHandle(tmp_path) as chain:
        assert Client(chain).port != port and chain.chain_id == chain_id and chain.endpoint.answers()


@pytest.mark.parametrize("garbage", [b"", b"{", b'{"url": 1}', b"\xff" * 9000])
def test_a_broken_endpoint_file_is_as_good_as_none(tmp_path: Path, garbage: bytes) -> None:
    (tmp_path / ENDPOINT).write_bytes(garbage)
    with DevChainHandle(tmp_path) as chain:
        assert chain.endpoint.answers()


def test_a_second_process_on_one_directory_is_refused_in_one_line(tmp_path: Path) -> None:
    with DevChainHandle(tmp_path) as chain:
        done = subprocess.run(command(tmp_path), capture_output=True, text=True)
        assert done.returncode == 1 and not done.stdout and done.stderr.count("\n") == 1
        assert f"is already served at {chain.url} (process {chain.endpoint.pid})" in done.stderr
        assert chain.endpoint.answers()


@pytest.mark.parametrize(("which", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_chain_dev_says_where_it_is_and_ends_in_good_order(tmp_path: Path, which: signal.Signals, code: int) -> None:
    served = subprocess.Popen(command(tmp_path, "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert served.stdout is not None and served.stderr is not None
    with served.stdout as out, served.stderr as errors:
        announced = json.loads(out.readline())
        assert announced["data"] == str(tmp_path) and announced["chain_id"] > 0
        with DevChainHandle(tmp_path) as chain:
            here = chain.url, chain.chain_id, chain.endpoint.pid
            assert here == (announced["url"], announced["chain_id"], served.pid)
        assert chain.endpoint.answers()  # nobody uses it, but it was started by hand
        served.send_signal(which)
        assert (served.wait(), out.read(), errors.read()) == (code, "", "")
    assert not (tmp_path / f"{DATABASE}-wal").exists()


def test_chain_dev_on_a_taken_port_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(command(tmp_path, "--port", str(port)), capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and f"cannot serve on 127.0.0.1:{port}" in done.stderr


def test_a_lost_faucet_key_is_named(tmp_path: Path) -> None:
    with DevChainHandle(tmp_path) as chain:
        Sender(Client(chain))
    (tmp_path / FAUCET_KEY).unlink()
    with DevChainHandle(tmp_path) as chain, pytest.raises(RpcFailure, match="put the faucet's key back"):
        Sender(Client(chain))


@pytest.mark.parametrize("content", [b"not a database " * 100, None])
def test_a_file_that_is_no_chain_is_refused_in_one_line(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / DATABASE
    if content is None:
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE other(x)")
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(ChainError, match=DATABASE):
        DevChainHandle(tmp_path)
    assert path.read_bytes() == before
