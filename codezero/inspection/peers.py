"""`codezero swarm peers`: whom this node knows, and why it keeps away from some. Foreign text is cleaned."""

import sys
import time
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from codezero.errors import ConfigError
from codezero.monitor.text import clean, count, duration, readable_name
from codezero.swarm.network_status import FILE, FOLDER, NetworkStatus, read_status

STALE_SECONDS = 30.0
"""Older than this, the file is of a node that does not run any more."""


def newest_status(base: Path, name: str) -> NetworkStatus:
    """Of the run `name` below `base`, or of the one that wrote last. Raises SwarmError, and ConfigError without one."""
    if name:
        return read_status(base / name / FOLDER)
    files = [*base.glob(f"*/{FOLDER}/{FILE}"), *base.glob(f"*/*/{FOLDER}/{FILE}")]
    if not files:
        raise ConfigError(f"no run below {base} has a network; start one with `codezero run network=peer`")
    return read_status(max(files, key=lambda path: path.stat().st_mtime).parent)


def print_peers(status: NetworkStatus) -> None:
    """A line about this node, then a row for each peer."""
    console = Console(file=sys.stdout)
    age = time.time() - status.time
    state = "" if age < STALE_SECONDS else f" · {duration(age)} ago, the node is not running now"
    console.print(Text(f"{readable_name(status.me)} · {status.me}{state}", "bold"))
    spread = "" if status.shards == 1 else f" · announcements spread over {status.shards} places"
    console.print(Text(f"{count(status.neighbours, 'neighbour')}{spread} · {clean(status.reachability, 300)}", "dim"))
    for address in status.addresses:
        console.print(Text(f"  {clean(address, 200)}", "dim"), soft_wrap=True)
    table = Table(box=box.SIMPLE, padding=(0, 1))
    for column in ("peer", "heard", "bodies", "groups", "KiB", "failures", "state"):
        table.add_column(column, justify="right" if column in ("heard", "bodies", "groups", "KiB") else "left")
    for peer in status.peers:
        table.add_row(
            Text(readable_name(peer.peer)),
            f"{duration(peer.heard_seconds_ago)} ago",
            str(peer.bodies),
            str(peer.groups),
            f"{peer.size / 1024:.0f}",
            Text(", ".join(f"{clean(name, 20)} {times}" for name, times in peer.failures.items())),
            Text(clean(peer.reason, 200), "red") if peer.reason else Text("ok", "green"),
        )
    console.print(table if status.peers else "no peer was heard yet")
