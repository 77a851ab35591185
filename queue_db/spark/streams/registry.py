"""``db.streams``: jobs held by Spark streams; complete them, or release them to their queues."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from queue_db import arguments
from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.errors import NoSuchStreamError, StreamError
from queue_db.model import from_micros
from queue_db.spark.streams import store as streams
from queue_db.spark.tables import STREAM_LENGTH
from queue_db.store import Transaction
from queue_db.store.schema import QUEUE_LENGTH

log = logging.getLogger("queue_db.streams")

#: The class below has a method called ``list``.
Names = list[str]


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream at the time of the call."""

    name: str
    queue: str
    holder: str | None  #: host and process of the last reader; None after a release
    epoch: int
    completed: int  #: number of the last completed batch
    claimed: int  #: number of the last claimed batch
    held: int  #: jobs claimed and not completed
    maybe_written: int  #: of these, jobs that a query was given: it may have written them; released, they are done again
    deliveries: int  #: how often a held batch was given to a query, at most; 0: never
    oldest_held_age: float | None  #: seconds since the oldest held job was enqueued
    seen_at: datetime  #: when a reader was last seen
    retention: float  #: seconds without a reader after which its jobs return to the queue


class Streams:
    """The streams of one database. Readers create them; they stay."""

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
            for row in self._core.read("streams.listed", streams.listed, queue)
        ]

    def complete(self, name: str, *, checkpoint: str | os.PathLike[str] | None = None) -> int:
        """Complete the jobs that a stream holds, for the sink has them; rejected ones go to the dead table. Return how many left.

        A query that still reads the stream stops. With a checkpoint that has committed the batches it can start again.

        :param checkpoint: folder of the query's checkpoint, on this machine: only the batches in its commit log are completed.
            None: all held jobs are; check the sink first, a batch that was not written is lost.
        :raises StreamError: there is no such stream, or the folder is not a checkpoint with a committed batch.
        :raises CheckpointMismatchError: the checkpoint has not committed a batch of this stream.
        """
        arguments.name("name", name, STREAM_LENGTH)
        self._core.ready()
        offsets = None if checkpoint is None else committed(Path(checkpoint))
        if offsets is None:
            completed = self._core.run_reporting_deaths(Run("streams.complete_held"), streams.complete_held, name)
        else:
            completed = self._core.run_reporting_deaths(
                Run("streams.complete_committed"), streams.complete_committed, name, offsets
            )
        if completed is None:
            raise self._unknown(name)
        return completed

    def release(self, name: str) -> int:
        """Return the jobs that a stream holds to the queue; this does not count as an attempt; return how many.

        A query that still reads the stream stops, and its checkpoint is refused: start with a new one. Jobs that the query has
        already written (``Stream.maybe_written``) are done again, with a warning in the log; :meth:`complete` is for them.

        :raises NoSuchStreamError: there is no such stream.
        """
        arguments.name("name", name, STREAM_LENGTH)
        released, written = self._core.run(Run("release"), _release, name)
        if released is None:
            raise self._unknown(name)
        _warn(name, released, written)
        return released

    def expire(self) -> Names:
        """Release the streams without a reader for longer than their retention; return their names.

        A warning is logged for each stream that may have written jobs already: see :meth:`release`.
        """
        gone = []
        for name in self._core.read("streams.expired", streams.expired):
            _, released, written = self._core.run(Run("release_expired"), _release_expired, name)
            if released is not None:
                _warn(name, released, written)
                gone.append(name)
        return gone

    def _unknown(self, name: str) -> NoSuchStreamError:
        known = ", ".join(stream.name for stream in self.list()) or "none"
        return NoSuchStreamError(f"there is no stream {name!r}; known: {known}")


def committed(checkpoint: Path) -> list[streams.Offset]:
    """The offsets in the last batch that a Spark checkpoint has committed, of all its sources that may be queue_db streams.

    :raises StreamError: there are none.
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
            f"checkpoint={str(checkpoint)!r}: no batch of a queue_db stream was committed, so no batch is known to be written"
        )
    return found


def offsets_in(values: Iterable[Any]) -> Iterator[streams.Offset]:
    """The queue_db offsets in lines of Spark's offset log, also those that are text within JSON."""
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


def _release(tx: Transaction, name: str) -> tuple[int | None, int]:
    written = streams.maybe_written(tx, name)
    return streams.release(tx, name), written


def _release_expired(tx: Transaction, name: str) -> tuple[str, int | None, int]:
    written = streams.maybe_written(tx, name)
    return name, streams.release_expired(tx, name), written


def _warn(name: str, released: int, written: int) -> None:
    if released and written:
        log.warning(
            "stream %r released %d jobs; a query had up to %d of them and may have written them: they are done again",
            name,
            released,
            written,
        )
