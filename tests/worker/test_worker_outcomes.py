"""What one job does to itself never touches the others: backoffs that fail, outcomes that make no sense, kinds without handlers."""

import logging
import math
import threading
from types import SimpleNamespace

import pytest
from sqlalchemy import insert, select

from queue_db import ArgumentError, ConfigurationError, Dead, PayloadError, QueueDB, Retry, Snooze, State, UnknownKindError, Verdict
from queue_db.backoff import constant
from queue_db.dialects.statements import match
from queue_db.model import DeathReason
from queue_db.store import Transaction, settle
from queue_db.testing import SettableClock, drain, inline
from queue_db.worker import Worker
from queue_db.worker.completer import Completer, JobResult, Unknown
from queue_db.worker.events import EventType, Results
from queue_db.worker.logs import Activity
from queue_db.worker.run import RETRY
from tests.patience import PATIENCE
from tests.worker.serving import serving

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


def acknowledged(jobs, outcomes):
    """Report these outcomes together; return the verdicts by job."""
    verdicts = {}

    class Reports:
        def settled(self, done, verdict):
            verdicts[done.job.id] = verdict

        def completed(self, results):
            verdicts.update((done.job.id, Verdict.APPLIED) for done in results)

    reporting = Completer(Reports(), RETRY, Activity(), 60.0)
    for job, outcome in zip(jobs, outcomes, strict=True):
        pending = object()
        reporting.pending[pending] = None
        reporting.put(JobResult(job, None, outcome, pending=pending))
    reporting.close()
    reporting.run()
    assert len(reporting) == 0
    return verdicts


def raises(attempt):
    raise RuntimeError("my own backoff")


@pytest.mark.parametrize("wait", [raises, lambda _: math.nan, lambda _: -1, lambda _: 1e12, lambda _: None, lambda _: 10**400])
def test_a_backoff_that_fails_counts_for_its_own_job_only(open_db, clock, name, wait, caplog):
    queue = open_db(retry_after=wait, clock=clock).queue(name)
    queue.enqueue_many([("n", number) for number in range(4)])
    jobs = queue.claim(4)
    outcomes = [None, ValueError("bad"), Snooze(1000), Dead("no")]
    verdicts = acknowledged(jobs, outcomes)
    assert all(verdicts.values()), verdicts
    stats = queue.stats()
    assert (stats.available, stats.scheduled, stats.running, stats.dead) == (0, 2, 0, 1)
    failed = queue.get(jobs[1].id)
    assert (failed.state, failed.attempts, failed.last_error) == (State.SCHEDULED, 1, "ValueError: bad")
    (logged,) = [record for record in caplog.records if record.name == "queue_db.verbs.settle"]
    assert logged.levelno == logging.ERROR
    assert "retry_after failed for attempt 1 of <LeasedJob" in logged.getMessage()


@SQLITE
@pytest.mark.parametrize("wrong", [30, "soon", 0.5, lambda: 5, lambda attempt, job: 5, object()])
def test_a_backoff_that_cannot_be_called_is_refused_at_once(url, queue, wrong):
    with pytest.raises(ArgumentError, match="retry_after=.*: must "):
        QueueDB(url, retry_after=wrong)
    with pytest.raises(ArgumentError, match="backoff=.*: must "):
        Worker(queue.db, queue.name).handles("n", backoff=wrong)(print)


@SQLITE
def test_what_a_backoff_may_be(url):
    class Policy:
        def __call__(self, attempt):
            return attempt

        def wait(self, attempt):
            return attempt

    for good in (constant(30), Policy(), Policy().wait, float, lambda *attempts: 5, lambda attempt, more=1: 5):
        QueueDB(url, retry_after=good).close()


class SaysNothingError(Exception):
    def __str__(self):
        raise RuntimeError("no text")


