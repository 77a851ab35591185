"""Duration of a claim in a deep queue, and in a table whose dead rows an old snapshot retains."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import Connection, text

from benchmarks.figures import Line, Side
from benchmarks.filling import CHUNK, fill, tidy
from benchmarks.lab import Lab
from queue_db import QueueDB
from queue_db.compare.engines import autocommitting
from queue_db.dialects.clock import now_us

_QUEUE = "deep"
_LEASE = 600.0

#: This depth takes minutes to fill and is measured only at full size.
_DEEPEST = 10_000_000

DEPTHS = (10_000, 1_000_000, _DEEPEST)


class _Claims:
    """p50 of consecutive claims of one batch size on one connection, one figure per round."""

    def __init__(self, db: QueueDB, name: str, batch: int) -> None:
        self.db, self.name, self.batch = db, name, batch
        self.values: list[float] = []
        self.seen: list[int] = []

    def round(self, claims: int) -> None:
        """Claim ``claims`` times; completing and refilling, which keeps the depth constant, is not measured."""
        queue = self.db.queue(_QUEUE)
        taken = []
        for turn in range(claims + 3):
            began = time.perf_counter()
            jobs = queue.claim(self.batch, _LEASE)
            took = time.perf_counter() - began
            if len(jobs) != self.batch:
                raise AssertionError(f"{self.name}: a claim of {self.batch} got {len(jobs)}")
            if turn >= 3:  # the first claims connect, compile, prepare and find the low-water mark
                taken.append(took)
            self.seen.extend(job.id for job in jobs)
            queue.complete_many(jobs)
            queue.enqueue_many([("job", None)] * self.batch)
        self.values.append(statistics.median(taken) * 1000)

    def side(self) -> Side:
        """Return the measured figures."""
        return Side(self.name, "ms", self.values, duplicates=len(self.seen) - len(set(self.seen)))


def depth(
    lab: Lab, depths: Sequence[int] | None = None, batches: Sequence[int] = (1, 100), claims: int | None = None
) -> Iterator[Line]:
    """Measure claims at each depth in turns, compared with the first depth."""
    if depths is None:
        depths = DEPTHS if lab.scale >= 1 else [lab.sized(number, 500) for number in DEPTHS if number < _DEEPEST]
    count = claims or lab.sized(200, 10)
    with lab.tables(*(f"depth_{number}" for number in depths)) as opened:
        for db, number in zip(opened, depths, strict=True):
            lab.say(f"filling {number:,} jobs")
            fill(db, _QUEUE, number, due_ago=3600, say=lab.say)
            tidy(db)
        measured = {
            (number, batch): _Claims(db, f"{number:,} waiting", batch)
            for batch in batches
            for db, number in zip(opened, depths, strict=True)
        }
        for turn in range(lab.repeat):
            lab.say(f"claims at each depth, {turn + 1} of {lab.repeat}")
            for (_, batch), one in measured.items():
                one.round(count if batch == 1 else max(10, count // 4))
    for batch in batches:
        for number in depths[1:]:
            yield Line(
                f"claim p50 ×{batch}, {number:,} waiting against {depths[0]:,}",
                measured[number, batch].side(),
                measured[depths[0], batch].side(),
                1.2,
                at_most=True,
            )
    if lab.scale < 1:
        yield Line(f"claim p50, {_DEEPEST:,} waiting", missing="only with --scale 1 or more: filling takes minutes")


def bloat(lab: Lab, churned: int | None = None, live: int | None = None, claims: int | None = None) -> Iterator[Line]:
    """Measure claims in a table in which jobs came and went while a snapshot was open, compared with a clean table."""
    gone, waiting, count = churned or lab.sized(1_000_000, 1000), live or lab.sized(1000, 100), claims or lab.sized(100, 10)
    with lab.tables("clean", "churned") as (clean, busy):
        fill(clean, _QUEUE, waiting, due_ago=3600)
        tidy(clean)
        with old_snapshot(lab.target.url):
            lab.say(f"{gone:,} jobs are enqueued and deleted under an open snapshot")
            fill(busy, _QUEUE, gone, due_ago=7200, say=lab.say)
            _churn(busy)
            fill(busy, _QUEUE, waiting, due_ago=3600)
            tidy(busy)
            sides = {
                name: [_Claims(db, f"{name} ×{batch}", batch) for batch in (1,)]
                for name, db in (("clean", clean), ("churned", busy))
            }
            naive: list[float] = []
            for turn in range(lab.repeat):
                lab.say(f"claims of both, and the naive scan, {turn + 1} of {lab.repeat}")
                for one in (*sides["clean"], *sides["churned"]):
                    one.round(count)
                naive.append(_naive(busy, max(3, count // 20)))
    for ours, theirs in zip(sides["churned"], sides["clean"], strict=True):
        yield Line(
            f"claim p50 with {gone:,} rows churned under an old snapshot, against clean",
            ours.side(),
            theirs.side(),
            1.5,
            at_most=True,
        )
    yield Line(
        "a naive scan of the churned table from the beginning of the index, compared with a claim",
        Side("ORDER BY … LIMIT 1", "ms", naive),
        sides["churned"][0].side(),
    )


#: PostgreSQL and SQLite take the snapshot with the first statement that reads.
_SNAPSHOT = {
    "postgresql": ("BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1"),
    "sqlite": ("BEGIN", "SELECT count(*) FROM sqlite_master"),
}
_CONSISTENT = ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION WITH CONSISTENT SNAPSHOT")


@contextmanager
def old_snapshot(url: str) -> Iterator[None]:
    """Keep a snapshot open in another connection during the ``with`` block."""
    with autocommitting(url) as engine, engine.connect() as connection:
        for statement in _SNAPSHOT.get(engine.dialect.name, _CONSISTENT):
            connection.exec_driver_sql(statement)
        try:
            yield
        finally:
            connection.exec_driver_sql("ROLLBACK")


def _churn(db: QueueDB) -> None:
    """Leave dead rows as claims and completions do: update each row, then delete it."""
    jobs = db.store.tables.jobs
    with db.database.engine.connect() as connection:
        lowest, highest = connection.execute(text(f"SELECT min(id), max(id) FROM {jobs}")).one()  # noqa: S608
        connection.commit()
        for start in range(lowest, highest + 1, CHUNK):
            part = {"first": start, "last": start + CHUNK - 1}
            for change in (
                f"UPDATE {jobs} SET available_at = available_at + 86400000000, version = version + 1, attempts = attempts + 1",  # noqa: S608
                f"DELETE FROM {jobs}",  # noqa: S608
            ):
                connection.execute(text(f"{change} WHERE id BETWEEN :first AND :last"), part)
                connection.commit()


def _naive(db: QueueDB, times: int) -> float:
    """Return the p50 of reading the head of the queue without a low-water mark, milliseconds."""
    query = text(
        f"SELECT id, version FROM {db.store.tables.jobs} WHERE queue = '{_QUEUE}' AND priority = 0 "  # noqa: S608
        f"AND available_at <= {now_us().compile(dialect=db.database.engine.dialect)} AND delete_mark = 0 "
        "ORDER BY available_at, id LIMIT 1"
    )
    with db.database.engine.connect() as connection:
        return statistics.median(_timed(connection, query) for _ in range(times)) * 1000


def _timed(connection: Connection, query: object) -> float:
    began = time.perf_counter()
    found = connection.execute(query).all()  # type: ignore[call-overload]
    took = time.perf_counter() - began
    if not found:
        raise AssertionError("the naive scan found no job")
    return took
