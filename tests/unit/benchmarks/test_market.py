"""The benchmark of the market has a figure for each promise, in small. Does not show what the market is worth."""

import json

import market
import pytest


def test_prices_votes_friends_and_copies_have_a_figure_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert market.main(["--json", "--games", "90", "--seeds", "2"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["votes"]["liar"]["lost_within_20"] == 1 and report["votes"]["honest"]["lost_within_150"] == 0
    assert report["friends"]["0 of 8"]["has_a_vote"] == 0
    assert report["prices"].keys() == market.SCENES.keys()
    assert report["prices"]["3 liars"]["price"] < report["prices"]["3 liars"]["average"]
    assert report["copies"]["honest"] > 0
