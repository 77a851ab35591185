"""Queues that are paused or limited, over all workers."""

import threading
from collections import Counter

import pytest

from queue_db import ArgumentError, Controls, Queue, TransientStorageError
from queue_db.concurrency.pauses import Idle
from queue_db.database.transaction import OwnTransaction
from queue_db.limits import store
from queue_db.limits.limiter import RateLimiter
from queue_db.store import Transaction
from queue_db.testing import counted_statements
from queue_db.worker import Worker
from tests.patience import HOURS, PATIENCE, wait_for
from tests.worker.serving import serving

#: Microseconds for which a share lasts.
AN_HOUR = 3_600_000_000


@pytest.fixture
def heeded(monkeypatch):
    """What is said about queues is asked before each claim."""
    monkeypatch.setattr("queue_db.worker.fetcher.READ_CONTROLS_EVERY", 0.0)


def test_controls_are_kept_and_taken_back(queue, open_db):
    others = open_db().queue(queue.name)
    assert others.controls() == Controls()
    queue.pause()
    queue.limit(concurrency=3, rate=10, per=60)
    assert others.controls() == Controls(paused=True, concurrency=3, rate=10, per=60.0)
    others.resume()
    others.limit(concurrency=None, rate=None)
    assert queue.controls() == Controls()
    for wrong in ({"concurrency": 0}, {"rate": 0}, {"rate": 1, "per": 0}, {"per": 2}):
        with pytest.raises(ArgumentError, match=list(wrong)[-1]):
            queue.limit(**wrong)
    assert queue.controls() == Controls()


def test_a_limit_that_is_not_named_stays(queue):
    queue.limit(concurrency=3, rate=10, per=60, per_group=2)
    queue.limit(rate=5)
    assert queue.controls() == Controls(concurrency=3, rate=5, per=60.0, per_group=2)
    queue.limit(per=None, per_group=None)
    assert queue.controls() == Controls(concurrency=3, rate=5, per=1.0)
    queue.limit(rate=None)
    assert queue.controls() == Controls(concurrency=3)
    with pytest.raises(ArgumentError, match="at least one of concurrency, rate, per, per_group"):
        queue.limit()
    assert queue.controls() == Controls(concurrency=3)
    queue.limit(rate=2)
    assert queue.controls().per == 1.0


def test_two_that_speak_of_a_queue_for_the_first_time_at_once_are_both_heard(queue, open_db):
    """Both find no row and make one; the loser must find the winner's."""
    barrier, failures = threading.Barrier(4, timeout=PATIENCE), []

    def speak(number):
        db = open_db()
        try:
            for place in range(10):
                barrier.wait()
                mine = db.queue(f"{queue.name}-{place}")
                mine.limit(concurrency=3) if number % 2 else mine.pause()
        except Exception as error:  # noqa: BLE001 - shown below
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=speak, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert failures == []
    for place in range(10):
        assert queue.db.queue(f"{queue.name}-{place}").controls() == Controls(paused=True, concurrency=3)


@pytest.mark.usefixtures("heeded")
def test_a_paused_queue_is_left_alone_and_the_others_go_on(queue, db, name, open_db, running):
    seen = threading.Semaphore(0)
    names = []

    def handler(job):
        names.append(job.queue)
        seen.release()

    paused = open_db().queue(queue.name)
    paused.pause()
    other = f"{name}-other"
    queue.enqueue("n")
    worker = Worker(db, [queue.name, other], poll=0.01)
    worker.handles(None)(handler)
    with running(worker):
        for _ in range(3):
            db.queue(other).enqueue("n")
            assert seen.acquire(timeout=PATIENCE)
        paused.resume()
        assert seen.acquire(timeout=PATIENCE)
    assert names == [other, other, other, queue.name]


@pytest.mark.usefixtures("heeded")
def test_until_empty_ends_at_paused_queues_and_not_at_limited_ones(queue, db, name, open_db):
    other = f"{name}-other"
    queue.enqueue("n")
    queue.pause()
    worker = Worker(db, [queue.name, other], poll=0.01)
    worker.handles(None)(lambda job: None)
    assert worker.run(until_empty=True).completed == 0
    assert serving(queue, print).run(until_empty=True).completed == 0
    queue.resume()
    queue.limit(concurrency=1)
    rival = RateLimiter(open_db(worker="rival"), [queue.name], 60.0, most=lambda queue: 1, in_hand=lambda queue: 0)
    rival.refresh()
    assert rival.take(queue.name, 1) == 1
    thread = threading.Thread(target=worker.run, kwargs={"until_empty": True})
    thread.start()
    assert not threading.Event().wait(0.3)  # many polls of the other, empty queue
    assert thread.is_alive(), "it ended although a job is due"
    rival.return_all()
    thread.join(PATIENCE)
    assert worker.summary.completed == 1


