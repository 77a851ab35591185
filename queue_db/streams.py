"""``db.streams``: who holds claimed jobs for a stream, how to get them back, and how to say that they are written."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from queue_db import arguments
from queue_db.core import Core
from queue_db.errors import StreamError
from queue_db.model import from_micros
from queue_db.store import Store, streams
from queue_db.store.schema import QUEUE_LENGTH, STREAM_LENGTH

log = logging.getLogger("queue_db.streams")

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
    maybe_written: int  #: of these a query was given so many: it may have written them, and given back they are done again
    deliveries: int  #: how often the held batches were given to a query, the most of them; 0: never
    oldest_held_age: float | None  #: seconds since the oldest of them was enqueued
    seen_at: datetime  #: when a reader last came by
    retention: float  #: seconds without a reader after which its jobs return to the queue


class Streams:
    """The streams of one database. Readers make them; they stay."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def list(self, queue: str | None = None) -> list[Stream]:
        """All streams, or those of one queue, by name."""
        if queue is not None:
            arguments.name("queue", queue, QUEUE_LENGTH)
        return [
            Stream(
                name=row.name,
                queue=row.queue,
                holder=row.holder,
                epoch=row.epoch,
                completed=row.acked,
                claimed=row.allocated,
                held=int(row.held),
                maybe_written=int(row.maybe_written),
                deliveries=int(row.deliveries),
                oldest_held_age=None if row.oldest_at is None else (row.now - row.oldest_at) / 1_000_000,
                seen_at=from_micros(row.seen_at),
                retention=row.retention / 1_000_000,
            )
            for row in self._core.read(streams.listed, queue)
        ]

    def complete(self, name: str, *, checkpoint: str | os.PathLike[str] | None = None) -> int:
        """The jobs that a stream holds are written: they leave the queue, those with a reason to the dead; return how many left.

        A query that still reads the stream stops. With a checkpoint that has committed the batches it can start again.

        :param checkpoint: folder of the query's checkpoint, on this machine: only what its commit log says is written leaves. None:
            all that is held is written, as you have seen in the sink. A batch that was not would be lost.
        :raises StreamError: there is no such stream, or the folder is no checkpoint with a committed batch.
        :raises CheckpointMismatchError: the checkpoint has not committed a batch of this stream.
        """
        arguments.name("name", name, STREAM_LENGTH)
        offsets = None if checkpoint is None else committed(Path(checkpoint))
        with self._core.reporting_deaths() as core:
            if offsets is None:
                completed = core.write(streams.complete_held, name)
            else:
                completed = core.write(streams.complete_committed, name, offsets)
        if completed is None:
            raise self._unknown(name)
        return completed

    def release(self, name: str) -> int:
        """Give the jobs that a stream holds back to the queue, not counted as an attempt; return how many.

        A query that still reads the stream stops, and its checkpoint is refused: go on with a new one. What the query has written
        already (``Stream.maybe_written``) is done again: the log has a warning. :meth:`complete` is for what is written.

        :raises StreamError: there is no such stream.
        """
        arguments.name("name", name, STREAM_LENGTH)
        released, written = self._core.write(_release, name)
        if released is None:
            raise self._unknown(name)
        _warn(name, released, written)
        return released

    def expire(self) -> Names:
        """Release the streams that have had no reader for longer than their retention; return their names.

        The log has a warning for each whose jobs may be written already: see :meth:`release`.
        """
        gone = []
        for name in self._core.read(streams.expired):
            released, written = self._core.write(_release_expired, name)
            if released:
                _warn(name, released, written)
                gone.append(name)
        return gone

    def _unknown(self, name: str) -> StreamError:
        known = ", ".join(stream.name for stream in self.list()) or "none"
        return StreamError(f"there is no stream {name!r}; known: {known}")


def committed(checkpoint: Path) -> list[streams.Offset]:
    """The offsets, of all its sources that may be ours, of the last batch that a checkpoint of Spark's has committed.

    :raises StreamError: there is none.
    """
    try:
        batches = [int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdecimal()]
        lines = (checkpoint / "offsets" / str(max(batches))).read_text(encoding="utf-8").splitlines() if batches else []
    except (OSError, UnicodeDecodeError) as error:
        raise StreamError(
            f"checkpoint={str(checkpoint)!r} cannot be read: {error}. It is the folder that the query has as checkpointLocation; "
            "copy its offsets and commits to this machine if it lies elsewhere"
        ) from None
    found = list(offsets_in(lines))
    if not found:
        raise StreamError(
            f"checkpoint={str(checkpoint)!r}: no batch of a queue_db stream was committed, so nothing is known to be written"
        )
    return found


def offsets_in(values: Iterable[Any]) -> Iterator[streams.Offset]:
    """Those among the lines of Spark's offset log, in which an offset may stand as text within JSON."""
    for value in values:
        if isinstance(value, str):
            try:
                value = json.loads(value)  # noqa: PLW2901
            except ValueError:
                continue
        if isinstance(value, dict):
            if isinstance(value.get("batch"), int) and isinstance(value.get("claim"), str):
                yield streams.Offset(value["batch"], value["claim"])
            else:
                yield from offsets_in(inner for inner in value.values() if isinstance(inner, str | dict))


def _release(connection: Connection, store: Store, name: str) -> tuple[int | None, int]:
    written = streams.maybe_written(connection, store, name)
    return streams.release(connection, store, name), written


def _release_expired(connection: Connection, store: Store, name: str) -> tuple[int, int]:
    written = streams.maybe_written(connection, store, name)
    return streams.release_expired(connection, store, name), written


def _warn(name: str, released: int, written: int) -> None:
    if released and written:
        log.warning(
            "stream %r gave %d jobs back; up to %d of them may be written already, since a query had them, and are done again then",
            name,
            released,
            written,
        )
