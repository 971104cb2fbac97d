"""A node that is killed at any step leaves one of each submission on the chain."""

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from builders.chain import found, fund

from codezero.chain.contract import ContractCoordinator
from codezero.chain.outbox import ChainOutbox
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
from codezero.chain.submitter import Submitter
from codezero.chain.wallet import KeystoreWallet

url, chain_id, contract, keystore, outbox = sys.argv[1:6]
current = ""

def around(cls, name, before, after):
    real = getattr(cls, name)
    def wrapped(*a, **k):
        before and current == kind and os.kill(os.getpid(), signal.SIGKILL)
        answer = real(*a, **k)
        after and current == kind and os.kill(os.getpid(), signal.SIGKILL)
        return answer
    setattr(cls, name, wrapped)

def submitting(self, submission):
    global current
    current = submission.kind
    return submit(self, submission)

submit, Submitter._submit = Submitter._submit, submitting

def live(point):
    rpc = ChainClient([url], int(chain_id), seconds=60.0)
    coordinator = ContractCoordinator(rpc, contract, sending.Sender(rpc, KeystoreWallet.ephemeral(Path(keystore))))
    coordinator.register("QmCrash")
    around(OutboxStore, "record", point == "before recording", point == "recorded")
    around(sending.Sender, "_send", False, point == "sent")
    around(OutboxStore, "settle", point == "mined", False)
    box = ChainOutbox(Path(outbox), coordinator, "QmCrash", every=0.01)
    box.add(1, 0, 0.5, "QmA")
    box.close(60)

for life in sys.argv[6:]:  # forked, because the imports take longer than the rest
    kind, point = life.split(":")
    child = os.fork()
    if not child:
        live(point)
        os._exit(0)
    print(life, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_kill_at_each_step_leaves_one_of_each_submission(tmp_path: Path) -> None:
    lives = [f"{kind}:{point}" for kind in ("reward", "vote") for point in POINTS]
    with found(tmp_path) as swarm:
        fund(swarm.client, KeystoreWallet.ephemeral(tmp_path / "key.json").address)
        arguments = [swarm.url, str(swarm.chain_id), swarm.contract]
        arguments += [str(tmp_path / "key.json"), str(tmp_path / "outbox.db")]
        done = subprocess.run([sys.executable, "-c", DYING, *arguments, *lives], capture_output=True, text=True)
        assert done.stdout.splitlines() == [f"{life} {-signal.SIGKILL}" for life in lives], done.stderr
        sender = Sender(swarm.client, KeystoreWallet.ephemeral(tmp_path / "key.json"))
        member = ContractCoordinator(swarm.client, swarm.contract, sender)
        assert ChainOutbox(tmp_path / "outbox.db", member, "QmCrash", settle_seconds=0.0, every=0.02).close(60)
        rewards = [event for page in member.history(0, ["RewardSubmitted"]) for event in page.events]
        assert [(event["args"]["roundNumber"], event["args"]["reward"]) for event in rewards] == [(0, 500)]
        with closing(sqlite3.connect(tmp_path / "outbox.db")) as connection:
            states = connection.execute("SELECT kind, state FROM submissions").fetchall()
        assert dict(states) == {"reward": "accepted", "vote": "accepted"}
        member.close()
