"""From a DataFrame into a queue: tasks stage, the driver publishes.

Each task attempt stages its rows under a number of its own, in one transaction (:mod:`queue_db.store.staging`). The driver
publishes the attempts that Spark names, in one transaction behind a row of the ledger. Whatever is run twice, late, or not to
its end is in no message, so nobody publishes it, and the sweeper deletes it.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TypeVar, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from sqlalchemy import Connection

from queue_db import QueueDB
from queue_db.dialects.chunks import pack, small
from queue_db.spark.encoding import Encoder, check_columns
from queue_db.spark.masked_errors import described, masks_errors
from queue_db.spark.options import Settings
from queue_db.spark.target import Target
from queue_db.store import staging
from queue_db.store.enqueue import OnDuplicate

_T = TypeVar("_T")

log = logging.getLogger("queue_db.spark")

#: Seconds after which what nobody published is swept: longer than any load takes from its first task to its publication.
KEPT = 86_400.0

#: How the names of loads begin that nobody will ever ask for again.
UNNAMED = "write:"

# Chunks and ledger entries in one sweep.
_SWEPT = 1000

# The last so many versions of a streaming query stay in the ledger, and as many again; Spark repeats the last one only.
_VERSIONS = 100


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task attempt has staged."""

    attempt: int
    chunks: int
    jobs: int
    query: str | None = None  #: id of the streaming query
    #: The rows themselves, packed, if they are few: then nothing is staged.
    brought: bytes | None = None


