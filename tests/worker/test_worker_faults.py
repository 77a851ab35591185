"""A worker and a database that is killed, cut off, or full: it comes back by itself, and nothing is lost."""

import sqlite3
import threading
from collections import Counter

import pytest
from sqlalchemy import event, make_url

from queue_db import QueueDB
from queue_db.backoff import constant
from tests.patience import PATIENCE
from tests.servers import provide
from tests.servers.proxy import Proxy
from tests.worker.serving import serving


class Record:
    """What was begun, how often, and when all of it was."""

    def __init__(self, jobs):
        self.seen, self.jobs = Counter(), jobs
        self.lock, self.all, self.some = threading.Lock(), threading.Event(), threading.Semaphore(0)

    def __call__(self, job):
        with self.lock:
            self.seen[job.id] += 1
            if len(self.seen) == self.jobs:
                self.all.set()
        self.some.release()

    def wait_for(self, count):
        for _ in range(count):
            assert self.some.acquire(timeout=PATIENCE)


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
@pytest.mark.rest("test_worker_process.py has a worker that survives a restart of the database")
def test_a_database_that_is_killed_again_and_again(kind, name, running):
    server = provide(kind)
    try:
        with QueueDB(server.create_database()) as db:
            db.migrate()
            queue = db.queue(name)
            ids = queue.enqueue_many([("n", None)] * 300)
            record = Record(len(ids))
            with running(serving(queue, record, concurrency=4, lease=3600.0)) as thread:
                for _ in range(3):
                    record.wait_for(60)
                    server.kill()
                    server.start()
                assert record.all.wait(PATIENCE)
                assert thread.is_alive()
            # What was in hand at a kill is reported when the server is back: nothing is repeated, for the leases hold.
            assert record.seen == Counter(ids)
            assert queue.stats().by_kind == {}
    finally:
        server.remove()


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_connections_that_are_cut_again_and_again(kind, url, db, name, running):
    ids = db.queue(name).enqueue_many([("n", None)] * 300)
    record = Record(len(ids))
    with Proxy.before(url) as proxy:
        far = make_url(proxy.url(url))
        with QueueDB(far) as remote, running(serving(remote.queue(name), record, concurrency=4, lease=3600.0)):
            for _ in range(5):
                record.wait_for(30)
                proxy.cut()
            assert record.all.wait(PATIENCE)
    assert set(record.seen) == set(ids)
    # Jobs of a claim whose answer was cut off were released: this test would not wait for a lease of an hour.
    assert max(record.seen.values()) == 1, "a job was begun twice although its lease held"
    assert db.queue(name).stats().by_kind == {}


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_full_disk(kind, tmp_path, name, running, log, monkeypatch):
    """A worker that can write nothing keeps what it has done, and reports it when there is room."""
    monkeypatch.setattr("queue_db.worker.run.RETRY", (0.01, 0.05))
    file = tmp_path / "queue.db"
    with QueueDB(f"sqlite:///{file}") as db:
        db.migrate()
        queue = db.queue(name)
        go, full = threading.Event(), threading.Event()
        engine = db.database.engine

        def no_room(connection, cursor, statement, *rest):
            if full.is_set() and statement.startswith(("DELETE", "UPDATE")):
                raise sqlite3.OperationalError("database or disk is full")

        event.listen(engine, "before_cursor_execute", no_room)
        started = threading.Event()

        def handler(job):
            started.set()
            assert go.wait(PATIENCE)

        job_id = queue.enqueue("n")
        worker = serving(queue, handler)
        with running(worker):
            assert started.wait(PATIENCE)
            full.set()
            go.set()
            log.wait("trying again")
            full.clear()
            log.wait("completed: <LeasedJob")
        assert worker.summary.completed == 1
        assert queue.stats().by_kind == {}
        assert job_id is not None


@pytest.mark.parametrize("kind", ["sqlite"])
def test_while_the_database_is_away_it_asks_ever_more_rarely(kind, queue, running, monkeypatch):
    """No hot loop: between the tenth and the twentieth try at least nine of the longest pauses lie."""
    tries, pauses = [], []
    enough = threading.Event()

    def away(queues):
        tries.append(1)
        if len(tries) >= 20:
            enough.set()
        raise ConnectionError("away")

    monkeypatch.setattr(queue.db, "next_due", away)
    monkeypatch.setattr("queue_db.worker.run.RETRY", (0.001, 0.02))
    worker = serving(queue, print)
    wait = threading.Event.wait

    def counted(event, timeout=None):
        if timeout is not None and threading.current_thread().name.startswith("queue_db fetcher"):
            pauses.append(timeout)
        return wait(event, timeout)

    monkeypatch.setattr(threading.Event, "wait", counted)
    with running(worker):
        assert wait(enough, PATIENCE)
    assert len(pauses) >= 19
    assert min(pauses[10:19]) >= 0.01


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_handler_that_uses_every_connection_does_not_stop_the_worker(url, name, running):
    """Ten handlers in transactions of their own, with a pool that keeps two."""
    with QueueDB(url, pool_size=2) as db:
        queue = db.queue(name)
        queue.enqueue_many([("n", None)] * 40)
        done = threading.Semaphore(0)

        def handler(job):
            with job.transaction():
                pass
            done.release()

        worker = serving(queue, handler, concurrency=10)
        with running(worker):
            for _ in range(40):
                assert done.acquire(timeout=PATIENCE)
        assert (worker.summary.completed, worker.summary.lost) == (40, 0)


def test_a_clock_that_is_an_hour_off_changes_nothing(queue, running, monkeypatch):
    """The process's own clock is never asked: leases, delays and schedules are the database's."""
    import time

    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    monkeypatch.setattr(time, "time_ns", lambda: int((real() + 3600) * 1e9))
    later = queue.enqueue("later", delay=1800)
    tries = []

    def handler(job):
        tries.append(job.attempts)
        if job.attempts == 1:
            raise ValueError("once more")

    worker = serving(queue, {})
    worker.handles("now", backoff=constant(0))(handler)
    queue.enqueue("now")
    summary = worker.run(until_empty=True)
    assert tries == [1, 2]
    assert (summary.completed, summary.lost) == (1, 0)
    assert queue.get(later).attempts == 0
