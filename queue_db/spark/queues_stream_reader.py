"""One streaming read of several queues: each queue has a stream and a position of its own, and a micro-batch has a claim of each.

The stream ``archive`` of the queues ``mail.a`` and ``mail.b`` is the streams ``archive/mail.a`` and ``archive/mail.b``, each with
the protocol of :mod:`queue_db.spark.streams.store`: every step of each is idempotent and fenced, and so is every step of all of
them. The offset has the position of each queue. A queue that is not in it begins where its stream stands; so a queue that appears
later is read from its first job, also if it was claimed before and Spark did not note that. Of a queue that the option does not
match any more only what is claimed already is handed out.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from queue_db import arguments
from queue_db.errors import CheckpointMismatchError, ConfigurationError
from queue_db.spark.masked_errors import masks_errors
from queue_db.spark.options import Settings
from queue_db.spark.queue_names import MOST_QUEUES, existing, matches
from queue_db.spark.stream_reader import StreamPart, StreamReader, offset_from_spark, offset_to_spark
from queue_db.spark.streams import store as streams
from queue_db.spark.tables import STREAM_LENGTH
from queue_db.spark.target import REPEATABLE_READ, DriverDatabase, Target

# Seconds between two looks for queues that match a pattern.
_LOOK_EVERY = 1.0

# Seconds, with jitter, after an answer that nothing is due.
_IDLE = 0.1

# Seconds between two counts of the backlog at least, and the part of the time that they take at most.
_COUNT_EVERY = 1.0
_COUNT_SHARE = 50.0

# Hexadecimal digits that stand for a queue whose name is too long for that of its stream.
_DIGITS = 32

Positions = Mapping[str, streams.Offset]
"""Queue → its position."""


class SharedPart(InputPartition):
    """Parts of several queues that one task reads."""

    def __init__(self, parts: list[StreamPart]) -> None:
        super().__init__(tuple(part.value for part in parts))
        self.parts = parts


class QueuesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``spark.readStream`` with the option ``queues``.

    :raises ArgumentError: the name of the stream is too long.
    """

    def __init__(self, target: Target, settings: Settings, schema: StructType) -> None:
        self.target = target
        self._given = (target, settings, schema)
        self._wanted: tuple[str, ...] = settings["queues"]
        self._stream = arguments.name("stream", settings["stream"], STREAM_LENGTH - _DIGITS - 1)
        self._partitions: int = settings["partitions"]
        self._db = DriverDatabase(target)
        self._reader = self._new("", self._stream)  # which reads in tasks, and knows the limits
        self._readers: dict[str, StreamReader] = {}
        #: Queue → where its stream stands with nothing claimed beyond: only a due job makes a claim worth while.
        self._settled: dict[str, streams.Offset] = {}
        self._names: list[str] = []
        self._looked = float("-inf")
        self._available_now = False
        #: Queue → the jobs of its last claim, if that was in the last trigger.
        self._taken: dict[str, int] = {}
        #: The queues to which the last trigger did not come any more, in their order: the next one begins with them.
        self._short: list[str] = []
        self._counted = (float("-inf"), 0.0)  # when, and how long it took
        self._backlog: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        # A task reads only: it needs none of the positions.
        return self.__dict__ | {"_given": None, "_readers": {}, "_settled": {}, "_taken": {}, "_short": [], "_names": []}

    # --- on the driver, in the order of Spark's calls -------------------------------------------------------------------

    @masks_errors
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return self._reader.getDefaultReadLimit()

    @masks_errors
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        for queue in self._matching():
            self._of(queue).prepare()
        self._available_now = True

    @masks_errors
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return _to_spark({queue: self._of(queue).initial() for queue in self._matching()})

    @masks_errors
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        begin = _from_spark(start)
        end = dict(begin)
        due = self._due(begin)
        jobs, size = self._reader.most(limit)
        self._taken, self._short = {}, []
        for place, queue in enumerate(due):
            if jobs <= 0 or (size is not None and size <= 0):
                self._short = due[place:]
                break
            # Each an equal part of what is left.
            left = len(due) - place
            share = None if size is None else max(1, size // left)
            there = begin[queue] if queue in begin else self._of(queue).initial()
            claimed = self._of(queue).claim(there, max(1, jobs // left), share, max(1, self._partitions // len(due)))
            if claimed == there:
                self._settled[queue] = there
                continue
            self._settled.pop(queue, None)
            end[queue] = claimed
            taken, took = self._of(queue).measured(claimed, size=size is not None)
            self._taken[queue] = taken
            jobs, size = jobs - taken, None if size is None else size - took
        if len(end) > MOST_QUEUES:
            raise ConfigurationError(
                f"stream {self._stream!r} has read {len(end):,} queues; {MOST_QUEUES:,} is the limit of one stream: start several "
                "streams with narrower patterns, with new checkpoints"
            )
        if end == begin and not self._available_now:
            for reader in self._readers.values():
                reader.keep_alive()
            time.sleep(_IDLE * random.uniform(0.5, 1.0))
        return _to_spark(end)

    @masks_errors
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """What Spark shows in a query's progress under ``sources[].latestOffset``: of all queues together."""
        counted, took = self._counted
        if time.monotonic() - counted > max(_COUNT_EVERY, took * _COUNT_SHARE):
            began = time.monotonic()
            found = [self._of(queue).backlog() for queue in self._matching()]
            self._counted = (time.monotonic(), time.monotonic() - began)
            oldest = max((age for _, age in found if age is not None), default=0)
            self._backlog = {"backlog": sum(due for due, _ in found), "oldestSeconds": round(oldest / 1e6, 3)}
        listed = self._db().core.run(REPEATABLE_READ.named("streams.listed"), streams.listed)
        mine = {self._name_of(queue) for queue in self._readers}
        held = sum(int(row.held) for row in listed if row.name in mine)
        return self._backlog | {"held": held, "queues": len(self._matching())}

    @masks_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, parts = _from_spark(start), list[StreamPart]()
        for queue, position in _from_spark(end).items():
            there = begin[queue] if queue in begin else self._of(queue).initial()
            if there != position:
                parts += self._of(queue).parts(there, position)
        if len(parts) <= self._partitions:
            return [*parts]
        return [SharedPart(parts[place :: self._partitions]) for place in range(self._partitions)]

    @masks_errors
    def commit(self, end: dict[str, Any]) -> None:
        for queue, position in _from_spark(end).items():
            if self._settled.get(queue) != position:
                self._of(queue).complete(position)

    # --- in a task ------------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for part in partition.parts if isinstance(partition, SharedPart) else [partition]:
            yield from self._reader.read(part)

    # --- the queues -----------------------------------------------------------------------------------------------------

    def _new(self, queue: str, name: str) -> StreamReader:
        return StreamReader(*self._given, db=self._db, queue=queue, name=name)

    def _name_of(self, queue: str) -> str:
        name = f"{self._stream}/{queue}"
        if len(name) <= STREAM_LENGTH:
            return name
        return f"{self._stream}/{hashlib.sha256(queue.encode()).hexdigest()[:_DIGITS]}"

    def _of(self, queue: str) -> StreamReader:
        """The reader of one queue."""
        if queue not in self._readers:
            self._readers[queue] = self._new(queue, self._name_of(queue))
            if self._available_now or not matches(queue, self._wanted):
                # It was not there when the query began, or is in the checkpoint only: nothing new is claimed.
                self._readers[queue].ceiling = 0
        return self._readers[queue]

    def _matching(self) -> list[str]:
        """The queues that match now; those of the beginning, if only what was there then is to be read."""
        if not self._available_now and time.monotonic() - self._looked > _LOOK_EVERY:
            self._names = existing(self._db(), self._wanted)
            self._looked = time.monotonic()
        return self._names

    def _due(self, begin: Positions) -> list[str]:
        """The queues of which something may be claimed or is to be completed, those that will take most at the end.

        So each gets an equal part at least, and those with many jobs what the others leave. A queue that this process has not
        settled yet may have a claim that Spark did not note, whether it is in the checkpoint or not.
        """
        names = sorted({*self._matching(), *begin})
        waits = self._db().next_due(names) if names else {}
        matching = set(self._matching())
        due = {queue for queue, wait in waits.items() if queue in matching and wait is not None and wait <= 0}
        found = [queue for queue in names if queue in due or not self._is_settled(queue, begin)]
        short = {queue: place - len(self._short) for place, queue in enumerate(self._short)}
        return sorted(found, key=lambda queue: (queue in due, short.get(queue, 0), self._taken.get(queue, 0)))

    def _is_settled(self, queue: str, begin: Positions) -> bool:
        settled = self._settled.get(queue)
        return settled is not None and settled == begin.get(queue, settled)


def _from_spark(given: dict[str, Any]) -> dict[str, streams.Offset]:
    """An offset of a checkpoint."""
    found = given.get("queues")
    if not isinstance(found, dict):
        raise CheckpointMismatchError(
            f"the checkpoint's offset {given!r:.200} is not one of a queue_db stream of several queues: a query that has read one "
            "queue, or a feed, needs a new checkpoint to read several"
        )
    return {queue: offset_from_spark(position) for queue, position in found.items()}


def _to_spark(positions: Positions) -> dict[str, Any]:
    """An offset as Spark writes it into its checkpoint."""
    return {"queues": {queue: offset_to_spark(position) for queue, position in sorted(positions.items())}}
