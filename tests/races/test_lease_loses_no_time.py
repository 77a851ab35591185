"""A lease begins when its row is written, also when the statement has waited for the lock of the row."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, text

from queue_db import QueueDB
from queue_db.dialects.clock import clock_query
from queue_db.store import low_water_marks
from tests.faults.test_contention import WAITING
from tests.marks import begin_anew
from tests.patience import PATIENCE
from tests.races.interleaving import open_transaction

pytestmark = pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"])


@contextmanager
def locked(db: QueueDB) -> Iterator[Callable[[Callable[[], Any]], tuple[Any, int, int]]]:
    """All rows of the table are locked. Yields what runs a verb until it waits for them and then lets them go.

    It returns the verb's answer, and the database's time when it waited and, later, when it was let go.
    """
    engine = create_engine(db.database.engine.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as watch, open_transaction(db) as holder, ThreadPoolExecutor(1) as pool:
        holder.execute(text("SELECT id FROM jobs FOR UPDATE")).all()

        def until_it_waits(verb: Callable[[], Any]) -> tuple[Any, int, int]:
            until = time.monotonic() + PATIENCE
            answer: Future[Any] = pool.submit(verb)
            while not watch.execute(text(WAITING[db.database.engine.dialect.name])).all():
                threading.Event().wait(0.15)  # InnoDB shows an older picture to those that ask more often
                assert time.monotonic() < until, "nobody waits"
                assert not answer.done(), answer.result()
            waits = now(db, watch)
            let_go = now(db, watch)
            holder.rollback()
            return answer.result(PATIENCE), waits, let_go

        try:
            yield until_it_waits
        finally:
            holder.rollback()
    engine.dispose()


def now(db: QueueDB, connection: Connection) -> int:
    return int(connection.execute(clock_query()).scalar_one())


@pytest.fixture
def db(fresh_url: str) -> Iterator[QueueDB]:
    with QueueDB(fresh_url, strategy="pessimistic") as own:
        own.migrate()
        yield own


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_claim_that_waited_leases_from_the_end_of_the_wait(db: QueueDB, jobs: int) -> None:
    queue = db.queue("q")
    queue.enqueue_many([("a", number) for number in range(jobs)])
    known = begin_anew(queue.core, queue.name)
    with locked(db) as until_it_waits:
        won, waits, let_go = until_it_waits(lambda: queue.claim(jobs, lease=30))
    assert len(won) == jobs
    for job in won:
        assert job.lease_ends - 30_000_000 >= let_go
    # The look came before the wait: jobs that were written then may lie behind it by the slack.
    assert all(floor <= waits - low_water_marks.SLACK for _, floor in known.ranges())