@SQLITE
def test_an_outcome_that_makes_no_sense_counts_for_its_own_job_only(queue):
    outcomes = [None, SaysNothingError(), Dead(5), Retry(None, 10**400), Snooze("soon"), Retry(["a", "list"], 1000), "a result"]
    queue.enqueue_many([("n", number) for number in range(len(outcomes))])
    jobs = queue.claim(len(outcomes))
    verdicts = acknowledged(jobs, outcomes)
    assert all(verdicts.values()), verdicts
    stats = queue.stats()
    assert (stats.available, stats.scheduled, stats.running, stats.dead) == (0, 4, 0, 1)
    assert queue.get(jobs[1].id).last_error == "SaysNothingError: (no text: RuntimeError)"
    assert queue.get(jobs[2].id).last_error == "5"


def says_nothing(_):
    raise SaysNothingError


@SQLITE
@pytest.mark.parametrize("mode", ["at_least_once", "at_most_once"])
@pytest.mark.parametrize("where", ["schema", "handler", "coroutine"])
def test_an_error_without_a_text_ends_its_job_and_not_its_thread(queue, running, mode, where):
    """There is only one thread, and a second job for it."""

    async def coroutine(job):
        says_nothing(job)

    worker = Worker(queue.db, queue.name, concurrency=1, mode=mode, grace=0)
    handler = {"schema": print, "handler": says_nothing, "coroutine": coroutine}[where]
    worker.handles("n", max_attempts=1, schema=says_nothing if where == "schema" else None)(handler)
    queue.db.schemas.clear()
    queue.enqueue_many([("n", None)] * 2)
    with running(worker, until_empty=True) as thread:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert (worker.summary.dead, worker.summary.released, worker.summary.lost) == (2, 0, 0)


@SQLITE
@pytest.mark.parametrize("how", ["thread", "drain"])
def test_a_payload_that_cannot_be_decoded_lets_its_job_die_if_its_handler_needs_it(queue, db, how):
    ids = queue.enqueue_many([("needs", None), ("does not", None)])
    with queue.transaction() as connection:
        jobs = db.store.tables.jobs
        connection.execute(jobs.update().where(jobs.c.id.in_(ids)).values(payload="{no json"))
    worker = serving(queue, {"needs": lambda job: job.payload, "does not": lambda job: job.payload_text})
    deaths = []
    db.deaths.add(deaths.append)
    drain(worker, raises=False) if how == "drain" else worker.run(until_empty=True)
    db.deaths.remove(deaths.append)
    assert [(death.job.id, death.reason) for death in deaths] == [(ids[0], DeathReason.PAYLOAD)]
    assert queue.stats().by_kind.keys() <= {"needs"}


@SQLITE
def test_where_one_job_cannot_be_settled_the_others_are(queue, monkeypatch):
    queue.enqueue_many([("n", number) for number in range(5)])
    jobs = queue.claim(5)
    complete_many = queue.complete_many

    def broken(some, **options):
        if jobs[2] in some:
            raise RuntimeError("a mistake that nobody foresaw")
        return complete_many(some, **options)

    monkeypatch.setattr(queue, "complete_many", broken)
    verdicts = acknowledged(jobs, [None] * 5)
    assert [bool(verdicts[job.id]) for job in jobs] == [True, True, False, True, True]
    assert verdicts[jobs[2].id] is None


# --- payloads ---------------------------------------------------------------------------------------------------------


@SQLITE
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_payload_error_that_the_handler_caused_is_a_failure_like_any_other(queue, asynchronous):
    worker = Worker(queue.db, queue.name)

    def enqueues(job):
        queue.enqueue("other", object())

    async def awaits(job):
        enqueues(job)

    worker.handles("n", schema=int, backoff=constant(1000))(awaits if asynchronous else enqueues)
    job_id = queue.enqueue("n", 5)
    summary = worker.run(until_empty=True)
    assert (summary.failed, summary.dead) == (1, 0)
    job = queue.get(job_id)
    assert (job.state, job.attempts) == (State.SCHEDULED, 1)
    assert job.last_error.startswith("PayloadError: payload of job kind 'other'")
    assert queue.cancel(job_id)
    queue.enqueue("n", 6)
    with pytest.raises(PayloadError):
        drain(worker)
    assert queue.stats().scheduled == 1


