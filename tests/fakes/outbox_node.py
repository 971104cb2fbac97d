"""A node's outbox in a process of its own: notes points for every round, as an iteration each, and sends until all is
settled. May be killed at any moment and started again with the same arguments.

    python outbox_node.py URL CHAIN_ID CONTRACT KEYSTORE OUTBOX PEER VOTE ROUNDS"""

import sys
import time
from pathlib import Path

from codezero.chain.contract import ContractCoordinator, Sender
from codezero.chain.outbox import ChainOutbox, read_status
from codezero.chain.provider import ChainClient
from codezero.chain.wallet import KeystoreWallet


def reward_of(round_number: int) -> float:
    return (round_number % 10) / 10


def main(url: str, chain_id: str, contract: str, keystore: str, outbox: str, peer: str, vote: str, rounds: str) -> None:
    rpc = ChainClient([url], int(chain_id), seconds=5.0)
    coordinator = ContractCoordinator(rpc, contract, Sender(rpc, KeystoreWallet.ephemeral(Path(keystore))))
    box = ChainOutbox(Path(outbox), coordinator, peer, every=0.05, settle_seconds=0.0)
    for number in range(int(rounds)):
        box.add(number, number, reward_of(number), vote)
    while (status := read_status(box.path)).pending or status.collecting:
        time.sleep(0.1)
    box.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
