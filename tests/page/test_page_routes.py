"""The whole page server does what its OpenAPI document says: no request makes it fail, and it has no other routes."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from api_server import played
from browsing import Served, free_port, served
from hypothesis import HealthCheck, settings

from codezero.config import NodeConfig
from codezero.login.guard import ACCESS
from codezero.login.login import Login
from codezero.monitor.api import openapi
from codezero.wiring.page import build_page
from codezero.wiring.page_routes import OTHER_ROUTES

document = openapi(OTHER_ROUTES)
schema = schemathesis.openapi.from_dict(document).include(path_regex="/(session|claim|login|logout|sign-|get-|set-)")
"""Without the data, which test_api_schema.py asks for, and the calls to the contract, of which test_node_api.py makes
many."""
BY_THE_GUARD = {400, 403, 404, 405, 413, 415, 421}
"""Whatever is asked."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("routes")
    played(folder / "runs" / "one", 12).close("asked to stop")
    with served(folder, free_port()) as server:
        yield server


@schema.parametrize()
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_request_makes_it_fail(case: schemathesis.Case, server: Served) -> None:
    """Bearer for programs' routes, our own Origin for the others: whoever comes with less is stopped by the guard."""
    route = document["paths"][case.path].get(case.method.lower(), {})
    if route.get("security"):
        headers = {"Authorization": f"Bearer {(server.folder / 'login' / 'node.token').read_text()}"}
    else:
        headers = {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}
    answer = case.call(base_url=server.url, headers=headers)
    assert answer.status_code < 500, answer.text
    known = {int(status) for status in route.get("responses", {})} | BY_THE_GUARD
    assert answer.status_code in known, f"{answer.status_code} is not described: {answer.text[:200]}"


def test_the_document_describes_exactly_the_routes_there_are(tmp_path: Path) -> None:
    config = NodeConfig()
    config.login.directory, config.run.directory = str(tmp_path / "login"), str(tmp_path / "runs")
    (tmp_path / "runs").mkdir()
    app = build_page(config, None, Login(tmp_path / "login", announce=lambda _: None), contextlib.ExitStack())
    assert {path for path in app[ACCESS] if path.startswith("/api/")} == {
        path for path in document["paths"] if path.startswith("/api/")
    }