# --- kinds without handlers -------------------------------------------------------------------------------------------


@pytest.fixture
def timed(open_db):
    clock = SettableClock()
    db = open_db(clock=clock)
    db.test_clock = clock
    return db


def test_a_job_without_a_handler_waits_for_a_worker_that_has_one(timed, name):
    queue = timed.queue(name)
    old, new = serving(queue, {"known": lambda job: None}), serving(queue, {"stranger": lambda job: None})
    job_id = queue.enqueue("stranger")
    assert [job.id for job in drain(old, raises=False)] == [job_id]
    job = queue.get(job_id)
    assert (job.state, job.attempts) == (State.SCHEDULED, 0)
    assert job.last_error == "parked: no handler for job kind 'stranger'; known kinds: known"
    assert drain(old) == []  # no hot loop
    timed.test_clock.advance(2)
    assert [job.id for job in drain(new)] == [job_id]
    assert timed.queue(name).stats().by_kind == {}


def test_after_the_grace_time_it_is_dead(timed, name):
    """Counted from when the first worker found it, by the database's clock, whichever worker claims it."""
    queue = timed.queue(name)
    job_id = queue.enqueue("stranger", delay=100_000)
    timed.test_clock.advance(100_000)
    looks, waited = 0, 0.0
    while queue.get(job_id).state is not State.DEAD:
        assert len(drain(serving(queue, {"known": lambda job: None}, unknown_grace=600), raises=False)) == 1
        assert waited < 600.001
        looks += 1
        wait = (queue.get(job_id).available_at - timed.test_clock.now()).total_seconds()
        if queue.get(job_id).state is State.SCHEDULED:
            assert 0 < wait <= 72
            timed.test_clock.advance(wait)
            waited += wait
    assert waited == pytest.approx(600, abs=0.01)
    assert 10 < looks < 40
    assert timed.dead.list(name)[0].last_error == "parked: no handler for job kind 'stranger'; known kinds: known"
    # Redriven it has all the time again.
    timed.dead.redrive(job_id)
    drain(serving(queue, {"known": lambda job: None}, unknown_grace=600), raises=False)
    assert queue.get(job_id).state is State.SCHEDULED


def test_a_handler_that_had_it_ends_the_waiting(timed, name):
    queue = timed.queue(name)
    old = serving(queue, {"known": lambda job: None}, unknown_grace=600)
    job_id = queue.enqueue("stranger")
    drain(old, raises=False)
    timed.test_clock.advance(599)
    drain(serving(queue, {"stranger": lambda job: Snooze(10)}))
    timed.test_clock.advance(11)
    drain(old, raises=False)
    assert queue.get(job_id).state is State.SCHEDULED


def test_a_worker_that_vanished_with_it_ends_the_waiting_too(timed, name):
    """It may have had a handler. Nobody gave the job back: its lease ran out."""
    queue = timed.queue(name)
    old = serving(queue, {"known": lambda job: None}, unknown_grace=600)
    job_id = queue.enqueue("stranger")
    drain(old, raises=False)
    timed.test_clock.advance(2)
    (job,) = queue.claim(lease=700)
    timed.test_clock.advance(701)
    drain(old, raises=False)
    after = queue.get(job_id)
    assert (after.state, after.attempts) == (State.SCHEDULED, 1)
    assert not job.complete()
    # The control: without a claim in between it has waited for too long.
    timed.test_clock.advance(601)
    drain(old, raises=False)
    assert queue.get(job_id).state is State.DEAD


