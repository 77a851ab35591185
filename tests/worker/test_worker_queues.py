"""Several queues, slots, hints, and how often a worker asks."""

import select
import threading
from collections import Counter

import pytest
from sqlalchemy import event, text

from queue_db import Queue
from queue_db.concurrency.pauses import Idle
from queue_db.notifications.wakeup import Wakeup
from queue_db.worker import Worker
from tests.patience import HOURS, PATIENCE
from tests.worker.serving import serving


def about(seconds):
    """Give or take what a busy machine takes."""
    return pytest.approx(seconds, abs=PATIENCE)


@pytest.fixture
def names(name):
    return [f"{name}-{which}" for which in ("high", "middle", "low")]


def test_queues_are_emptied_strictly_in_order(db, names):
    for queue in reversed(names):
        db.queue(queue).enqueue_many([("n", None)] * 10)
    seen = []
    worker = Worker(db, names, concurrency=1)
    worker.handles(None)(lambda job: seen.append(job.queue))
    worker.run(until_empty=True)
    assert seen == [queue for queue in names for _ in range(10)]


def test_due_delayed_jobs_go_before_fresh_ones_in_due_order(db, name, clock, open_db):
    """With a queue for the delayed ones of each class, as the lists high-delayed, high, … have it."""
    db = open_db(clock=clock)
    names = [f"{name}-{which}" for which in ("high-delayed", "high", "low-delayed", "low")]
    for which, delay in (("high-delayed", 30), ("high-delayed", 10), ("low-delayed", 20), ("high-delayed", 20)):
        db.queue(f"{name}-{which}").enqueue("n", delay, delay=delay)
    for which in ("low", "high"):
        db.queue(f"{name}-{which}").enqueue("n", which)
    clock.advance(25)
    seen = []
    worker = Worker(db, names, concurrency=1)
    worker.handles(None)(lambda job: seen.append(job.payload))
    worker.run(until_empty=True)
    assert seen == [10, 20, "high", 20, "low"]


def test_a_single_queue_keeps_its_limit_below_the_concurrency(db, name):
    """With two slots in place of one, the first claim would bring both jobs, before the first handler begins."""
    db.queue(name).enqueue_many([("n", None)] * 2)
    worker = Worker(db, {name: 1}, concurrency=2)
    in_hand = []
    worker.handles(None)(lambda job: in_hand.append(worker._run.in_flight.in_use(name)))
    worker.run(until_empty=True)
    assert in_hand == [1, 1]


def test_each_queue_has_its_slots(db, names):
    """Ten jobs of one queue must not keep a job of the other from running."""
    most, now, both = Counter(), Counter(), threading.Lock()
    low_ran, go = threading.Event(), threading.Event()
    high, low = names[0], names[2]
    db.queue(high).enqueue_many([("n", None)] * 10)
    db.queue(low).enqueue("n")
    worker = Worker(db, {high: 3, low: 1})

    @worker.handles(None)
    def handler(job):
        with both:
            now[job.queue] += 1
            most[job.queue] = max(most[job.queue], now[job.queue])
        if job.queue == low:
            low_ran.set()
        assert low_ran.wait(PATIENCE)
        with both:
            now[job.queue] -= 1

    assert worker.run(until_empty=True).completed == 11
    assert most[high] <= 3
    go.set()


class Together:
    """Counts the jobs of each queue that run at the same time.

    A job of ``held`` ends only when a job of another queue has begun, or when a second job of ``held`` runs beside it.
    """

    def __init__(self, held: str) -> None:
        self._held = held
        self._now, self._lock = Counter(), threading.Lock()
        self.most, self.decided = Counter(), threading.Event()

    def begins(self, job):
        with self._lock:
            self._now[job.queue] += 1
            self.most[job.queue] = max(self.most[job.queue], self._now[job.queue])
            if job.queue != self._held or self._now[job.queue] > 1:
                self.decided.set()

    def ends(self, job):
        with self._lock:
            self._now[job.queue] -= 1


