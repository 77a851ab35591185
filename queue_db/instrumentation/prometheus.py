"""Metrics for Prometheus: events of jobs, how long they waited and ran, misses and retries of claims, depth and age of queues.

Call ``instrument(worker)`` once, and serve the metrics with ``prometheus_client.start_http_server(9000, addr="127.0.0.1")`` or in
your own web server; with ``queue-db work --processes`` on one port for each ``QUEUE_DB_PROCESS``. No statement is sent for a job.
One process of all counts depth and age, at most 1 % of the time (:mod:`queue_db.monitoring.sampling`); a scrape reads one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from queue_db.db import QueueDB
from queue_db.errors import QueueDBError
from queue_db.model import Counters
from queue_db.monitoring.sampling import MOST, STATES, Depths, Sampling
from queue_db.monitoring.tables import COUNTS
from queue_db.notifications.deaths import Death
from queue_db.worker import Worker
from queue_db.worker.events import EventType, JobEvent

#: Upper bounds, seconds: from a job that does nothing to one that runs for an hour.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)


def instrument(worker: Worker, registry: CollectorRegistry = REGISTRY, *, depth: bool = True) -> None:
    """Count the events of the worker's jobs.

    :param depth: also export the number of jobs by state and the age of the oldest. One process of all that use the database counts
        them, every ten seconds, or if it takes s seconds, 100 · s seconds after the last count; the others read its result.
        ``queue_db_depth_age_seconds`` is the age of that result. A count stops at 10,000 jobs of a queue and state;
        ``queue_db_depth_capped`` is 1 where there may be more.
    """
    jobs = Counter("queue_db_jobs", "Events of jobs", ["queue", "kind", "event"], registry=registry)
    deaths = "Jobs that went to the dead table, or were lost at most once, by reason"
    dead = Counter("queue_db_dead", deaths, ["queue", "kind", "reason"], registry=registry)
    runs = Histogram("queue_db_job_seconds", "How long handlers ran", ["queue", "kind"], buckets=BUCKETS, registry=registry)
    waits = Histogram(
        "queue_db_wait_seconds",
        "From due to claimed, by the database's clock",
        ["queue", "kind"],
        buckets=BUCKETS,
        registry=registry,
    )

    def count(event: JobEvent) -> None:
        job = event.job
        jobs.labels(job.queue, job.kind, event.type.value).inc()
        if event.seconds is not None:
            runs.labels(job.queue, job.kind).observe(event.seconds)
        if event.type is EventType.STARTED and job.waited is not None:
            waits.labels(job.queue, job.kind).observe(job.waited)

    def count_death(death: Death) -> None:
        dead.labels(death.job.queue, death.job.kind, death.reason.value).inc()

    worker.on(count)
    # Not from the worker's events: other code of this process that uses the same database object counts too.
    worker.db.deaths.add(count_death)
    stuck = Gauge("queue_db_stuck", "Slots of handlers that have not returned after a timeout or a lost lease", registry=registry)
    stuck.set_function(lambda: worker.stuck)
    registry.register(_Database(worker.db, list(worker.options.limits) if depth else []))


def collectors(db: QueueDB, queues: Sequence[str] | None, shows: Callable[[str], bool]) -> Iterable[Collector]:
    """What a registry collects of a database object without a worker: its counters, depth and age of these queues, what happened.

    :param queues: None: the database does not answer, and is not asked for anything.
    :param shows: whether what happened in a queue is shown, also in one that is empty now: what all workers and services of the
        database have reported of the last minute.
    """
    if queues is None:
        return (_Database(db, [], up=False),)
    return _Database(db, queues, up=True, shows=shows), _LastMinute(db, shows)


class _LastMinute(Collector):
    """What happened in the queues, in all processes together."""

    def __init__(self, db: QueueDB, shows: Callable[[str], bool]) -> None:
        self._db = db
        self._shows = shows

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not query the database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics; called by the registry."""
        text = "Jobs completed, attempts failed, jobs died, leases lost, candidates missed in the last minute, in all processes"
        events = GaugeMetricFamily("queue_db_last_minute", text, labels=["queue", "event"])
        try:
            found = self._db.metrics.latest()
        except QueueDBError:
            return  # a gap in the graph
        for one in found:
            if self._shows(one.queue):
                for event in COUNTS:
                    events.add_metric([one.queue, event], getattr(one, event))
        yield events


