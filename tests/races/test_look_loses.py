"""A look at a job while it moves between the tables: it is there all the time, and the look says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import event

from queue_db import JobDeadError, JobNotFoundError, Queue, QueueDB, State, Verdict
from queue_db.model import StoredResult
from queue_db.spark.streams import store as streams
from queue_db.store import Transaction
from queue_db.testing import SettableClock, counted_statements


@pytest.fixture
def theirs(open_db: Callable[..., QueueDB], clock: SettableClock, name: str) -> Queue:
    return open_db(clock=clock).queue(name)


@pytest.fixture
def ours(open_db: Callable[..., QueueDB], clock: SettableClock, name: str) -> Queue:
    return open_db(clock=clock).queue(name)


class Mover:
    """Another process that moves a job to the dead table and back."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.job_id = self._queue.enqueue("mail") or 0

    def move(self) -> None:
        if self._queue.db.get(self.job_id).state is State.DEAD:
            self._queue.db.dead.redrive(self.job_id)
        else:
            (job,) = self._queue.claim()
            assert job.bury("bad") is Verdict.APPLIED


@pytest.fixture
def mover(theirs: Queue) -> Mover:
    return Mover(theirs)


@contextmanager
def after_the_first_read(db: QueueDB, move: Callable[[], None], *, times: int = 1) -> Iterator[None]:
    """After each of the first ``times`` statements of ``db`` that read, ``move`` is called."""
    left = times

    def after(_: object, __: object, statement: str, *___: object) -> None:
        nonlocal left
        if "SELECT" in statement and left:
            left -= 1
            move()

    engine = db.database.engine
    event.listen(engine, "after_cursor_execute", after)
    try:
        yield
    finally:
        event.remove(engine, "after_cursor_execute", after)
    assert not left


@pytest.mark.parametrize("dead_first", [False, True], ids=["live", "dead"])
@pytest.mark.parametrize("of_the_queue", [False, True], ids=["db", "queue"])
def test_get_finds_a_job_that_moves(ours: Queue, mover: Mover, dead_first: bool, of_the_queue: bool) -> None:
    if dead_first:
        mover.move()
    look = ours.get if of_the_queue else ours.db.get
    for _ in range(3):
        before = ours.db.get(mover.job_id).state
        with after_the_first_read(ours.db, mover.move):
            assert look(mover.job_id).state is before


def test_cancel_finds_a_job_that_was_redriven_meanwhile(ours: Queue, mover: Mover) -> None:
    mover.move()
    with after_the_first_read(ours.db, mover.move), pytest.raises(JobNotFoundError, match="dead"):
        # The look came before the redrive: the job was dead then, and not unknown.
        ours.cancel(mover.job_id)
    assert ours.cancel(mover.job_id) is Verdict.APPLIED
    with pytest.raises(JobNotFoundError):
        ours.get(mover.job_id)


def test_wait_does_not_end_because_a_job_moves(ours: Queue, mover: Mover) -> None:
    with after_the_first_read(ours.db, mover.move), pytest.raises(TimeoutError):
        ours.db.wait(mover.job_id, timeout=0)
    with after_the_first_read(ours.db, mover.move), pytest.raises(JobDeadError):
        ours.db.wait(mover.job_id, timeout=0)


@pytest.mark.parametrize("wait", [False, True], ids=["finished", "wait"])
def test_a_look_for_a_result_loses_to_its_completion(ours: Queue, theirs: Queue, wait: bool) -> None:
    job_id = theirs.enqueue("mail") or 0
    (job,) = theirs.claim()

    def complete() -> None:
        assert theirs.complete_many([job], results=[StoredResult("5", 60_000_000)]) == [Verdict.APPLIED]

    with after_the_first_read(ours.db, complete):
        assert (ours.db.wait(job_id, timeout=60) if wait else ours.db.finished(job_id)).result == 5


def test_a_look_at_the_state_is_one_statement(ours: Queue, theirs: Queue) -> None:
    job_id = theirs.enqueue("mail") or 0
    (job,) = theirs.claim()
    with counted_statements(ours.db.database.engine) as statements:
        assert ours.db.state(job_id) is State.RUNNING
    assert len(statements) == 1
    theirs.complete_many([job], results=[StoredResult("5", 60_000_000)])
    assert ours.db.state(job_id) is State.COMPLETED


def test_a_job_that_a_stream_takes_and_gives_back_is_found(ours: Queue, theirs: Queue, mover: Mover) -> None:
    store = theirs.db.store
    stream = f"of {theirs.name}"

    def hold() -> None:
        with theirs.transaction() as connection:
            session = streams.open_stream(Transaction(connection, store), stream, theirs.name, "reader", 60_000_000)
            start = streams.initial(Transaction(connection, store), session)
            streams.allocate(Transaction(connection, store), session, start, limit=10, ceiling=None, partitions=1)

    def release() -> None:
        assert theirs.db.streams.release(stream) == 1

    hold()
    for move, state in ((release, State.RUNNING), (hold, State.AVAILABLE), (release, State.RUNNING)):
        with after_the_first_read(ours.db, move):
            assert ours.get(mover.job_id).state is state
