"""`codezero status` and `swarm peers`, drawn for people. Foreign text is cleaned."""

import sys
import time

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from codezero.chain.outbox_db import OutboxStatus
from codezero.inspection.status import UNKNOWN, RunStatus
from codezero.monitor.text import clean, count, duration, measured, readable_name
from codezero.swarm.network_status import DIRECT, NetworkStatus

STALE_SECONDS = 30.0
"""Older than this, a network's file is of a node that does not run any more."""
MAX_SHOWN = 500
"""Characters of a line's value."""


def print_status(status: RunStatus) -> None:
    console = Console(file=sys.stdout)
    console.print(headline(status), soft_wrap=True)
    console.print(page(status))


def headline(status: RunStatus) -> Text:
    """Whether it runs and what is wrong with it, before all else."""
    state = f"running, but {status.problem}" if status.problem else "running"
    if not status.running:
        state = f"not running: {status.problem or clean(status.stopped, 200) or 'it has not been started'}"
    return Text(f"{status.name} · {state} · {clean(status.run, 200)}", "bold red" if status.problem else "bold")


def page(status: RunStatus) -> Table:
    table = Table.grid(padding=(0, 2))
    for label, value in _lines(status):
        table.add_row(Text(label, "dim"), Text(clean(value, MAX_SHOWN)))
    return table


def _lines(status: RunStatus) -> list[tuple[str, str]]:
    sent, hub = status.submissions, status.hub
    lines = [
        ("peer id", status.peer_id or UNKNOWN),
        ("account", status.account or "none known"),
        ("iteration", f"{_known(status.iteration)}{_ago(status)}"),
        ("round", _known(status.round)),
        ("reward", _known(status.reward, ".2f")),
        ("attempts", status.attempts or UNKNOWN),
        ("hindrance", status.hindrance),
        ("truth", _executed(status)),
        ("judge", status.judge),
        ("level", _known(status.level)),
        ("peers", UNKNOWN if status.peers is None else f"{status.peers:.0f} heard lately"),
    ]
    if sent is None:
        lines.append(("submissions", "none: this run counts no points on a chain"))
    else:
        lines.append(("submissions", f"{_counts(sent)}; {count(sent.collecting, 'round')} being collected"))
        lines += [("", f"{times} times: {reason}") for reason, times in sent.reasons.items()]
        lines.append(("kept back", sent.problem))
    lines += [(name, status.facts[name]) for name in ("problems", "exam", "canaries") if name in status.facts]
    lines += [("stand-ins", status.stand_ins), *status.problems.items()]
    lines += [("kept away from", f"{readable_name(peer)}: {why}") for peer, why in status.quarantined.items()]
    if hub is not None:
        pushed = "nothing yet" if hub.round is None else f"round {hub.round}, iteration {hub.iteration}"
        lines.append(("pushed", f"{pushed}, to {hub.repository}"))
        lines.append(("not pushed", f"{count(hub.failures, 'failure')}: {hub.problem}" if hub.problem else ""))
    lines += [("survived", f"{times} times: {kind}") for kind, times in status.tolerated.items()]
    return [(label, value) for label, value in lines if value]


def _ago(status: RunStatus) -> str:
    return "" if status.seconds_since_step is None else f", {duration(status.seconds_since_step)} ago"


def _executed(status: RunStatus) -> str:
    if status.executed is None:
        return "executed average@k not measured yet"
    share = measured(status.executed, status.executed_low, status.executed_high)
    return f"{status.executed_source} average@{status.executed_samples} {share}"


def _counts(sent: OutboxStatus) -> str:
    return f"{sent.accepted} accepted, {sent.pending} pending, {sent.refused} refused"


def _known(value: float | None, form: str = "d") -> str:
    return UNKNOWN if value is None else format(value, form)


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
    for column in ("peer", "heard", "by way of", "bodies", "groups", "KiB", "failures", "state"):
        table.add_column(column, justify="right" if column in ("heard", "bodies", "groups", "KiB") else "left")
    for peer in status.peers:
        table.add_row(
            Text(readable_name(peer.peer)),
            f"{duration(peer.heard_seconds_ago)} ago",
            Text(peer.way if peer.way in ("", DIRECT) else readable_name(peer.way)),
            str(peer.bodies),
            str(peer.groups),
            f"{peer.size / 1024:.0f}",
            Text(", ".join(f"{clean(name, 20)} {times}" for name, times in peer.failures.items())),
            Text(clean(peer.reason, 200), "red") if peer.reason else Text("ok", "green"),
        )
    console.print(table if status.peers else "no peer was heard yet")
