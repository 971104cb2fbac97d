"""The data API keeps what its OpenAPI document says, whatever is asked: schemathesis over every route but the stream.

The stream never ends by itself; test_api_events.py reads it.
"""

import re
from collections.abc import Iterator

import pytest
import schemathesis
from api_server import Served, played, served
from hypothesis import HealthCheck, settings

from codezero.monitor.api import DataApi, openapi
from codezero.monitor.openapi import Route
from codezero.monitor.reader import RunReader
from codezero.monitor.run_types import Health

schema = schemathesis.openapi.from_dict(openapi()).exclude(path_regex="/events$")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    base = tmp_path_factory.mktemp("schema")
    played(base / "one", 12).close("asked to stop")
    with served(base) as running:
        yield running


@schema.parametrize()
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_answers_are_as_described(case: schemathesis.Case, site: Served) -> None:
    case.call_and_validate(base_url=site.url)


@schema.include(path_regex="{run}").parametrize()
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_answers_about_a_run_that_exists_are_as_described(case: schemathesis.Case, site: Served) -> None:
    case.path_parameters |= {"run": "one"} | ({"id": 3} if "id" in case.path_parameters else {})
    answer = case.call_and_validate(base_url=site.url)
    assert answer.status_code in (200, 400, 404, 405)


def test_the_document_describes_exactly_the_routes_there_are(site: Served) -> None:
    document = site.get("/openapi.json").json
    assert document == openapi()
    api = DataApi(RunReader.__new__(RunReader))
    routes = {(route.method.lower(), route.path) for route in (*api.data, *api.probes, *api.documents)}
    described = {(method, path) for path, methods in document["paths"].items() for method in methods}
    assert described == routes
    for path, methods in document["paths"].items():
        assert {"200", "400"} <= set(methods["get"]["responses"])
        assert [one["name"] for one in methods["get"].get("parameters", []) if one["in"] == "path"] == re.findall(
            r"{(\w+)}", path
        )


def test_other_routes_are_described_beside(site: Served) -> None:
    extra = Route("post", "/api/x", "Try.", Health, body=Health, errors={409: "locked"}, token=True)
    told = openapi([extra])["paths"]["/api/x"]["post"]
    assert told["security"] == [{"token": []}] and set(told["responses"]) == {"200", "409"}
    assert told["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Health"}
    assert schemathesis.openapi.from_dict(openapi([extra]))["/api/x"]["POST"] is not None
