"""Processes that drain a backlog together: by spans, by claims of jobs, by a worker, or by another queue."""

from __future__ import annotations

import multiprocessing
import time
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import insert, literal, select, update

from benchmarks.peers.sql_files import SqlQueue, Take
from queue_db import QueueDB
from queue_db.compare.dialects import Laboratory
from queue_db.feeds.tables import feed_tables
from queue_db.worker import Worker

FEED, CURSOR = "race", "consumers"
_CHUNK = 10_000
_SLOTS, _AHEAD = 4, 400
#: Errors after which a consumer gives up.
_ERRORS = 10
#: Seconds between two trims; a worker trims once a minute.
_TRIM_EVERY = 0.1


class Drained(NamedTuple):
    """One run."""

    seconds: float
    lost: int
    repeated: int
    errors: int


@dataclass(frozen=True)
class Contestant(ABC):
    """What takes part: it goes to the processes."""

    name: str
    batch: int
    #: Processes; None: as many as were asked for.
    processes: int | None = None
    #: Whether another process trims meanwhile.
    trims: bool = False

    @abstractmethod
    def fill(self, url: str, table: str, size: int) -> None:
        """Make a backlog of ``size``."""

    @abstractmethod
    def opened(self, url: str, table: str, number: int) -> AbstractContextManager[Take]:
        """Consumer ``number``."""

    def tidy(self, url: str) -> float:
        """Remove what is done, where that is a step of its own; return the time at the end, 0 if there is nothing to do."""
        return 0.0


class Spans(Contestant):
    """Spans of a shared cursor."""

    def fill(self, url: str, table: str, size: int) -> None:
        with QueueDB(url, table=table) as db:
            fill_feed(db, size)

    @contextmanager
    def opened(self, url: str, table: str, number: int) -> Iterator[Take]:
        with opened(url, table) as db:
            shared = db.feed(FEED).shared(CURSOR)
            # Its statements are compiled and prepared before the time begins.
            db.feeds.set(f"warm-{number}", ordering="counter")
            warm = db.feed(f"warm-{number}")
            warm.publish("job")
            if (span := warm.shared(CURSOR).claim(self.batch)) is not None:
                span.complete()

            def take() -> list[int]:
                span = shared.claim(self.batch)
                return [] if span is None or not span.complete() else [message.seq for message in span.messages]

            yield take


class Jobs(Contestant):
    """Claims of jobs."""

    def fill(self, url: str, table: str, size: int) -> None:
        with QueueDB(url, table=table) as db:
            db.queue(CURSOR).purge()
            db.queue(CURSOR).enqueue_many(("job", None) for _ in range(size))
            analyze(db, db.store.tables.jobs)

    @contextmanager
    def opened(self, url: str, table: str, number: int) -> Iterator[Take]:
        with opened(url, table) as db:
            queue, warm = db.queue(CURSOR), db.queue(f"warm-{number}")
            warm.enqueue_many([("job", None)] * 2)
            warm.complete_many(warm.claim(self.batch))

            def take() -> list[int]:
                jobs = queue.claim(self.batch)
                return [job.id for job, done in zip(jobs, queue.complete_many(jobs), strict=True) if done]

            yield take


class WorkerOfSpans(Spans):
    """One worker with slots for spans."""

    def worker(self, db: QueueDB) -> Worker:
        """The worker."""
        return Worker(db, feeds={f"{FEED}:{CURSOR}": _SLOTS}, span=self.batch)

    @contextmanager
    def opened(self, url: str, table: str, number: int) -> Iterator[Take]:
        with opened(url, table) as db:
            yield working(self.worker(db))


class WorkerOfJobs(Jobs):
    """One worker with threads for jobs."""

    @contextmanager
    def opened(self, url: str, table: str, number: int) -> Iterator[Take]:
        with opened(url, table) as db:
            yield working(Worker(db, CURSOR, concurrency=_SLOTS, prefetch=_AHEAD))


@dataclass(frozen=True)
class Rival(Contestant):
    """Another queue."""

    queue: SqlQueue | None = None

    def fill(self, url: str, table: str, size: int) -> None:
        assert self.queue is not None  # noqa: S101 - given
        self.queue.fill(url, size)

    def opened(self, url: str, table: str, number: int) -> AbstractContextManager[Take]:
        assert self.queue is not None  # noqa: S101 - given
        return self.queue.opened(url, number)

    def tidy(self, url: str) -> float:
        assert self.queue is not None  # noqa: S101 - given
        return self.queue.tidy(url)