@pytest.mark.usefixtures("heeded")
def test_to_pause_waits_for_what_runs(queue, running):
    started, go = threading.Event(), threading.Event()

    def handler(job):
        started.set()
        assert go.wait(PATIENCE)

    queue.enqueue("n")
    with running(serving(queue, handler)):
        assert started.wait(PATIENCE)
        assert not queue.pause(wait=0.1)
        go.set()
        assert queue.pause(wait=PATIENCE)


class Gauge:
    """How many run at once, and the most that ever did."""

    def __init__(self, size: int, waits: float = 0.05) -> None:
        self.now, self.most, self.lock = 0, 0, threading.Lock()
        self.full = threading.Event()
        self.size = size
        #: Seconds: long enough for a third worker to come in, if it were let in.
        self.waits = waits

    def __call__(self, job):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            if self.now >= self.size:
                self.full.set()
        if not self.full.wait(self.waits) and self.waits == PATIENCE:
            self.full.set()  # it will not come: the others need not wait as long
        with self.lock:
            self.now -= 1


def test_a_concurrency_limit_holds_over_workers(queue, open_db, running):
    """Three workers with ten slots each, and prefetch, after a bulk enqueue."""
    queue.limit(concurrency=4)
    queue.enqueue_many([("n", None)] * 60)
    gauge = Gauge(5)
    workers = [serving(open_db().queue(queue.name), gauge, concurrency=10, prefetch=5) for _ in range(3)]
    threads = [threading.Thread(target=worker.run, kwargs={"until_empty": True}) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sum(worker.summary.completed for worker in workers) == 60
    assert gauge.most <= 4, "more ran at once than the limit allows"
    assert gauge.most > 1


@pytest.fixture
def sent(db, monkeypatch):
    """The names of what is run against the database."""
    names, enter = [], OwnTransaction.__enter__

    def noted(tx):
        if tx._database is db.database:
            names.append(tx.run.name)
        return enter(tx)

    monkeypatch.setattr(OwnTransaction, "__enter__", noted)
    return names


@pytest.fixture
def nothing_but_events(monkeypatch):
    """Whatever waits for time waits for an hour."""
    for name, value in (
        ("worker.fetcher.READ_CONTROLS_EVERY", 3600.0),
        ("limits.limiter.ASK_AGAIN", (3600.0, 3600.0)),
        ("worker.fetcher._REFUSED", 3600.0),
    ):
        monkeypatch.setattr(f"queue_db.{name}", value)
    monkeypatch.setattr(Idle, "next", lambda idle: idle._longest)


@pytest.mark.usefixtures("nothing_but_events")
@pytest.mark.parametrize("options", [{"concurrency": 10}, {"concurrency": 2, "prefetch": 10}])
def test_a_job_that_ends_at_the_limit_lets_the_next_one_begin(queue, sent, options):
    """At once, and without a question to the database whether it may."""
    queue.limit(concurrency=2)
    queue.enqueue_many([("n", None)] * 30)
    done = threading.Semaphore(0)
    worker = serving(queue, lambda job: done.release(), poll=3600.0, **options)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        for _ in range(30):
            assert done.acquire(timeout=PATIENCE)
    finally:
        worker.stop()
        thread.join(PATIENCE)
    assert worker.summary.completed == 30
    assert sent.count("limits.take_share") == 1


@pytest.mark.usefixtures("nothing_but_events")
def test_a_job_that_ends_at_the_limit_wakes_a_worker_that_waits_for_another_queue(queue, db, name):
    queue.limit(concurrency=2)
    queue.enqueue_many([("n", None)] * 10)
    worker = Worker(db, [f"{name}-empty", queue.name], poll=3600.0)
    done = threading.Semaphore(0)
    worker.handles(None)(lambda job: done.release())
    with worker:
        for _ in range(10):
            assert done.acquire(timeout=PATIENCE)


def test_until_empty_ends_while_a_rival_has_the_last_job_and_all_that_the_limit_allows(queue, open_db, sent, monkeypatch):
    """It has asked for a share in vain, and goes on asking: it must see that nothing is left to ask for."""
    monkeypatch.setattr("queue_db.limits.limiter.ASK_AGAIN", (0.0, 0.0))
    queue.limit(concurrency=1)
    queue.enqueue("n")
    other = open_db(worker="rival")
    rival = RateLimiter(other, [queue.name], 60.0, most=lambda queue: 1, in_hand=lambda queue: 0)
    rival.refresh()
    assert rival.take(queue.name, 1) == 1
    worker = serving(queue, lambda job: None, poll=0.01)
    thread = threading.Thread(target=worker.run, kwargs={"until_empty": True})
    thread.start()
    wait_for(lambda: "limits.take_share" in sent)
    assert thread.is_alive(), "it ended although a job is due"
    assert len(other.queue(queue.name).claim()) == 1
    thread.join(PATIENCE)
    try:
        assert not thread.is_alive()
    finally:
        worker.stop(0)
        thread.join(PATIENCE)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_worker_that_waits_for_its_last_job_keeps_its_share(queue, sent, running, monkeypatch):
    """Else the share expires while the job runs, and another worker begins one more than the limit allows."""
    monkeypatch.setattr("queue_db.worker.fetcher.READ_CONTROLS_EVERY", 0.0)
    queue.limit(concurrency=1)
    queue.enqueue("n")
    entered, go = threading.Event(), threading.Event()

    def handler(job):
        entered.set()
        assert go.wait(PATIENCE)

    worker = serving(queue, handler, max_jobs=1, poll=0.01)
    with running(worker):
        assert entered.wait(PATIENCE)
        wait_for(lambda: worker._run.fetcher._claims_left == 0)
        before = sent.count("limits.take_share")
        wait_for(lambda: sent.count("limits.take_share") > before + 2)
        go.set()


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_worker_that_stops_keeps_its_share_for_its_last_job(queue, sent, running, monkeypatch):
    monkeypatch.setattr("queue_db.worker.fetcher.READ_CONTROLS_EVERY", 0.0)
    monkeypatch.setattr("queue_db.worker.run.KEEP_EVERY", 0.01)
    queue.limit(concurrency=1)
    queue.enqueue("n")
    entered, go = threading.Event(), threading.Event()

    def handler(job):
        entered.set()
        assert go.wait(PATIENCE)

    worker = serving(queue, handler, grace=HOURS)
    with running(worker):
        assert entered.wait(PATIENCE)
        worker.stop()
        wait_for(worker._run.stopping.is_set)
        before = sent.count("limits.take_share")
        wait_for(lambda: sent.count("limits.take_share") > before + 2)
        go.set()


@pytest.mark.usefixtures("nothing_but_events")
def test_a_worker_whose_rivals_have_it_all_asks_now_and_then(queue, db, open_db, sent):
    queue.limit(concurrency=3)
    rival = RateLimiter(open_db(worker="rival"), [queue.name], 60.0, most=lambda queue: 3, in_hand=lambda queue: 3)
    mine = RateLimiter(db, [queue.name], 60.0, most=lambda queue: 9, in_hand=lambda queue: 0)
    for one in (rival, mine):
        one.refresh()
    assert rival.allowed({queue.name: 9}) == {queue.name: 9}
    rival._in_hand = lambda queue: 0
    assert rival.take(queue.name, 9) == 3
    for _ in range(100):
        assert mine.take(queue.name, 9) == 0
        assert mine.allowed({queue.name: 9}) == {}
    assert sent.count("limits.take_share") == 1
    assert 1000 < mine.wait() <= 3600


def test_without_the_limit_the_gauge_shows_more(queue, open_db):
    """The control for the test above: it can fail."""
    queue.enqueue_many([("n", None)] * 10)
    gauge = Gauge(5, waits=PATIENCE)
    serving(queue, gauge, concurrency=10).run(until_empty=True)
    assert gauge.most >= 5


def test_shares_add_up_to_the_limit(queue, db):
    queue.limit(concurrency=5)

    def take(worker: str, wanted: int, lasts: int = AN_HOUR) -> int | None:
        return db.core.write("limits.take_share", store.take_share, queue.name, worker, wanted, lasts)

    assert take("a", 3) == 3
    assert take("b", 3) == 2
    assert take("c", 3) == 0
    assert take("a", 1) == 1
    assert take("c", 3) == 2
    assert take("a", 0) == 0
    assert take("b", 9) == 3
    # One that is gone: its share ends by itself.
    assert take("d", 9, lasts=0) == 0
    assert take("c", 0) == 0
    assert take("d", 9, lasts=0) == 2
    assert take("c", 9) == 2
    queue.limit(concurrency=None)
    assert take("c", 9) is None


def test_each_queue_has_shares_of_its_own(queue, db, name):
    other = db.queue(f"{name}-other")
    for one in (queue, other):
        one.limit(concurrency=3)

    def take(one: Queue, worker: str, wanted: int) -> int | None:
        return db.core.write("limits.take_share", store.take_share, one.name, worker, wanted, AN_HOUR)

    assert [take(one, "a", 2) for one in (queue, other)] == [2, 2]
    assert [take(one, "b", 2) for one in (queue, other)] == [1, 1]
    assert take(queue, "a", 0) == 0
    assert [take(one, "b", 3) for one in (queue, other)] == [3, 1]


def test_two_workers_that_ask_at_once_do_not_get_more_than_there_is(queue, open_db):
    queue.limit(concurrency=10)
    barrier = threading.Barrier(4, timeout=PATIENCE)
    got: list[int] = []

    def take(number: int) -> None:
        db = open_db()
        barrier.wait()
        for _ in range(20):
            share = db.database.run(
                lambda connection: store.take_share(Transaction(connection, db.store), queue.name, f"w{number}", 9, AN_HOUR),
                name="share",
            )
        got.append(share)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sum(got) == 10, got


def test_a_share_comes_back_when_a_worker_stops_or_is_rescued(queue, open_db, monkeypatch):
    monkeypatch.setattr("queue_db.limits.limiter.ASK_AGAIN", (0.0, 0.0))
    queue.limit(concurrency=2)
    queue.enqueue_many([("n", None)] * 4)
    first = open_db()
    serving(first.queue(queue.name), lambda job: None).run(until_empty=True)
    queue.enqueue("n")
    dead = open_db(worker="dead")
    limiter = RateLimiter(dead, [queue.name], 60.0, most=lambda queue: 2, in_hand=lambda queue: 0)
    limiter.refresh()
    assert limiter.take(queue.name, 2) == 2, "the worker that stopped has kept its share"
    alive = RateLimiter(open_db(worker="alive"), [queue.name], 60.0, most=lambda queue: 2, in_hand=lambda queue: 0)
    alive.refresh()
    assert alive.take(queue.name, 2) == 0
    first.rescue("dead")
    assert alive.take(queue.name, 2) == 2


def test_a_rate_holds_over_workers(queue, open_db, clock):
    """By a clock that only we advance."""
    queue.limit(rate=5, per=10)
    dbs = [open_db(clock=clock, worker=f"w{number}") for number in range(2)]

    def begun(wanted: int, number: int = 0) -> int:
        db = dbs[number]
        count, _ = db.database.run(
            lambda connection: store.spend(Transaction(connection, db.store), queue.name, wanted), name="spend"
        )
        return count

    assert begun(3) == 3
    assert begun(9, 1) == 2
    assert begun(1) == 0
    clock.advance(2)  # one job's time
    assert begun(9, 1) == 1
    assert begun(9) == 0
    clock.advance(100)  # a rest does not save up more than one period
    assert begun(99) == 5
    clock.advance(4)
    dbs[0].database.run(
        lambda connection: store.refund(Transaction(connection, dbs[0].store), queue.name, 4_000_000), name="refund"
    )
    assert begun(9) == 4
    queue.limit(rate=5, per=10)
    assert begun(9) == 0, "the same rate again was refilled"
    queue.limit(per=20)
    assert begun(9) == 5


def test_a_worker_keeps_to_the_rate(queue, running):
    """Ten at once, and then one a minute: the eleventh does not begin."""
    queue.limit(rate=10, per=600)
    queue.enqueue_many([("n", None)] * 15)
    seen = Counter()
    done = threading.Event()

    def handler(job):
        seen["n"] += 1
        if seen["n"] == 10:
            done.set()

    with running(serving(queue, handler, poll=0.01)):
        assert done.wait(PATIENCE)
        assert not threading.Event().wait(0.3)  # thirty polls
    assert seen["n"] == 10
    assert queue.stats().available == 5


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_claim_that_fails_uses_nothing_of_the_rate(queue, running, monkeypatch):
    queue.limit(rate=1, per=3600)
    real, claims, handled = Queue.claim, [], threading.Event()

    def claim(*arguments, **options):
        claims.append(arguments)
        if len(claims) == 1:
            raise TransientStorageError("a deadlock")
        return real(*arguments, **options)

    monkeypatch.setattr(Queue, "claim", claim)
    queue.enqueue("n")
    with running(serving(queue, lambda job: handled.set())):
        assert handled.wait(PATIENCE)
    assert len(claims) >= 2


def test_unlimited_queues_cost_one_look_a_second(queue: Queue, db, monkeypatch):
    monkeypatch.setattr("queue_db.limits.limiter.REFRESH", HOURS)  # the second is not over before the loop is
    limiter = RateLimiter(db, [queue.name], 60.0, most=lambda queue: 10, in_hand=lambda queue: 0)
    limiter.refresh()
    with counted_statements(db.database.engine) as statements:
        for _ in range(100):
            limiter.refresh()
            assert limiter.allowed({queue.name: 10}) == {queue.name: 10}
            assert limiter.take(queue.name, 10) == 10
            limiter.give_back(queue.name, 3)
    assert statements == []


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_run_that_cannot_report_its_start_leaves_no_thread(queue):
    def started():
        raise OSError("no supervisor")

    worker = Worker(queue.db, queue.name)
    worker.handles("k")(lambda job: None)
    with pytest.raises(OSError, match="no supervisor"):
        worker.run(started=started)
    assert [thread.name for thread in threading.enumerate() if queue.name in thread.name] == []
