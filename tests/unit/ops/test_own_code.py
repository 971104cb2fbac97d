"""The doctor and each start name the code of one's own, without loading it."""

from pathlib import Path

import pytest

from codezero.cli import main
from codezero.errors import ConfigError
from codezero.ops.doctor import plugins
from codezero.settings import compose

NAMED = "reward.function=own.py:reward: their code runs with this node's rights"


@pytest.fixture(autouse=True)
def own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text("raise SystemExit")


def test_the_doctor_names_it() -> None:
    assert "nothing but this package's own code" in plugins(compose()).text
    assert NAMED in plugins(compose(["reward.function=own.py:reward"])).text
    with pytest.raises(ConfigError, match=r"reward\.function=away\.py:reward: there is no file"):
        plugins(compose(["reward.function=away.py:reward"]))


def test_a_run_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    Path("runs").mkdir()
    Path("runs", "taken").write_text("")  # where the folder of the run would be: it ends before anything heavy loads
    assert main(["run", "reward.function=own.py:reward", "run.name=taken"]) == 2
    assert f"codezero: {NAMED}" in capsys.readouterr().out
    assert main(["run", "reward.function=away.py:reward"]) == 2
    assert "reward.function=away.py:reward: there is no file" in capsys.readouterr().err