def working(worker: Worker) -> Take:
    """Run a worker until there is nothing to do; then there is nothing."""
    ids: list[int] = []
    worker.handles("job")(lambda job: ids.append(job.id))

    def take() -> list[int]:
        ids.clear()
        worker.run(until_empty=True)
        return ids

    return take


def opened(url: str, table: str) -> QueueDB:
    """The database of a consumer."""
    return QueueDB(url, table=table, strategy="adaptive" if url.startswith("sqlite") else "skip_locked")


def analyze(db: QueueDB, table: Any) -> None:
    """Let the planner know what is in ``table``."""
    with db.database.engine.connect() as connection:
        Laboratory.of(db.database.dialect).analyze(connection, table)
        connection.commit()


def fill_feed(db: QueueDB, size: int) -> None:
    """Make the feed anew, with ``size`` messages and a shared cursor before them."""
    db.feeds.delete(FEED)
    db.feeds.set(FEED, ordering="counter", keep_rows=1, keep_unread=2**40)
    feed = db.feed(FEED)
    feed.shared(CURSOR)
    feed.publish_many([("job", None)] * min(_CHUNK, size))
    tables, row = feed_tables(db.store.tables), feed.row(fresh=True)
    messages, feeds = tables.messages, tables.feeds
    # The rest as copies, with the next numbers: as publishers insert them, but faster.
    for start in range(_CHUNK, size, _CHUNK):
        copied = [column for column in messages.c if column.name != "seq"]
        source = select(messages.c.seq + literal(start), *copied).where(
            messages.c.feed == row.id, messages.c.seq <= min(_CHUNK, size - start)
        )
        with db.database.begin("fill") as connection:
            connection.execute(insert(messages).from_select([messages.c.seq, *copied], source))
            connection.execute(update(feeds).where(feeds.c.id == row.id).values(next_seq=min(start + _CHUNK, size) + 1))
    analyze(db, messages)


def drain(one: Contestant, url: str, table: str, size: int, processes: int) -> Drained:
    """Fill, drain and trim."""
    one.fill(url, table, size)
    processes = one.processes or processes
    context = multiprocessing.get_context("spawn")
    ready, over = context.Barrier(processes + one.trims + 1), context.Event()
    results, trimmed = context.Queue(), context.Queue()
    members = [
        context.Process(target=_consume, args=(one, url, table, number, ready, results), daemon=True) for number in range(processes)
    ]
    if one.trims:
        members.append(context.Process(target=_trim, args=(url, table, ready, over, trimmed), daemon=True))
    for member in members:
        member.start()
    ready.wait()
    began = time.monotonic()
    found = [results.get() for _ in range(processes)]
    over.set()
    ends = [end for end, _, _ in found]
    if one.trims:
        ends.append(trimmed.get())
    else:
        ends.append(one.tidy(url))
    for member in members:
        member.join()
    times: Counter[int] = Counter()
    for _, _, ids in found:
        times.update(array("q", ids))
    repeated = sum(times.values()) - len(times)
    return Drained(max(ends) - began, size - len(times), repeated, sum(errors for _, errors, _ in found))


def _consume(one: Contestant, url: str, table: str, number: int, ready: Any, results: Any) -> None:
    """A process: consume until nothing is left."""
    ids, errors = array("q"), 0
    with one.opened(url, table, number) as take:
        ready.wait()
        while errors < _ERRORS:
            try:
                some = take()
            except Exception:  # noqa: BLE001 - counted
                errors += 1
                continue
            if not some:
                break
            ids.extend(some)
        end = time.monotonic()
    results.put((end, errors, ids.tobytes()))


def _trim(url: str, table: str, ready: Any, over: Any, trimmed: Any) -> None:
    """A process: trim what is done, until the consumers have ended and nothing is left to trim."""
    with opened(url, table) as db:
        feed = db.feed(FEED)
        feed.start()
        ready.wait()
        while True:
            last = over.is_set()
            if not feed.trim() and last:
                break
            over.wait(_TRIM_EVERY)
        trimmed.put(time.monotonic())
