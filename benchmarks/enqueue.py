"""``enqueue_many`` compared with the fastest insert into the same table with its indexes, in one transaction; and ``enqueue`` from
many threads compared with a connection and a commit for each call.
"""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any

from sqlalchemy import select

from benchmarks.figures import Line, Side
from benchmarks.lab import Lab
from queue_db import QueueDB
from queue_db.dialects.clock import now_us
from queue_db.model import NewJob
from queue_db.store.enqueue import OnDuplicate

_QUEUE = "bulk"

#: The columns that ``enqueue_many`` writes for a job without options.
_COLUMNS = ("queue", "kind", "payload", "headers", "priority", "available_at", "max_attempts", "unique_key", "created_at")

#: Rows per statement of the best multi-row INSERT.
_ROWS = 1000

#: Threads that enqueue one job after the other.
_THREADS = 64

_Loader = Callable[[QueueDB, Sequence[tuple[Any, ...]]], float]


def enqueue(lab: Lab, jobs: int | None = None) -> Iterator[Line]:
    """Measure rows per second, each side into an empty table."""
    count = jobs or lab.sized(100_000, 100)
    family = lab.target.url.partition(":")[0].partition("+")[0]
    name, load, bound = {
        "postgresql": ("COPY of a prepared buffer", _copy, 0.45),
        "sqlite": ("executemany", _execute_many_sqlite, 0.6),
    }.get(family, (f"executemany, {_ROWS} rows a statement", _execute_many_mysql, 0.6))
    ours: list[float] = []
    without_ids: list[float] = []
    theirs: list[float] = []
    formatting: list[float] = []
    for turn in range(lab.repeat):
        lab.say(f"enqueue {count:,} jobs, {turn + 1} of {lab.repeat}")
        with lab.tables("jobs") as (db,):
            ours.append(count / _product(db, count))
            _check(db, count)
        if family == "postgresql":
            with lab.tables("jobs") as (db,):
                without_ids.append(count / _product(db, count, ids=False))
                _check(db, count)
        with lab.tables("jobs") as (db,):
            theirs.append(count / load(db, _rows(db, count)))
            _check(db, count)
        if family == "postgresql":
            with lab.tables("jobs") as (db,):
                formatting.append(count / _copy(db, _rows(db, count), beforehand=False))
                _check(db, count)
    ours_side = Side("enqueue_many", "rows/s", ours)
    theirs_side = Side(name, "rows/s", theirs)
    yield Line(f"enqueue_many of {count:,} jobs against {name}", ours_side, theirs_side, bound)
    if without_ids:
        side = Side("enqueue_many, ids=False", "rows/s", without_ids)
        yield Line(f"enqueue_many of {count:,} jobs with ids=False against {name}", side, theirs_side, 0.55)
        # All other sides start with rows and end with a commit; this is COPY measured in the same way.
        formatted = Side("COPY", "rows/s", formatting)
        yield Line(f"enqueue_many of {count:,} jobs against COPY including the formatting of its buffer", ours_side, formatted)


def threads(lab: Lab) -> Iterator[Line]:
    """Measure calls of ``enqueue`` from many threads of one process."""
    each = lab.sized(100, 5)
    shared: list[float] = []
    own: list[float] = []
    for turn in range(lab.repeat):
        lab.say(f"enqueue {each} jobs by each of {_THREADS} threads, {turn + 1} of {lab.repeat}")
        with lab.tables("jobs"), lab.open(pool_size=_THREADS) as db:
            queue = db.queue(_QUEUE)
            shared.append(_by_threads(db, each, partial(queue.enqueue, "job", 1)))
        with lab.tables("jobs"), lab.open(pool_size=_THREADS) as db:
            job = NewJob(_QUEUE, "job", "1", None, 0, 25)
            one = db.queue(_QUEUE)._enqueue._alone  # noqa: SLF001 - what enqueue does for a job that must not share its insert
            own.append(_by_threads(db, each, partial(one, job, OnDuplicate.RAISE)))
    yield Line(
        f"enqueue of one job, {_THREADS} threads, against an insert for each call",
        Side("enqueue", "jobs/s", shared),
        Side("own inserts", "jobs/s", own),
        3.0,
    )


