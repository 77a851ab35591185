"""Hooks, wrappers and metrics."""

import asyncio
import threading

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import event

from queue_db import ArgumentError, Cancel, Dead, Retry, Snooze
from queue_db.instrumentation import prometheus
from queue_db.monitoring.tables import monitoring_tables
from queue_db.worker import Worker
from queue_db.worker.events import EventType
from tests.patience import wait_for

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


@pytest.fixture
def worker(db, queue):
    worker = Worker(db, queue.name, concurrency=1)
    outcomes = {"snooze": Snooze(1000), "retry": Retry("no", 1000), "cancel": Cancel(), "dead": Dead("no"), "done": 5}

    @worker.handles(None)
    def handler(job):
        if job.kind == "raise":
            raise ValueError("a bad one")
        return outcomes[job.kind]

    worker.kinds = [*outcomes, "raise"]
    return worker


def test_hooks_hear_of_everything_once(worker, queue):
    events = []
    worker.on(events.append)

    @worker.on
    def broken(event):
        raise RuntimeError("my own fault")

    ids = {queue.enqueue(kind): kind for kind in worker.kinds}
    worker.run(until_empty=True)
    seen = {(ids[event.job.id], event.type) for event in events}
    ends = {
        "snooze": EventType.SNOOZED,
        "retry": EventType.FAILED,
        "cancel": EventType.CANCELLED,
        "dead": EventType.DEAD,
        "done": EventType.COMPLETED,
        "raise": EventType.FAILED,
    }
    assert seen == {(kind, EventType.STARTED) for kind in ends} | set(ends.items())
    assert len(events) == 12
    assert all((event.seconds is None) == (event.type is EventType.STARTED) for event in events)
    with pytest.raises(ArgumentError):
        worker.on(5)


@SQLITE
def test_wrappers_go_around_functions_and_coroutines(db, queue):
    worker = Worker(db, queue.name, concurrency=1)
    order = []

    @worker.around
    def outer(job, call):
        order.append("outer")
        return call(job)

    @worker.around
    def inner(job, call):
        order.append("inner")
        return Cancel() if job.payload == "unwanted" else call(job)

    @worker.around
    async def awaited(job, call):
        order.append("awaited")
        return await call(job)

    worker.handles("function")(lambda job: order.append("function"))

    @worker.handles("coroutine")
    async def coroutine(job):
        await asyncio.sleep(0)
        order.append("coroutine")

    queue.enqueue("function")
    queue.enqueue("function", "unwanted")
    worker.run(until_empty=True)
    assert order == ["outer", "inner", "function", "outer", "inner"]
    order.clear()
    queue.enqueue("coroutine")
    worker.run(until_empty=True)
    assert order == ["awaited", "coroutine"]
    with pytest.raises(ArgumentError):
        worker.around(5)


def test_prometheus_counts_what_happens(worker, queue, db):
    registry = CollectorRegistry()
    prometheus.instrument(worker, registry)
    queue.enqueue_many([(kind, None) for kind in worker.kinds] * 2)
    worker.run(until_empty=True)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {"queue": queue.name, **labels})

    assert value("queue_db_jobs_total", kind="done", event="completed") == 2
    assert value("queue_db_jobs_total", kind="raise", event="failed") == 2
    assert value("queue_db_job_seconds_count", kind="done") == 2
    assert value("queue_db_wait_seconds_count", kind="done") == 2
    assert value("queue_db_wait_seconds_sum", kind="done") >= 0
    # The worker may have counted before all that, and the next count is due after a hundred times as long as that one took.
    forget_samples(db)
    wait_for(lambda: value("queue_db_depth", state="scheduled") is not None)
    assert value("queue_db_depth", state="scheduled") == 6
    assert value("queue_db_depth", state="dead") == 2
    assert value("queue_db_oldest_seconds") == 0
    assert registry.get_sample_value("queue_db_claimed_total") == db.counters.claimed == 12


def forget_samples(db):
    """The next count is due at once, also where other tests have taken one."""
    with db.database.begin("forget samples") as connection:
        connection.execute(monitoring_tables(db.store.tables).samples.delete())


@SQLITE
def test_hooks_cost_no_statement(worker, queue):
    """Counted in the threads that call them: what the others send depends on the time."""
    sent = []

    def note(_connection, _cursor, statement, *_):
        if threading.current_thread().name.startswith(("queue_db handler", "queue_db completer")):
            sent.append(statement)

    event.listen(queue.db.database.engine, "before_cursor_execute", note)

    def statements() -> int:
        sent.clear()
        queue.enqueue("done")
        worker.run(until_empty=True)
        return len(sent)

    before = statements()
    prometheus.instrument(worker, CollectorRegistry())
    assert statements() == before > 0
