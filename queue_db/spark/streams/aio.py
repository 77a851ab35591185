# Generated from queue_db/spark/streams/registry.py. Do not change it: `make aio` writes it anew.
"""Streams for asyncio."""

from __future__ import annotations

import os

from queue_db.aio.bases import Twin
from queue_db.concurrency.greenlets import run
from queue_db.spark.streams.registry import Names, Stream, Streams


class AsyncStreams(Twin[Streams]):
    """The streams of one database. Readers create them; they stay."""

    async def list(self, queue: str | None = None) -> list[Stream]:
        """All streams, or those of one queue, by name."""
        return await run(self._sync.list, queue)

    async def complete(self, name: str, *, checkpoint: str | os.PathLike[str] | None = None) -> int:
        """Complete the jobs that a stream holds, for the sink has them; rejected ones go to the dead table. Return how many left.

        A query that still reads the stream stops. With a checkpoint that has committed the batches it can start again.

        :param checkpoint: folder of the query's checkpoint, on this machine: only the batches in its commit log are completed.
            None: all held jobs are; check the sink first, a batch that was not written is lost.
        :raises StreamError: there is no such stream, or the folder is not a checkpoint with a committed batch.
        :raises CheckpointMismatchError: the checkpoint has not committed a batch of this stream.
        """
        return await run(self._sync.complete, name, checkpoint=checkpoint)

    async def release(self, name: str) -> int:
        """Return the jobs that a stream holds to the queue; this does not count as an attempt; return how many.

        A query that still reads the stream stops, and its checkpoint is refused: start with a new one. Jobs that the query has
        already written (``Stream.maybe_written``) are done again, with a warning in the log; :meth:`complete` is for them.

        :raises NoSuchStreamError: there is no such stream.
        """
        return await run(self._sync.release, name)

    async def expire(self) -> Names:
        """Release the streams without a reader for longer than their retention; return their names.

        A warning is logged for each stream that may have written jobs already: see :meth:`release`.
        """
        return await run(self._sync.expire)
