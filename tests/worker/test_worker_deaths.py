"""Every job that dies: one log record, one event, one count, and they agree with the dead table."""

import asyncio
import logging
import threading
import time
from collections import Counter

import pytest
from prometheus_client import CollectorRegistry

from queue_db import Dead, QueueDB, Retry, Snooze
from queue_db.backoff import constant
from queue_db.instrumentation import prometheus
from queue_db.model import DeathReason
from queue_db.testing import drain
from queue_db.worker import Worker
from queue_db.worker.events import EventType
from queue_db.worker.executor import Execution
from tests.patience import HOURS, PATIENCE, wait_for
from tests.worker.serving import serving

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


class Records(logging.Handler):
    """What is logged about deaths, by job."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.all = []

    def emit(self, record):
        self.all.append(record)

    def of(self, queue):
        return [record for record in self.all if record.queue == queue.name]


@pytest.fixture
def records():
    logger, handler = logging.getLogger("queue_db.dead"), Records()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def dies(worker):
    """Handlers of which each lets its jobs die in another way; return why by kind."""

    @worker.handles("raises", max_attempts=2, backoff=constant(0))
    def raises(job):
        raise ValueError(f"attempt {job.attempts} of {job.max_attempts}")

    worker.handles("retries")(lambda job: Retry("never", 0))
    worker.handles("gives up")(lambda job: Dead("no use"))
    worker.handles("number", schema=int)(lambda job: None)
    worker.handles("buries")(lambda job: job.bury("by itself") and None)
    worker.handles("exhausted before")(lambda job: None)
    worker.handles("exhausted here", max_attempts=1)(lambda job: None)
    worker.handles("done")(lambda job: None)
    worker.handles("later")(lambda job: Snooze(1000))
    return {
        "raises": "failed",
        "retries": "failed",
        "gives up": "rejected",
        "number": "payload",
        "buries": "rejected",
        "exhausted before": "exhausted",
        "exhausted here": "exhausted",
        "stranger": "unknown_kind",
    }


def enqueue_all(queue, reasons):
    """One job of each kind, and a batch of two that dies; those that exhaust their attempts were claimed once by a dead process."""
    for kind in ("exhausted before", "exhausted here"):
        queue.enqueue(kind, max_attempts=1 if kind == "exhausted before" else 25)
    with queue.transaction() as connection:
        jobs = queue.db.store.tables.jobs
        connection.execute(jobs.update().where(jobs.c.queue == queue.name).values(attempts=1))
    rest = [kind for kind in reasons if not kind.startswith("exhausted")]
    queue.enqueue_many([(kind, "x", {"max_attempts": 2 if kind == "retries" else 25}) for kind in [*rest, "done", "later"]])
    queue.enqueue_batch([("gives up", 1), ("raises", 2)], ("done", None))


def test_log_events_counters_and_the_dead_table_agree(queue, db, running, records, monkeypatch):
    monkeypatch.setattr("queue_db.worker.registration.REPORT_EVERY", 0.02)
    worker = Worker(db, queue.name, concurrency=3, unknown="dead")
    reasons = dies(worker)
    expected = Counter(reasons.values()) + Counter(["rejected", "failed"])
    registry = CollectorRegistry()
    prometheus.instrument(worker, registry, depth=False)
    events = []
    worker.on(events.append)
    db.schemas.clear()  # it would be refused here already
    enqueue_all(queue, reasons)
    with running(worker):
        total = sum(expected.values())
        (row,) = wait_for(
            lambda: [
                one
                for one in db.workers()
                if queue.name in one.queues and one.counters["dead"] == total and one.counters["completed"] == 2
            ]
        )
    assert row.counters["dead"] == worker.summary.dead == db.counters.dead == total
    dead = {job.id: job for job in db.dead.list(queue.name)}
    assert len(dead) == total
    ended = {event.job.id: event for event in events if event.type is EventType.DEAD}
    assert len([event for event in events if event.type is EventType.DEAD]) == len(ended)
    logged = {record.job_id: record for record in records.of(queue)}
    assert len(records.of(queue)) == len(logged)
    assert dead.keys() == ended.keys() == logged.keys()
    for job_id, job in dead.items():
        reason = reasons[job.kind]
        assert ended[job_id].reason is DeathReason(reason)
        assert logged[job_id].reason == reason
        assert logged[job_id].outcome == "dead"
        which = f"job {job_id} {job.kind!r} in {queue.name!r}"
        attempts = f"{job.attempts}/{job.max_attempts}"
        assert logged[job_id].getMessage().startswith(f"{which} is dead after attempt {attempts} ({reason}): ")
    assert Counter(reasons[job.kind] for job in dead.values()) == expected
    assert counted(registry, "queue_db_dead_total", queue, "reason") == expected
    assert counted(registry, "queue_db_jobs_total", queue, "event")["dead"] == total
    # Each attempt ended with one event: of the one that failed twice the first was no death.
    assert Counter(event.type for event in events if event.job.kind == "raises") == {
        EventType.STARTED: 4,
        EventType.FAILED: 2,
        EventType.DEAD: 2,
    }
    assert worker.summary.failed == 3
    assert worker.summary.lost == 0


def counted(registry, name, queue, label):
    """A counter's values by label, over all kinds."""
    found = Counter()
    for metric in registry.collect():
        for sample in metric.samples:
            if sample.name == name and sample.labels["queue"] == queue.name:
                found[sample.labels[label]] += sample.value
    return found


