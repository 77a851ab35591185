"""One streaming read of a feed, from top to bottom: an offset is a position, and a batch is what lies between two of them.

1. *Rank and look* (``latestOffset``): messages without a number get one; the batch ends at the last message, or earlier by its
   limit. Spark writes the position into the checkpoint.
2. *Partition* (``partitions``): ranges of numbers between the two positions.
3. *Read* (``read``, in tasks): see :mod:`queue_db.spark.feed_reader`. Messages do not change: a replay reads the same ones.
4. *Commit* (``commit``, or the next ``latestOffset``): moves the query's cursor, if it has one. No batch depends on it.

Nothing is claimed: any number of queries read one feed, and none of them knows of the others.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from queue_db import QueueDB
from queue_db.core import process_name
from queue_db.errors import ArgumentError, CheckpointMismatchError, FeedError, LeaseLostError
from queue_db.feeds.position import Position
from queue_db.feeds.store import cursors, rows
from queue_db.feeds.store.rows import FeedRow
from queue_db.spark.feed_reader import FeedRead
from queue_db.spark.feeds.store import ranges
from queue_db.spark.masked_errors import masked_errors, masks_errors
from queue_db.spark.options import Settings
from queue_db.spark.target import REPEATABLE, REPEATABLE_READ, DriverDatabase, Target
from queue_db.store import Transaction

# Seconds, with jitter. Spark asks again 10 ms after an empty answer, and each answer is a few statements.
_IDLE = 0.1

# Seconds for which the query holds its cursor; a third of it is the time between two extensions.
_LEASE = 300.0


class FeedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``spark.readStream`` of a feed.

    One object lives on the driver as long as the query, for all steps but reading; copies of it in tasks read.
    """

    def __init__(self, target: Target, settings: Settings, schema: StructType) -> None:
        self.target = target
        self._read = FeedRead(target, settings, schema)
        self._limit: int = settings["maxMessagesPerTrigger"]
        self._size: int | None = settings["maxBytesPerTrigger"]
        name: str | None = settings["cursor"]
        self._cursor = None if name is None else FollowingCursor(name)
        self._initial: Position | None = None
        self._latest: Position | None = None
        self._ceiling: int | None = None
        self._db = DriverDatabase(target)

    # --- on the driver, in the order of Spark's calls -------------------------------------------------------------------

    @masks_errors
    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._limit) if self._size is None else ReadMaxBytes(self._size)

    @masks_errors
    def prepareForTriggerAvailableNow(self) -> None:
        db = self._db()
        # A feed that the first publish has yet to create has no message that is to be read now.
        self._ceiling = (
            self._read.ranked(db).next_seq - 1
            if db.core.run(REPEATABLE_READ.named("feeds.find_feed"), rows.find_feed, self._read.name)
            else 0
        )

    @masks_errors
    def initialOffset(self) -> dict[str, Any]:
        # Spark may ask twice, and the end of the feed may have moved meanwhile.
        if self._initial is None:
            db = self._db()
            db.feed(self._read.name).row()  # creates it: a query may start before the first publish
            row = self._read.ranked(db)
            self._initial = self._read.begin(db, row)
            self._follow(row, self._initial)
        return _to_spark(self._initial)

    @masks_errors
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        row, begin = self._read.ranked(self._db()), _from_spark(start)
        self._read.check_offset(begin, row)
        # Spark has noted that all up to here is written.
        self._follow(row, begin)
        last = row.next_seq - 1
        if not isinstance(limit, ReadAllAvailable):
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._limit
            last = min(last, max(begin.seq, row.first_seq - 1) + most)
        if self._ceiling is not None:
            last = min(last, self._ceiling)
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._size
        if size is not None and last > begin.seq and not isinstance(limit, ReadAllAvailable):
            last = self._db().core.run(REPEATABLE_READ.named("feeds.within"), ranges.within, row, begin.seq, last, size)
        self._latest = begin._replace(seq=max(begin.seq, last))
        if self._latest == begin and self._ceiling is None:
            time.sleep(_IDLE * random.uniform(0.5, 1.0))
        return _to_spark(self._latest)

    @masks_errors
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """What Spark shows in a query's progress under ``sources[].latestOffset``; None for a batch that is read again."""
        if self._latest is None:
            return None
        db = self._db()
        row = self._read.row(db)
        waited = db.core.run(REPEATABLE_READ.named("feeds.age"), ranges.age, row, self._latest.seq)
        return {
            "position": str(Position(row.token, row.epoch, row.next_seq - 1)),
            "behind": max(0, row.next_seq - 1 - self._latest.seq),
            "oldestSeconds": 0.0 if waited is None else round(waited / 1e6, 3),
        }

    @masks_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        row = self._read.row(self._db())
        first, last = _from_spark(start), _from_spark(end)
        for position in (first, last):
            self._read.check_offset(position, row)
        self._follow(row, first)
        return self._read.parts(row, first, last)

    @masks_errors
    def commit(self, end: dict[str, Any]) -> None:
        if self._cursor is not None:
            self._follow(self._read.row(self._db()), _from_spark(end))

    # --- in a task ------------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with masked_errors(self.target.url):
            yield from self._read.read(partition)  # type: ignore[arg-type]

    # --- the database ---------------------------------------------------------------------------------------------------

    def _follow(self, row: FeedRow, position: Position) -> None:
        """All up to here is written: move the cursor."""
        if self._cursor is not None:
            self._cursor.follow(self._db(), row, position.seq)


