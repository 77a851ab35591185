"""Messages of a feed, read in ranges of numbers. Nothing is claimed or changed, and a range is always the same messages.

The driver cuts what is between two positions into ranges of about equal size; each task reads its range in short statements. The
numbers of a feed without claims have no gaps, so a task knows how many messages there must be. It looks at the feed after each
statement: what was trimmed or purged meanwhile is not mistaken for a range without messages.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from queue_db import QueueDB
from queue_db.errors import ArgumentError, FeedError, NoSuchFeedError, PositionError, TrimmedError
from queue_db.feeds import numbering
from queue_db.feeds.position import Position, belongs, check
from queue_db.feeds.store import rows
from queue_db.feeds.store.rows import FeedRow
from queue_db.spark.feeds.store import ranges
from queue_db.spark.masked_errors import masked_errors, masks_errors
from queue_db.spark.options import Settings
from queue_db.spark.rows import FIRST_ROWS, MOST_ROWS, MessageShape, fitting
from queue_db.spark.target import REPEATABLE_READ, Target

log = logging.getLogger("queue_db.spark")

# Messages below this number are not worth a partition of their own.
_WORTH = MOST_ROWS // 5


class FeedPart(InputPartition):
    """A range of messages of one feed and epoch."""

    def __init__(self, row: FeedRow, part: ranges.Range) -> None:
        super().__init__((row.id, row.token, row.epoch, *part))
        self.feed, self.token, self.epoch, self.part = row.id, row.token, row.epoch, part

    def position(self, seq: int) -> Position:
        """The position after this number."""
        return Position(self.token, self.epoch, seq)


class FeedRead:
    """The steps of reading a feed, for batches and streams. It is pickled into the tasks."""

    def __init__(self, target: Target, settings: Settings, schema: StructType) -> None:
        self.target = target
        self.name: str = settings["feed"]
        self.starting: Position | str = settings["startingPosition"]
        self._since: int | None = settings["startingTimestamp"]
        self._partitions: int = settings["partitions"]
        self._kinds: tuple[str, ...] | None = settings["kinds"]
        self._fail: bool = settings["failOnDataLoss"]
        self._shape = MessageShape(schema)

    # --- on the driver ------------------------------------------------------------------------------------------------

    def row(self, db: QueueDB) -> FeedRow:
        """The feed as it is now.

        :raises NoSuchFeedError: there is none.
        """
        found = db.core.run(REPEATABLE_READ.named("feeds.find_feed"), rows.find_feed, self.name)
        if found is None:
            raise NoSuchFeedError(f"there is no feed {self.name!r}: its first publish creates it, or db.feeds.set({self.name!r})")
        return found

    def ranked(self, db: QueueDB) -> FeedRow:
        """The feed, after the messages that had no number have got one."""
        row = self.row(db)
        feed = db.feed(self.name)
        # What has a number can be read all the same; the next reader or publisher numbers the others.
        if numbering.if_possible(feed, feed.rank):
            row = self.row(db)
        return row

    def begin(self, db: QueueDB, row: FeedRow) -> Position:
        """Where a read begins that has no checkpoint."""
        if self._since is not None:
            first = db.core.run(REPEATABLE_READ.named("feeds.since"), ranges.since, row, self._since)
            return Position(row.token, row.epoch, (row.next_seq if first is None else first) - 1)
        if isinstance(self.starting, Position):
            self.check(self.starting, row)
            return self.starting
        return Position(row.token, row.epoch, row.first_seq - 1 if self.starting == "earliest" else row.next_seq - 1)

    def check(self, position: Position, row: FeedRow) -> None:
        """Refuse a position of another feed, database or epoch. :meth:`parts` decides about a trimmed one.

        :raises PositionError: it is one.
        """
        with suppress(TrimmedError):
            check(position, row)

    def check_offset(self, position: Position, row: FeedRow) -> None:
        """:meth:`check` for a position of a checkpoint."""
        try:
            self.check(position, row)
        except PositionError as error:
            raise PositionError(
                f"{error}. The query needs a new checkpoint for that: what it has written stays, and startingPosition says where "
                "it goes on"
            ) from None

    def parts(self, row: FeedRow, start: Position, end: Position) -> list[InputPartition]:
        """The ranges between two positions.

        :raises TrimmedError: some of these messages were trimmed, and ``failOnDataLoss`` is true.
        """
        low = max(start.seq + 1, row.first_seq)
        lost = min(low - 1, end.seq)
        if lost > start.seq:
            self._lost(ranges.Range(start.seq + 1, lost), Position(row.token, row.epoch, low - 1))
        cut = ranges.feed_ranges(low, end.seq, self._partitions, _WORTH)
        return [FeedPart(row, part) for part in cut]

    def _lost(self, lost: ranges.Range, first: Position) -> None:
        """Some messages were trimmed before they were read.

        :param first: the position before the first message that is there.
        """
        what = f"messages {lost.low:,} to {lost.high:,} of feed {self.name!r}, {lost.messages:,} of them, were trimmed"
        if not self._fail:
            log.warning("%s by its retention before they were read, and are skipped (failOnDataLoss=false)", what)
            return
        raise TrimmedError(
            f"{what} by its retention before they were read, and failOnDataLoss is true. failOnDataLoss=false skips them; a longer "
            "retention (db.feeds.set(…, keep_for=…)), or the option 'cursor' of a stream, keeps messages until they are read",
            skipped=lost.messages,
            first=str(first),
        )

    # --- in a task ----------------------------------------------------------------------------------------------------

    def read(self, partition: FeedPart | None) -> Iterator[pa.RecordBatch]:
        """The messages of a range, by number."""
        if partition is None:
            return  # Spark's task of a batch without partitions
        same = {"feed": self.name, "epoch": f"{partition.token}.{partition.epoch}"}
        after, high, size, found = partition.part.low - 1, partition.part.high, FIRST_ROWS, 0
        row: FeedRow | None = None
        with self.target.open() as db:
            while after < high:
                row, read = db.core.run(
                    REPEATABLE_READ.named("feeds.message_page"),
                    ranges.message_page,
                    partition.feed,
                    after=after,
                    high=high,
                    limit=size,
                    columns=self._shape.stored,
                    kinds=self._kinds,
                    csv=True,
                )
                if not read:
                    found += self._missing(row, partition, after, high)
                    break
                batch, numbers = self._shape.batch(read, same)
                # Only messages before the first one that was found can have been trimmed before the statement.
                found += self._missing(row, partition, after, numbers[0].as_py() - 1) + batch.num_rows
                yield batch
                if batch.num_rows < size:
                    break
                after = numbers[-1].as_py()
                size = fitting(read, batch.num_rows)
        low, expected = partition.part.low, partition.part.messages
        # Consumers delete messages of a feed with claims one by one.
        gaps = self._kinds is not None or (row is not None and row.max_attempts is not None)
        if not gaps and found != expected:
            raise FeedError(
                f"feed {self.name!r}: {found:,} of {expected:,} messages were found with the numbers {low:,} to {high:,}: rows "
                "were deleted by hand"
            )

    def _missing(self, row: FeedRow | None, partition: FeedPart, after: int, before: int) -> int:
        """How many messages above ``after`` and up to ``before`` were trimmed while they were read.

        :raises NoSuchFeedError: the feed was deleted.
        :raises PositionError: the feed was purged.
        :raises TrimmedError: some were trimmed, and ``failOnDataLoss`` is true.
        """
        if row is None:
            raise NoSuchFeedError(f"feed {self.name!r} was deleted while it was read")
        belongs(partition.position(after), row)
        lost = ranges.Range(after + 1, min(before, row.first_seq - 1))
        if lost.messages <= 0:
            return 0
        self._lost(lost, partition.position(row.first_seq - 1))
        return lost.messages


class FeedBatchReader(DataSourceReader):
    """``spark.read`` of a feed."""

    def __init__(self, target: Target, settings: Settings, schema: StructType) -> None:
        self.target = target
        self._read = FeedRead(target, settings, schema)
        self._ending: Position | str = settings["endingPosition"]

    @masks_errors
    def partitions(self) -> list[InputPartition]:
        with self.target.open() as db:
            row = self._read.ranked(db)
            start = self._read.begin(db, row)
        end = self._ending if isinstance(self._ending, Position) else Position(row.token, row.epoch, row.next_seq - 1)
        self._read.check(end, row)
        if end.seq < start.seq:
            raise ArgumentError(f"endingPosition={str(end)!r} is before startingPosition={str(start)!r}")
        return self._read.parts(row, start, end) or [FeedPart(row, ranges.Range(1, 0))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with masked_errors(self.target.url):
            yield from self._read.read(partition)  # type: ignore[arg-type]
