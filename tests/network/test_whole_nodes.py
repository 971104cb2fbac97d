"""Eight whole nodes, embedded models and all, joined by code; six sit behind routers of their own.

Does not show: real models; more than eight; routers of providers."""

import signal
import time
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from builders.internet import Internet, missing
from builders.users import code_of, codezero, last_row, rows, wait_until

from codezero.swarm.identity import Identity

pytestmark = [
    pytest.mark.network,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(bool(missing()), reason=missing() or "namespaces"),
]
HOMES = [f"N{number}" for number in range(1, 7)]
PATIENCE = 1500  # Seconds for eight nodes on two cores


def learned_from(folder: Path) -> Counter[str]:
    """Attempts of each peer that were learned from."""
    learned = Counter[str]()
    for row in rows(folder):
        used = {key.rpartition("/")[2]: value for key, value in row.items() if key.startswith("swarm/external_used/")}
        learned += Counter({peer: int(value) for peer, value in used.items() if value})
    return learned


def test_everybody_learns_from_five_others_and_homes_go_on_without_the_founder(tmp_path: Path) -> None:
    with ExitStack() as stack:
        net = stack.enter_context(closing(Internet()))
        for name in ("F", "O"):
            net.open(name)
        for name in HOMES:
            net.home(f"R{name}", name)
        host = "swarm.host=0.0.0.0"
        words = ("swarm", "create", "--p2p-port", "38331", host, "chain.round_seconds=20")
        founding = codezero(tmp_path / "F", *words, where=net.at("F"))
        founder = stack.enter_context(founding)
        wait_until("there is a code", lambda: bool(code_of(tmp_path / "F")), founder)
        code, folders = code_of(tmp_path / "F"), [tmp_path / name for name in ("O", *HOMES)]
        joined = [
            stack.enter_context(codezero(folder, "swarm", "join", code, host, where=net.at(folder.name)))
            for folder in folders
        ]
        everybody = [tmp_path / "F", *folders]
        enough = wait_until(
            "everybody has learned from five others",
            lambda: all(len(learned_from(folder)) >= 5 for folder in everybody),
            founder, *joined, seconds=PATIENCE,
        )  # fmt: skip
        print(f"after {enough:.0f} s: {[len(learned_from(folder)) for folder in everybody]} others")
        founder.send_signal(signal.SIGKILL)
        founder.wait()
        time.sleep(45)  # what was on its way has come
        homes = folders[1:]
        names = {folder: Identity.load(folder / "swarm.pem").peer_id for folder in homes}
        before = {folder: learned_from(folder) for folder in homes}
        rounds = {folder: last_row(folder)["round"] for folder in homes}

        def go_on(folder: Path) -> bool:
            others = {names[other] for other in homes if other != folder}
            now = learned_from(folder)
            return any(now[peer] > before[folder][peer] for peer in others)

        again = wait_until("homes learn from homes", lambda: all(map(go_on, homes)), *joined, seconds=PATIENCE)
        print(f"without the founder after {again:.0f} s")
        assert all(last_row(folder)["round"] >= rounds[folder] for folder in homes)
