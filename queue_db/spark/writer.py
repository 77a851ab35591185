"""One write, into a queue or a feed, from top to bottom: tasks stage, the driver publishes.

1. *Stage*: each task attempt stores its rows as chunks under a number of its own, in one transaction, and sends that number to the
   driver (:class:`Staged`). A small partition needs no connection: its rows travel in the message.
2. *Commit*: Spark has a message of every partition and calls ``commit`` on the driver.
3. *Publish*: one transaction inserts the load's row into the ledger and makes jobs, or messages of a feed, of the chunks that were
   sent. If the ledger has the row, the load was published before and nothing happens.
4. *Clean up*: old chunks and ledger rows are deleted. This does not decide whether the write succeeded.

An attempt that Spark repeats, that ends late or that dies is in no message: it is never published, and its chunks are deleted
after a day. The SQL is in :mod:`queue_db.spark.staging.store`, that of feeds in :mod:`queue_db.spark.feeds.store.loading`.
"""

from __future__ import annotations

import logging
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat
from typing import Any, TypeVar, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from queue_db import QueueDB
from queue_db.core import ONCE
from queue_db.database.transaction import Run
from queue_db.errors import ConfigurationError, DuplicateJobError
from queue_db.spark.columns import COLUMNS, MESSAGE_COLUMNS, Columns, check_columns
from queue_db.spark.encoding import Encoder, here
from queue_db.spark.feeds.store import loading
from queue_db.spark.masked_errors import described, masks_errors
from queue_db.spark.options import Settings
from queue_db.spark.staging import store as staging
from queue_db.spark.staging.chunks import pack, small
from queue_db.spark.staging.store import Entry
from queue_db.spark.target import REPEATABLE, Target
from queue_db.store import Transaction, enqueue
from queue_db.store.enqueue import OnDuplicate

_T = TypeVar("_T")

log = logging.getLogger("queue_db.spark")

#: Seconds after which unpublished chunks are deleted: longer than any load takes from its first task to its publication.
RETENTION = 86_400.0

#: Prefix of the names of loads that have no txnAppId: their ledger rows are deleted too.
UNNAMED = "write:"

#: Queues into which one write goes. Each gets a row of the ledger.
MOST_QUEUES = 1000

# Chunks and ledger rows that one clean-up deletes.
_CLEANED = 1000

