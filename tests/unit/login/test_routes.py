"""The whole page server: which routes it has, who may ask each, and what is not there."""

from pathlib import Path

from builders.login import NO_ACCOUNT

from codezero.config import NodeConfig
from codezero.login.guard import ACCESS, Access
from codezero.login.login import Login
from codezero.wiring.page import build_page

ROUTES = {
    Access.OPEN: "session claim/passkey/options claim/passkey/verify claim/passphrase login/passkey/options "
    "login/passkey/verify login/passphrase logout",
    Access.READABLE: "runs runs/{run} runs/{run}/events runs/{run}/rollouts runs/{run}/rollouts/{id} "
    "runs/{run}/settings runs/{run}/log runs/{run}/checkpoints runs/{run}/leaderboard "
    "runs/{run}/market runs/{run}/market/games runs/{run}/market/games/{id}",
    Access.BEARER: "sign-transaction claim/code",
}


def test_each_route_has_the_access_it_is_meant_to_have(tmp_path: Path) -> None:
    config = NodeConfig()
    config.login.directory, config.run.directory = str(tmp_path / "login"), str(tmp_path / "runs")
    (tmp_path / "runs").mkdir()
    login = Login(tmp_path / "login", announce=lambda _: None, accounts=NO_ACCOUNT)
    app = build_page(config, None, login)
    routes = {f"/api/{path}": access for access, paths in ROUTES.items() for path in paths.split()}
    assert dict(app[ACCESS]) == routes | {
        "/healthz": Access.PROBE, "/metrics": Access.PROBE, "/{path}": Access.OPEN,
    }  # fmt: skip
