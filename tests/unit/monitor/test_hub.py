"""What was learned goes to a hub on loopback through huggingface_hub itself; a failure never stops the training."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from builders.monitor import exam_row, folded, row
from builders.users import short_run
from fakes import hub_writer
from fakes.hub_writer import TOKEN, Hub

from codezero.config import HubConfig
from codezero.errors import ConfigError
from codezero.monitor.hub import STATE, HubPushes, model_card, read_state, stage, token_of
from codezero.monitor.run_state import Fold
from codezero.settings import compose
from codezero.system.signals import Backoff

SAVED = "hf_saved_by_the_user"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub, and a user who has logged in to another with the hub's own tools."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "token").write_text(SAVED)
    monkeypatch.setenv("HF_HOME", str(home))
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")  # this hub has only the older way
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with hub_writer.serving() as serving:
        monkeypatch.setenv("HF_ENDPOINT", serving.url)
        yield serving
        assert (home / "token").read_text() == SAVED and {one.name for one in home.iterdir()} <= {"token"}


@dataclass
class Pushing:
    """A run that saves checkpoints, some of which are pushed."""

    run: Path
    settings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.run.mkdir(exist_ok=True)
        config = compose(["hub.repository=me/mine", *self.settings])
        self.pushes = HubPushes(config, self.run)

    def saved(self, iteration: int, round_number: int) -> None:
        """A checkpoint of a small policy, whose first byte is the iteration."""
        folder = self.run / "checkpoints" / f"{iteration:08d}" / "solver" / "model"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.safetensors").write_bytes(bytes([iteration]) * 100_000)
        (folder / "config.json").write_text('{"model_type": "qwen2"}')
        self.pushes.push(folder.parents[1], round_number)

    def done(self) -> None:
        assert self.pushes.child is not None
        self.pushes.poll(90)
        assert self.pushes.child is None


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)


def test_a_policy_is_pushed_whole_and_private_with_the_runs_own_token(hub: Hub, tmp_path: Path) -> None:
    pushing = Pushing(tmp_path / "run")
    pushing.saved(7, 3)
    pushing.done()
    card = hub.files.pop("README.md")
    assert card.startswith(b"---\n") and b"after 7 iterations" in card
    assert hub.files == {"config.json": b'{"model_type": "qwen2"}', "model.safetensors": b"\x07" * 100_000}
    assert hub.repositories == {"me/mine": True} and hub.tokens == {TOKEN} and hub.messages == ["round 3, iteration 7"]
    state = read_state(tmp_path / "run")
    assert state and (state.round, state.iteration, state.problem) == (3, 7, "") and "/commit/" in state.commit
    policy = tmp_path / "run" / "checkpoints" / "00000007" / "solver" / "model"
    assert sorted(path.name for path in policy.iterdir()) == ["config.json", "model.safetensors"]
    pushing.pushes.close()
    assert TOKEN not in (tmp_path / "run" / STATE).read_text()


@pytest.mark.slow
def test_it_is_pushed_every_so_many_rounds_a_restart_included(hub: Hub, tmp_path: Path) -> None:
    for iteration, round_number in [(1, 3), (2, 4), (3, 12), (4, 13), (5, 14)]:
        pushing = Pushing(tmp_path / "run")  # a restart each time
        pushing.saved(iteration, round_number)
        if pushing.pushes.child is not None:
            pushing.done()
    assert hub.messages == ["round 3, iteration 1", "round 13, iteration 4"]


def test_a_refusal_is_logged_once_and_tried_again_later(
    hub: Hub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, pushing = [0.0], Pushing(tmp_path / "run")
    pushes = pushing.pushes
    pushes.pause = Backoff(30, 3600, lambda: clock[0])
    hub.refuses = True
    with caplog.at_level(logging.INFO, "codezero.monitor.hub"):
        for tried in range(3):
            pushing.saved(tried, 5)
            pushing.done()
            pushing.saved(tried, 5)
            assert pushes.child is None, "it is within the pause"
            clock[0] += 30 * 2**tried
        assert pushes.state.failures == 3 and "401" in pushes.state.problem
        assert TOKEN not in pushes.state.problem
        hub.refuses = False
        pushing.saved(9, 6)
        pushing.done()
    lines = [record.message for record in caplog.records]
    assert len(lines) == 2 and "training goes on" in lines[0] and "pushed again" in lines[1] and TOKEN not in str(lines)
    assert pushes.state.problem == "" and hub.messages == ["round 6, iteration 9"]


@pytest.mark.slow
def test_a_hub_that_hangs_holds_nobody_up(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codezero.monitor.hub.PUSH_SECONDS", 8.0)
    hub.hangs = True
    pushing = Pushing(tmp_path / "run")
    pushing.saved(1, 1)
    pushing.saved(2, 1)  # one push at a time
    assert pushing.pushes.state.failures == 0, "it was waited for"
    pushing.done()
    state = pushing.pushes.state
    assert "not done after 8 seconds" in state.problem and state.failures == 1


def test_a_push_is_cut_off_when_the_run_ends(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codezero.monitor.hub.LEAVE_SECONDS", 1.0)
    hub.hangs = True
    pushing = Pushing(tmp_path / "run")
    pushing.saved(1, 1)
    pushing.pushes.close()
    assert not (tmp_path / "run" / ".hub").exists() and pushing.pushes.state.failures == 0


def test_a_public_repository_is_not_written_to_unless_that_is_asked(hub: Hub, tmp_path: Path) -> None:
    hub.repositories["me/mine"] = False
    pushing = Pushing(tmp_path / "run")
    pushing.saved(1, 1)
    pushing.done()
    assert "is public, and hub.private=true" in pushing.pushes.state.problem and hub.files == {}
    other = Pushing(tmp_path / "other", ("hub.private=false",))
    other.saved(1, 1)
    other.done()
    assert other.pushes.state.problem == "" and len(hub.files) == 3


def test_an_adapter_goes_without_the_paths_of_this_machine(tmp_path: Path) -> None:
    policy = tmp_path / "adapter"
    policy.mkdir()
    (policy / "adapter_config.json").write_text(json.dumps({"r": 4, "base_model_name_or_path": "/home/me/models/mine"}))
    (policy / "base.json").write_text('{"name": "/home/me/models/mine"}')
    (policy / "adapter_model.safetensors").write_bytes(b"w")
    stage(policy, tmp_path / "staged", "# card\n")
    held = {path.name: path.read_text() for path in (tmp_path / "staged").iterdir()}
    assert set(held) == {"README.md", "adapter_config.json", "adapter_model.safetensors"} and "/home" not in str(held)
    assert json.loads(held["adapter_config.json"])["base_model_name_or_path"] == "mine"
    assert "/home" in (policy / "adapter_config.json").read_text()  # the checkpoint is as it was


def test_a_policy_that_cannot_be_staged_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    pushing = Pushing(tmp_path / "run", ("model.train=lora",))  # what is saved is no adapter
    pushing.saved(1, 1)
    assert "cannot be made ready" in pushing.pushes.state.problem


def test_a_damaged_state_is_none(tmp_path: Path) -> None:
    (tmp_path / STATE).write_text('{"repository": 3}')
    assert read_state(tmp_path) is None and read_state(tmp_path / "nowhere") is None


def test_the_card_says_how_each_figure_was_measured() -> None:
    fold = folded(*(row(at, 0.7) | exam_row(at, 0.5, reach=0.1) for at in (20, 25, 30)))
    config = compose(["hub.repository=me/mine", "model.solver='/home/me/m`odel'"])
    card = model_card(config, fold, 30)
    assert "|  | iteration 20 | iteration 30 |" in card and "iteration 25" not in card
    assert "| executed average@8 | 50.0 % [40.0, 60.0] | 50.0 % [40.0, 60.0] |" in card
    assert "judged by the frozen `nano`; the mean of the newest iteration is 0.700." in card
    assert "/home" not in card and "`m'odel`" in card and "base_model" not in card
    first = model_card(compose(["hub.repository=me/m", "model.solver=Qwen/Q", "reward.mode=rlvr"]), Fold(), 1)
    assert "base_model: Qwen/Q" in first and "not measured" in first and "Rewards are executed." in first


@pytest.mark.parametrize(
    ("mode", "held", "said"),
    [(0o644, "t", "chmod 600"), (0o600, "", "has none"), (0o600, "a b", "has none"), (0o600, "é", "hub.token_file")],
)
def test_a_token_file_that_is_open_or_empty_is_refused(mode: int, held: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(held)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=said):
        token_of(HubConfig(repository="me/mine", token_file=str(path)))


def test_without_a_file_the_token_comes_from_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", f" {TOKEN}\n")
    assert token_of(HubConfig(repository="me/mine")) == TOKEN
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(ConfigError, match="the variable HF_TOKEN has none"):
        token_of(HubConfig(repository="me/mine"))


@pytest.mark.parametrize("name", ["mine", "a/b/c", "a b/c", "../x", "/x"])
def test_a_repository_without_an_owner_stops_the_start(name: str) -> None:
    with pytest.raises(ConfigError, match="write OWNER/NAME"):
        compose([f"hub.repository='{name}'"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "there", [pytest.param(True, id="a hub"), pytest.param(False, id="no hub", marks=pytest.mark.long)]
)
def test_a_run_trains_and_pushes_and_status_says_so(there: bool, hub: Hub, tmp_path: Path) -> None:
    settings = ["run.name=mine", "run.max_iterations=3", "evals.problems=5", "evals.samples=2"]
    variables = {"HF_TOKEN": TOKEN} | ({} if there else {"HF_ENDPOINT": "http://127.0.0.1:9"})
    short_run(tmp_path, *settings, "solver.problems_per_iteration=2", "hub.repository=me/mine", **variables)
    command = [sys.executable, "-m", "codezero", "status", "--json"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    state = json.loads(told.stdout)["hub"]
    if there:
        assert state["iteration"] and not state["problem"] and {"README.md", "model.safetensors"} <= set(hub.files)
        card = hub.files["README.md"].decode()
        assert "| executed average@2 |" in card and str(tmp_path) not in card
        assert str(tmp_path) not in hub.files["config.json"].decode()
    else:
        assert state["round"] is None and state["failures"] == 1 and state["problem"]
    assert not any(TOKEN in path.read_text(errors="replace") for path in tmp_path.rglob("*.json*"))
    assert not any(TOKEN in path.read_text(errors="replace") for path in (tmp_path / "logs").rglob("*.log"))
