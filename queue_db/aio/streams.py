"""``db.streams``: who holds claimed jobs for a stream, how to get them back, and how to say that they are written."""

from __future__ import annotations

import os

from queue_db.aio.running import run
from queue_db.streams import Names, Stream, Streams


class AsyncStreams:
    """The streams of one database. Readers make them; they stay."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    async def list(self, queue: str | None = None) -> list[Stream]:
        """All streams, or those of one queue, by name."""
        return await run(self._streams.list, queue)

    async def complete(self, name: str, *, checkpoint: str | os.PathLike[str] | None = None) -> int:
        """The jobs that a stream holds are written: they leave the queue, those with a reason to the dead; return how many left.

        A query that still reads the stream stops. With a checkpoint that has committed the batches it can start again.

        :param checkpoint: folder of the query's checkpoint, on this machine: only what its commit log says is written leaves. None:
            all that is held is written, as you have seen in the sink. A batch that was not would be lost.
        :raises StreamError: there is no such stream, or the folder is no checkpoint with a committed batch.
        :raises CheckpointMismatchError: the checkpoint has not committed a batch of this stream.
        """
        return await run(self._streams.complete, name, checkpoint=checkpoint)

    async def release(self, name: str) -> int:
        """Give the jobs that a stream holds back to the queue, not counted as an attempt; return how many.

        A query that still reads the stream stops, and its checkpoint is refused: go on with a new one. What the query has written
        already (``Stream.maybe_written``) is done again: the log has a warning. :meth:`complete` is for what is written.

        :raises StreamError: there is no such stream.
        """
        return await run(self._streams.release, name)

    async def expire(self) -> Names:
        """Release the streams that have had no reader for longer than their retention; return their names.

        The log has a warning for each whose jobs may be written already: see :meth:`release`.
        """
        return await run(self._streams.expire)