@pytest.mark.parametrize("options", [{}, {"weights": True}])
def test_a_queue_keeps_its_number_with_prefetch(db, names, options):
    """Else jobs of the first queue would be claimed ahead, and two of them would run on the two threads."""
    first, second, _ = names
    for queue in (first, second):
        db.queue(queue).enqueue_many([("n", None)] * 6)
    together = Together(first)
    if options:
        options = {"weights": {first: 5, second: 1}}
    worker = Worker(db, {first: 1, second: 1}, prefetch=5, **options)

    @worker.handles(None)
    def handler(job):
        together.begins(job)
        assert together.decided.wait(PATIENCE)
        together.ends(job)

    assert worker.run(until_empty=True).completed == 12
    assert together.most == {first: 1, second: 1}


def test_a_queue_that_may_fill_all_slots_is_claimed_ahead_beside_one_that_may_not(db, names, monkeypatch):
    first, second, _ = names
    db.queue(first).enqueue_many([("n", None)] * 6)
    db.queue(second).enqueue_many([("n", None)] * 20)
    claimed, most, real = Counter(), Counter(), Queue.claim
    both = threading.Lock()

    def noted(queue, *arguments, **options):
        jobs = real(queue, *arguments, **options)
        with both:
            claimed[queue.name] += len(jobs)
            most[queue.name] = max(most[queue.name], claimed[queue.name])
        return jobs

    monkeypatch.setattr(Queue, "claim", noted)
    worker = Worker(db, {first: 1, second: 2}, concurrency=2, prefetch=8, weights={first: 1, second: 1})

    @worker.handles(None)
    def handler(job):
        with both:
            claimed[job.queue] -= 1

    assert worker.run(until_empty=True).completed == 26
    assert most[first] == 1
    assert most[second] > 2


