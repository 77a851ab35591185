"""A handler completes its job in its own transaction: what counts is whether that was committed, which the worker finds out."""

import logging
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from queue_db import Cancel, Dead, JobNotFoundError, Retry, Snooze, State, Verdict
from queue_db.backoff import constant
from queue_db.testing import drain
from queue_db.worker import Worker
from queue_db.worker.completer import Completer, JobResult
from queue_db.worker.events import EventType
from tests.aio.loop import for_asyncio
from tests.patience import HOURS, PATIENCE, wait_for
from tests.worker import in_processes
from tests.worker.serving import serving

ENDS = {"completed", "failed", "snoozed", "cancelled", "released", "dead", "lost"}


def rolled_back(queue, job):
    """Complete the job in a transaction that is rolled back, without an exception that the handler would raise."""
    with suppress(ZeroDivisionError), queue.transaction() as connection:
        assert job.complete(using=connection)
        raise ZeroDivisionError


def committed(queue, job):
    with queue.transaction() as connection:
        assert job.complete(using=connection)


def begun(queue, job):
    """Complete the job in a transaction that stays open; return what ends it: ``end(commit=True)``."""
    block = queue.transaction()
    assert job.complete(using=block.__enter__())

    def end(*, commit):
        error = None if commit else ZeroDivisionError()
        assert not block.__exit__(error and ZeroDivisionError, error, None)

    return end


def ended(worker):
    """Collect the events at which attempts end."""
    events = []
    worker.on(lambda event: events.append(event.type) if event.type is not EventType.STARTED else None)
    return events


def counts(worker):
    """The counts of the run that are not 0."""
    return {name: number for name in sorted(ENDS) if (number := getattr(worker.summary, name))}


def counted(queue):
    """What the verbs have counted: in the process, and for the metrics."""
    queue.db.metrics.flush()
    written = queue.db.metrics.history(queue.name, since=datetime.now(UTC) - timedelta(hours=1))
    sums = {count: sum(getattr(one, count) for one in written) for count in ("completed", "failed", "lost")}
    counters = queue.db.counters
    return counters.applied, counters.lost, {count: number for count, number in sums.items() if number}


@pytest.mark.parametrize("removal", ["delete", "delete_mark"])
@pytest.mark.parametrize("settle", [committed, rolled_back])
def test_a_handler_that_returns_has_completed_its_job_either_way(open_db, name, settle, removal, log):
    queue = open_db(removal=removal).queue(name)
    job_id = queue.enqueue("n", group="one at a time")
    after = queue.enqueue("after", group="one at a time")
    worker = serving(queue, {"n": lambda job: settle(queue, job), "after": lambda job: None})
    events = ended(worker)
    worker.run(until_empty=True)
    assert events == [EventType.COMPLETED] * 2
    assert counts(worker) == {"completed": 2}
    assert counted(queue) == (2 + (settle is rolled_back), 0, {"completed": 2})
    for gone in (job_id, after):
        with pytest.raises(JobNotFoundError):
            queue.get(gone)
    assert not log.has("lost")


def test_the_result_is_kept_if_the_handlers_own_completion_was_rolled_back(queue):
    job_id = queue.enqueue("n")
    worker = Worker(queue.db, queue.name)
    worker.handles("n", result_ttl=HOURS)(lambda job: rolled_back(queue, job) or {"pages": 3})
    worker.run(until_empty=True)
    assert queue.db.wait(job_id, timeout=PATIENCE).result == {"pages": 3}
    assert counts(worker) == {"completed": 1}


@pytest.mark.parametrize("settle", [committed, rolled_back])
@pytest.mark.parametrize(
    ("outcome", "event", "state"),
    [
        (Snooze(HOURS), EventType.SNOOZED, State.SCHEDULED),
        (Retry("busy", HOURS), EventType.FAILED, State.SCHEDULED),
        (Dead("no use"), EventType.DEAD, State.DEAD),
        (Cancel(), EventType.CANCELLED, None),
        (ValueError("broken"), EventType.FAILED, State.SCHEDULED),
    ],
    ids=["snooze", "retry", "dead", "cancel", "raises"],
)
def test_another_outcome_counts_if_the_handlers_own_completion_was_rolled_back(queue, settle, outcome, event, state, log):
    def handler(job):
        settle(queue, job)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    job_id = queue.enqueue("n")
    worker = serving(queue, handler)
    events = ended(worker)
    worker.run(until_empty=True)
    if settle is committed:
        event, state = EventType.COMPLETED, None
    assert events == [event]
    assert counts(worker) == {event.value: 1}
    _, lost, metrics = counted(queue)
    assert (lost, metrics.get("completed", 0), metrics.get("failed", 0)) == (
        0,
        event is EventType.COMPLETED,
        event is EventType.FAILED,
    )
    if state is None:
        with pytest.raises(JobNotFoundError):
            queue.get(job_id)
    else:
        assert queue.get(job_id).state is state


