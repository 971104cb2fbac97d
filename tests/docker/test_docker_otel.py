"""What a node in a container measures reaches the collector of docker-compose.yaml, by its name there.

No registry of images is needed, so what answers as the collector is a small one of our own. Does not show that the
image which the compose file names does with the settings of docker/otel-collector.yaml what they say.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from builders_docker import QUICK, Node, Project, build_of, free_port

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]
COLLECTOR = "codezero-test:collector"
RECIPE = """
FROM {image}
COPY collector.py /opt/collector.py
ENTRYPOINT ["python", "/opt/collector.py"]
HEALTHCHECK NONE
"""


@pytest.fixture
def collector(image: str) -> str:
    """An image that does a collector's work, made of the node's own."""
    return build_of(COLLECTOR, RECIPE.format(image=image), Path(__file__).with_name("collector.py"))


def gauges(container: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Node(container).logs().splitlines() if line.startswith("{")]


def test_what_a_node_measures_reaches_the_collector(project: Project, collector: str) -> None:
    project.variables |= {
        "OTEL_IMAGE": collector,
        "OTEL_PORT": str(free_port()),
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://otel-collector:4318",
        "OTEL_METRIC_EXPORT_INTERVAL": "1000",
    }
    project("up", "--detach", "otel-collector")
    (there,) = project.containers()
    done = project("run", "--rm", "-T", "swarm-cpu", *QUICK, "run.max_iterations=3", "login.page=off")
    assert "iteration 3" in done.stdout and "training goes on" not in done.stdout + done.stderr
    came = gauges(there)
    assert {one["path"] for one in came} == {"/v1/metrics"}
    assert {one["run"] for one in came} == {"mine"} and {one["service.name"] for one in came} == {"codezero"}
    assert all(one["peer"] == one["service.instance.id"] for one in came) and len({one["peer"] for one in came}) == 1
    assert max(one["value"] for one in came if one["name"] == "codezero.iteration") == 3
    rewards = {round(one["value"], 6) for one in came if one["name"] == "codezero.reward.mean"}
    assert rewards and all(0.0 <= reward <= 1.0 for reward in rewards)
    assert len({one["name"] for one in came}) > 20


def test_a_collector_that_is_not_there_costs_nothing_but_a_warning(project: Project) -> None:
    project.variables |= {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://otel-collector:4318",
        "OTEL_METRIC_EXPORT_INTERVAL": "500",
    }
    done = project("run", "--rm", "-T", "swarm-cpu", *QUICK, "run.max_iterations=3", "login.page=off")
    assert "iteration 3" in done.stdout
    assert (done.stdout + done.stderr).count("training goes on") == 1
