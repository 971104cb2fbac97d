"""Every benchmark that draws: from its own JSON alone, in one style, readable on light and on dark pages.

Does not show whether a picture is beautiful."""

import importlib
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import picture
import pytest

EXAM = [[0, 0.4, 0.38, 0.42], [25, 0.5, 0.47, 0.53]]
ARM = {"curve": [[0, 40.0, 38.0, 42.0], [4, 50.0, 46.0, 53.0]], "own_completions": 256}
GOSSIP = {"nodes": 32, "bytes_per_node": 6e5, "one_key_bytes_per_node": 2e7}
RESULTS: dict[str, Any] = {
    "first_light": {"runs": [{"seed": 0, "curve": EXAM}, {"seed": 1, "curve": EXAM}]},
    "gossip": {"rows": [{**GOSSIP, "kind": kind, "nodes": n} for kind in ("real", "simulated") for n in (8, 32)]},
    "learn": {"same": {"arms": {"8/0": ARM, "4/12 positives gate": ARM, "4/4 sapo": ARM}},
              "marked": {"arms": {"3 of 8 comment, limits": ARM, "3 of 8 comment, no limits": ARM}}},
    "pressure": {"runs": [
        {"arm": arm, "seed": seed, "first_alarm": 3 if seed else None,
         "curve": [[at, mean, 0.5, *ends] for at, mean, *ends in EXAM]}
        for arm in ("likelihood", "yes_no, alarms heeded") for seed in (0, 1)
    ]},
    "real_learning": {"arms": {
        arm: {exam: {"points": 1.0, "seeds": [[1.0, -0.5, 2.5], [2.0, 0.5, 3.5]]} for exam in ("greedy", "sampled")}
        for arm in ("coin", "judge")
    }},
    "proposing": [{"level_curve": [[1, 2.0], [2, 3.0]], "success_curve": [[10, 0.4], [11, 0.6]]}],
}  # fmt: skip
DRAWING = sorted(
    path.stem for path in Path(picture.__file__).parent.glob("*.py") if "picture.drawn" in path.read_text()
)


def drawn(name: str, folder: Path, result: Any, file: str = "picture.svg") -> str:
    (folder / "stored.json").write_text(json.dumps({"commit": "0", "result": result}))
    importlib.import_module(name).draw(result, folder / file)
    return (folder / file).read_text()


def test_every_benchmark_that_draws_is_tested() -> None:
    assert sorted(RESULTS) == DRAWING


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(RESULTS))
def test_a_picture_comes_from_the_stored_result_alone(name: str, tmp_path: Path) -> None:
    svg = drawn(name, tmp_path, RESULTS[name])
    assert svg == drawn(name, tmp_path, json.loads(json.dumps(RESULTS[name])), "again.svg")
    texts = [node.text for node in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert {"iteration", "rounds", "nodes", "points gained, greedy exam"} & {*texts}, "an axis has its unit"
    assert not re.search(r'(?:href|src)="(?!#)', svg) and "<image" not in svg
    used = {code.lower() for code in re.findall(r"#[0-9a-fA-F]{6}\b", svg)}
    assert used <= {picture.INK, *picture.COLOURS}, "nothing is black or white, and the background is the page's"


def test_a_stored_file_is_drawn_and_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn("pressure", tmp_path, RESULTS["pressure"])
    pressure = importlib.import_module("pressure")
    monkeypatch.setattr(pressure, "run", None)
    stored = str(tmp_path / "stored.json")
    assert pressure.main(["--from", stored, stored, "--picture", str(tmp_path / "new.svg")]) == 0
    assert (tmp_path / "new.svg").read_text().count("executed, 95 %") == 2  # one legend a panel
    with pytest.raises(SystemExit, match=r"\.svg"):
        pressure.main(["--from", stored, "--picture", str(tmp_path / "new.png")])
    with pytest.raises(SystemExit, match="--picture"):
        pressure.main(["--from", stored])
    with pytest.raises(SystemExit, match="no curve"):
        drawn("pressure", tmp_path, {"runs": [{"arm": "likelihood", "first_alarm": None}]})
