"""The benchmarks of sampling and updating: the same work for all ways, honest ratios, and no genrl is no end."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from card_parts import roofline
from rollout import Turn, report

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def test_ratios_are_of_turns_in_the_same_round():
    ours, slow = [Turn(1, 1, 2), Turn(4, 4, 2)], [Turn(3, 3, 8), Turn(12, 12, 12)]
    made = report({"ours": ours, "genrl": slow}, tokens=24)
    assert made["ours"]["tokens_per_second"] == [7.5, 3.0, 12.0]
    assert made["ratio_vs_genrl"] == [3.0, 3.0, 3.0]
    assert made["cpu_ratio_vs_genrl"] == [5.0, 4.0, 6.0]
    assert made["genrl_tuned"] is None and made["ratio_vs_genrl_tuned"] is None and made["ratio_vs_trl"] is None


def test_limits_count_what_has_to_be_read_and_multiplied():
    """By hand: 3 prompts of 5 tokens, 2 completions each of 3, so steps 1 and 2 read 6 rows of 6 and 7 tokens."""
    shape = roofline.Shape(100, 8, 16, 2, 4, 2, prompts=3, group_size=2, new_tokens=3, prompt_tokens=(5, 5))
    per_token = 2 * 2 * 2 * 2 * 4
    assert roofline.decode_bytes(shape, 1000, 4, [5, 5, 5]) == 2 * 4000 + 6 * (6 + 7) * per_token
    assert roofline.update_flops(700, 300, 15, 18, 6) == 6 * (700 * 33 + 300 * 18)


@pytest.mark.long
def test_the_benchmark_runs(tmp_path: Path):
    """The real ways but genrl's, which wants a network; one layer, one round."""
    small = ["--json", "--shapes", "nano", "--layers", "1", "--tokens", "4", "--repeats", "1", "--threads", "1"]
    command = [sys.executable, str(BENCHMARKS / "rollout.py"), *small, "--prompts", "2", "--no-genrl"]
    made = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout)
    nano = made["shapes"]["nano"]
    assert nano["rows"] == 16 and nano["genrl"] is None and made["genrl_missing"] == "left out"
    assert min(nano["ours"]["tokens_per_second"]) > 0 and min(nano["ratio_vs_trl"]) > 0