def test_a_second_transaction_may_complete_what_the_first_one_has_not(queue):
    def handler(job):
        rolled_back(queue, job)
        committed(queue, job)

    queue.enqueue("n")
    worker = serving(queue, handler)
    worker.run(until_empty=True)
    assert counts(worker) == {"completed": 1}
    assert counted(queue) == (1, 0, {"completed": 1})


def test_a_handler_goes_on_after_a_rollback_that_it_tells(queue):
    saved = []

    def handler(job):
        rolled_back(queue, job)
        saved.append(job.state.save("too early"))
        job.rolled_back()
        saved.append(job.state.save("in time"))
        lease, wanted = job.lease_ends, job.version + 1
        wait_for(lambda: job.version >= wanted and job.lease_ends > lease)  # the heartbeat extends it again

    queue.enqueue("n")
    worker = serving(queue, handler, lease=1)
    events = ended(worker)
    worker.run(until_empty=True)
    assert saved == [Verdict.LOST, Verdict.APPLIED]
    assert events == [EventType.COMPLETED]
    assert counts(worker) == {"completed": 1}
    assert counted(queue)[1:] == (0, {"completed": 1})


def test_a_rollback_that_was_a_commit_is_lost_and_nothing_runs_twice(queue):
    runs = []

    def handler(job):
        runs.append(job.id)
        committed(queue, job)
        job.rolled_back()  # the answer to its COMMIT was lost
        raise ValueError("no answer")

    job_id = queue.enqueue("n")
    worker = serving(queue, handler)
    events = ended(worker)
    worker.run(until_empty=True)
    assert (runs, events) == ([job_id], [EventType.LOST])
    with pytest.raises(JobNotFoundError):
        queue.get(job_id)


def test_a_transaction_of_the_job_needs_no_look(queue, monkeypatch):
    def handler(job):
        with job.transaction():
            pass

    monkeypatch.setattr("queue_db.worker.completer.settle_sql.look", None)
    queue.enqueue("n")
    worker = serving(queue, handler)
    worker.run(until_empty=True)
    assert counts(worker) == {"completed": 1}
    assert counted(queue) == (1, 0, {"completed": 1})


@pytest.mark.parametrize("commits", [True, False])
def test_a_coroutine_that_returns_has_completed_its_job_either_way(kind, url, queue, commits):
    waits = {"timeout": PATIENCE} if kind == "sqlite" else {}
    engine = create_async_engine(for_asyncio(url), poolclass=NullPool, connect_args=waits)

    async def handler(job):
        async with AsyncSession(engine) as session:
            assert await job.complete(using=session)
            await (session.commit() if commits else session.rollback())

    job_id = queue.enqueue("n")
    worker = serving(queue, handler)
    events = ended(worker)
    worker.run(until_empty=True)
    assert events == [EventType.COMPLETED]
    assert counted(queue)[1:] == (0, {"completed": 1})
    with pytest.raises(JobNotFoundError):
        queue.get(job_id)


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_that_outlives_the_handler_holds_up_no_other_job(queue, log, differs, commits):
    """Its lock is not waited for: the worker looks again and again."""
    differs("one writer")
    opened = []

    def handler(job):
        if job.kind == "leaves it open":
            opened.append(begun(queue, job))

    worker = serving(queue, handler)
    events = ended(worker)
    queue.enqueue("leaves it open")
    with worker:
        log.wait("the transaction in which the handler has completed it is still open")
        queue.enqueue_many([("n", number) for number in range(3)])
        wait_for(lambda: worker.summary.completed == 3)
        assert queue.stats().running == 1
        opened.pop()(commit=commits)
        wait_for(lambda: worker.summary.completed == 4)
    assert events == [EventType.COMPLETED] * 4
    assert queue.stats().by_kind == {}
    assert counted(queue)[1:] == (0, {"completed": 4})
    assert log.count("is still open") == 1
    assert not log.has("lease ends")


