"""The doctor names the code of one's own, and asks about each file once, until it changes."""

from pathlib import Path

import pytest

from codezero.cli import main
from codezero.config import NodeConfig
from codezero.errors import ConfigError
from codezero.ops import own_code as module
from codezero.ops.findings import CheckState
from codezero.ops.own_code import ANSWERS, ask, plugins
from codezero.settings import compose


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodeConfig:
    """Of a reward in own.py, which would not survive being loaded."""
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text("raise SystemExit")
    return compose(["reward.function=own.py:reward"])


def asked(config: NodeConfig, answer: str) -> list[str]:
    questions: list[str] = []
    ask(config, lambda question: questions.append(question) or answer)
    return questions


def test_without_code_of_ones_own_nothing_is_asked_or_written(tmp_path: Path) -> None:
    config = compose([f"run.directory={tmp_path / 'runs'}"])
    assert plugins(config).state is CheckState.OK and asked(config, "y") == []
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("answer", "state"), [("y", CheckState.OK), ("Yes", CheckState.OK), ("", CheckState.WARN)])
def test_the_answer_is_asked_for_once(config: NodeConfig, answer: str, state: CheckState) -> None:
    before = plugins(config)
    assert before.state is CheckState.WARN and "nobody agreed to reward.function=own.py:reward" in before.text
    (question,) = asked(config, answer)
    assert str(Path("own.py").resolve()) in question and "this node's rights" in question
    after = plugins(config)
    assert (
        after.state is state and "reward.function=own.py:reward: their code runs with this node's rights" in after.text
    )
    assert asked(config, "n") == [] and plugins(config) == after
    assert Path("runs", ANSWERS).stat().st_mode & 0o077 == 0


def test_a_file_that_changed_is_asked_about_again(config: NodeConfig) -> None:
    asked(config, "y")
    Path("own.py").write_text("raise SystemExit  # worse")
    assert plugins(config).state is CheckState.WARN and len(asked(config, "y")) == 1
    assert plugins(config).state is CheckState.OK


def test_what_cannot_be_read_is_one_line(config: NodeConfig) -> None:
    Path("runs").mkdir()
    Path("runs", ANSWERS).write_text("[")
    with pytest.raises(ConfigError, match=r"^runs/plugins\.json cannot be read: .*; remove it$"):
        plugins(config)


def test_a_run_names_it_and_never_asks(
    config: NodeConfig, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ask", lambda config: pytest.fail("it asked"))
    Path("runs").mkdir()
    Path("runs", "taken").write_text("")  # where the folder of the run would be: it ends before anything heavy loads
    assert main(["run", "reward.function=own.py:reward", "run.name=taken"]) == 2
    assert "codezero: reward.function=own.py:reward: their code runs with this node's rights" in capsys.readouterr().out
    assert main(["run", "reward.function=away.py:reward"]) == 2
    assert "reward.function=away.py:reward: there is no file" in capsys.readouterr().err