def test_attempts_are_shown_as_the_handler_allows_them(queue, db, log):
    seen = []

    def handler(job):
        seen.append((repr(job), job.max_attempts))
        raise ValueError("no")

    worker = Worker(db, queue.name)
    worker.handles("n", max_attempts=2, backoff=constant(1000))(handler)
    job_id = queue.enqueue("n")
    worker.run(until_empty=True)
    assert "attempt 1/2>" in seen[0][0]
    assert log.has("attempt 1/2> failed")
    assert (db.get(job_id).attempts, db.get(job_id).max_attempts) == (1, 2)
    again = Worker(db, queue.name)
    again.handles("n", max_attempts=2)(handler)
    assert db.cancel(job_id)
    second = queue.enqueue("n", max_attempts=1)
    more = Worker(db, queue.name)
    more.handles("n", max_attempts=3, backoff=constant(0))(handler)
    assert more.run(until_empty=True).dead == 1
    (dead,) = db.dead.list(queue.name)
    # The handler's own, although the job itself allows one attempt only.
    assert (dead.id, dead.attempts, dead.max_attempts) == (second, 3, 3)
    assert [most for _, most in seen] == [2, 3, 3, 3]
    (back,) = db.dead.redrive(second)
    assert db.get(back).max_attempts == 3


@SQLITE
def test_a_lost_lease_is_no_death(queue, db, open_db, records):
    others = open_db()

    def handler(job):
        if job.attempts == 1:
            others.rescue(db.worker)
            raise ValueError("too late: another one has it")

    queue.enqueue("n", max_attempts=2)
    summary = serving(queue, handler).run(until_empty=True)
    assert (summary.lost, summary.completed, summary.dead, db.counters.dead) == (1, 1, 0, 0)
    assert records.of(queue) == []


@SQLITE
def test_a_death_by_the_handlers_own_verb_is_counted_although_the_handler_never_comes_back(queue, db, running, records):
    go, buried = threading.Event(), threading.Event()

    def handler(job):
        assert job.bury("by itself")
        buried.set()
        assert go.wait(PATIENCE)

    worker = serving(queue, handler, grace=0.0)
    queue.enqueue("n")
    with running(worker):
        assert buried.wait(PATIENCE)
    go.set()
    assert (worker.summary.dead, worker.summary.lost, worker.summary.completed) == (1, 0, 0)
    assert len(records.of(queue)) == db.counters.dead == 1


@SQLITE
def test_at_most_once_what_cannot_come_back_is_reported_as_lost(queue, db, records):
    outcomes = {"raises": ValueError("no"), "retries": Retry("no"), "gives up": Dead("no"), "later": Snooze(5), "done": None}
    worker = Worker(db, queue.name, mode="at_most_once")
    events = []
    worker.on(events.append)

    @worker.handles("raises")
    def raises(job):
        raise outcomes["raises"]

    for kind in ("retries", "gives up", "later", "done"):
        worker.handles(kind)(lambda job: outcomes[job.kind])
    queue.enqueue_many([(kind, None) for kind in [*outcomes, "stranger"]])
    summary = worker.run(until_empty=True)
    reasons = {"raises": "failed", "retries": "failed", "gives up": "rejected", "later": "failed", "stranger": "unknown_kind"}
    assert (summary.completed, summary.dead, summary.failed, summary.snoozed) == (1, 5, 0, 0)
    assert {record.kind: record.reason for record in records.of(queue)} == reasons
    assert all(" is lost after attempt 1/25 " in record.getMessage() for record in records.of(queue))
    assert {event.job.kind: event.reason for event in events if event.type is EventType.DEAD} == reasons
    assert db.counters.dead == 0  # nothing is in the dead table