@pytest.mark.parametrize("stop", [True, False])
def test_a_transaction_that_does_not_end_is_left_to_the_lease(queue, log, differs, stop):
    """Until the lease ends, or the worker does."""
    differs("one writer")
    opened = []

    def handler(job):
        if job.attempts == 1:
            opened.append(begun(queue, job))

    queue.enqueue("n")
    worker = serving(queue, handler, lease=HOURS if stop else 0.3)
    events = ended(worker)
    with worker:
        log.wait("is still open")
        if stop:
            worker.stop(grace=0)
        wait_for(lambda: events)
        assert events == [EventType.LOST]
        log.wait("after a rollback the job comes back when its lease ends")
        assert counted(queue)[1:] == (0, {})  # the heartbeat may have extended the lease before, which counts as applied
        opened.pop()(commit=False)
        if not stop:
            wait_for(lambda: len(events) == 2)
    assert events == [EventType.LOST, EventType.COMPLETED][: 1 if stop else 2]


def test_a_stop_waits_for_no_transaction_of_a_handler(queue, running, log, differs):
    """The other jobs in hand are released."""
    differs("one writer")
    opened, begun, go = threading.Event(), threading.Event(), threading.Event()

    def handler(job):
        if job.payload == 0:
            with queue.transaction() as connection:
                assert job.complete(using=connection)
                opened.set()
                assert go.wait(PATIENCE)
        else:
            begun.set()
            assert go.wait(PATIENCE)

    queue.enqueue_many([("n", number) for number in range(2)])
    worker = serving(queue, handler, lease=HOURS, grace=0)
    events = ended(worker)
    with running(worker):
        assert opened.wait(PATIENCE)
        assert begun.wait(PATIENCE)
        worker.stop()
        wait_for(lambda: len(events) == 2)
        assert queue.stats().available == 1
    go.set()
    assert sorted(events) == [EventType.LOST, EventType.RELEASED]


def test_what_another_worker_got_after_the_rollback_is_lost(queue, open_db, caplog):
    def handler(job):
        if job.attempts == 1:
            rolled_back(queue, job)
            assert open_db().rescue(queue.db.worker)

    queue.enqueue("n")
    worker = serving(queue, handler, concurrency=1)
    events = ended(worker)
    with caplog.at_level(logging.WARNING, "queue_db.worker"):
        worker.run(until_empty=True)
    assert events == [EventType.LOST, EventType.COMPLETED]
    assert counted(queue) == (1, 1, {"completed": 1, "lost": 1})
    (line,) = [record for record in caplog.records if "lost" in record.message]
    assert line.outcome == "lost"


def test_drain_completes_what_a_handler_has_rolled_back(queue):
    job_id = queue.enqueue("n", max_attempts=1)
    worker = Worker(queue.db, queue.name)
    worker.handles("n", backoff=constant(HOURS))(lambda job: rolled_back(queue, job))
    (job,) = drain(worker)
    assert job.settled_by == "complete"
    with pytest.raises(JobNotFoundError):
        queue.get(job_id)
    assert counted(queue)[2] == {"completed": 1}


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize("settle", [committed, rolled_back])
def test_around_a_handler_in_another_process_the_same_counts(queue, settle):
    """The handler itself has no verbs there."""
    queue.enqueue("n", 2)
    worker = Worker(queue.db, queue.name)
    worker.handles("n", executor="process")(in_processes.number)

    @worker.around
    def around(job, call):
        call(job)
        settle(queue, job)

    events = ended(worker)
    worker.run(until_empty=True)
    assert events == [EventType.COMPLETED]
    assert counted(queue)[1:] == (0, {"completed": 1})
    assert queue.stats().by_kind == {}


def test_a_later_open_transaction_does_not_move_the_look_at_an_earlier_one(queue):
    """Else a worker with many of them would never look."""
    queue.enqueue_many([("n", 1), ("n", 2)])
    first, second = queue.claim(2)
    completer = Completer(None, (0.1, 1.0), None, HOURS)
    completer._postpone(JobResult(first, None, None), None)
    look_at = completer._look_at
    completer._postpone(JobResult(second, None, None), None)
    assert completer._look_at == look_at
