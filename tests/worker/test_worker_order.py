"""In which order a worker takes jobs from several queues: strictly, or by weights, whatever becomes due meanwhile."""

import threading
from collections import Counter

import pytest

from queue_db import Capability, Queue, Retry
from queue_db.testing import SettableClock
from queue_db.worker import Worker, fetcher
from queue_db.worker.executor import Threads
from queue_db.worker.order import FairOrder
from tests.patience import PATIENCE, wait_for

LOW = 150


class Seen:
    """The queues of the jobs in the order in which they began, and how many had begun when the urgent one became due."""

    def __init__(self, high, become_due):
        self.high, self._become_due = high, become_due
        self.queues, self.lock = [], threading.Lock()
        self.due_after = None

    def __call__(self, job):
        with self.lock:
            self.queues.append(job.queue)
            turn = self.queues.count(job.queue) == 5 and job.queue != self.high
        if job.queue == self.high and job.kind == "retry" and job.attempts == 1:
            return Retry("later", 10)
        if turn:
            self._become_due()
            with self.lock:
                self.due_after = len(self.queues)
        return None

    @property
    def between(self):
        """How many jobs began after it had become due and before it."""
        last = len(self.queues) - 1 - self.queues[::-1].index(self.high)
        return last - self.due_after


@pytest.fixture
def frozen(open_db):
    """Two processes with a clock that only the test moves."""
    clock = SettableClock()
    return clock, open_db(clock=clock), open_db(clock=clock)


@pytest.mark.parametrize("how", ["fresh", "delayed", "retry"])
@pytest.mark.parametrize("options", [{"concurrency": 1}, {"concurrency": 2, "prefetch": 20}])
def test_a_job_that_becomes_due_in_a_higher_queue_is_next(frozen, name, how, options, monkeypatch):
    """After the jobs in hand and one claim that is under way; nothing notifies this worker of the job."""
    monkeypatch.setattr("queue_db.store.wakeups.Notifications.due", lambda *_: False)
    monkeypatch.setattr(fetcher, "POLL_EVERY", 3600.0)
    monkeypatch.setattr(fetcher, "POLL_AFTER", 10**9)
    clock, db, other = frozen
    high, low = f"{name}-high", f"{name}-low"

    def become_due():
        if how == "fresh":
            other.queue(high).enqueue("n")
            return
        wait_for(lambda: other.queue(high).stats().scheduled)
        clock.advance(11)

    seen = Seen(high, become_due)
    db.queue(low).enqueue_many([("n", None)] * LOW)
    if how == "retry":
        db.queue(high).enqueue("retry")
    elif how == "delayed":
        other.queue(high).enqueue("n", delay=10)
    worker = Worker(db, [high, low], **options)
    worker.handles(None)(seen)
    worker.run(until_empty=True)
    assert Counter(seen.queues) == {low: LOW, high: 2 if how == "retry" else 1}
    in_hand = options["concurrency"] + options.get("prefetch", 0)
    assert seen.between <= (in_hand - 1) + in_hand, seen.queues


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_claim_that_does_not_ask_lets_the_lower_queue_go_first(frozen, name, monkeypatch):
    """The control for the test above: it can fail."""
    monkeypatch.setattr(fetcher, "POLL_EVERY", 3600.0)
    monkeypatch.setattr(fetcher, "POLL_AFTER", 10**9)
    monkeypatch.setattr(Queue, "claim_if_idle", lambda queue, due, *arguments, **options: queue.claim(*arguments, **options))
    _, db, other = frozen
    high, low = f"{name}-high", f"{name}-low"
    seen = Seen(high, lambda: other.queue(high).enqueue("n"))
    db.queue(low).enqueue_many([("n", None)] * LOW)
    worker = Worker(db, [high, low], concurrency=1)
    worker.handles(None)(seen)
    worker.run(until_empty=True)
    assert seen.between > 30


def test_a_prefetched_job_of_a_lower_queue_does_not_pass(db, open_db, name, monkeypatch):
    """Of five in hand, one runs: with room for two more the urgent one is claimed, and begins before those that waited."""
    high, low = f"{name}-high", f"{name}-low"
    other = open_db().queue(high)
    begun, in_hand = [], threading.Event()
    begin = Threads.begin

    def note(threads, assignments):
        begin(threads, assignments)
        if any(job.queue == high for job, _ in assignments):
            in_hand.set()

    monkeypatch.setattr(Threads, "begin", note)

    def handler(job):
        begun.append(job.queue)
        if len(begun) == 1:
            other.enqueue("n")
        if len(begun) == 3:
            assert in_hand.wait(PATIENCE)

    db.queue(low).enqueue_many([("n", None)] * 12)
    worker = Worker(db, [high, low], concurrency=1, prefetch=4)
    worker.handles(None)(handler)
    worker.run(until_empty=True)
    assert begun.index(high) <= 3, begun  # the third one may begin before the urgent one is in hand


