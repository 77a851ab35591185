"""What OpenTelemetry exports, kept in memory."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from queue_db import QueueDB
from queue_db.aio import AsyncQueueDB
from queue_db.instrumentation.messaging import CONVENTIONS
from queue_db.instrumentation.opentelemetry import instrument
from queue_db.worker import Worker


class Seen:
    """What was exported."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider(metric_readers=[self._reader])

    def watch(self, of: Worker | QueueDB | AsyncQueueDB) -> None:
        instrument(of, self.tracers, self.meters)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._spans.get_finished_spans())

    def named(self, name: str) -> ReadableSpan:
        (span,) = (span for span in self.spans if span.name == name)
        return span

    def metrics(self) -> dict[str, Any]:
        found = self._reader.get_metrics_data()
        scopes = [] if found is None else [scope for resource in found.resource_metrics for scope in resource.scope_metrics]
        assert {scope.schema_url for scope in scopes} <= {f"https://opentelemetry.io/schemas/{CONVENTIONS}"}
        return {metric.name: metric for scope in scopes for metric in scope.metrics}

    def counted(self, metric: str, operation: str, **also: str) -> float:
        """The number of measurements, or their sum, with this operation and these attributes: ``error__type=…``."""
        wanted = {"messaging.operation.name": operation, **{name.replace("__", "."): value for name, value in also.items()}}
        points = self.metrics()[metric].data.data_points
        return sum(
            getattr(point, "value", getattr(point, "count", 0))
            for point in points
            if wanted.items() <= dict(point.attributes).items()
        )


def names_of(module: ModuleType) -> set[str]:
    """The names of the conventions in a module of theirs that are not deprecated: constants, each followed by its text."""
    return {value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}


def about(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})
