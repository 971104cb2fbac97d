"""What players in memory say to each other in a round (A8): real posts, an honest hub, a chain that keeps rounds.

Not what it costs to find each other, or the headers that announce a post.
"""

import tempfile
import zlib
from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import Any

from builders.market_play import Table

from codezero.market.ledger import FILE

WARM = 7
"""Rounds after which all that a post can hold is in it."""


def run(nodes: int, rounds: int) -> dict[str, Any]:
    """Four of them execute: what they open is what others see."""
    sent, posts = Counter[int](), Counter[int]()
    with tempfile.TemporaryDirectory() as base:
        table = Table(Path(base), count=nodes, execute=lambda number: number < 4, settings={"open": 4})
        deliver = table.hub._post  # pyright: ignore[reportPrivateUsage]

        def counted(name: str, payload: bytes, number: int) -> None:
            sent[number] += len(zlib.compress(payload, 6))
            posts[number] += 1
            deliver(name, payload, number)

        table.hub._post = counted  # pyright: ignore[reportPrivateUsage]
        for _ in range(WARM + rounds):
            table.turn()
        file = Path(base) / "0" / FILE
        size = file.stat().st_size / (WARM + rounds)
        table.close()
    measured = range(WARM + 1, WARM + rounds + 1)
    return {
        "nodes": nodes,
        "posts_of_a_node_and_round": round(fmean(posts[number] / nodes for number in measured), 2),
        "kB_of_a_post": round(fmean(sent[number] / posts[number] for number in measured) / 1e3, 2),
        "kB_received_by_a_node_and_round": round(fmean(sent[n] * (nodes - 1) / nodes for n in measured) / 1e3, 1),
        "aim": "at most 120 kB at 32 nodes",
        "kB_kept_of_a_round": round(size / 1e3, 1),
    }