@SQLITE
def test_two_workers_of_one_database_object_count_their_own_deaths(db, name, records):
    workers = [serving(db.queue(f"{name}-{number}"), lambda job: Dead("no")) for number in range(2)]
    for number in range(2):
        db.queue(f"{name}-{number}").enqueue_many([("n", None)] * (number + 1))
    threads = [threading.Thread(target=worker.run, kwargs={"until_empty": True}) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert [worker.summary.dead for worker in workers] == [1, 2]
    assert db.counters.dead == 3
    assert {record.levelno for record in records.all} == {logging.WARNING}


@SQLITE
def test_deaths_in_a_program_of_ones_own_and_in_tests_are_logged_too(queue, db, records):
    queue.enqueue_many([("n", None, {"max_attempts": 1})] * 3)
    first, second, third = queue.claim(3)
    assert first.fail("over")
    assert second.bury("no use")
    assert third.snooze(0)
    assert drain(serving(queue, lambda job: Dead("drained")))
    assert [record.reason for record in records.of(queue)] == ["failed", "rejected", "rejected"]
    assert db.counters.dead == 3 == len(db.dead.list(queue.name))


@SQLITE
def test_a_listener_that_raises_changes_nothing(queue, db, records):
    def broken(death):
        raise RuntimeError("my own fault")

    db.deaths.add(broken)
    worker = serving(queue, lambda job: Dead("no"))
    queue.enqueue_many([("n", None)] * 3)
    assert worker.run(until_empty=True).dead == 3
    db.deaths.remove(broken)
    assert len([record for record in records.all if getattr(record, "queue", None) == queue.name]) == 3


@SQLITE
def test_deaths_in_threads_with_reused_numbers_are_those_of_others(queue, db, name, log):
    """A worker that stops has no claimer's thread any more, and the next thread may have its number."""
    go, begun, buried = threading.Event(), threading.Event(), 50
    events = []

    def handler(job):
        begun.set()
        assert go.wait(PATIENCE)

    worker = serving(queue, handler, grace=HOURS)
    worker.on(events.append)
    queue.enqueue("n")
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert begun.wait(PATIENCE)
    worker.stop()
    wait_for(lambda: not any(one.name.startswith("queue_db fetcher") for one in threading.enumerate()))
    others = db.queue(f"{name}-others")
    others.enqueue_many([("n", None)] * buried)

    def bury():
        (job,) = others.claim()
        assert job.bury("by a program")

    for _ in range(buried):
        one = threading.Thread(target=bury)
        one.start()
        one.join(PATIENCE)
    go.set()
    thread.join(PATIENCE)
    assert (worker.summary.completed, worker.summary.dead, db.counters.dead) == (1, 0, buried)
    assert {event.job.queue for event in events} == {queue.name}


@SQLITE
def test_a_job_that_the_thread_of_a_handler_buries_is_counted_once(queue, db):
    """Whatever number that thread has."""
    go, begun, buried = threading.Event(), threading.Event(), threading.Event()

    def handler(job):
        begun.set()
        assert go.wait(PATIENCE)
        for _ in range(50):
            thread = threading.Thread(target=try_to_bury, args=(job,))
            thread.start()
            thread.join(PATIENCE)
        assert buried.is_set() or job.bury("at last")

    def try_to_bury(job):
        if threading.get_ident() == fetcher and not buried.is_set():
            assert job.bury("by a thread")
            buried.set()

    worker = serving(queue, handler, grace=HOURS)
    queue.enqueue("n")
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert begun.wait(PATIENCE)
    (fetcher,) = [one.ident for one in threading.enumerate() if one.name == f"queue_db fetcher of {queue.name!r}"]
    worker.stop()
    wait_for(lambda: fetcher not in [one.ident for one in threading.enumerate()])
    go.set()
    thread.join(PATIENCE)
    assert (worker.summary.dead, worker.summary.lost, worker.summary.completed) == (1, 0, 0)


@SQLITE
@pytest.mark.parametrize("verb", ["bury", "complete"])
def test_a_verb_after_the_timeout_counts_once_and_as_what_it_did(queue, db, verb):
    """The thread that reports the timeout is behind."""
    settled = threading.Event()
    events = []

    def hook(event):
        events.append((event.job.kind, event.type))
        if event.job.kind == "quick" and event.type is EventType.COMPLETED:
            queue.enqueue("hangs")  # not before that thread is here
            assert settled.wait(PATIENCE)

    worker = Worker(db, queue.name, concurrency=2)
    worker.on(hook)
    worker.handles("quick")(lambda job: None)

    @worker.handles("hangs", timeout=0.05)
    def hangs(job):
        assert job.lost.wait(PATIENCE)
        assert job.bury("hopeless") if verb == "bury" else job.complete()
        settled.set()

    queue.enqueue("quick")
    summary = worker.run(until_empty=True)
    dead = verb == "bury"
    assert (summary.dead, summary.completed, summary.lost, summary.failed) == (int(dead), 1 + (not dead), 0, 0)
    what = EventType.DEAD if dead else EventType.COMPLETED
    assert [what for kind, what in events if kind == "hangs"] == [EventType.STARTED, what]
    assert len(db.dead.list(queue.name)) == dead


# --- the ends that are no deaths ----------------------------------------------------------------------------------------


@SQLITE
def test_what_a_handler_did_by_a_verb_is_what_is_counted(queue, db):
    verbs = {
        "complete": (lambda job: job.complete(), EventType.COMPLETED),
        "fail": (lambda job: job.fail("no", 1000), EventType.FAILED),
        "snooze": (lambda job: job.snooze(1000), EventType.SNOOZED),
        "cancel": (lambda job: job.cancel(), EventType.CANCELLED),
        "bury": (lambda job: job.bury("no"), EventType.DEAD),
    }
    worker = Worker(db, queue.name)
    events = []
    worker.on(events.append)
    for kind, (verb, _) in verbs.items():
        worker.handles(kind)(lambda job, verb=verb: verb(job) and None)
    queue.enqueue_many([(kind, None) for kind in verbs])
    summary = worker.run(until_empty=True)
    ends = {event.job.kind: event.type for event in events if event.type is not EventType.STARTED}
    assert ends == {kind: what for kind, (_, what) in verbs.items()}
    assert len(events) == 2 * len(verbs)
    assert (summary.completed, summary.failed, summary.snoozed, summary.cancelled, summary.dead) == (1, 1, 1, 1, 1)


@SQLITE
@pytest.mark.parametrize("mode", ["at_least_once", "at_most_once"])
def test_each_job_that_a_stop_finds_in_hand_has_one_event_and_one_count(queue, db, running, records, mode):
    """Running, running and settled by its handler, and not begun."""
    go, begun = threading.Event(), threading.Barrier(3)
    worker = Worker(db, queue.name, concurrency=2, grace=0.0, mode=mode, prefetch=3 if mode == "at_least_once" else 0)
    events = []
    worker.on(events.append)

    def runs(job):
        if job.payload == 1:
            job.complete()
        begun.wait(PATIENCE)
        assert go.wait(PATIENCE)

    worker.handles("n")(runs)
    queue.enqueue_many([("n", number) for number in range(5)])
    with running(worker):
        begun.wait(PATIENCE)
        if mode == "at_least_once":
            wait_for(lambda: queue.stats().running == 4 and queue.stats().available == 0)
    go.set()
    ends = {event.job.payload: event.type for event in events if event.type is not EventType.STARTED}
    summary = worker.summary
    if mode == "at_least_once":
        assert ends == {number: EventType.COMPLETED if number == 1 else EventType.RELEASED for number in range(5)}
        assert (summary.completed, summary.released, summary.lost, summary.dead) == (1, 4, 0, 0)
        assert records.of(queue) == []
    else:
        assert ends == dict.fromkeys(range(2), EventType.DEAD)
        assert (summary.completed, summary.released, summary.lost, summary.dead) == (0, 0, 0, 2)
        assert [record.reason for record in records.of(queue)] == ["exhausted"] * 2
        assert queue.stats().available == 3


@SQLITE
@pytest.mark.parametrize("committed", [True, False])
def test_a_handler_that_raises_after_it_completed_its_job_has_completed_it(queue, log, committed):
    """Unless it did so in a transaction that was rolled back: the attempt has failed then."""

    def handler(job):
        if committed:
            assert job.complete()
        else:
            with queue.transaction() as connection:
                assert job.complete(using=connection)
                raise ValueError("within")
        raise ValueError("afterwards")

    queue.enqueue("n", max_attempts=2)
    worker = Worker(queue.db, queue.name)
    worker.handles("n", backoff=constant(1000))(handler)
    summary = worker.run(until_empty=True)
    assert (summary.completed, summary.failed, summary.lost) == (int(committed), int(not committed), 0)
    assert queue.stats().scheduled == (not committed)
    log.wait("raised after complete(), which counts if it was committed: ValueError: ")
    assert not log.has("the lease was lost")


@SQLITE
def test_a_death_after_a_fork_names_the_process_that_caused_it(url, queue, records):
    with QueueDB(url) as db:
        db.core.worker = "the child"  # as the hook of forks does
        queue.enqueue("n")
        (job,) = db.queue(queue.name).claim()
        assert job.bury("no use")
    assert [record.worker for record in records.of(queue)] == ["the child"]


def test_at_most_once_a_failure_is_reported_before_its_slot_is_free(queue, db):
    """Nothing is left of it in the database: if the process is killed later, this was all that told of it."""
    told = []
    db.deaths.add(lambda death: told.append((death.job.payload, threading.current_thread().name)))
    worker = Worker(db, queue.name, mode="at_most_once", concurrency=1)
    seen = []

    def handler(job):
        seen.append((threading.current_thread().name, len(told)))
        raise ValueError("no use")

    worker.handles("k")(handler)
    queue.enqueue_many([("k", number) for number in range(3)])
    worker.run(until_empty=True)
    assert [before for _, before in seen] == [0, 1, 2]
    assert {name for _, name in told} == {name for name, _ in seen}


def test_at_most_once_a_listener_that_waits_holds_up_no_stop(queue, db, monkeypatch):
    """A timeout is found by the thread that obeys stops, which calls no listener."""
    monkeypatch.setattr("queue_db.worker.run._RESULTS", 0.0)  # only the end of the run waits for reports
    told, go_on = threading.Event(), threading.Event()

    def listener(death):
        told.set()
        go_on.wait(PATIENCE)

    db.deaths.add(listener)
    worker = Worker(db, queue.name, mode="at_most_once", concurrency=1, grace=0.0)
    ended = threading.Event()
    worker.handles("k", timeout=0.05)(lambda job: ended.wait(PATIENCE))
    queue.enqueue("k")
    running = threading.Thread(target=worker.run)
    running.start()
    assert told.wait(PATIENCE)
    reports = [thread for thread in threading.enumerate() if "report" in thread.name]
    assert len(reports) == 1, "each report has a thread of its own, without a bound"
    worker.stop()
    running.join(PATIENCE / 10)
    stopped = not running.is_alive()
    go_on.set()
    ended.set()
    running.join(PATIENCE)
    assert stopped


def test_at_most_once_a_listener_that_waits_holds_up_no_coroutine(queue, db):
    told, other_ended = threading.Event(), threading.Event()
    seen = []

    def listener(death):
        told.set()
        seen.append(other_ended.wait(PATIENCE / 10))

    db.deaths.add(listener)
    worker = Worker(db, queue.name, mode="at_most_once", concurrency=2)

    @worker.handles("fails")
    async def fails(job):
        raise ValueError("no use")

    @worker.handles("other")
    async def other(job):
        while not told.is_set():  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0.001)
        other_ended.set()

    queue.enqueue_many([("fails", None), ("other", None)])
    worker.run(until_empty=True)
    assert seen == [True]


