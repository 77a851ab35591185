"""``db.streams``: who holds claimed jobs for a stream, and how to get them back."""

from __future__ import annotations

from queue_db.aio.running import run
from queue_db.streams import Names, Stream, Streams


class AsyncStreams:
    """The streams of one database. Readers make them; they stay."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    async def list(self, queue: str | None = None) -> list[Stream]:
        """All streams, or those of one queue, by name."""
        return await run(self._streams.list, queue)

    async def release(self, name: str) -> int:
        """Give the jobs that a stream holds back to the queue, not counted as an attempt; return how many.

        A query that still reads the stream stops, and its checkpoint is refused: go on with a new one.

        :raises StreamError: there is no such stream.
        """
        return await run(self._streams.release, name)

    async def expire(self) -> Names:
        """Release the streams that have had no reader for longer than their retention; return their names."""
        return await run(self._streams.expire)
