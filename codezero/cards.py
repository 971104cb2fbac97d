"""Which card each of several nodes on one machine gets, decided without loading torch into the process that asks."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codezero.models.cpu_only import cpu_only

VISIBLE = "CUDA_VISIBLE_DEVICES"
DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""One of these is there where torch might find a card; else nobody is asked, which would take seconds."""
COUNT = "import torch; print(torch.cuda.device_count())"
SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Seat:
    """Where one node works."""

    card: str | None
    """As CUDA_VISIBLE_DEVICES names it; None: there is no card."""
    nodes: int
    """That share the card, or without one the machine, this one among them."""

    @property
    def environment(self) -> dict[str, str]:
        return {} if self.card is None else {VISIBLE: self.card}

    @property
    def share(self) -> float:
        return 1 / self.nodes


def find_cards(device: str) -> list[str]:
    """The cards that nodes with this `model.device` may use, as CUDA_VISIBLE_DEVICES names them."""
    if cpu_only() or device in ("cpu", "mps"):
        return []
    named = os.environ.get(VISIBLE)
    if named is not None:
        return named_cards(named)
    if not any(Path(driver).exists() for driver in DRIVERS):
        return []
    done = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, timeout=SECONDS, check=False)
    return [str(i) for i in range(int(done.stdout))] if done.stdout.strip().isdecimal() else []


def named_cards(value: str) -> list[str]:
    """Of a CUDA_VISIBLE_DEVICES; as for the driver, a negative number ends the list."""
    cards: list[str] = []
    for name in (part.strip() for part in value.split(",")):
        if not name or name.startswith("-"):
            break
        cards.append(name)
    return cards


def deal(cards: Sequence[str], count: int) -> list[Seat]:
    """A seat for each of `count` nodes, the cards in turn."""
    if not cards:
        return [Seat(None, count)] * count
    return [Seat(cards[i % len(cards)], len(range(i % len(cards), count, len(cards)))) for i in range(count)]


def told(seats: Sequence[Seat]) -> str:
    """One line about who shares what; empty where nobody shares a card."""
    crowded = {seat.card: seat.nodes for seat in seats if seat.card is not None and seat.nodes > 1}
    if not crowded:
        return ""
    parts = (f"{nodes} on card {card}, each with 1/{nodes} of its memory" for card, nodes in crowded.items())
    return f"{len(seats)} nodes and {len({seat.card for seat in seats})} cards: {'; '.join(parts)}"
