# Generated from queue_db/feeds/cursor.py, queue_db/feeds/shared.py. Do not change it: `make aio` writes it anew.
"""Cursor, SharedCursor, Span for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterable

from queue_db.aio.bases import Twin
from queue_db.concurrency.greenlets import joined, run
from queue_db.dialects.borrowed import AsyncUsing
from queue_db.feeds.aio.bases import CursorTwin, SpanTwin
from queue_db.feeds.message import Message, SpanInfo
from queue_db.feeds.shared import SharedCursor
from queue_db.feeds.waiting import LONGEST_LOOK
from queue_db.model import Verdict


class AsyncCursor(CursorTwin):
    """An open cursor. Not for several threads at once.

    A message is delivered again if its process ends before it acknowledged it: at least once. With ``ack(using=…)`` the effect of
    a message and its acknowledgement are one transaction.
    """

    @property
    def skipped(self) -> int:
        """Messages that were trimmed before this cursor read them (``on_trimmed="skip"``)."""
        return self._sync.skipped

    @property
    def position(self) -> str:
        """The position after the last message that was acknowledged here."""
        return self._sync.position

    @property
    def generation(self) -> int:
        """The number of this opening of the cursor. :meth:`Feed.resume <queue_db.Feed.resume>` takes it."""
        return self._sync.generation

    async def read(self, limit: int = 100) -> list[Message]:
        """The next messages, up to ``limit``, whether or not the earlier ones are acknowledged; empty: there are none yet.

        :raises LeaseLostError: another process has opened the cursor, or it was moved or deleted.
        :raises TrimmedError: messages were trimmed before they were read.
        """
        return await run(self._sync.read, limit)

    async def follow(self, *, limit: int = 100, idle: float | None = None, poll: float = LONGEST_LOOK) -> AsyncIterator[Message]:
        """The messages one after the other, waiting for new ones; without ``idle`` it never ends.

        With psycopg2 and asyncpg publishers notify it, on a connection of its own or, with asyncpg, of the event loop; and with all
        drivers those of this object. Other messages are found by looks.

        :param limit: messages read at once.
        :param idle: seconds without a new message after which it ends.
        :param poll: most seconds between two looks at the feed while it waits.
        :raises LeaseLostError: another process has opened the cursor, or it was moved or deleted; after an acknowledgement that
            was LOST, in place of the next message.
        """
        found = self._sync.follow(limit=limit, idle=idle, poll=poll)
        try:
            while (each := await run(next, found, None)) is not None:
                yield each
        finally:
            if isinstance(found, Generator):
                await run(found.close)

    async def ack(self, upto: Message | str, *, using: AsyncUsing | None = None) -> Verdict:
        """Acknowledge a message (or a position) and all before it. It never moves back.

        :param using: a connection or session with a transaction: the cursor moves when it commits, together with the effect.
        :return: LOST if another process has opened the cursor, or it was moved or deleted: nothing changed. Within a transaction,
            ``.require()`` rolls the effect back.
        :raises PositionError: it is a position of another feed, or ahead of the feed.
        """
        return await run(self._sync.ack, upto, using=joined(using))

    async def extend(self) -> None:
        """Extend the hold by the lease, as reading does by itself.

        :raises LeaseLostError: another process has opened the cursor, or it was moved or deleted.
        """
        await run(self._sync.extend)

    async def close(self) -> None:
        """End the hold; the position stays."""
        await run(self._sync.close)


class AsyncSharedCursor(Twin[SharedCursor]):
    """A cursor that consumers share. Safe to share between threads; processes open it by its name.

    A span that is not completed before its lease ends is claimed again by another consumer: each message at least once. With
    ``complete(using=…)`` the effect of a message and its completion are one transaction.
    """

    @property
    def skipped(self) -> int:
        """Messages that were trimmed before a consumer of this object claimed them (``on_trimmed="skip"``)."""
        return self._sync.skipped

    async def claim(self, limit: int = 100, *, lease: float = 60.0) -> AsyncSpan | None:
        """Claim the next messages, up to ``limit``, or a span whose lease has ended; None: there is nothing to do now.

        It does not touch the messages: a claim of 10 costs as much as one of 1000. An expired span comes first, whatever its size.

        :param limit: messages, at most 10,000.
        :param lease: seconds until another consumer may claim the span; :meth:`Span.extend` extends them.
        :raises TrimmedError: messages were trimmed before they were claimed.
        :raises NoSuchCursorError: the cursor or its feed was deleted.
        """
        found = await run(self._sync.claim, limit, lease=lease)
        return None if found is None else AsyncSpan(found)

    async def spans(self) -> list[SpanInfo]:
        """The open spans, by number."""
        return await run(self._sync.spans)


class AsyncSpan(SpanTwin):
    """A claimed span of messages. Safe to share between threads.

    Its verbs return APPLIED, or LOST if its lease ended and another consumer has claimed it: then nothing was changed.

    :ivar messages: those that were not settled before it was claimed, by number.
    :ivar attempts: how often it was claimed, from 1.
    """

    @property
    def fence(self) -> str:
        """``id:version`` for outside systems: refuse a request with a lower version than you have seen for this id."""
        return self._sync.fence

    async def complete(self, messages: Message | Iterable[Message] | None = None, *, using: AsyncUsing | None = None) -> Verdict:
        """These messages are done; without ``messages`` all that are left, and the span ends.

        :param using: a connection or session with a transaction: they are done when it commits, together with the effect. Then call
            ``.require()`` on the verdict, so that a lost span rolls back the effect.
        :return: LOST also if one of the messages was completed, or became a job, before.
        """
        return await run(self._sync.complete, messages, using=joined(using))

    async def fail(
        self, message: Message, error: BaseException | str, retry_in: float | None = None, *, using: AsyncUsing | None = None
    ) -> Verdict:
        """The message could not be done: it becomes a job, with its kind, payload and headers, and its key as group.

        This was the first attempt of the job; it is due after ``retry_in`` seconds or the backoff. The others stay in the span.

        :return: LOST also if the message was completed, or became a job, before.
        """
        return await run(self._sync.fail, message, error, retry_in, using=joined(using))

    async def extend(self, seconds: float) -> Verdict:
        """Extend the lease to ``seconds`` from now."""
        return await run(self._sync.extend, seconds)

    async def release(self) -> Verdict:
        """Let another consumer have what is left at once; this does not count as an attempt."""
        return await run(self._sync.release)
