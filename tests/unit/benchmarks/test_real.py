"""`bench real` on the embedded models: everything is measured, and what decoding reads is counted by hand."""

import json

import pytest
import real
from builders.models import tiny_policy

from codezero.nano import weights_directory


def test_decoding_reads_weights_once_a_step_and_what_each_row_has_seen():
    policy = tiny_policy(hidden=32, layers=2)
    body, head = real.parts_of(policy)
    assert body + head == policy.model.num_parameters() and head == 259 * 32
    config = policy.model.config
    per_token = 4 * 2 * 2 * config.num_key_value_heads * config.hidden_size // config.num_attention_heads
    assert real.decode_bytes(policy, [5, 7], [3, 1]) == 2 * 4 * (body + head) + (6 + 7) * per_token


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_benchmark_runs(capsys: pytest.CaptureFixture[str]) -> None:
    models = ["--model", str(weights_directory("solver")), "--judge", str(weights_directory("judge"))]
    assert real.main(["--json", "--rows", "16", "--tokens", "48", *models]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["precision"] == "float32" and report["judge"]["programs"] > 1
    shares = (report["sampler"]["decode_share_of_bandwidth"], report["prefill"]["share_of_matmul"])
    assert min(*shares, report["step"]["learner_share_of_matmul"], report["step"]["ratio_vs_trl"]) > 0
    assert report["step"]["ours"]["tokens"] > 0 < report["step"]["trl"]["tokens"]
