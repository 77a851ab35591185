"""Incidents: what a service has refused, cut off or lost. For each one log record, one count, and one call of each listener.

A stranger may cause thousands of some types: of these only the first few in a while have a log record of their own, and the next
record has the number of the others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

log = logging.getLogger("queue_db.service")

# Most log records of one type, and the seconds in which they are counted.
_MOST, _PERIOD = 10, 10.0

# Longest detail, characters.
_LONGEST = 300


#: Where the scope of a request has its id.
REQUEST_ID = "queue_db.request_id"

#: The path before the token of a callback.
CALLBACKS = "/api/v1/callbacks/"


class IncidentType(StrEnum):
    """The type of an incident."""

    SLOW_REQUEST = "slow_request"  #: a request did not arrive in time
    SLOW_READER = "slow_reader"  #: a client did not take its answer
    BAD_REQUEST = "bad_request"  #: what came is not as HTTP allows
    TOO_LARGE = "too_large"  #: headers or a body
    TOO_MANY_BODIES = "too_many_bodies"  #: the bodies of all requests together
    TOO_MANY_CONNECTIONS = "too_many_connections"
    WRONG_HOST = "wrong_host"
    CROSS_SITE = "cross_site"  #: a change from a page of another site, or from a form that is too old
    UNAUTHORIZED = "unauthorized"  #: no token, or one that is unknown, expired or revoked
    FORBIDDEN = "forbidden"  #: the token lacks the scope, or the pattern of the queue
    LOGIN_FAILED = "login_failed"
    TOO_MANY_REQUESTS = "too_many_requests"  #: of one token
    TOO_MANY_JOBS = "too_many_jobs"  #: waiting in one queue
    CLAIM_RETURNED = "claim_returned"  #: its client had gone, or the answer could not be made
    CLAIM_NOT_RETURNED = "claim_not_returned"  #: … and its jobs or messages are free only when the lease ends
    STREAM_CUT = "stream_cut"  #: a client was too slow for its events
    SAMPLE_NOT_TAKEN = "sample_not_taken"
    DATABASE_AWAY = "database_away"
    DATABASE_READ_ONLY = "database_read_only"  #: it answers, and takes no changes
    DATABASE_BACK = "database_back"
    PROCESS_REPLACED = "process_replaced"  #: one of several processes had died
    REQUEST_FAILED = "request_failed"  #: the database was away, or refused it
    BUG = "bug"


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident."""

    type: IncidentType
    #: Which request, client or queue; no secrets.
    detail: str


@dataclass(frozen=True, slots=True)
class Line:
    """The log record of a type. ``each``: every incident has one, because clients without a token cannot cause them at will."""

    level: int
    text: str
    each: bool = False


_T = IncidentType

#: The log records by type.
LINES: Mapping[IncidentType, Line] = {
    _T.SLOW_REQUEST: Line(logging.INFO, "a request has not arrived in time"),
    _T.SLOW_READER: Line(logging.INFO, "a client does not take its answer, its connection is cut"),
    _T.BAD_REQUEST: Line(logging.WARNING, "a request is not as HTTP allows"),
    _T.TOO_LARGE: Line(logging.WARNING, "a request is too large"),
    _T.TOO_MANY_BODIES: Line(logging.WARNING, "the bodies of all requests are too large together"),
    _T.TOO_MANY_CONNECTIONS: Line(logging.WARNING, "there are too many connections"),
    _T.WRONG_HOST: Line(logging.WARNING, "a request is for another host name"),
    _T.CROSS_SITE: Line(logging.WARNING, "a change comes from another site, or from an old form"),
    _T.UNAUTHORIZED: Line(logging.WARNING, "a request has no valid token"),
    _T.FORBIDDEN: Line(logging.WARNING, "a token does not allow a request"),
    _T.LOGIN_FAILED: Line(logging.WARNING, "a login has failed"),
    _T.TOO_MANY_REQUESTS: Line(logging.WARNING, "a token sends too many requests"),
    _T.TOO_MANY_JOBS: Line(logging.WARNING, "too many jobs are waiting"),
    _T.CLAIM_RETURNED: Line(logging.INFO, "a claim is given back, its client did not get it"),
    _T.CLAIM_NOT_RETURNED: Line(logging.WARNING, "a claim could not be given back, it ends with its lease", each=True),
    _T.STREAM_CUT: Line(logging.INFO, "a client is too slow for its events, its stream is cut"),
    _T.SAMPLE_NOT_TAKEN: Line(logging.WARNING, "the queues were not counted", each=True),
    _T.DATABASE_AWAY: Line(logging.WARNING, "the database is away", each=True),
    _T.DATABASE_READ_ONLY: Line(logging.WARNING, "the database takes no changes, the service is read-only", each=True),
    _T.DATABASE_BACK: Line(logging.INFO, "the database is back", each=True),
    _T.PROCESS_REPLACED: Line(logging.WARNING, "a process that died is replaced", each=True),
    _T.REQUEST_FAILED: Line(logging.WARNING, "a request failed"),
    _T.BUG: Line(logging.ERROR, "a request failed by a bug"),
}

