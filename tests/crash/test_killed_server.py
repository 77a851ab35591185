"""The server is killed while jobs go in and out. What it acknowledged is still so when it is back."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from queue_db import Queue, QueueDB, State, StorageError
from queue_db.dialects.clock import clock_query
from tests.patience import PATIENCE
from tests.servers import Server, provide

SERVERS = ["postgresql", "mysql", "mariadb"]
#: Completed jobs before the kill, and in all.
BEFORE, IN_ALL = 300, 1500
PRODUCERS, CONSUMERS, BATCH = 2, 3, 10


@pytest.fixture
def server(kind: str) -> Iterator[Server]:
    started = provide(kind)
    yield started
    started.remove()


class Run:
    """Producers and consumers, and what the server told them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.lock = threading.Condition()
        self.enqueued: set[int] = set()
        self.completed: set[int] = set()
        self.unknown: set[int] = set()  # completed or not: the server was away before it answered
        self.came_back: set[int] = set()
        self.stop = threading.Event()
        self.faults: list[BaseException] = []

    def produce(self) -> None:
        with QueueDB(self.url) as db:
            queue = db.queue("crash")
            while not self.stop.is_set() and len(self.enqueued) < IN_ALL:
                self._try(lambda: self._enqueue(queue))

    def consume(self) -> None:
        with QueueDB(self.url) as db:
            queue = db.queue("crash")
            while not self.stop.is_set():
                self._try(lambda: self._drain(queue))

    def _enqueue(self, queue: Queue) -> None:
        ids = queue.enqueue_many([("work", number) for number in range(5)])
        with self.lock:
            self.enqueued.update(ids)

    def _drain(self, queue: Queue) -> None:
        with self.lock:
            completed = set(self.completed)  # before the claim: on a busy machine its leases may be over when it returns
        jobs = queue.claim(BATCH, lease=2.0)
        with self.lock:
            self.came_back |= {job.id for job in jobs} & completed
        try:
            verdicts = queue.complete_many(jobs)
        except StorageError:
            with self.lock:
                self.unknown |= {job.id for job in jobs}
            raise
        with self.lock:
            self.completed |= {job.id for job, verdict in zip(jobs, verdicts, strict=True) if verdict}
            self.lock.notify_all()
        if not jobs:
            self.stop.wait(0.02)

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except StorageError:
            self.stop.wait(0.05)  # the server is away; what was not acknowledged may be there or not
        except BaseException as fault:
            self.faults.append(fault)
            self.stop.set()
            raise

    def wait_for(self, number: int) -> None:
        with self.lock:
            assert self.lock.wait_for(lambda: len(self.completed | self.unknown) >= number or self.faults, PATIENCE), (
                f"{len(self.completed)} of {number} jobs were completed in {PATIENCE} s"
            )


@pytest.mark.parametrize("kind", SERVERS, scope="session")
def test_a_killed_server_keeps_what_it_acknowledged(server: Server) -> None:
    run = Run(server.create_database())
    with QueueDB(run.url) as db:
        db.migrate()
    producers = [threading.Thread(target=run.produce) for _ in range(PRODUCERS)]
    threads = [*producers, *(threading.Thread(target=run.consume) for _ in range(CONSUMERS))]
    for thread in threads:
        thread.start()
    try:
        run.wait_for(BEFORE)
        server.kill()
        server.start()
        run.wait_for(IN_ALL)
        for producer in producers:  # one may be at its last jobs
            producer.join()
        with run.lock:
            assert run.lock.wait_for(lambda: run.enqueued <= run.completed | run.unknown or run.faults, PATIENCE), (
                f"acknowledged and lost: {sorted(run.enqueued - run.completed)[:10]}"
            )
    finally:
        run.stop.set()
        for thread in threads:
            thread.join()
    assert not run.faults
    assert not run.came_back, "a completed job was claimed again"
    assert len(run.unknown) <= CONSUMERS * BATCH, "only what was being completed at the kill can be in doubt"
    with QueueDB(run.url) as db:
        left = db.queue("crash").stats()
        assert left.available + left.running + left.scheduled + left.dead <= len(run.unknown)


def test_a_process_killed_inside_its_transaction_leaves_the_job_leased(tmp_path: Path) -> None:
    """SQLite: the file is whole, the half transaction is gone, the job comes back when its lease has run out."""
    url = f"sqlite:///{tmp_path}/killed.db"
    with QueueDB(url) as db:
        db.migrate()
        job_id = db.queue("crash").enqueue("work", 1)
    program = (
        "import sys; from queue_db import QueueDB\n"
        "db = QueueDB(sys.argv[1]); queue = db.queue('crash'); (job,) = queue.claim(lease=60)\n"
        "with db.database.begin() as connection:\n"
        "    assert job.complete(using=connection); print('inside', flush=True); sys.stdin.read()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"inside\n"
    process.kill()
    process.communicate()
    with QueueDB(url) as db:
        assert db.queue("crash").get(job_id).state is State.RUNNING
        with db.database.engine.connect() as connection:
            assert connection.execute(text("PRAGMA integrity_check")).scalar() == "ok"
            now = connection.execute(clock_query()).scalar_one()
    with QueueDB(url, clock=lambda: now + 61_000_000) as later:
        (job,) = later.queue("crash").claim()
        assert job.id == job_id
        assert job.attempts == 2
        assert job.complete()
