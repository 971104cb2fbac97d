"""What keeps points back is told while it does, and not by a process that is gone."""

from pathlib import Path

from codezero.chain.delivery import Complaints
from codezero.chain.outbox_db import OutboxStore, read_status


def test_a_complaint_does_not_outlive_its_process(tmp_path: Path) -> None:
    path = tmp_path / "outbox-5-abc.db"
    first = OutboxStore(path, durable=True)
    Complaints(first).report("all", "the chain cannot be reached")
    first.close()
    assert read_status(path).problem == "the chain cannot be reached"  # of one that was killed meanwhile
    second = OutboxStore(path, durable=True)
    Complaints(second)
    second.close()
    assert read_status(path).problem == ""