Listener = Callable[[Incident], None]
"""Called with each incident, in the thread or on the event loop where it happens: it must return at once."""


@dataclass(slots=True)
class _Window:
    since: float = float("-inf")
    lines: int = 0
    #: Incidents without a log record.
    rest: int = 0
    timer: threading.Timer | None = None


@dataclass(slots=True)
class Incidents:
    """The incidents of one application since it was made. Safe to share between threads."""

    _counts: Counter[IncidentType] = field(default_factory=Counter)
    _windows: dict[IncidentType, _Window] = field(default_factory=dict)
    _listeners: tuple[Listener, ...] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, listener: Listener) -> None:
        """Call ``listener`` with each incident from now on. Its exceptions are logged and have no effect."""
        self._listeners = (*self._listeners, listener)

    def counts(self) -> dict[IncidentType, int]:
        """How many there were of each type."""
        with self._lock:
            return {one: self._counts[one] for one in IncidentType}

    def record(self, type_: IncidentType, detail: str, *, trace: str = "") -> None:
        """Count, log and report one.

        :param trace: only for the log.
        """
        incident = Incident(type_, _clean(detail))
        with self._lock:
            self._counts[type_] += 1
            logged = LINES[type_].each or self._may_log(type_)
        if logged:
            _log(type_, f"{incident.detail}\n{trace}" if trace else incident.detail, 1)
        for listener in self._listeners:
            try:
                listener(incident)
            except Exception:
                log.exception("the listener %r failed at %r", listener, incident)

    def close(self) -> None:
        """Log what has no log record yet."""
        for type_ in list(self._windows):
            self._flush(type_)

    def _may_log(self, type_: IncidentType) -> bool:
        window = self._windows.setdefault(type_, _Window())
        now = time.monotonic()
        if now - window.since >= _PERIOD and not window.rest:
            window.since, window.lines = now, 0
        if window.lines < _MOST:
            window.lines += 1
            return True
        window.rest += 1
        if window.timer is None:
            window.timer = threading.Timer(_PERIOD, self._flush, (type_,))
            window.timer.daemon = True
            window.timer.start()
        return False

    def _flush(self, type_: IncidentType) -> None:
        with self._lock:
            window = self._windows[type_]
            rest, window.rest = window.rest, 0
            if window.timer is not None:
                window.timer.cancel()
                window.timer = None
        if rest:
            _log(type_, f"{rest:,} more", rest)


def _log(type_: IncidentType, detail: str, count: int) -> None:
    line = LINES[type_]
    log.log(line.level, "%s: %s", line.text, detail, extra={"incident": type_.value, "count": count})


def _clean(text: str) -> str:
    """Text of strangers for one line."""
    shown = "".join(one if one.isprintable() else "\ufffd" for one in text)
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"


def described(scope: Mapping[str, Any]) -> str:
    """A request, without its query, headers and the token of a callback: these may have secrets."""
    client = scope.get("client")
    whence = client[0] if client else "an unknown address"
    path, callback, _ = scope.get("path", "").partition(CALLBACKS)
    return f"{scope.get('method', '')} {path}{callback} from {whence}, request {scope.get(REQUEST_ID, 'unknown')}"


class Counted(Collector):
    """The incidents for a registry of Prometheus."""

    def __init__(self, incidents: Incidents) -> None:
        self._incidents = incidents

    def collect(self) -> Iterator[Metric]:
        """The metric; called by the registry."""
        found = CounterMetricFamily("queue_db_service_incidents", "What the service refused, cut off or lost", labels=["incident"])
        for type_, count in self._incidents.counts().items():
            found.add_metric([type_.value], count)
        yield found
