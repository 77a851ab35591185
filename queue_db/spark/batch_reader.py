"""``spark.read``: the jobs of queues, read in ranges of ids. Nothing is claimed or changed.

The driver cuts each queue's ids into ranges; each task reads its ranges in short statements. Where ids of other queues lie between,
the ids of this queue are looked up first, and then its rows. Dead and completed jobs are in tables of their own, with the same ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StructField, StructType

from queue_db import QueueDB
from queue_db.errors import ConfigurationError
from queue_db.model import State
from queue_db.spark.masked_errors import masked_errors, masks_errors
from queue_db.spark.options import Settings
from queue_db.spark.queue_names import existing
from queue_db.spark.ranges import store as ranges
from queue_db.spark.ranges.places import LIVE, View, places_of
from queue_db.spark.rows import FIRST_ROWS, MOST_ROWS, STATES, StateShape, fitting
from queue_db.spark.target import Target

# Jobs below this number are not worth a partition of their own.
_WORTH = MOST_ROWS // 5


class Piece(NamedTuple):
    """A range of ids of one queue in one place."""

    queue: str
    view: View
    range: ranges.Range


class BatchPart(InputPartition):
    """Pieces that one task reads."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__(tuple(pieces))
        self.pieces = tuple(pieces)


class BatchReader(DataSourceReader):
    """``spark.read``."""

    def __init__(self, target: Target, settings: Settings, schema: StructType) -> None:
        self.target = target
        self._queues = _wanted(settings)
        self._states = _states(settings)
        self._partitions: int = settings["partitions"]
        self._limit: int | None = settings["limit"]
        self._shape = StateShape(schema)
        # The time at which the states of live jobs are judged is the same for all tasks.
        self._judged = bool(self._states) or "state" in self._shape.stored
        self._query: dict[str, Any] = {"columns": self._shape.stored, "conditions": settings["filter"], "csv": True}

    @masks_errors
    def partitions(self) -> list[InputPartition]:
        with self.target.open() as db:
            pieces = list(self._pieces(db))
        return [*map(BatchPart, _shared(pieces, 1 if self._limit else self._partitions))] or [BatchPart(())]

    def _pieces(self, db: QueueDB) -> Iterator[Piece]:
        views = _views(db, self._states) if self._judged else [View()]
        for queue in existing(db, self._queues, completed=State.COMPLETED in self._states):
            for view in views:
                for found in db.core.read("ranges.queue_ranges", ranges.queue_ranges, queue, self._partitions, _WORTH, view):
                    yield Piece(queue, view, found)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with masked_errors(self.target.url):
            yield from self._read(partition)

    def _read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        pieces: Sequence[Piece] = partition.pieces
        if not pieces:
            return
        left = self._limit
        with self.target.open() as db:
            for piece in pieces:
                for batch in self._read_range(db, piece, left) if piece.range.dense else self._read_ids(db, piece):
                    if left is None:
                        yield batch
                        continue
                    yield batch.slice(0, left)
                    left -= min(left, batch.num_rows)
                    if not left:
                        return

    def _read_range(self, db: QueueDB, piece: Piece, most: int | None) -> Iterator[pa.RecordBatch]:
        """All rows of the range, or about ``most`` of them."""
        queue, view, part = piece
        after, size = part.low - 1, FIRST_ROWS
        while True:
            size = size if most is None else min(size, max(most, FIRST_ROWS))
            rows = db.core.read(
                "ranges.jobs", ranges.jobs, queue, after=after, high=part.high, limit=size, view=view, **self._query
            )
            if not rows:
                return
            batch, ids = self._shape.batch(rows, {"queue": queue})
            yield batch
            after = pc.max(ids).as_py()
            size = fitting(rows, batch.num_rows)

    def _read_ids(self, db: QueueDB, piece: Piece) -> Iterator[pa.RecordBatch]:
        """The ids of the queue in the range first, then the rows of these."""
        queue, view, part = piece
        wanted = db.core.read("ranges.ids", ranges.ids, queue, part, view)
        start, size = 0, FIRST_ROWS
        while start < len(wanted):
            some = wanted[start : start + size]
            rows = db.core.read("ranges.jobs_of", ranges.jobs_of, queue, some, view=view, **self._query)
            start += len(some)
            if rows:
                batch, _ = self._shape.batch(rows, {"queue": queue})
                yield batch
                size = fitting(rows, batch.num_rows)


class CountReader(DataSourceReader):
    """``spark.read`` with the option ``countBy``: the database counts, in one task."""

    def __init__(self, target: Target, settings: Settings, schema: StructType) -> None:
        self.target = target
        self._queues = _wanted(settings)
        self._by: tuple[str, ...] = settings["countBy"]
        self._states = _states(settings) or LIVE
        self._conditions = settings["filter"]
        if settings["limit"] is not None or schema.fieldNames() != counted(self._by).fieldNames():
            raise ConfigurationError("countBy gives one row for each value: leave out limit, and .schema(…)")

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with masked_errors(self.target.url):
            yield self._counts()

    def _counts(self) -> pa.RecordBatch:
        found: Counter[tuple[Any, ...]] = Counter()
        with self.target.open() as db:
            queues = existing(db, self._queues, completed=State.COMPLETED in self._states)
            for view in _views(db, self._states):
                rows = db.core.read("ranges.counts", ranges.counts, queues, self._by, view=view, conditions=self._conditions)
                for *values, jobs in rows:
                    found[tuple(values)] += jobs
        columns = list(zip(*((*values, jobs) for values, jobs in sorted(found.items(), key=str)), strict=True))
        kinds = [pa.int32() if name == "priority" else pa.string() for name in self._by]
        arrow = pa.schema([*zip(self._by, kinds, strict=True), ("jobs", pa.int64())])
        arrays = [pa.array(columns[place] if columns else [], kind) for place, kind in enumerate(arrow.types)]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow)


def counted(by: Sequence[str]) -> StructType:
    """The columns of a DataFrame of counts."""
    known: Mapping[str, StructField] = {field.name: field for field in STATES.fields}
    return StructType([*(StructField(name, known[name].dataType) for name in by), StructField("jobs", LongType())])


def _wanted(settings: Settings) -> tuple[str, ...]:
    """The names of queues, and patterns."""
    return settings["queues"] or (settings["queue"],)


def _states(settings: Settings) -> tuple[State, ...]:
    """The states that are read; none: all live jobs, also those that a stream holds."""
    return tuple(map(State, settings["states"] or ()))


def _views(db: QueueDB, states: Sequence[State]) -> list[View]:
    """The places of these states, at this time."""
    now = db.core.read("clock", lambda tx: tx.read_clock())
    return [View(place, tuple(states), now) for place in places_of(states or LIVE)]


def _shared(pieces: Sequence[Piece], most: int) -> Iterator[Sequence[Piece]]:
    """The pieces in their order, for up to ``most`` tasks with about as many jobs each."""
    if len(pieces) <= most:
        yield from ([piece] for piece in pieces)
        return
    share = sum(piece.range.jobs for piece in pieces) / most
    some: list[Piece] = []
    jobs = given = 0
    for piece in pieces:
        some.append(piece)
        jobs += piece.range.jobs
        if jobs >= share * (given + 1) and given + 1 < most:
            yield some
            some, given = [], given + 1
    if some:
        yield some
