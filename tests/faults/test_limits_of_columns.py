"""Rows that any client may write: numbers at the limits of their columns. They are jobs, or dead ones, and the queue goes on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import insert, select

from queue_db import Queue, QueueDB, State, Verdict
from queue_db.monitoring import insights
from queue_db.spark.streams import store as streams
from queue_db.store import Transaction

BIGINT = 2**63 - 1
INTEGER = 2**31 - 1
LONG_AGO = -(2**63)

#: Columns of a row → what the dead table says of it.
EXHAUSTED: dict[str, tuple[dict[str, int], str]] = {
    "attempts": ({"attempts": INTEGER, "max_attempts": INTEGER}, f"no verdict after {INTEGER} attempts"),
    "one attempt below": ({"attempts": INTEGER - 1, "max_attempts": INTEGER}, f"no verdict after {INTEGER} attempts"),
    "version": ({"version": BIGINT}, "enqueue it anew"),
    "a version below": ({"version": 2**62}, "enqueue it anew"),
    "both": ({"version": BIGINT, "attempts": INTEGER, "max_attempts": 3}, "enqueue it anew"),
}


def put(queue: Queue, **columns: Any) -> None:
    """``INSERT INTO jobs``, as any client does it."""
    values = {"queue": queue.name, "payload": "1"} | columns
    with queue.transaction() as connection:
        connection.execute(insert(queue.db.store.tables.jobs).values(values))


@pytest.mark.parametrize("what", EXHAUSTED)
@pytest.mark.parametrize("strategy", ["adaptive", "skip_locked", "pessimistic"])
@pytest.mark.parametrize("verb", ["one", "many", "pop"])
def test_a_row_at_the_limit_is_buried_and_the_queue_goes_on(
    open_db: Callable[..., QueueDB], differs: Callable[[str], None], name: str, strategy: str, verb: str, what: str
) -> None:
    if strategy == "skip_locked":
        differs("no SKIP LOCKED")
    queue = open_db(strategy=strategy).queue(name)
    limit = 1 if verb == "one" else 3
    take = queue.pop if verb == "pop" else queue.claim
    columns, reason = EXHAUSTED[what]
    for _ in range(2):  # the second time the claims expect jobs
        queue.enqueue_many([("good", number) for number in range(limit)])
        assert len(take(limit)) == limit
        put(queue, kind="bad", **columns)
        queue.enqueue_many([("good", number) for number in range(limit)])
        assert [job.kind for job in take(limit)] == ["good"] * limit
        assert take(limit) == []
    dead = queue.db.dead.list(name)
    assert [job.kind for job in dead] == ["bad", "bad"]
    assert all(reason in str(job.last_error) for job in dead)
    assert queue.stats().available == 0


def test_a_version_below_the_limit_is_leased_and_fenced(queue: Queue) -> None:
    put(queue, version=2**62 - 2)
    (job,) = queue.claim()
    assert job.version == 2**62 - 1
    for _ in range(3):
        assert job.extend(60) is Verdict.APPLIED
    assert job.version == 2**62 + 2
    assert queue.get(job.id).version == job.version
    assert job.complete() is Verdict.APPLIED


def test_what_was_buried_can_be_brought_back_and_a_worker_that_had_it_rescued(queue: Queue) -> None:
    put(queue, version=BIGINT, worker="gone", claim_token="t", available_at=2**62)
    assert queue.db.rescue("gone") == 1
    assert queue.claim() == []
    (dead,) = queue.db.dead.list(queue.name)
    assert dead.version == BIGINT
    assert queue.db.dead.redrive(dead.id) == [dead.id]
    assert queue.get(dead.id).version == BIGINT
    assert queue.claim() == []
    assert queue.get(dead.id).state is State.DEAD


@pytest.mark.parametrize("columns", [{"version": BIGINT}, {"attempts": INTEGER}])
def test_a_stream_goes_on_too(queue: Queue, columns: dict[str, int]) -> None:
    put(queue, kind="bad", **columns)
    queue.enqueue_many([("good", 1), ("good", 2, {"unique_key": "k"})])
    store, stream = queue.db.store, f"of {queue.name}"
    with queue.transaction() as connection:
        session = streams.open_stream(Transaction(connection, store), stream, queue.name, "reader", 60_000_000)
        start = streams.initial(Transaction(connection, store), session)
        streams.allocate(Transaction(connection, store), session, start, limit=10, ceiling=None, partitions=1)
    assert queue.stats().held == (2 if "version" in columns else 3)
    queue.db.streams.release(stream)
    assert [job.kind for job in queue.claim(10)] == ["good", "good"]
    assert [job.kind for job in queue.db.dead.list(queue.name)] == ["bad"]


@pytest.mark.parametrize(
    ("due", "shown"),
    [
        (LONG_AGO, datetime.min.replace(tzinfo=UTC)),
        (1_700_000_000_000_000_000, datetime.max.replace(tzinfo=UTC)),  # nanoseconds
        (BIGINT, datetime.max.replace(tzinfo=UTC)),
    ],
)
def test_a_due_time_beyond_all_calendars_is_shown(queue: Queue, due: int, shown: datetime) -> None:
    put(queue, available_at=due, created_at=due)
    jobs = queue.db.store.tables.jobs
    with queue.transaction() as connection:
        job_id = connection.execute(select(jobs.c.id).where(jobs.c.queue == queue.name)).scalar_one()
    job = queue.get(job_id)
    assert (job.available_at, job.created_at) == (shown, shown)
    assert queue.stats().available + queue.stats().scheduled == 1
    assert (queue.db.next_due([queue.name])[queue.name] or 0) <= 0 if due < 0 else True
    if due < 0:
        assert any(queue.name in str(finding) for finding in insights.findings(queue.db))
    assert queue.cancel(job_id) is Verdict.APPLIED


def test_a_job_that_was_due_at_the_beginning_of_time_is_claimed(queue: Queue) -> None:
    put(queue, available_at=LONG_AGO)
    (job,) = queue.claim()
    assert job.waited is None or job.waited >= 0
    assert job.due_at == datetime.min.replace(tzinfo=UTC)
    assert job.complete() is Verdict.APPLIED