class Work:
    """What both kinds of writers do. Travels to the tasks."""

    def __init__(self, target: Target, settings: Settings, schema: StructType) -> None:
        check_columns(schema)
        self.target = target
        self._queue: str = settings["queue"]
        self._kind: str = settings["kind"]
        self._policy = OnDuplicate(settings["onDuplicate"])
        self._schema = schema
        self._format: str = settings["payloadFormat"]
        with target.open() as db:
            db.ready()

    def load(self, app: str, version: int, *, kept: bool) -> staging.Load:
        """The entry of the ledger under which the rows are published."""
        return staging.Load(
            queue=self._queue,
            app=app,
            version=version,
            fields=self._encoder().fields,
            defaults={**staging.DEFAULTS, "kind": self._kind},
            on_duplicate=self._policy,
            kept=kept,
        )

    def _encoder(self) -> Encoder:
        return Encoder(self._schema, self._format)

    def _chunks(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, str]]:
        for columns in self._encoder().chunks(batches):
            yield len(columns["payload"]), pack(columns)

    def stage(self, batches: Iterator[pa.RecordBatch], query: str | None = None) -> Staged:
        """Stage the rows of one partition. One that is empty or small needs no connection: its rows travel in the message."""
        chunks = self._chunks(batches)
        first = next(chunks, None)
        if first is None:
            return Staged(0, 0, 0, query)

        second = next(chunks, None)
        brought = small(first[1]) if second is None else None
        if brought is not None:
            return Staged(0, 0, first[0], query, brought)
        known = [chunk for chunk in (first, second) if chunk is not None]

        def work(connection: Connection) -> Staged:
            attempt = staging.new_attempt(connection, db.store)
            return Staged(attempt, *staging.stage(connection, db.store, attempt, _ahead(chain(known, chunks))), query)

        with self.target.open() as db:
            # The rows can be read once: what fails is the task, and Spark runs that again.
            return db.database.run(work, name="stage", attempts=1)

    def was_published(self, load: staging.Load) -> bool:
        """Whether the ledger has this load already."""
        with self.target.open() as db:
            work = partial(staging.ledger, store=db.store, app=load.app, version=load.version, queue=load.queue)
            return db.database.run(work, name="ledger", write=False) is not None

    def load_at_once(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        """Load the rows of one partition straight into the queue, in one transaction."""
        columns = self._encoder().chunks(batches)
        first = next(columns, None)
        if first is None:
            return Staged(0, 0, 0)
        load = self.load("", 0, kept=False)

        def work(connection: Connection) -> int:
            return sum(staging.load_at_once(connection, db.store, load, some) for some in _ahead(chain([first], columns)))

        with self.target.open() as db:
            return Staged(0, 0, db.database.run(work, name="load", attempts=1))

    def publish(self, load: staging.Load, messages: Sequence[Staged]) -> staging.Published | None:
        """Publish what these messages name; None if that was done before."""
        attempts = {message.attempt: message.chunks for message in messages if message.chunks}
        jobs = sum(message.jobs for message in messages)
        brought = [message.brought for message in messages if message.brought is not None]
        with self.target.open() as db:
            # The ledger makes it safe to run again, whatever became of the first time.
            published = db.database.run(
                partial(staging.publish, store=db.store, load=load, attempts=attempts, jobs=jobs, brought=brought),
                name="publish",
                repeatable=True,
            )
            if published is None:
                # A publication of these very attempts has deleted them; if they are others, nobody needs them.
                self._tidy(db, "discard", partial(staging.discard, attempts=list(attempts)))
            self._tidy(db, "sweep staged", partial(staging.sweep, age=KEPT, limit=_SWEPT))
        return published

    def forget_before(self, app: str, version: int) -> None:
        """Let the ledger forget what was published under ``app`` before ``version``."""
        with self.target.open() as db:
            self._tidy(db, "forget versions", partial(staging.forget_versions, app=app, below=version))

    def discard(self, messages: Sequence[Staged | None]) -> None:
        """Remove what these messages name, unless it has been published meanwhile."""
        attempts = [message.attempt for message in messages if message is not None and message.chunks]
        if attempts:
            with self.target.open() as db:
                work = partial(staging.discard, store=db.store, attempts=attempts)
                db.database.run(work, name="discard", repeatable=True)

    def _tidy(self, db: QueueDB, name: str, work: Callable[..., object]) -> None:
        """Run what comes after a publication. The jobs are in the queue: an error here must not say that the write failed.

        Once, since the next write does it again.
        """
        try:
            db.database.run(partial(work, store=db.store), name=name, attempts=1)
        except Exception as error:  # noqa: BLE001 - whatever it is, the write has succeeded
            problem = described(error, self.target.url)
            note = "queue %r: the write has succeeded; its clean-up (%s) failed and is left to a later write: %s"
            log.warning(note, self._queue, name, problem)


class BatchWriter(DataSourceArrowWriter):
    """``df.write``: all rows or none, once."""

    def __init__(self, target: Target, settings: Settings, schema: StructType) -> None:
        self.target = target
        self._work = Work(target, settings, schema)
        self._direct = settings["guarantee"] == "at_least_once"
        self._app: str = settings["txnAppId"] or f"{UNNAMED}{uuid.uuid4()}"
        self._version: int = settings["txnVersion"] or 0
        # On the driver, before any task runs: of what was published before the rows need not be staged, only counted.
        self._published = settings["txnAppId"] is not None and self._work.was_published(self._load())

    def _load(self) -> staging.Load:
        return self._work.load(self._app, self._version, kept=not self._app.startswith(UNNAMED))

    @masks_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self._published:
            return Staged(0, 0, sum(batch.num_rows for batch in iterator))
        return self._work.load_at_once(iterator) if self._direct else self._work.stage(iterator)

    @masks_errors
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if not self._direct:
            self._work.publish(self._load(), _staged(messages))

    @masks_errors
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        # Spark calls this also after a commit whose answer was lost: what has been published is not there to discard.
        if not self._direct:
            self._work.discard([message for message in messages if isinstance(message, Staged)])


class StreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream``: each micro-batch once, by the query's id and the batch's number."""

    def __init__(self, target: Target, settings: Settings, schema: StructType) -> None:
        self.target = target
        self._work = Work(target, settings, schema)

    @masks_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        return self._work.stage(iterator, query)

    @masks_errors
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        staged = _staged(messages)
        queries = {message.query for message in staged}
        if not staged:
            return
        if len(queries) != 1 or None in queries:
            raise RuntimeError("Spark did not tell its tasks the id of the query, by which a micro-batch is known again")
        (query,) = queries
        app = f"query:{query}"
        self._work.publish(self._work.load(app, batchId, kept=True), staged)
        if batchId % _VERSIONS == 0:
            self._work.forget_before(app, batchId - _VERSIONS)

    @masks_errors
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._work.discard([message for message in messages if isinstance(message, Staged)])


def _ahead(items: Iterator[_T]) -> Iterator[_T]:
    """The same, each made by another thread while the one before is in use: the database works, and so do we."""
    end = object()
    with ThreadPoolExecutor(1, "queue_db-encoder") as pool:
        coming = pool.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = pool.submit(next, items, end)
            yield cast("_T", item)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    staged = [message for message in messages if isinstance(message, Staged)]
    if len(staged) != len(messages):
        raise RuntimeError("Spark asks to commit although a task has sent no message")
    return staged
