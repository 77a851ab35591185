"""Spans and instruments of one database, as the messaging conventions of OpenTelemetry name them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from opentelemetry import metrics, propagate, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from queue_db.db import QueueDB
from queue_db.errors import LeaseLostError
from queue_db.model import Verdict
from queue_db.outcomes import Suspended

#: The version of the conventions whose names are used. The names may change with it: traces and metrics say it in their schema URL.
CONVENTIONS = "1.44.0"

_NAME = "queue_db"
SCHEMA = f"https://opentelemetry.io/schemas/{CONVENTIONS}"

# Upper bounds of durations that the conventions want, seconds.
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)

_UNREADABLE = "OpenTelemetry's propagator cannot read the headers of a job or message: there is no link to where it was sent"

Attributes = dict[str, str | int]

_T = TypeVar("_T")

log = logging.getLogger("queue_db.instrumentation")


class Place(NamedTuple):
    """Where messages are sent to, or come from: a queue, or a feed."""

    name: str
    #: The cursor that consumers of a feed read by; None: they have none.
    cursor: str | None = None


class Operation:
    """A span under way, and what its metrics get at its end."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self.error: str | None = None

    def note(self, **found: str | int) -> None:
        """Add attributes: ``messaging__message__id=…``."""
        for name, value in found.items():
            self._span.set_attribute(name.replace("__", "."), value)

    def fail(self, kind: str, why: str, error: BaseException | None = None) -> None:
        """The operation has failed with this ``error.type``."""
        self.error = kind
        self._span.set_attribute("error.type", kind)
        self._span.set_status(Status(StatusCode.ERROR, why))
        if error is not None:
            self._span.record_exception(error)

    def lose(self, why: str) -> None:
        """Leases were lost, so something is not settled."""
        self.fail(LeaseLostError.__qualname__, why)


