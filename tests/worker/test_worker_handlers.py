"""How handlers are called: kinds, schemas, attempts, timeouts, coroutines, transactions."""

import asyncio
import dataclasses
import threading

import pytest
from sqlalchemy import text

from queue_db import ArgumentError, Cancel, JobNotFoundError, PayloadError, Retry, State
from queue_db.backoff import constant
from queue_db.worker import Worker
from tests.patience import PATIENCE, wait_for
from tests.worker.serving import serving

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


@dataclasses.dataclass
class Welcome:
    user: int
    name: str = "nobody"

    def __post_init__(self):
        if not isinstance(self.user, int):
            raise TypeError(f"user={self.user!r} is not a number")


def test_a_payload_that_does_not_fit_is_refused_at_enqueue_and_parked_at_claim(queue, open_db):
    worker = Worker(queue.db, queue.name)
    seen = []

    @worker.handles("welcome", schema=Welcome)
    def welcome(job):
        seen.append(job.payload)

    queue.enqueue("welcome", {"user": 7})
    queue.enqueue("welcome", Welcome(8, "Ann"))
    for bad in ({"user": "x"}, {"usr": 7}, [7], None):
        with pytest.raises(PayloadError, match="does not fit Welcome"):
            queue.enqueue("welcome", bad)
        with pytest.raises(PayloadError, match="does not fit Welcome"):
            queue.enqueue_many([("welcome", {"user": 9}), ("welcome", bad)])
    # A producer that does not know the schema.
    stranger = open_db().queue(queue.name).enqueue("welcome", {"user": "x"})
    summary = worker.run(until_empty=True)
    assert seen == [Welcome(7), Welcome(8, "Ann")]
    assert (summary.completed, summary.dead) == (2, 1)
    parked = queue.get(stranger)
    assert (parked.state, parked.payload) == (State.DEAD, {"user": "x"})
    assert parked.last_error == "parked: payload of job kind 'welcome': does not fit Welcome: user='x' is not a number"
    queue.db.dead.redrive(parked.id)
    assert queue.get(stranger).state is State.AVAILABLE


@SQLITE
def test_schemas_may_be_structs_and_functions(queue):
    import msgspec

    class Point(msgspec.Struct):
        x: int

    worker = Worker(queue.db, queue.name)
    seen = []
    worker.handles("point", schema=Point)(lambda job: seen.append(job.payload))
    worker.handles("number", schema=int)(lambda job: seen.append(job.payload))
    queue.enqueue("point", {"x": 1})
    queue.enqueue("point", Point(2))
    queue.enqueue("number", "3")
    with pytest.raises(PayloadError, match="Expected `int`"):
        queue.enqueue("point", {"x": "1"})
    with pytest.raises(PayloadError, match="invalid literal"):
        queue.enqueue("number", "x")
    assert worker.run(until_empty=True).completed == 3
    assert seen == [Point(1), Point(2), 3]


def test_attempts_and_backoff_are_the_handlers(queue):
    worker = Worker(queue.db, queue.name)
    tries = []

    @worker.handles("flaky", max_attempts=3, backoff=constant(0))
    def flaky(job):
        tries.append(job.attempts)
        raise ConnectionError("busy")

    @worker.handles("later", backoff=lambda attempt: 1000 * attempt)
    def later(job):
        return Retry("not yet")

    @worker.handles("broken", backoff=lambda attempt: 1 / 0)
    def broken(job):
        raise ValueError("a bad one")

    ids = {kind: queue.enqueue(kind) for kind in ("flaky", "later", "broken")}
    worker.run(until_empty=True)
    assert tries == [1, 2, 3]
    flaky_job = queue.get(ids["flaky"])
    assert (flaky_job.state, flaky_job.attempts, flaky_job.last_error) == (State.DEAD, 3, "ConnectionError: busy")
    later_job = queue.get(ids["later"])
    assert 900 < (later_job.available_at - later_job.created_at).total_seconds() < 1100
    assert queue.get(ids["broken"]).state is State.SCHEDULED


