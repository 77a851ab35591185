"""One streaming read, from top to bottom: claim a batch, read it, complete it.

1. *Claim* (``latestOffset``): one transaction moves due jobs from the queue to the stream's held jobs and records the batch. Spark
   writes its offset, a batch number and the token of the claim, into the checkpoint. A claimed batch that Spark did not note is
   handed out again.
2. *Partition* (``partitions``): the recorded id ranges of the batch; this counts as a delivery.
3. *Read* (``read``, in tasks): the held jobs of a range, compared with the recorded number. A replay reads the same rows.
4. *Complete* (``commit``, or the next claim): Spark has noted that the batch is written, and its jobs are deleted.

Every step can be repeated, whatever the outcome of the first time. Opening a stream fences off the query that had it before. The
SQL and the protocol are in :mod:`queue_db.spark.streams.store`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from queue_db import QueueDB
from queue_db.core import process_name
from queue_db.errors import CheckpointMismatchError, StreamError
from queue_db.spark.masked_errors import masked_errors, masks_errors
from queue_db.spark.options import Settings
from queue_db.spark.ranges.store import COLUMNS
from queue_db.spark.rows import FIRST_ROWS, RowShape, fitting
from queue_db.spark.streams import store as streams
from queue_db.spark.target import REPEATABLE, REPEATABLE_READ, DriverDatabase, Target

# Seconds, with jitter. Spark asks again 10 ms after an empty answer, and each answer is a transaction.
_IDLE = 0.1

# Seconds between two heartbeats of a reader that finds nothing, and between two counts of the backlog. A slow count is repeated
# less often: it may take one part in _COUNT_SHARE of the time.
_HEARTBEAT = 60.0
_COUNT_EVERY = 1.0
_COUNT_SHARE = 50.0

# Most jobs of a trigger that takes all that is available.
_ALL = 10_000_000


class StreamPart(InputPartition):
    """A partition of a claimed batch."""

    def __init__(self, stream: int, part: streams.Part, queue: str, name: str) -> None:
        super().__init__((stream, part.batch, part.low, part.high))
        self.stream, self.part, self.queue, self.name = stream, part, queue, name


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``spark.readStream``.

    One object lives on the driver as long as the query, for all steps but reading; copies of it in tasks read.
    """

    def __init__(
        self,
        target: Target,
        settings: Settings,
        schema: StructType,
        *,
        db: DriverDatabase | None = None,
        queue: str | None = None,
        name: str | None = None,
    ) -> None:
        self.target = target
        self._queue: str = queue or settings["queue"]
        self._stream: str = name or settings["stream"]
        self._size: int | None = settings["maxBytesPerTrigger"]
        self._since: int | None = settings["startingTimestamp"]
        self._limit: int = settings["maxJobsPerTrigger"]
        self._partitions: int = settings["partitions"]
        self._shape = RowShape(schema)
        self._max_deliveries: int | None = settings["maxDeliveries"]
        self._retention = round(settings["retentionDays"] * 86_400_000_000)
        self._session: streams.Session | None = None
        self.ceiling: int | None = None
        self._available_now = False
        self._heartbeat_at = 0.0
        self._counted = (0.0, 0.0)  # when, and how long it took
        self._backlog: dict[str, Any] = {}
        self._db = db or DriverDatabase(target)

    # --- on the driver, in the order of Spark's calls -------------------------------------------------------------------

    @masks_errors
    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._limit) if self._size is None else ReadMaxBytes(self._size)

    @masks_errors
    def prepareForTriggerAvailableNow(self) -> None:
        self.prepare()
        self._available_now = True

    @masks_errors
    def initialOffset(self) -> dict[str, Any]:
        return offset_to_spark(self.initial())

    @masks_errors
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        end = offset_to_spark(self.claim(offset_from_spark(start), *self.most(limit), self._partitions))
        if end == start and not self._available_now:
            self._wait()
        return end

    @masks_errors
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """What Spark shows in a query's progress under ``sources[].latestOffset``."""
        db = self._db()
        counted, took = self._counted
        if time.monotonic() - counted > max(_COUNT_EVERY, took * _COUNT_SHARE):
            began = time.monotonic()
            due, age = self.backlog()
            self._counted = (time.monotonic(), time.monotonic() - began)
            self._backlog = {"backlog": due, "oldestSeconds": 0.0 if age is None else round(age / 1e6, 3)}
        listed = db.core.run(REPEATABLE_READ.named("streams.listed"), streams.listed, self._queue)
        mine = next((row for row in listed if row.name == self._stream), None)
        return self._backlog | {"held": 0 if mine is None else int(mine.held), "batch": 0 if mine is None else mine.allocated}

    @masks_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [*self.parts(offset_from_spark(start), offset_from_spark(end))]

    @masks_errors
    def commit(self, end: dict[str, Any]) -> None:
        self.complete(offset_from_spark(end))

    # --- the steps, which a reader of several queues takes for each -----------------------------------------------------

    def prepare(self) -> None:
        """From now on claim nothing that is not due now."""
        found = self._db().core.run(REPEATABLE_READ.named("streams.highest_due"), streams.highest_due, self._queue)
        self.ceiling = 0 if found is None else found

    def most(self, limit: ReadLimit) -> tuple[int, int | None]:
        """Most jobs of a batch, and most bytes of their payloads; None: any."""
        if isinstance(limit, ReadAllAvailable):
            return _ALL, None
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._size
        return limit.max_rows if isinstance(limit, ReadMaxRows) else self._limit, size

    def initial(self) -> streams.Offset:
        """Where a query begins that has no checkpoint."""
        db = self._db()
        session = self._opened(db)
        found: streams.Offset = db.core.run(REPEATABLE.named("streams.initial"), streams.initial, session)
        return found

    def claim(self, start: streams.Offset, most: int, size: int | None, partitions: int) -> streams.Offset:
        """Complete all up to ``start``, and claim the next batch. Repeated, it hands out the claim that it finds."""
        db = self._db()
        session = self._opened(db)
        end: streams.Offset = db.core.run_reporting_deaths(
            REPEATABLE.named("streams.allocate"),
            streams.allocate,
            session,
            start,
            limit=most,
            ceiling=self.ceiling,
            partitions=partitions,
            size=size,
            since=self._since,
        )
        return end

    def measured(self, end: streams.Offset, *, size: bool) -> tuple[int, int]:
        """The jobs of a claimed batch, and the bytes of their payloads, if ``size`` asks for them."""
        db = self._db()
        session = self._opened(db)
        found: tuple[int, int] = db.core.run(REPEATABLE_READ.named("streams.measured"), streams.measured, session, end, size=size)
        return found

    def parts(self, start: streams.Offset, end: streams.Offset) -> list[StreamPart]:
        """The partitions of the batches after ``start`` up to ``end``."""
        db = self._db()
        session = self._opened(db)
        parts = db.core.run(
            REPEATABLE.named("streams.partition"), streams.partition, session, start, end, most=self._max_deliveries
        )
        return [StreamPart(session.stream, part, self._queue, self._stream) for part in parts]

    def complete(self, end: streams.Offset) -> None:
        """Complete all up to ``end``."""
        db = self._db()
        session = self._opened(db)
        db.core.run_reporting_deaths(REPEATABLE.named("streams.complete"), streams.complete, session, end)

    def backlog(self) -> tuple[int, int | None]:
        """The number of due jobs, and the age of the longest waiting one (microseconds)."""
        found: tuple[int, int | None] = self._db().core.run(
            REPEATABLE_READ.named("streams.backlog"), streams.backlog, self._queue, self._since
        )
        return found

    # --- in a task ------------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with masked_errors(self.target.url):
            yield from self._read(partition)

    def _read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        if partition is None:
            return  # Spark's task of a batch without partitions
        part: streams.Part = partition.part
        after, found, size = part.low - 1, 0, FIRST_ROWS
        with self.target.open() as db:
            while True:
                rows = db.core.run(
                    REPEATABLE_READ.named("streams.read_part"),
                    streams.read_part,
                    partition.stream,
                    part,
                    after=after,
                    limit=size,
                    csv=True,
                )
                if not rows:
                    break
                batch, ids = self._shape.batch(rows, {"queue": partition.queue}, COLUMNS)
                found += batch.num_rows
                after = pc.max(ids).as_py()
                size = fitting(rows, batch.num_rows)
                yield batch
        if found != part.jobs:
            raise StreamError(
                f"stream {partition.name!r}, batch {part.batch}: {found} of {part.jobs} jobs were found between ids {part.low} and "
                f"{part.high}: the batch was completed, released or changed by hand while it was read"
            )

    # --- the database ---------------------------------------------------------------------------------------------------

    def _opened(self, db: QueueDB) -> streams.Session:
        """The session of this process. The first call opens the stream, which fences off the reader before."""
        if self._session is None:
            self._session = db.core.run(
                REPEATABLE.named("streams.open_stream"),
                streams.open_stream,
                self._stream,
                self._queue,
                holder=process_name(),
                retention=self._retention,
            )
            self._heartbeat_at = time.monotonic()
            # Streams without a reader for longer than their retention release their jobs. Not this one, which has a reader again:
            # the batches that its checkpoint has committed are completed next.
            db.streams.expire()
        return self._session

    def _wait(self) -> None:
        """Nothing is due: heartbeat, then a short sleep."""
        self.keep_alive()
        time.sleep(_IDLE * random.uniform(0.5, 1.0))

    def keep_alive(self) -> None:
        """Record now and then that the reader still runs."""
        if self._session is not None and time.monotonic() - self._heartbeat_at > _HEARTBEAT:
            self._db().core.run(REPEATABLE.named("streams.keep_alive"), streams.keep_alive, self._session)
            self._heartbeat_at = time.monotonic()


def offset_from_spark(given: dict[str, Any]) -> streams.Offset:
    """An offset of a checkpoint."""
    try:
        return streams.Offset(int(given["batch"]), str(given["claim"]))
    except (KeyError, TypeError, ValueError):
        raise CheckpointMismatchError(f"the checkpoint's offset {given!r:.200} is not one of a queue_db stream") from None


def offset_to_spark(offset: streams.Offset) -> dict[str, Any]:
    """An offset as Spark writes it into its checkpoint."""
    return {"batch": offset.batch, "claim": offset.claim}