@SQLITE
def test_the_next_of_its_group_goes_on_when_it_is_dead(timed, name):
    queue = timed.queue(name)
    first, second = queue.enqueue("stranger", group="g"), queue.enqueue("known", group="g")
    worker = serving(queue, {"known": lambda job: None}, unknown_grace=600)
    assert [job.id for job in drain(worker, raises=False)] == [first]
    timed.test_clock.advance(700)
    assert [job.id for job in drain(worker, raises=False)] == [first, second]
    assert queue.stats().dead == 1


def test_a_worker_says_once_what_it_has_no_handler_for(queue, log):
    queue.enqueue_many([("stranger", number) for number in range(5)])
    summary = serving(queue, {"known": lambda job: None}, concurrency=2).run(until_empty=True)
    assert (summary.snoozed, summary.dead) == (5, 0)
    line = (
        "no handler for job kind 'stranger'; known kinds: known; its jobs wait for a worker that has one, and are dead after 3600 s"
    )
    assert log.count(line) == 1


def knows_nothing(job):
    raise UnknownKindError(job.kind, message=f"no code for {job.kind}")


async def knows_nothing_either(job):
    knows_nothing(job)


def means_another_job(job):
    raise UnknownKindError("other")


@SQLITE
@pytest.mark.parametrize("handler", [knows_nothing, knows_nothing_either])
def test_a_handler_of_all_kinds_may_say_that_it_has_no_code_for_one(queue, handler, log):
    ids = [queue.enqueue("stranger") for _ in range(3)]
    summary = serving(queue, {None: handler}).run(until_empty=True)
    assert (summary.snoozed, summary.failed, summary.dead) == (3, 0, 0)
    assert {(job.state, job.attempts) for job in map(queue.get, ids)} == {(State.SCHEDULED, 0)}
    assert log.count("no code for stranger; its jobs wait for a worker that has one, and are dead after 3600 s") == 1
    for job_id in ids:
        queue.reschedule(job_id, delay=0)
    assert serving(queue, {None: handler}, unknown="dead").run(until_empty=True).dead == 3
    assert {queue.get(job_id).last_error for job_id in ids} == {"parked: no code for stranger"}


@SQLITE
def test_drain_treats_it_alike(queue):
    job_id = queue.enqueue("stranger")
    with pytest.raises(UnknownKindError, match="no code for stranger"):
        drain(serving(queue, {None: knows_nothing}))
    assert (queue.get(job_id).state, queue.get(job_id).attempts) == (State.SCHEDULED, 0)


@SQLITE
def test_an_unknown_kind_that_comes_after_the_timeout_is_not_logged_as_waiting(queue, log):
    job_id = queue.enqueue("stranger", max_attempts=1)
    worker = Worker(queue.db, queue.name)

    @worker.handles(None, timeout=0.05)
    def knows_nothing_in_time(job):
        job.lost.wait(PATIENCE)
        knows_nothing(job)

    assert worker.run(until_empty=True).dead == 1
    log.wait("the result does not count")
    assert log.count("its jobs wait") == 0
    assert queue.get(job_id).last_error == "TimeoutError: no result after 0.05 s"


@SQLITE
def test_a_kind_that_two_threads_report_is_logged_once(queue, log):
    """A slot of a feed reports beside the completer. The loser comes when the winner has not found the kind."""
    come = threading.Event()

    def seen():
        if threading.current_thread() is loser:
            come.set()
        return loser.ident is None

    class Kinds(set):
        def __contains__(self, kind):
            found = super().__contains__(kind)
            if seen():
                loser.start()
                come.wait(PATIENCE)
            return found

    class Lock:
        def __init__(self):
            self.held = threading.Lock()

        def __enter__(self):
            seen()
            self.held.acquire()

        def __exit__(self, *_):
            self.held.release()

    def report(job):
        job.settled_by = "defer"
        results.settled(JobResult(job, None, Unknown(UnknownKindError("stranger"), 60.0)), Verdict.APPLIED)

    queue.enqueue_many([("stranger", number) for number in range(2)])
    first, second = queue.claim(2)
    results = Results(SimpleNamespace(worker=serving(queue, {"known": print}), lock=Lock()))
    results._unknown = Kinds()
    loser = threading.Thread(target=report, args=(second,))
    report(first)
    loser.join(PATIENCE)
    assert come.is_set()
    assert log.count("its jobs wait") == 1