def _by_threads(db: QueueDB, each: int, call: Callable[[], object]) -> float:
    """Return the calls per second, all threads together."""
    begin = threading.Barrier(_THREADS + 1)

    def calls() -> None:
        call()
        begin.wait()
        for _ in range(each):
            call()

    with ThreadPoolExecutor(_THREADS) as pool:
        futures = [pool.submit(calls) for _ in range(_THREADS)]
        begin.wait()
        began = time.perf_counter()
        for future in futures:
            future.result()
        seconds = time.perf_counter() - began
    _check(db, _THREADS * (each + 1))
    return _THREADS * each / seconds


def _product(db: QueueDB, count: int, *, ids: bool = True) -> float:
    queue = db.queue(_QUEUE)
    queue.enqueue("warm-up")
    queue.purge()
    jobs = [("job", number) for number in range(count)]
    began = time.perf_counter()
    queue.enqueue_many(jobs, ids=ids)
    return time.perf_counter() - began


def _check(db: QueueDB, count: int) -> None:
    stats = db.queue(_QUEUE).stats()
    if stats.available != count:
        raise AssertionError(f"{stats.available} of {count} jobs were enqueued")


def _rows(db: QueueDB, count: int) -> list[tuple[Any, ...]]:
    """Return the same jobs as encoded rows: the other side measures only driver and server."""
    with db.database.engine.connect() as connection:
        now = connection.execute(select(now_us())).scalar_one()
    return [(_QUEUE, "job", json.dumps(number), None, 0, now, 25, None, now) for number in range(count)]


def _copy(db: QueueDB, rows: Sequence[tuple[Any, ...]], *, beforehand: bool = True) -> float:
    buffer = _buffer(rows) if beforehand else None
    raw = db.database.engine.raw_connection()
    try:
        with closing(raw.cursor()) as cursor:
            statement = f"COPY {db.store.tables.jobs} ({', '.join(_COLUMNS)}) FROM STDIN"
            began = time.perf_counter()
            cursor.copy_expert(statement, buffer or _buffer(rows))  # in autocommit mode, so committed when it returns
            return time.perf_counter() - began
    finally:
        raw.close()


def _buffer(rows: Sequence[tuple[Any, ...]]) -> io.StringIO:
    lines = ("\t".join("\\N" if value is None else str(value) for value in row) for row in rows)
    return io.StringIO("\n".join(lines) + "\n")


def _execute_many_mysql(db: QueueDB, rows: Sequence[tuple[Any, ...]]) -> float:
    raw = db.database.engine.raw_connection()
    try:
        with closing(raw.cursor()) as cursor:
            places = ", ".join(["%s"] * len(_COLUMNS))
            statement = f"INSERT INTO {db.store.tables.jobs} ({', '.join(_COLUMNS)}) VALUES ({places})"  # noqa: S608
            began = time.perf_counter()
            cursor.execute("BEGIN")
            for start in range(0, len(rows), _ROWS):
                cursor.executemany(statement, rows[start : start + _ROWS])
            cursor.execute("COMMIT")
            return time.perf_counter() - began
    finally:
        raw.close()


def _execute_many_sqlite(db: QueueDB, rows: Sequence[tuple[Any, ...]]) -> float:
    raw = db.database.engine.raw_connection()
    try:
        cursor = raw.cursor()
        places = ", ".join(["?"] * len(_COLUMNS))
        statement = f"INSERT INTO {db.store.tables.jobs} ({', '.join(_COLUMNS)}) VALUES ({places})"  # noqa: S608
        began = time.perf_counter()
        cursor.execute("BEGIN IMMEDIATE")
        cursor.executemany(statement, rows)
        cursor.execute("COMMIT")
        return time.perf_counter() - began
    finally:
        raw.close()