class _Database(Collector):
    """The counters of the database object, and the depth and age of the queues."""

    def __init__(
        self, db: QueueDB, queues: Iterable[str], *, up: bool | None = None, shows: Callable[[str], bool] = lambda name: True
    ) -> None:
        self._db = db
        self._shows = shows
        self._up = up
        self._queues = list(queues)
        self._sampling = Sampling(db.core)

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not query the database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics; called by the registry."""
        for name in (*(field.name for field in fields(Counters)), "candidates"):
            if name == "dead":
                continue  # counted by reason above
            counter = CounterMetricFamily(f"queue_db_{name}", f"db.counters.{name}")
            counter.add_metric([], getattr(self._db.counters, name))
            yield counter
        if (replicas := self._db.core.replicas) is not None:
            text = "Seconds that the replica of the last read was behind; infinite: it does not answer or replicate; NaN: unknown"
            yield GaugeMetricFamily("queue_db_replica_lag_seconds", text, replicas.lag)
        found, up = self._read()
        if up is not None:
            yield GaugeMetricFamily("queue_db_up", "1: the database answers; 0: it does not", up)
        if found is None:
            return
        depth = GaugeMetricFamily("queue_db_depth", f"Jobs by state, counted up to {MOST:,}", labels=["queue", "state"])
        capped = GaugeMetricFamily(
            "queue_db_depth_capped", "1: there may be more jobs than queue_db_depth", labels=["queue", "state"]
        )
        age = GaugeMetricFamily("queue_db_oldest_seconds", "How long the oldest due job has been due", labels=["queue"])
        nothing = dict.fromkeys(STATES, 0)
        for name in self._queues:
            for state, number in found.jobs.get(name, nothing).items():
                depth.add_metric([name, state], number)
                capped.add_metric([name, state], state in found.capped.get(name, ()))
            age.add_metric([name], found.oldest.get(name, 0.0))
        yield from (depth, capped, age)
        yield from self._operations(found)
        yield GaugeMetricFamily("queue_db_depth_age_seconds", "How long ago queue_db_depth was counted", found.age)

    def _operations(self, found: Depths) -> Iterator[Metric]:
        """What the alerts of docs/monitoring.md need beside depth and age."""
        of = found.operations
        workers = GaugeMetricFamily("queue_db_workers", "Workers that claim from the queue", labels=["queue"])
        paused = GaugeMetricFamily("queue_db_paused", "1: the queue is paused", labels=["queue"])
        text = "Jobs that wait because no worker has had a handler for their kind"
        unknown = GaugeMetricFamily("queue_db_unknown_kinds", text, labels=["queue"])
        for name in self._queues:
            workers.add_metric([name], of.workers.get(name, 0))
            paused.add_metric([name], name in of.paused)
            unknown.add_metric([name], found.unknown.get(name, 0))
        text = "Messages of the feed after the position of the cursor, of the 100 cursors that are the furthest behind"
        behind = GaugeMetricFamily("queue_db_cursor_behind", text, labels=["feed", "cursor"])
        for feed, cursor, number in of.cursors:
            if self._shows(feed):
                behind.add_metric([feed, cursor], number)
        yield from (workers, paused, unknown, behind)
        yield GaugeMetricFamily("queue_db_silent_workers", "Registered workers without a heartbeat for 30 s", of.silent)
        yield GaugeMetricFamily("queue_db_stuck_slots", "Slots of handlers that have not returned, in all workers", of.stuck)
        yield GaugeMetricFamily("queue_db_late_schedules", "Schedules that are more than a minute late", of.late)
        yield GaugeMetricFamily("queue_db_schedule_late_seconds", "How late the latest of them is", of.latest)

    def _read(self) -> tuple[Depths | None, bool | None]:
        """The counts, and whether the database answers; None: it was not asked."""
        if self._up is False or not self._queues:
            return None, self._up
        try:
            return self._sampling.depths(), True
        except QueueDBError:
            return None, False  # a gap in the graph