@SQLITE
def test_an_unknown_kind_of_another_job_is_a_failure(queue):
    job_id = queue.enqueue("stranger", max_attempts=1)
    assert serving(queue, {None: means_another_job}).run(until_empty=True).dead == 1
    assert queue.get(job_id).last_error == "UnknownKindError: no handler for job kind 'other'; known kinds: none"


@SQLITE
def test_or_it_is_dead_at_once(queue):
    job_id = queue.enqueue("stranger")
    assert serving(queue, {"known": lambda job: None}, unknown="dead").run(until_empty=True).dead == 1
    assert queue.get(job_id).state is State.DEAD


@SQLITE
def test_a_worker_without_handlers_does_not_start(queue):
    queue.enqueue("n")
    worker = Worker(queue.db, queue.name)
    message = rf"the worker of '{queue.name}' has no handlers: decorate a function with @worker.handles\(kind\)"
    with pytest.raises(ConfigurationError, match=message):
        worker.run(until_empty=True)
    with pytest.raises(ConfigurationError, match=message), worker:
        raise AssertionError("it runs")
    with pytest.raises(ConfigurationError, match=message):
        drain(worker)
    with pytest.raises(ConfigurationError, match=message), inline(worker):
        queue.enqueue("n")
    assert queue.stats().dead == 0


@SQLITE
def test_the_decorator_without_its_parentheses_is_refused(queue):
    worker = Worker(queue.db, queue.name)
    with pytest.raises(
        ArgumentError, match=r"handles\(welcome\): the decorator takes the kind of job: @worker.handles\('welcome'\)"
    ):

        @worker.handles
        def welcome(job):
            raise AssertionError

    for wrong in ({"unknown": "later"}, {"unknown_grace": -1}, {"exit_when_stuck": 0}):
        with pytest.raises(ArgumentError):
            Worker(queue.db, queue.name, **wrong)


class Archive:
    """A removal that inserts a row which the database refuses for jobs of one kind."""

    name, needs, retries, marks = "archive", frozenset(), 0, False

    def __init__(self):
        self.tries = 0

    def remove(self, tx: Transaction, pairs):
        self.tries += 1
        tx.begin()
        jobs = tx.tables.jobs
        kinds = tx.connection.execute(select(jobs.c.kind).where(match(tx.dialect, pairs))).scalars().all()
        if "refused" in kinds:
            tx.connection.execute(insert(jobs).values(queue=None, kind="note", payload="secret"))
        return settle.delete(tx, pairs)


def test_a_result_that_the_database_refuses_does_not_hold_up_the_others(open_db, name, log, monkeypatch):
    removal = Archive()
    queue = open_db(removal=removal).queue(name)
    monkeypatch.setattr("queue_db.worker.completer.WITHIN", 0.2)
    monkeypatch.setattr("queue_db.worker.run.RETRY", (0.001, 0.001))
    monkeypatch.setattr("queue_db.worker.completer.SETTLE_FOR", 1.0)
    queue.enqueue_many([("n", 1), ("refused", 2), ("n", 3)])
    worker = serving(queue, lambda job: None)
    lost = []
    worker.hooks.append(lambda event: lost.append(event.job.kind) if event.type is EventType.LOST else None)
    summary = worker.run(until_empty=True)
    assert (summary.completed, summary.lost, lost) == (2, 1, ["refused"])
    assert removal.tries <= 4, "together, and each alone"
    assert log.count("could not be settled and comes back when its lease expires") == 1
    assert not log.has("secret")
    assert queue.stats().running == 1