def test_a_job_that_kills_its_workers_dies_after_the_handlers_attempts(queue):
    """Its row allows 25 attempts; two claims that never came back were all that its handler allows."""
    job_id = queue.enqueue("poison")
    for _ in range(2):
        (job,) = queue.claim()
        queue.db.rescue(queue.db.worker)
        assert not job.complete()
    worker = Worker(queue.db, queue.name)
    calls = []
    worker.handles("poison", max_attempts=2)(calls.append)
    assert worker.run(until_empty=True).dead == 1
    assert calls == []
    dead = queue.get(job_id)
    assert dead.state is State.DEAD
    assert dead.last_error == "no verdict after 2 attempts: each worker vanished or overran its lease"


def test_a_timeout_fails_the_attempt_and_the_late_result_does_not_count(queue, running, log):
    go, noticed = threading.Event(), threading.Event()
    worker = Worker(queue.db, queue.name, concurrency=2)

    @worker.handles("slow", timeout=0.05, backoff=constant(1000))
    def slow(job):
        assert job.lost.wait(PATIENCE)
        noticed.set()
        assert go.wait(PATIENCE)

    job_id = queue.enqueue("slow")
    with running(worker):
        log.wait("no result after 0.05 s")
        assert noticed.wait(PATIENCE)
        # Its thread is busy still: one slot is left.
        go.set()
        log.wait("the result does not count")
    assert (worker.summary.failed, worker.summary.completed, worker.summary.lost) == (1, 0, 0)
    job = queue.get(job_id)
    assert (job.state, job.last_error) == (State.SCHEDULED, "TimeoutError: no result after 0.05 s")


def test_coroutines_run_side_by_side_on_one_thread(queue):
    """Twenty that all wait for each other."""
    queue.enqueue_many([("n", number) for number in range(20)])
    worker = Worker(queue.db, queue.name, concurrency=20)
    here, threads = [], set()
    everybody = asyncio.Event()

    @worker.handles("n")
    async def handler(job):
        threads.add(threading.get_ident())
        here.append(job.payload)
        if len(here) == 20:
            everybody.set()
        await asyncio.wait_for(everybody.wait(), PATIENCE)

    assert worker.run(until_empty=True).completed == 20
    assert sorted(here) == list(range(20))
    assert len(threads) == 1


def test_a_coroutine_is_cancelled_at_its_timeout_and_when_its_lease_is_lost(queue, running, log):
    cancelled = []
    worker = Worker(queue.db, queue.name, lease=3600)
    started = threading.Event()

    async def forever(job):
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(job.kind)
            raise

    worker.handles("late", timeout=0.05, backoff=constant(1000))(forever)
    worker.handles("unwanted")(forever)
    late = queue.enqueue("late")
    with running(worker):
        log.wait("TimeoutError: no result after 0.05 s")
        started.clear()
        unwanted = queue.enqueue("unwanted")
        assert started.wait(PATIENCE)
        assert queue.cancel(unwanted)
        log.wait("the lease is lost")
        log.wait("the result does not count")
    assert cancelled == ["late", "unwanted"]
    assert queue.get(late).state is State.SCHEDULED
    assert (worker.summary.failed, worker.summary.lost, worker.summary.completed) == (1, 1, 0)


def test_functions_and_coroutines_in_one_worker(queue):
    worker = Worker(queue.db, queue.name)
    seen = []

    @worker.handles("a")
    async def a(job):
        await asyncio.sleep(0)
        seen.append("a")
        return Cancel()

    @worker.handles(None)
    def other(job):
        seen.append(job.kind)

    queue.enqueue_many([("a", None), ("b", None), ("c", None)])
    summary = worker.run(until_empty=True)
    assert sorted(seen) == ["a", "b", "c"]
    assert (summary.completed, summary.cancelled) == (2, 1)


