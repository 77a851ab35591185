"""Messages from publish to trim: what an ordering costs in all, and not only its publisher."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import text

from queue_db import QueueDB
from queue_db.feeds.store.orderings import ORDERINGS, Ordering


class Drained(NamedTuple):
    """One turn."""

    seconds: float  #: until all were published, read and trimmed
    trim: float  #: of them, the trim
    log: float | None  #: bytes of the write-ahead log for each message; None: not PostgreSQL


def _publish(url: str, feed: str, count: int, batch: int, orderings: Mapping[str, Ordering], begin: Any) -> None:
    ORDERINGS.update(orderings)
    with QueueDB(url) as db:
        target = db.feed(feed)
        target.row()
        begin.wait()
        for start in range(0, count, batch):
            target.publish_many([("n", number) for number in range(start, min(count, start + batch))])


def _log(db: QueueDB) -> int | None:
    if db.database.engine.dialect.name != "postgresql":
        return None
    with db.database.engine.connect() as connection:
        return int(connection.execute(text("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")).scalar_one())


def drain(url: str, feed: str, *, messages: int, batch: int, publishers: int, orderings: Mapping[str, Ordering]) -> Drained:
    """Processes publish, this one reads along, and trims all but the last message at the end."""
    context = multiprocessing.get_context("fork")
    begin = context.Barrier(publishers + 1)
    each = messages // publishers
    work = (url, feed, each, batch, orderings, begin)
    processes = [context.Process(target=_publish, args=work) for _ in range(publishers)]
    for process in processes:
        process.start()
    with QueueDB(url) as db:
        reader, before, left = db.feed(feed), _log(db), each * publishers
        position = reader.start()
        begin.wait()
        began = time.monotonic()
        while left:
            page = reader.read(position, limit=1000)
            left, position = left - len(page.messages), page.position
            if not page.messages:
                time.sleep(0.002)
        trimmed_from = time.monotonic()
        db.feeds.set(feed, keep_rows=1, keep_unread=0)
        reader.trim()
        end, after = time.monotonic(), _log(db)
    for process in processes:
        process.join()
    log = None if before is None or after is None else (after - before) / (each * publishers)
    return Drained(end - began, end - trimmed_from, log)