# The ledger keeps this many versions of a streaming query, and up to as many again; Spark repeats the last one only.
_VERSIONS = 100


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The message of one task attempt to the driver."""

    attempt: int
    chunks: int
    jobs: int
    query: str | None = None  #: id of the streaming query
    #: The packed rows of a small partition; then nothing is staged.
    brought: bytes | None = None
    #: Queue → its rows, if the rows say where they go.
    queues: Mapping[str, int] | None = None

    @property
    def part(self) -> int | bytes | None:
        """Where the rows are: the attempt, or they themselves; None: there are none."""
        return self.attempt if self.chunks else self.brought


class Write(ABC):
    """The steps of a write, for batches and streams. It is pickled into the tasks.

    This class has those that queues and feeds share, the others are in two subclasses.
    """

    _columns: Columns
    _into: str
    #: Whether each row says into which queue it goes; the queue of those that do not.
    _several = False
    _queue: str | None = None

    def __init__(self, target: Target, settings: Settings, schema: StructType) -> None:
        check_columns(schema, self._columns)
        self.target = target
        self._kind: str = settings["kind"]
        self._schema = schema
        self._format: str = settings["payloadFormat"]
        with target.open() as db:
            db.ready()

    @abstractmethod
    def load(self, app: str, version: int, *, kept: bool) -> Entry:
        """The ledger row under which the rows are published.

        :param kept: the row stays in the ledger; False: it may be deleted after a day.
        """

    def was_published(self, load: Entry) -> bool:
        """Whether the ledger has this load. Of rows that go into several queues it is known when all are staged."""
        if self._several:
            return False
        with self.target.open() as db:
            return db.core.read("staging.ledger", staging.ledger, load.app, load.version, load.queue) is not None

    # --- in a task ----------------------------------------------------------------------------------------------------

    def stage(self, batches: Iterator[pa.RecordBatch], query: str | None = None) -> Staged:
        """Stage the rows of one partition, in one transaction. An empty or small partition opens no connection."""
        queues = _Queues() if self._several else None
        chunks = self._chunks(batches, queues)
        first = next(chunks, None)
        if first is None:
            return Staged(0, 0, 0, query)
        second = next(chunks, None)
        brought = small(first[1]) if second is None else None
        if brought is not None:
            return Staged(0, 0, first[0], query, brought, None if queues is None else dict(queues))
        begun = [chunk for chunk in (first, second) if chunk is not None]
        with self.target.open() as db:
            # The rows can be read once only: an error fails the task, and Spark runs it again.
            staged: Staged = db.core.run(ONCE.named("stage"), _stage, chain(begun, chunks), query)
        return staged if queues is None else replace(staged, queues=dict(queues))

    def load_directly(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        """Insert the rows of one partition into the queue or feed, in one transaction, without staging them."""
        columns = self._encoder().chunks(batches)
        first = next(columns, None)
        if first is None:
            return Staged(0, 0, 0)
        load = self.load("", 0, kept=False)
        with self.target.open() as db:
            try:
                loaded = db.core.run(ONCE.named("load"), _load, self._load_some, load, chain([first], columns))
            except DuplicateJobError as error:
                raise _refusal(db, error, here(error.position or 0), str(error.other)) from None
            self._afterwards(db)
            return Staged(0, 0, loaded)

    def _chunks(self, batches: Iterator[pa.RecordBatch], queues: _Queues | None) -> Iterator[tuple[int, str]]:
        """Chunks of the rows: number of jobs, text. They are counted in ``queues``."""
        for columns in self._encoder().chunks(batches):
            if queues is not None:
                queues.add(columns["queue"])
            yield len(columns["payload"]), pack(columns)

    def _encoder(self) -> Encoder:
        return Encoder(self._schema, self._format, self._columns, queue=self._queue)

    @staticmethod
    @abstractmethod
    def _load_some(tx: Transaction, load: Any, columns: Mapping[str, Sequence[Any]]) -> int:
        """Insert some rows without staging them; return how many."""

    # --- on the driver ------------------------------------------------------------------------------------------------

    def publish(self, load: Any, messages: Sequence[Staged]) -> staging.Published | None:
        """Publish what the messages name; None if the load was published before."""
        attempts = {message.attempt: message.chunks for message in messages if message.chunks}
        rows = sum(message.jobs for message in messages)
        with self.target.open() as db:
            # The ledger makes this safe to repeat, also when the outcome of the first time is unknown.
            published = self._publish(db, load, messages, attempts, rows)
            self._afterwards(db)
            if published is None:
                # If it was these attempts that were published, their chunks are gone; the chunks of others are useless.
                self._clean_up(db, "staging.discard", staging.discard, list(attempts))
            self._clean_up(db, "staging.sweep", staging.sweep, RETENTION, _CLEANED)
        return published

    @abstractmethod
    def _publish(
        self, db: QueueDB, load: Any, messages: Sequence[Staged], attempts: Mapping[int, int], rows: int
    ) -> staging.Published | None:
        """Run the transaction that publishes."""

    @abstractmethod
    def _afterwards(self, db: QueueDB) -> None:
        """What readers would otherwise have to do first. The rows are published: an error is only logged."""

    def delete_versions_before(self, app: str, version: int) -> None:
        """Delete the ledger rows of ``app`` with versions below ``version``."""
        with self.target.open() as db:
            self._clean_up(db, "staging.forget_versions", staging.forget_versions, app, version)

    def discard(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the chunks that the messages name; published ones are gone already."""
        attempts = [message.attempt for message in messages if isinstance(message, Staged) and message.chunks]
        if attempts:
            with self.target.open() as db:
                db.core.run(REPEATABLE.named("staging.discard"), staging.discard, attempts)

    def _clean_up(self, db: QueueDB, name: str, step: Callable[..., object], *arguments: object) -> None:
        """Run a step after a publication. The jobs are in the queue, so an error is only logged; the next write repeats it."""
        try:
            db.core.run(ONCE.named(name), step, *arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, the write has succeeded
            problem = described(error, self.target.url)
            note = "%s: the write has succeeded; its clean-up (%s) failed and is left to a later write: %s"
            log.warning(note, self._into, name, problem)


class QueueWrite(Write):
    """The steps of a write into a queue."""

    _columns = COLUMNS
    _load_some = staticmethod(staging.load_at_once)

    def __init__(self, target: Target, settings: Settings, schema: StructType) -> None:
        columns = {field.name.lower() for field in schema.fields}
        self._several = "queue" in columns
        if settings["queue"] is None and not self._several:
            raise ConfigurationError(
                "option 'queue' is missing: .option(\"queue\", …): name of the queue; or a column 'queue', the queue of each row; "
                "or 'feed' for a feed"
            )
        self._queue: str | None = settings["queue"]
        self._policy = OnDuplicate(settings["onDuplicate"])
        self._into = "the rows' queues" if self._several else f"queue {self._queue!r}"
        self._defaults = {
            "kind": settings["kind"],
            "priority": settings["priority"],
            "group_key": settings["groupKey"],
            "unique_for": settings["uniqueFor"],
        }
        if settings["uniqueFor"] and "unique_key" not in columns:
            raise ConfigurationError("option 'uniqueFor' is the time for which a unique_key stays taken: add a column 'unique_key'")
        if self._policy.last_wins and (settings["uniqueFor"] or "unique_for" in columns):
            raise ConfigurationError(
                "unique_for and onDuplicate=replace contradict each other: a job that is done cannot be replaced; leave one out"
            )
        super().__init__(target, settings, schema)

    def load(self, app: str, version: int, *, kept: bool) -> staging.Load:
        return staging.Load(
            queue=self._queue or self._into,
            app=app,
            version=version,
            fields=self._encoder().fields,
            defaults={**staging.DEFAULTS, **self._defaults},
            on_duplicate=self._policy,
            kept=kept,
        )

    def _publish(
        self, db: QueueDB, load: staging.Load, messages: Sequence[Staged], attempts: Mapping[int, int], rows: int
    ) -> staging.Published | None:
        partitions = [message.part for message in messages]
        parts = [part for part in partitions if part is not None]
        queues = _queues_of(messages) if self._several else None
        try:
            return db.core.run(REPEATABLE.named("staging.publish"), staging.publish, load, attempts, rows, parts, queues)
        except DuplicateJobError as error:
            # Nothing was published, so the chunks are still there.
            rows_of_key = db.core.run(Run("first_two", write=False), _first_two, load, partitions, error)
            first, second = [*(f"row {place + 1} of partition {number}" for number, place in rows_of_key), "", ""][:2]
            raise _refusal(db, error, second or first, second and first) from None

    def _afterwards(self, db: QueueDB) -> None:
        """Nothing: workers claim what is there."""


class FeedWrite(Write):
    """The steps of a write into a feed."""

    _columns = MESSAGE_COLUMNS
    _load_some = staticmethod(loading.append)

    def __init__(self, target: Target, settings: Settings, schema: StructType) -> None:
        self._feed: str = settings["feed"]
        self._into = f"feed {self._feed!r}"
        super().__init__(target, settings, schema)

    def load(self, app: str, version: int, *, kept: bool) -> loading.MessageLoad:
        with self.target.open() as db:
            row = db.feed(self._feed).row(fresh=True)
        return loading.MessageLoad(row, app, version, self._encoder().fields, self._kind, kept)

    def _publish(
        self, db: QueueDB, load: loading.MessageLoad, messages: Sequence[Staged], attempts: Mapping[int, int], rows: int
    ) -> staging.Published | None:
        # In the order of the partitions: it is that of the messages.
        there = [message.part for message in messages if message.part is not None]
        return db.core.run(REPEATABLE.named("feeds.publish"), loading.publish, load, there, attempts, rows)

    def _afterwards(self, db: QueueDB) -> None:
        feed = db.feed(self._feed)
        try:
            feed.rank()
            feed.trim()
        except Exception as error:  # noqa: BLE001 - whatever it is, the messages are published
            note = "feed %r: messages were published, but not numbered or trimmed; the next reader or publisher does it: %s"
            log.warning(note, self._feed, described(error, self.target.url))


def _write_of(target: Target, settings: Settings, schema: StructType) -> Write:
    return (FeedWrite if settings.of_feed else QueueWrite)(target, settings, schema)


class BatchWriter(DataSourceArrowWriter):
    """``df.write``: all rows or none, once."""

    def __init__(self, target: Target, settings: Settings, schema: StructType) -> None:
        self.target = target
        self._write = _write_of(target, settings, schema)
        self._direct = settings["guarantee"] == "at_least_once"
        self._app: str = settings["txnAppId"] or f"{UNNAMED}{uuid.uuid4()}"
        self._version: int = settings["txnVersion"] or 0
        # Read on the driver before any task runs: the rows of a published load are counted and not staged.
        self._published = settings["txnAppId"] is not None and self._write.was_published(self._load())

    def _load(self) -> Entry:
        return self._write.load(self._app, self._version, kept=not self._app.startswith(UNNAMED))

    @masks_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        _refuse_tables()
        if self._published:
            return Staged(0, 0, sum(batch.num_rows for batch in iterator))
        return self._write.load_directly(iterator) if self._direct else self._write.stage(iterator)

    @masks_errors
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if not self._direct:
            self._write.publish(self._load(), _complete(messages))

    @masks_errors
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        # Spark calls this also after a commit whose answer was lost: published chunks are gone and cannot be discarded.
        if not self._direct:
            self._write.discard(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream``: each micro-batch once, identified by the query's id and the batch's number."""

    def __init__(self, target: Target, settings: Settings, schema: StructType) -> None:
        self.target = target
        self._write = _write_of(target, settings, schema)

    @masks_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        return self._write.stage(iterator, query)

    @masks_errors
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        staged = _complete(messages)
        queries = {message.query for message in staged}
        if not staged:
            return
        if len(queries) != 1 or None in queries:
            raise RuntimeError("Spark's tasks have no id of the streaming query, which identifies a repeated micro-batch")
        (query,) = queries
        app = f"query:{query}"
        self._write.publish(self._write.load(app, batchId, kept=True), staged)
        if batchId % _VERSIONS == 0:
            self._write.delete_versions_before(app, batchId - _VERSIONS)

    @masks_errors
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._write.discard(messages)


def _refuse_tables() -> None:
    """Refuse a write that fills a new table: Spark does not pass its options on, so it could not be read.

    Nothing but this distinguishes it: Spark runs the write within the execution that makes the table, and removes the table after
    an error. ``foreachBatch`` also has an execution around the write.

    :raises ConfigurationError: it is one.
    """
    context = TaskContext.get()
    if context is None or context.getLocalProperty("sql.streaming.queryId") is not None:
        return
    outer = context.getLocalProperty("spark.sql.execution.root.id")
    if outer is not None and outer != context.getLocalProperty("spark.sql.execution.id"):
        raise ConfigurationError(
            "a write does not make a table of the catalog, since Spark does not pass a table's options to its Python sources: "
            'df.write.format("queue_db")….save(), or CREATE TABLE and INSERT INTO, in place of saveAsTable(…), writeTo(…) or '
            "CREATE TABLE … AS"
        )


def _stage(tx: Transaction, chunks: Iterator[tuple[int, str]], query: str | None) -> Staged:
    """Store the chunks of one task attempt under a new number."""
    attempt = staging.new_attempt(tx)
    return Staged(attempt, *staging.stage(tx, attempt, _ahead(chunks)), query)


def _load(
    tx: Transaction,
    load_some: Callable[[Transaction, Any, Mapping[str, Sequence[Any]]], int],
    load: Entry,
    chunks: Iterator[Mapping[str, Sequence[Any]]],
) -> int:
    """Insert rows without staging them; return how many were added."""
    added = before = 0
    for columns in _ahead(chunks):
        try:
            with enqueue.after(before):
                added += load_some(tx, load, columns)
        except DuplicateJobError as error:
            queues = columns.get("queue") or repeat(load.queue)
            place = before + list(zip(queues, columns["unique_key"], strict=False)).index((str(error.queue), error.unique_key))
            earlier = "an earlier row of this partition, or a job that has left meanwhile"
            error.other = here(place) if place != error.position else earlier
            raise
        before += len(columns["payload"])
    return added


def _first_two(
    tx: Transaction, load: staging.Load, partitions: Sequence[int | bytes | None], refused: DuplicateJobError
) -> list[tuple[int, int]]:
    """The first rows with the refused key."""
    return list(islice(staging.rows_with_key(tx, load, partitions, str(refused.queue), refused.unique_key), 2))


def _refusal(db: QueueDB, refused: DuplicateJobError, row: str, other: str) -> DuplicateJobError:
    """A write was undone because the unique key of a row is taken.

    :param other: the row of the same write that has the key, if no job of the queue has it.
    """
    queue, key = str(refused.queue), refused.unique_key
    there = db.core.read("enqueue.holder", enqueue.holder, queue, key)
    error = DuplicateJobError(unique_key=key, existing_id=there, other=other or None, unique_for=refused.unique_for, queue=queue)
    error.place = f"queue {queue!r}, {row}: "
    return error


class _Queues(Counter[str]):
    """Queue → rows that go there.

    :raises ConfigurationError: too many queues.
    """

    def add(self, queues: Iterable[str]) -> None:
        """Count rows by their queues."""
        self.update(queues)
        if len(self) > MOST_QUEUES:
            raise ConfigurationError(
                f"the rows go into more than {MOST_QUEUES:,} queues, such as {', '.join(map(repr, islice(self, 3)))}: the column "
                "'queue' has names of queues; a write may go into several, but data of a row belongs into the payload, or group_key"
            )


def _queues_of(messages: Iterable[Staged]) -> Mapping[str, int]:
    """Queue → rows, of all partitions.

    :raises ConfigurationError: too many queues.
    """
    found = _Queues()
    for message in messages:
        found.update(message.queues or {})
        found.add(())
    return dict(found)


def _complete(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    """All messages as Staged; an error if one is missing."""
    staged = [message for message in messages if isinstance(message, Staged)]
    if len(staged) != len(messages):
        raise RuntimeError("Spark asks to commit although a task has sent no message")
    return staged


def _ahead(items: Iterator[_T]) -> Iterator[_T]:
    """The same items; a thread makes the next one while the database works on the current one."""
    end = object()
    with ThreadPoolExecutor(1, "queue_db-encoder") as pool:
        coming = pool.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = pool.submit(next, items, end)
            yield cast("_T", item)