def test_what_waits_begins_by_urgency(name):
    """And equal ones in the order in which they came."""
    done, go, begun = threading.Semaphore(0), threading.Event(), []

    def work(job, handling):
        assert go.wait(PATIENCE)
        begun.append(job)
        done.release()

    threads = Threads(1, work, name, urgency=lambda job: (job // 10, 0))
    threads.begin([(0, None)])
    threads.begin([(20, None), (21, None), (10, None)])
    threads.begin([(11, None), (22, None)])
    go.set()
    for _ in range(6):
        assert done.acquire(timeout=PATIENCE)
    assert begun[-5:] == sorted(begun[-5:]), begun
    threads.close()


def test_weights_are_kept_while_all_queues_are_full(db, name):
    weights = {f"{name}-a": 6, f"{name}-b": 3, f"{name}-c": 1}
    for queue in weights:
        db.queue(queue).enqueue_many([("n", None)] * 200)
    seen = []
    worker = Worker(db, list(weights), concurrency=1, weights=weights)

    @worker.handles(None)
    def handler(job):
        seen.append(job.queue)
        if len(seen) == 200:
            worker.stop()

    worker.run()
    for start in range(100):
        assert Counter(seen[start : start + 100]) == pytest.approx({queue: 10 * weight for queue, weight in weights.items()}, abs=2)


def test_a_queue_with_weights_that_was_empty_is_polled_soon(db, open_db, name, monkeypatch):
    monkeypatch.setattr("queue_db.store.wakeups.Notifications.due", lambda *_: False)
    monkeypatch.setattr(fetcher, "POLL_EVERY", 3600.0)
    monkeypatch.setattr(fetcher, "POLL_AFTER", 10)
    monkeypatch.setattr(fetcher, "POLL_REST", 0)
    high, low = f"{name}-high", f"{name}-low"
    other = open_db()
    seen = Seen(high, lambda: other.queue(high).enqueue("n"))
    db.queue(low).enqueue_many([("n", None)] * LOW)
    worker = Worker(db, [high, low], concurrency=2, weights={high: 9, low: 1})
    worker.handles(None)(seen)
    worker.run(until_empty=True)
    assert seen.between <= 10 + 4, seen.queues


def test_a_busy_worker_looks_now_and_then(db, open_db, name, monkeypatch):
    """At what no claim of a lower queue asks: a job of a priority that this process has never met."""
    monkeypatch.setattr("queue_db.store.wakeups.Notifications.due", lambda *_: False)
    monkeypatch.setattr(fetcher, "POLL_EVERY", 3600.0)
    monkeypatch.setattr(fetcher, "POLL_AFTER", 10)
    monkeypatch.setattr(fetcher, "POLL_REST", 0)
    high, low = f"{name}-high", f"{name}-low"
    other = open_db()
    seen = Seen(high, lambda: other.queue(high).enqueue("n", priority=7))
    db.queue(low).enqueue_many([("n", None)] * LOW)
    worker = Worker(db, [high, low], concurrency=2)
    worker.handles(None)(seen)
    worker.run(until_empty=True)
    assert seen.between <= 10 + 4, seen.queues


@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_job_that_nobody_can_claim_does_not_stop_the_lower_queues(db, open_db, name):
    """It is locked by a transaction that stays open, and due: no claim of the lower queue would get anything."""
    high, low = f"{name}-high", f"{name}-low"
    db.queue(high).enqueue("n")
    db.queue(low).enqueue_many([("n", None)] * 5)
    jobs, done = db.store.tables.jobs, threading.Semaphore(0)
    worker = Worker(db, [high, low], concurrency=1)
    worker.handles(None)(lambda job: done.release())
    with open_db().database.begin("lock") as connection:
        connection.execute(jobs.update().where(jobs.c.queue == high).values(worker="somebody"))
        with worker:
            for _ in range(5):
                assert done.acquire(timeout=PATIENCE)


def test_turns_are_within_one_job_of_the_weights():
    turns = FairOrder(["a", "b"], {"a": 9, "b": 1})
    room = {"a": 500, "b": 500}
    taken = Counter()
    for batch in (1, 7, 2, 500, 1, 1, 30):
        taken.update(turns.split(room, batch))
        assert abs(taken["a"] - 0.9 * taken.total()) <= 1
    assert turns.split({"a": 2, "b": 500}, 10) == {"a": 2, "b": 8}
    assert FairOrder(["a", "b"], None).split({"b": 3, "a": 2}, 4) == {"a": 2, "b": 3}


def test_a_queue_that_was_empty_has_not_saved_up_its_turns():
    turns = FairOrder(["a", "b"], {"a": 1, "b": 1})
    for _ in range(1000):
        turns.split({"b": 10}, 1)
    taken = Counter(turns.split({"a": 1000, "b": 1000}, 100))
    assert taken["a"] <= 60 + 1


def test_jobs_that_did_not_come_are_not_counted():
    turns = FairOrder(["a", "b"], {"a": 1, "b": 1})
    assert turns.split({"a": 10, "b": 10}, 4) == {"a": 2, "b": 2}
    turns.came("a", 2, 0)
    assert turns.split({"a": 10, "b": 10}, 2) == {"a": 2}


def test_a_look_that_finds_nothing_due_moves_the_mark(db, queue):
    """So a claim of a lower queue, which asks here each time, steps over no dead index entries; SQLite leaves none."""
    queue.enqueue("n", delay=1000)
    ((_, before),) = queue.core.marks[queue.name].ranges()
    assert db.next_due([queue.name])[queue.name] > 900
    ((_, after),) = queue.core.marks[queue.name].ranges()
    assert (after > before) is (Capability.CONCURRENT_WRITERS in db.database.capabilities)
    db.queue(queue.name).enqueue("n")
    assert db.next_due([queue.name])[queue.name] <= 0
    assert queue.core.marks[queue.name].ranges() == ((0, after),), "a job is due above the mark, which stays"
    assert len(queue.claim(2)) == 1
