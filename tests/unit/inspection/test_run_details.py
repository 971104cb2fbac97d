"""What the page shows of a run on request: bounded, without secrets, and nothing that a stranger's folder points at."""

import json
from pathlib import Path

import pytest

from codezero.config import NodeConfig
from codezero.errors import UnreadableError
from codezero.inspection.status import MAX_TAIL, read_checkpoints, read_log
from codezero.monitor.build import record_settings
from codezero.monitor.run_types import SETTINGS, read_settings
from codezero.settings import compose
from codezero.solver.checkpoint import PolicyFingerprint, write_manifest


def test_the_settings_of_a_run_say_where_each_came_from_and_hide_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVIDER_KEY", "PlantedProviderKey")
    words = ["chain.kind=rpc", "chain.rpc_urls=['https://rpc.example/${oc.env:PROVIDER_KEY}']", "seed=7"]
    composed, config = compose(words), compose(words)
    config.model.solver = "chosen"
    record_settings(tmp_path, composed, config, words)
    known = {line.key: (line.value, line.origin) for line in read_settings(tmp_path).settings}
    assert known["seed"] == ("7", "command line") and known["model.solver"] == ('"chosen"', "chosen for this machine")
    assert known["run.keep_checkpoints"] == (str(NodeConfig().run.keep_checkpoints), "default")
    assert "PlantedProviderKey" not in (tmp_path / SETTINGS).read_text() and "[hidden]" in known["chain.rpc_urls"][0]
    assert (tmp_path / SETTINGS).stat().st_mode & 0o777 == 0o600


def test_settings_that_cannot_be_read_are_said_to_be_so(tmp_path: Path) -> None:
    assert read_settings(tmp_path).settings == []
    for text in ('{"settings": [1]}', "x" * (2 << 20)):
        (tmp_path / SETTINGS).write_text(text)
        with pytest.raises(UnreadableError, match=SETTINGS):
            read_settings(tmp_path)


def test_the_end_of_a_log_is_whole_lines_of_no_link(tmp_path: Path) -> None:
    run, logs = tmp_path / "run", tmp_path / "logs"
    (run / "logs").mkdir(parents=True)
    logs.mkdir()
    assert read_log(run, logs=logs).path == ""
    (logs / "swarm.log").write_text("".join(f"line {number}\n" for number in range(10_000)))
    shared = read_log(run, logs=logs)
    assert shared.cut and len(shared.text) <= MAX_TAIL and shared.text.startswith("line ")
    assert shared.text.endswith("line 9999\n")
    (run / "logs" / "swarm.log").symlink_to("/etc/hostname")
    assert read_log(run, logs=logs) == shared
    (run / "logs" / "swarm.log").unlink()
    (run / "logs" / "swarm.log").write_bytes(b"own \xff\n")
    own = read_log(run, logs=logs)
    assert (own.text, own.cut) == ("own \ufffd\n", False)


def test_checkpoints_are_listed_with_size_and_digest_or_why_not(tmp_path: Path) -> None:
    assert read_checkpoints(tmp_path).checkpoints == []
    for name in ("00000005", "00000006"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    whole = tmp_path / "checkpoints" / "00000005"
    (whole / "part").write_bytes(b"x" * 100)
    write_manifest(whole, 5, ["part"], PolicyFingerprint())
    (tmp_path / "checkpoints" / "00000006" / "manifest.json").write_text(json.dumps({"format": 1}))
    torn, kept = read_checkpoints(tmp_path).checkpoints
    assert (kept.iteration, kept.size, kept.problem, len(kept.digest)) == (5, 100, "", 64)
    assert torn.iteration is None and "format 1" in torn.problem and torn.digest == ""