class FollowingCursor:
    """The cursor that follows a query. The query's position is in its checkpoint; the cursor shows it to others.

    The first call of a process opens the cursor at the query's position, also if that is before the cursor's, and although another
    process holds it, such as the driver that has just died.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._version: int | None = None
        self._acked = 0
        self._extend_at = 0.0

    def follow(self, db: QueueDB, row: FeedRow, seq: int) -> None:
        """Move it to ``seq``, and extend the hold now and then.

        :raises LeaseLostError: another query or process has opened it, or it was moved or deleted.
        """
        now, lease = time.monotonic(), round(_LEASE * 1_000_000)
        if self._version is None:
            self._version = db.core.run(
                REPEATABLE.named("open_cursor"),
                _open_cursor,
                row.id,
                self.name,
                holder=process_name(),
                lease=lease,
                seq=seq,
            )
        elif seq > self._acked or now >= self._extend_at:
            if not db.core.run(
                REPEATABLE.named("feeds.acknowledge"), cursors.acknowledge, row.id, self.name, self._version, seq, lease
            ):
                raise LeaseLostError(
                    message=f"cursor {self.name!r} of feed {row.name!r} was lost: another query or process has opened it, or it "
                    "was moved or deleted. Give each query a cursor of its own; started again, this query opens its cursor again "
                    "and goes on from its checkpoint"
                )
        else:
            return
        self._acked, self._extend_at = max(seq, self._acked), now + _LEASE / 3


def _open_cursor(tx: Transaction, feed: int, name: str, *, holder: str, lease: int, seq: int) -> int:
    """Open a cursor at ``seq``, forwards or back; return its version.

    :raises FeedError: it is a shared cursor. It is left as it is.
    """
    take = partial(cursors.take, tx, feed, name, holder=holder, lease=lease, start=seq, force=True)
    row, taken = take()
    if not taken:
        raise FeedError(f"cursor {name!r} is shared by consumers, which claim its spans: give the query a cursor of its own")
    if row.acked != seq:
        cursors.seek(tx, feed, name, seq)
        row, _ = take()
    version: int = row.version
    return version


def _from_spark(given: dict[str, Any]) -> Position:
    """An offset of a checkpoint."""
    try:
        return Position.parse(given["position"])
    except (KeyError, TypeError, ArgumentError):
        raise CheckpointMismatchError(
            f"the checkpoint's offset {given!r:.200} is not a position of a feed: a query that has read a queue, or another "
            "source, needs a new checkpoint to read a feed"
        ) from None


def _to_spark(position: Position) -> dict[str, Any]:
    """An offset as Spark writes it into its checkpoint."""
    return {"position": str(position)}