@pytest.fixture
def ledger(queue):
    """A table of the user's own."""
    name = f"ledger_{queue.name.replace('-', '_')}"
    with queue.transaction() as connection:
        connection.execute(text(f"CREATE TABLE {name} (job BIGINT)"))

    def entries():
        with queue.transaction() as connection:
            return [row[0] for row in connection.execute(text(f"SELECT job FROM {name}"))]

    def write(connection, job):
        connection.execute(text(f"INSERT INTO {name} VALUES (:job)"), {"job": job.id})

    write.entries = entries
    yield write
    with queue.transaction() as connection:
        connection.execute(text(f"DROP TABLE {name}"))


def test_in_a_transaction_the_handlers_writes_and_the_completion_are_one(queue, ledger):
    good, bad = queue.enqueue("good"), queue.enqueue("bad")
    worker = Worker(queue.db, queue.name)

    @worker.handles(None, backoff=constant(1000))
    def handler(job):
        with job.transaction() as connection:
            ledger(connection, job)
            if job.kind == "bad":
                raise ValueError("a bad one")

    summary = worker.run(until_empty=True)
    assert (summary.completed, summary.failed, summary.lost) == (1, 1, 0)
    assert ledger.entries() == [good]
    with pytest.raises(JobNotFoundError):
        queue.get(good)
    assert queue.get(bad).last_error == "ValueError: a bad one"


def test_a_transaction_whose_lease_is_lost_is_rolled_back(queue, ledger, open_db, differs):
    differs("one writer")
    queue.enqueue("stolen")
    worker = Worker(queue.db, queue.name)
    thief = open_db()

    @worker.handles(None, backoff=constant(1000))
    def handler(job):
        with job.transaction() as connection:
            if job.attempts == 1:
                thief.rescue(queue.db.worker)
            ledger(connection, job)

    summary = worker.run(until_empty=True)
    assert len(ledger.entries()) == 1, "the effect of the lost attempt was kept, or the second one's was not"
    assert (summary.completed, summary.lost) == (1, 1)


def test_at_most_once_takes_jobs_out_before_they_are_begun(queue):
    ids = queue.enqueue_many([("n", number) for number in range(30)])
    seen = []

    def handler(job):
        with pytest.raises(JobNotFoundError):
            queue.get(job.id)
        assert not job.complete()
        seen.append(job.id)
        if job.payload == 3:
            raise ValueError("gone all the same")

    summary = serving(queue, handler, mode="at_most_once").run(until_empty=True)
    assert sorted(seen) == ids
    assert (summary.completed, summary.dead, summary.lost) == (29, 1, 0)
    assert queue.stats().by_kind == {}


def test_the_handler_of_a_cancelled_job_notices_it(queue, running, quick_beats):
    worker = Worker(queue.db, queue.name, lease=600)
    started, noticed = threading.Event(), threading.Event()

    @worker.handles("n")
    def handler(job):
        started.set()
        if job.lost.wait(PATIENCE):
            noticed.set()

    job_id = queue.enqueue("n")
    with running(worker):
        assert started.wait(PATIENCE)
        wait_for(lambda: queue.cancel(job_id))  # it loses to a heartbeat at the same moment
        assert noticed.wait(PATIENCE)
    assert (worker.summary.completed, worker.summary.lost) == (0, 1)


@SQLITE
def test_a_handler_may_settle_its_job_itself(queue):
    job_id = queue.enqueue("n")
    summary = serving(queue, lambda job: job.snooze(1000) and None).run(until_empty=True)
    assert (summary.snoozed, summary.completed, summary.lost) == (1, 0, 0)
    assert queue.get(job_id).state is State.SCHEDULED


@SQLITE
def test_in_the_background(queue):
    done = threading.Event()
    with serving(queue, lambda job: done.set()) as worker:
        queue.enqueue("n")
        assert done.wait(PATIENCE)
    assert worker.summary.completed == 1
    with pytest.raises(ArgumentError):
        worker.handles(None)(print)
