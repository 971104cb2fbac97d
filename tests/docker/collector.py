"""Runs in the container of test_docker_otel.py: takes OTLP over HTTP where the collector's own settings say.

A line of JSON on stdout for each gauge that came: name, value, and the attributes of the point and of its sender.
"""

import gzip
import http.server
import json
import sys

import yaml
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        for of in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            sender = {one.key: one.value.string_value for one in of.resource.attributes}
            for metric in (metric for scope in of.scope_metrics for metric in scope.metrics):
                for point in metric.gauge.data_points:
                    about = sender | {one.key: one.value.string_value for one in point.attributes}
                    value = point.as_double if point.HasField("as_double") else point.as_int
                    print(json.dumps({"path": self.path, "name": metric.name, "value": value} | about), flush=True)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    (option,) = sys.argv[1:]
    with open(option.removeprefix("--config=")) as file:
        host, port = yaml.safe_load(file)["receivers"]["otlp"]["protocols"]["http"]["endpoint"].split(":")
    http.server.ThreadingHTTPServer((host, int(port)), Collector).serve_forever()
