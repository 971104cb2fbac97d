"""Two users with a directory each: one founds a swarm, the other joins with nothing but its code; both are heard and
counted, and the joiner reaches the founder's chain only through his node.

Each believes only peers that are registered on the chain."""

import json
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from builders.swarm import free_port
from builders.users import code_of, codezero, last_row, wait_until

from codezero.chain.invitation import read_invitation
from codezero.cli import main
from codezero.swarm.identity import Identity

NETWORK = "codezero.swarm.network_process"
pytestmark = pytest.mark.timeout(600)


def points(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, int]:
    """What the leaderboard says of each peer."""
    capsys.readouterr()
    assert main(["leaderboard", "--json", "--invitation", str(folder / "swarm.toml"), f"run.directory={folder}/runs",
                 f"chain.directory={folder}/runs/chain"]) == 0  # fmt: skip
    board = json.loads(capsys.readouterr().out)
    return {peer: one["rounds"] for peer, one in board["peers"].items()}


@pytest.mark.slow
def test_one_founds_and_another_joins_and_both_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ann, ben = tmp_path / "ann", tmp_path / "ben"
    with codezero(ann, "swarm", "create", "--p2p-port", str(free_port()), "chain.round_seconds=4") as founder:
        wait_until("there is a code", lambda: bool(code_of(ann)), founder)
        with codezero(ben, "swarm", "join", code_of(ann)) as joiner:
            for folder in (ann, ben):
                wait_until(
                    f"{folder.name} hears the other",
                    lambda folder=folder: (last_row(folder).get("swarm/peers") or 0) >= 1,
                    founder, joiner,
                )  # fmt: skip
            node = psutil.Process(joiner.pid)
            (network,) = [child for child in node.children() if NETWORK in " ".join(child.cmdline())]
            network.kill()  # which costs the joiner some seconds
            peers = {Identity.load(folder / "swarm.pem").peer_id for folder in (ann, ben)}
            wait_until(
                "both are counted",
                lambda: all(points(ann, capsys).get(peer, 0) >= 2 for peer in peers),
                founder,
                joiner,
            )
            dialled = {at.raddr.port for each in (node, *node.children()) for at in each.net_connections() if at.raddr}
            assert urlsplit(read_invitation(ann / "swarm.toml").chain.rpc[0]).port not in dialled
        wait_until("the founder goes on", lambda: founder.poll() is None and bool(last_row(ann)))
    invitation = read_invitation(ann / "swarm.toml")
    assert (ann / "wallet.json").stat().st_mode & 0o777 == 0o600
    assert json.loads((ben / "runs" / "run" / "run.json").read_text())["swarm.name"] == invitation.network.name
    (kept,) = (ben / "runs" / "invitations").iterdir()
    assert read_invitation(kept) == invitation