@SQLITE
def test_at_most_once_a_stop_waits_for_the_reports_of_coroutines_that_have_ended(queue, db, monkeypatch):
    """Otherwise a coroutine that has raised is reported as stopped, or nobody hears of it."""
    waits, go_on = threading.Event(), threading.Event()
    times, events = {}, {}

    def listener(death):
        waits.set()
        go_on.wait(PATIENCE)

    def ended():
        times["ended"] = time.monotonic()
        worker.stop()

    def on(event):
        if event.type == EventType.STARTED:
            times.setdefault(event.job.kind, time.monotonic())
        else:
            events[event.job.kind] = (event.type, str(event.outcome), event.seconds)

    stop = Execution.stop
    monkeypatch.setattr(Execution, "stop", lambda *arguments: (go_on.set(), stop(*arguments))[1])
    worker = Worker(db, queue.name, mode="at_most_once", concurrency=2, grace=0.0)
    worker.on(on)
    db.deaths.add(listener)

    @worker.handles("first")
    async def first(job):
        raise ValueError("the first")

    @worker.handles("second")
    async def second(job):
        while not waits.is_set():  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0.001)
        asyncio.get_running_loop().call_soon(ended)  # after the end of this coroutine
        raise ValueError("the second")

    queue.enqueue_many([("first", None), ("second", None)])
    worker.run()
    assert {kind: event[:2] for kind, event in events.items()} == {
        "first": (EventType.DEAD, "the first"),
        "second": (EventType.DEAD, "the second"),
    }
    assert events["second"][2] <= times["ended"] - times["second"], "it includes the wait for the report of the first"
