"""What `codezero weights` says of published versions."""

import json
from pathlib import Path

import pytest
import torch

from codezero.cli import main
from codezero.weights.versions import Publisher


def test_it_lists_what_was_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights, publisher = (
        torch.randn(200, 30, generator=torch.Generator().manual_seed(1)),
        Publisher(tmp_path / "versions"),
    )
    for number in range(4):
        publisher.publish(number, {"w": weights * (1 + number / 1000)}, anchor=number == 2)
    assert main(["weights", str(tmp_path / "versions"), "--json"]) == 0
    versions = json.loads(capsys.readouterr().out)["versions"]
    assert [version["number"] for version in versions] == [0, 1, 2, 3]
    assert [bool(version["anchor"]) for version in versions] == [True, False, True, False]
    assert main(["weights", str(tmp_path)]) == 1
    assert "lacks versions.json" in capsys.readouterr().err
