"""``db.streams``: who holds claimed jobs for a stream, and how to get them back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from queue_db import arguments
from queue_db.errors import StreamError
from queue_db.model import from_micros
from queue_db.schema import QUEUE_LENGTH, STREAM_LENGTH
from queue_db.store import streams

if TYPE_CHECKING:
    from queue_db.queues import QueueDB

#: The class below has a method called ``list``.
Names = list[str]


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream as it stands."""

    name: str
    queue: str
    holder: str | None  #: host and process of the last reader; None after a release
    epoch: int
    completed: int  #: number of the last completed batch
    claimed: int  #: number of the last claimed batch
    held: int  #: jobs claimed and not completed
    oldest_held_age: float | None  #: seconds since the oldest of them was enqueued
    seen_at: datetime  #: when a reader last came by
    retention: float  #: seconds without a reader after which its jobs return to the queue


class Streams:
    """The streams of one database. Readers make them; they stay."""

    def __init__(self, db: QueueDB) -> None:
        self._db = db

    def list(self, queue: str | None = None) -> list[Stream]:
        """All streams, or those of one queue, by name."""
        if queue is not None:
            arguments.name("queue", queue, QUEUE_LENGTH)
        db = self._db
        db.ready()
        rows = db.database.run(partial(streams.listed, store=db.store, queue=queue), name="streams", write=False)
        return [
            Stream(
                name=row.name,
                queue=row.queue,
                holder=row.holder,
                epoch=row.epoch,
                completed=row.acked,
                claimed=row.allocated,
                held=int(row.held),
                oldest_held_age=None if row.oldest_at is None else (row.now - row.oldest_at) / 1_000_000,
                seen_at=from_micros(row.seen_at),
                retention=row.retention / 1_000_000,
            )
            for row in rows
        ]

    def release(self, name: str) -> int:
        """Give the jobs that a stream holds back to the queue, not counted as an attempt; return how many.

        A query that still reads the stream stops, and its checkpoint is refused: go on with a new one.

        :raises StreamError: there is no such stream.
        """
        arguments.name("name", name, STREAM_LENGTH)
        db = self._db
        db.ready()
        released = db.database.run(partial(streams.release, store=db.store, name=name), name="release stream")
        if released is None:
            known = ", ".join(stream.name for stream in self.list()) or "none"
            raise StreamError(f"there is no stream {name!r}; known: {known}")
        return released

    def expire(self) -> Names:
        """Release the streams that have had no reader for longer than their retention; return their names."""
        db = self._db
        db.ready()
        names = db.database.run(partial(streams.expired, store=db.store), name="expired streams", write=False)
        return [
            name
            for name in names
            if db.database.run(partial(streams.release_expired, store=db.store, name=name), name="release stream")
        ]
