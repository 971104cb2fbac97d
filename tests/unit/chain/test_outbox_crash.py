"""kill -9 at every point where it hurts: what was noted is there, and nothing is submitted twice."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders.anvil import BACKENDS
from builders.chain import found, fund

from codezero.chain.contract import ContractCoordinator
from codezero.chain.outbox import ChainOutbox
from codezero.chain.outbox_db import OutboxStore, read_status
from codezero.chain.sender import Sender
from codezero.chain.wallet import KeystoreWallet

POINTS = ("before recording", "recorded", "sent", "mined")
DYING = """
import os, signal, sys
from pathlib import Path
from codezero.chain import sender as sending
from codezero.chain.contract import ContractCoordinator
from codezero.chain.outbox import ChainOutbox
from codezero.chain.outbox_db import OutboxStore
from codezero.chain.provider import ChainClient
from codezero.chain.wallet import KeystoreWallet

url, chain_id, contract, keystore, outbox = sys.argv[1:6]

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def around(cls, name, before, after):
    real = getattr(cls, name)
    def wrapped(*a, **k):
        before and die()
        answer = real(*a, **k)
        after and die()
        return answer
    setattr(cls, name, wrapped)

def live(point):
    rpc = ChainClient([url], int(chain_id), seconds=60.0)
    coordinator = ContractCoordinator(rpc, contract, sending.Sender(rpc, KeystoreWallet.ephemeral(Path(keystore))))
    coordinator.register("QmCrash")
    around(OutboxStore, "record", point == "before recording", point == "recorded")
    around(sending.Sender, "_send", False, point == "sent")
    around(OutboxStore, "settle", point == "mined", False)
    box = ChainOutbox(Path(outbox), coordinator, "QmCrash", every=0.01)
    box.add(0, 0.5, "QmA")
    box.close(60)

for point in sys.argv[6:]:  # a life each; forked, because the imports take longer than the rest
    life = os.fork()
    if not life:
        live(point)
        os._exit(0)
    print(point, os.waitstatus_to_exitcode(os.waitpid(life, 0)[1]))
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_kill_at_each_step_leaves_one_submission(tmp_path: Path, backend: str) -> None:
    with found(tmp_path, backend) as swarm:
        fund(swarm.client, KeystoreWallet.ephemeral(tmp_path / "key.json").address)
        arguments = [swarm.url, str(swarm.chain_id), swarm.contract, tmp_path / "key.json", tmp_path / "outbox.db"]
        done = subprocess.run([sys.executable, "-c", DYING, *arguments, *POINTS], capture_output=True, text=True)
        assert done.stdout.splitlines() == [f"{point} {-signal.SIGKILL}" for point in POINTS], done.stderr
        sender = Sender(swarm.client, KeystoreWallet.ephemeral(tmp_path / "key.json"))
        box = ChainOutbox(
            tmp_path / "outbox.db", ContractCoordinator(swarm.client, swarm.contract, sender), "QmCrash", every=0.01
        )
        assert not box.close(5.0)  # points of the later lives wait for round 1, which is not open
        events = [event for page in swarm.owner.history(0, ["RewardSubmitted"]) for event in page.events]
        assert [(event["args"]["roundNumber"], event["args"]["reward"]) for event in events] == [(0, 500)]
        status = read_status(tmp_path / "outbox.db")
        assert (status.accepted, status.refused, status.collecting) == (2, 0, 1)


@pytest.mark.parametrize("after", [0.0, 0.05])
def test_noted_points_survive(tmp_path: Path, after: float) -> None:
    code = (
        "import sys; from pathlib import Path; from codezero.chain.outbox_db import OutboxStore\n"
        "store = OutboxStore(Path(sys.argv[1]))\n"
        "for number in range(10**6): store.add(number, 0.5, 'QmA'); print(number, flush=True)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, tmp_path / "outbox.db"], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    time.sleep(after)
    os.kill(child.pid, signal.SIGKILL)
    told = child.stdout.read().split()
    child.wait()
    child.stdout.close()
    last = int(told[-1]) if told else 0
    store = OutboxStore(tmp_path / "outbox.db")
    kept = store.collecting()
    store.close()
    assert kept == list(range(len(kept))) and len(kept) > last