def test_a_look_at_many_queues_is_one_statement(db, names, queue):
    for which in names:
        db.queue(which).enqueue("n", delay=HOURS)
    db.next_due([*names, queue.name])  # prepared, and new priorities met
    statements = []
    event.listen(db.database.engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    waits = db.next_due([*names, queue.name])
    assert len([one for one in statements if "PREPARE" not in one]) == 1, statements
    assert waits[queue.name] is None
    assert all(waits[which] == about(HOURS) for which in names)


def test_a_look_at_very_many_queues_is_a_statement_for_each_hundred(db, queue):
    which = [f"{queue.name}.{number}" for number in range(250)]
    for filled in (which[0], which[99], which[100], which[-1]):
        db.queue(filled).enqueue("n")
    db.next_due(which[:101])  # prepared
    statements = []
    event.listen(db.database.engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    waits = db.next_due(which)
    assert len([one for one in statements if "PREPARE" not in one]) == 3
    assert list(waits) == which
    assert [name for name, wait in waits.items() if wait is not None] == [which[0], which[99], which[100], which[-1]]
    assert max(wait for wait in waits.values() if wait is not None) <= 0


def test_a_look_at_many_queues_with_many_priorities(db, queue):
    which = [f"{queue.name}.{number}" for number in range(60)]
    for name in which:
        db.queue(name).enqueue_many([("n", None, {"priority": number, "delay": HOURS}) for number in range(4)])
    for _ in range(2):  # the first one learns the priorities
        assert all(wait == about(HOURS) for wait in db.next_due(which).values())


def test_a_look_sees_all_priorities_and_what_is_due_first(db, queue):
    assert db.next_due([queue.name]) == {queue.name: None}
    db.queue(queue.name).enqueue("n", delay=HOURS, priority=-5)
    assert db.next_due([queue.name])[queue.name] == about(HOURS)
    queue.enqueue("n", delay=5000, priority=7)
    assert db.next_due([queue.name])[queue.name] == about(5000)
    queue.enqueue("n", priority=3)
    assert db.next_due([queue.name])[queue.name] <= 0
    (job,) = queue.claim(lease=2000)
    assert db.next_due([queue.name])[queue.name] == about(2000), "a running job counts at the end of its lease"
    assert job.complete()


def test_a_look_with_more_priorities_than_are_kept(db, queue):
    queue.enqueue_many([("n", None, {"priority": number, "delay": HOURS}) for number in range(40)])
    assert db.next_due([queue.name]) == {queue.name: None} or db.next_due([queue.name])[queue.name] > HOURS / 2
    queue.enqueue("n", priority=50)
    assert db.next_due([queue.name])[queue.name] <= 0
    assert len(queue.claim()) == 1


def test_a_job_below_the_mark_wakes_an_idle_worker(db, queue, running):
    """An INSERT by hand with an old time lies below where claims and polls start."""
    seen = threading.Semaphore(0)
    worker = serving(queue, lambda job: seen.release(), poll=0.05)
    with running(worker):
        queue.enqueue("first")
        assert seen.acquire(timeout=PATIENCE)
        jobs = db.store.tables.jobs
        with queue.transaction() as connection:
            connection.execute(jobs.insert().values(queue=queue.name, payload="null", available_at=1))
        assert seen.acquire(timeout=PATIENCE)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_set_in_the_midst_of_waking_up_does_not_disable_later_ones(kind):
    wakeup = Wakeup(lambda: None, (0.1, 1.0))
    real = wakeup._reader

    class Reader:
        """Set again just before the byte is read."""

        def fileno(self):
            return real.fileno()

        def recv(self, size):
            wakeup.set("second")
            return real.recv(size)

        def close(self):
            real.close()

    wakeup._reader = Reader()
    wakeup.set("first")
    assert wakeup.wait(PATIENCE) == {"first", "second"}
    wakeup.set("third")
    assert select.select([real], [], [], 0)[0], "later calls of set() do not wake it"
    assert wakeup.wait(0) >= {"third"}
    wakeup.close()


@pytest.fixture
def rests_at_once(monkeypatch):
    """Between two polls it waits as long as it may."""
    monkeypatch.setattr(Idle, "next", lambda idle: idle._longest)


@pytest.mark.usefixtures("rests_at_once")
def test_a_resting_worker_is_rung_by_its_own_process(queue, running):
    """It would poll after an hour."""
    seen = threading.Semaphore(0)
    worker = serving(queue, lambda job: seen.release(), poll=3600.0)
    with running(worker):
        for _ in range(3):
            queue.enqueue("n")
            assert seen.acquire(timeout=PATIENCE)


@pytest.mark.usefixtures("rests_at_once")
@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_resting_worker_hears_of_jobs_of_other_processes(queue, open_db, running, monkeypatch):
    monkeypatch.setattr("queue_db.store.wakeups.Notifications.every", 0.0)
    seen = threading.Semaphore(0)
    others = open_db().queue(queue.name)
    with running(serving(queue, lambda job: seen.release(), poll=3600.0)):
        for _ in range(3):
            others.enqueue("n")
            assert seen.acquire(timeout=PATIENCE)


@pytest.mark.parametrize("kind", ["postgresql"])
def test_seven_connections_at_most_whatever_the_concurrency(fresh_url, name, running, quick_beats):
    """Five as a rule, since the brief ones of three threads rarely coincide (docs/workers.md)."""
    from queue_db import QueueDB

    with QueueDB(fresh_url) as db, QueueDB(fresh_url) as watcher:
        db.migrate()
        queue = db.queue(name)
        everybody, go = threading.Barrier(101, timeout=PATIENCE), threading.Event()

        def handler(job):
            everybody.wait()
            assert go.wait(PATIENCE)

        queue.enqueue_many([("n", None)] * 100)
        watched = watcher.database.engine.connect()
        with running(serving(queue, handler, concurrency=100, lease=600)):
            everybody.wait()
            log_of = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
            most = 0
            for _ in range(20):
                most = max(most, watched.execute(log_of).scalar_one())
                go.wait(0.05)
            go.set()
        watched.close()
        # One that the watcher keeps idle is among them.
        assert most - 1 <= 7
        assert queue.stats().by_kind == {}


def test_quiet_claims_no_more_until_it_is_resumed(queue, running):
    started, go, seen = threading.Event(), threading.Event(), threading.Semaphore(0)

    def handler(job):
        started.set()
        assert go.wait(PATIENCE)
        seen.release()

    worker = serving(queue, handler, concurrency=1, poll=0.01)
    queue.enqueue_many([("n", None)] * 2)
    with running(worker):
        assert started.wait(PATIENCE)
        worker.quiet()
        go.set()
        assert seen.acquire(timeout=PATIENCE)
        assert not seen.acquire(timeout=0.2)  # more than ten polls
        assert queue.stats().available == 1
        worker.resume()
        assert seen.acquire(timeout=PATIENCE)