class Telemetry:
    """The tracer and the instruments for one database."""

    def __init__(self, db: QueueDB, provider: trace.TracerProvider | None, meter_provider: metrics.MeterProvider | None) -> None:
        url = db.database.engine.url
        self._usual: Attributes = {"messaging.system": _NAME}
        if url.host:
            self._usual["server.address"] = url.host
        if url.host and url.port:
            self._usual["server.port"] = url.port
        self._db = db
        self._complained = False
        self._tracer = trace.get_tracer(_NAME, tracer_provider=provider, schema_url=SCHEMA)
        meter = metrics.get_meter(_NAME, meter_provider=meter_provider, schema_url=SCHEMA)
        self._calls = meter.create_histogram(
            "messaging.client.operation.duration",
            unit="s",
            description="Duration of messaging operation initiated by a producer or consumer client.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        self._runs = meter.create_histogram(
            "messaging.process.duration",
            unit="s",
            description="Duration of processing operation.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        self._sent = meter.create_counter(
            "messaging.client.sent.messages",
            unit="{message}",
            description="Number of messages producer attempted to send to the broker.",
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages",
            unit="{message}",
            description="Number of messages that were delivered to the application.",
        )

    def _attributes(self, name: str, sort: str, place: Place) -> Attributes:
        found: Attributes = {
            **self._usual,
            "messaging.operation.name": name,
            "messaging.operation.type": sort,
            "messaging.destination.name": place.name,
        }
        return found if place.cursor is None else {**found, "messaging.consumer.group.name": place.cursor}

    @contextmanager
    def operation(
        self, name: str, sort: str, place: Place, kind: SpanKind, more: Mapping[str, str | int], links: Sequence[Link] = ()
    ) -> Iterator[Operation]:
        """A span that is the current one in the block, and its duration."""
        usual = self._attributes(name, sort, place)
        began = time.perf_counter()
        with self._tracer.start_as_current_span(
            f"{name} {place.name}",
            kind=kind,
            attributes={**usual, "messaging.client.id": self._db.worker, **more},
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            operation = Operation(span)
            try:
                yield operation
            except Suspended:  # the run has ended as it should
                raise
            except BaseException as error:
                operation.fail(type(error).__qualname__, f"{type(error).__name__}: {error}", error)
                raise
            finally:
                durations = self._runs if sort == "process" else self._calls
                durations.record(time.perf_counter() - began, _failed(usual, operation.error))

    def sent(self, name: str, place: Place, number: int, error: str | None) -> None:
        """Count messages that were sent, or that could not be."""
        if number:
            self._sent.add(number, _failed(self._attributes(name, "send", place), error))

    def receive(self, name: str, place: Place, call: Callable[[], _T], found: Callable[[_T], Sequence[Any]]) -> _T:
        """The answer of ``call``, in a span. ``found``: its messages or jobs."""
        began = self.receiving(name, place)
        try:
            answer = call()
        except BaseException as error:
            self.received(name, place, (), began, error)
            raise
        self.received(name, place, found(answer), began)
        return answer

    def receiving(self, name: str, place: Place) -> tuple[trace.Span, float]:
        """The span of a claim that begins, and when, for :meth:`received`."""
        usual = self._attributes(name, "receive", place)
        attributes = {**usual, "messaging.client.id": self._db.worker}
        span = self._tracer.start_span(f"{name} {place.name}", kind=SpanKind.CLIENT, attributes=attributes)
        return span, time.perf_counter()

    def received(
        self,
        name: str,
        place: Place,
        jobs: Sequence[Any],
        began: tuple[trace.Span, float],
        error: BaseException | None = None,
    ) -> None:
        """End the span of a claim, unless it won nothing: idle workers claim often. A span without an end is dropped."""
        span, at = began
        usual = self._attributes(name, "receive", place)
        kind = None if error is None else type(error).__qualname__
        self._calls.record(time.perf_counter() - at, _failed(usual, kind))
        if jobs:
            self._consumed.add(len(jobs), usual)
        elif error is None:
            return
        span.set_attributes(of_messages(jobs))
        for link in self.links(jobs):
            span.add_link(link.context)
        if error is not None:
            Operation(span).fail(type(error).__qualname__, f"{type(error).__name__}: {error}", error)
        span.end()

    def settled(self, name: str, place: Place, given: Any, settle: Callable[[], list[Verdict]]) -> list[Verdict]:
        """Settle jobs in a span."""
        jobs: Sequence[Any] = given if isinstance(given, list | tuple) else ()
        if isinstance(given, list | tuple) and not given:
            return settle()
        with self.operation(name, "settle", place, SpanKind.CLIENT, of_messages(jobs), self.links(jobs)) as operation:
            verdicts = settle()
            if lost := verdicts.count(Verdict.LOST):
                operation.lose(f"{lost} of {len(verdicts)} leases were lost")
            return verdicts

    def links(self, found: Iterable[Any]) -> list[Link]:
        """Links to where jobs were enqueued, or messages published.

        What a propagator cannot read gives no link, and the first error is logged: the claim or pop has committed, and an exception
        would take its answer from the caller.
        """
        links: list[Link] = []
        for one in found:
            try:
                if hasattr(one, "headers") and (context := _sent_in(one.headers)).is_valid:
                    links.append(Link(context))
            except Exception:
                if not self._complained:
                    self._complained = True
                    log.exception(_UNREADABLE)
        return links


def _failed(attributes: Attributes, error: str | None) -> Attributes:
    return attributes if error is None else {**attributes, "error.type": error}


def of_messages(found: Sequence[Any]) -> Attributes:
    """What a span says of its jobs or messages: the id of a single one, the number of several."""
    if len(found) == 1 and hasattr(found[0], "headers"):
        return {"messaging.message.id": id_of(found[0]), "queue_db.kind": found[0].kind}
    return {"messaging.batch.message_count": len(found)} if found else {}


def id_of(one: Any) -> str:
    """The id of a job; the position of a message of a feed."""
    position = getattr(one, "position", None)
    return str(one.id) if position is None else str(position)


def _sent_in(headers: Mapping[str, Any]) -> trace.SpanContext:
    """The context in which a job was enqueued, or a message published."""
    return trace.get_current_span(propagate.extract({key: str(value) for key, value in headers.items()})).get_span_context()
