"""OpenTelemetry: gauges over OTLP/HTTP. Imported only when OTEL_EXPORTER_OTLP_ENDPOINT names a collector.

The other variables of OpenTelemetry count too (headers, timeout, OTEL_METRIC_EXPORT_INTERVAL, OTEL_SERVICE_NAME). A
collector that is down is asked again at each interval; the first failure has a warning, later ones are counted.
"""

import importlib
import logging
import os
import re
from typing import Any

from codezero.monitor.sinks import About, figures
from codezero.types import Metrics

_exporter: Any = importlib.import_module("opentelemetry.exporter.otlp.proto.http.metric_exporter")
_metrics: Any = importlib.import_module("opentelemetry.sdk.metrics")
_export: Any = importlib.import_module("opentelemetry.sdk.metrics.export")
_resources: Any = importlib.import_module("opentelemetry.sdk.resources")
"""By name, so that types are checked alike with and without the extra."""

logger = logging.getLogger(__name__)

LIBRARY = "opentelemetry"
MOST_GAUGES = 500
LEAVING_MILLISECONDS = 3_000
FOREIGN = re.compile(r"[^A-Za-z0-9_.-]")


class FirstOnly(logging.Handler):
    """The library says every failed export, several lines each; a person needs the first."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        if self.count == 1:
            logger.warning("the collector: %s; it is tried again, training goes on", record.getMessage())


class OtelSink:
    """A gauge for each figure, `codezero.reward.mean` for `reward/mean`, with the attributes `run` and `peer`."""

    def __init__(self, about: About) -> None:
        self._quiet = FirstOnly()
        library = logging.getLogger(LIBRARY)
        library.handlers, library.propagate = [self._quiet], False
        self._attributes = {"run": about.run, "peer": about.peer_id}
        named = {"service.name": os.environ.get("OTEL_SERVICE_NAME") or "codezero"}
        self._provider: Any = _metrics.MeterProvider(
            metric_readers=[_export.PeriodicExportingMetricReader(_exporter.OTLPMetricExporter())],
            resource=_resources.Resource.create({**named, "service.instance.id": about.peer_id}),
            shutdown_on_exit=False,  # `close` does, and in bounded time
        )
        self._meter: Any = self._provider.get_meter("codezero")
        self._gauges: dict[str, Any] = {}

    def observe(self, row: Metrics, seconds: float) -> None:
        for key, value in figures(row):
            gauge = self._gauges.get(key)
            if gauge is None and len(self._gauges) < MOST_GAUGES:
                gauge = self._gauges[key] = self._meter.create_gauge(gauge_name(key))
            if gauge is not None:
                gauge.set(value, self._attributes)

    def close(self) -> None:
        self._provider.shutdown(timeout_millis=LEAVING_MILLISECONDS)
        if self._quiet.count > 1:
            logger.info("the collector: %d failures were logged by its library", self._quiet.count)


def gauge_name(key: str) -> str:
    return f"codezero.{FOREIGN.sub('_', key.replace('/', '.'))}"[:255]
