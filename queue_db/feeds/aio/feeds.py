# Generated from queue_db/feeds/feed.py, queue_db/feeds/registry.py. Do not change it: `make aio` writes it anew.
"""Feed, Feeds for asyncio."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from queue_db.aio.bases import Twin
from queue_db.concurrency.greenlets import joined, run
from queue_db.dialects.borrowed import AsyncUsing
from queue_db.feeds.aio.cursors import AsyncCursor, AsyncSharedCursor
from queue_db.feeds.aio.message_claims import AsyncMessageClaim
from queue_db.feeds.feed import Feed
from queue_db.feeds.message import ClaimInfo, CursorInfo, FeedInfo, FeedStats, Message, Page, SpanInfo
from queue_db.feeds.registry import Feeds, Infos, Verdicts
from queue_db.feeds.settings import FeedOrdering, OnTrimmed


class AsyncFeed(Twin[Feed]):
    """One feed. ``db.feed(name)`` returns it; it is created by the first verb that needs it.

    Readers do not take messages away: any number of them read all messages, each at its own position.
    """

    async def publish(
        self,
        kind: str,
        payload: Any = None,
        *,
        key: str | None = None,
        headers: Mapping[str, Any] | None = None,
        client: str | None = None,
        delay: float | None = None,
        expires_in: float | None = None,
        idempotency_key: str | None = None,
        using: AsyncUsing | None = None,
    ) -> str:
        """Publish one message; return its id: its position, or, where it has no number yet (``ranked``), a longer text.

        :meth:`get` and :meth:`delete` take both.

        :param key: what the message is about, such as ``order-7``.
        :param client: who publishes it; ``read(client=…, echo=False)`` leaves out a reader's own messages.
        :param delay: seconds before which it cannot be claimed; None: those that ``db.feeds.set`` gave the feed, or none. Only for
            a feed with claims, as ``expires_in``.
        :param expires_in: seconds after which it cannot be claimed any more and is deleted; 0: retention alone deletes it; None:
            the feed's, or 0.
        :param idempotency_key: a text that names this publish: a publish with the same key within a day does nothing and returns
            the same id.
        :param using: a connection or session with a transaction: the message is published when it commits.
        :raises IdempotencyKeyError: the key was used for another message.
        :raises ArgumentError: nothing was published.
        :raises PayloadError: nothing was published.
        """
        return await run(
            self._sync.publish,
            kind,
            payload,
            key=key,
            headers=headers,
            client=client,
            delay=delay,
            expires_in=expires_in,
            idempotency_key=idempotency_key,
            using=joined(using),
        )

    async def publish_many(
        self,
        messages: Iterable[Any],
        *,
        client: str | None = None,
        idempotency_key: str | None = None,
        using: AsyncUsing | None = None,
    ) -> list[str]:
        """Publish messages, all or none, in their order: ``(kind, payload)`` or ``(kind, payload, {"key": …, "headers": …})``.

        The options are ``key``, ``headers``, ``delay`` and ``expires_in`` of :meth:`publish`. Return their ids.

        :raises IdempotencyKeyError: the key was used for other messages.
        :raises ArgumentError: nothing was published.
        :raises PayloadError: nothing was published.
        """
        return await run(self._sync.publish_many, messages, client=client, idempotency_key=idempotency_key, using=joined(using))

    async def read(
        self,
        after: str | None = None,
        limit: int = 100,
        *,
        kinds: Iterable[str] | None = None,
        client: str | None = None,
        echo: bool = True,
        hidden: bool = True,
        on_trimmed: OnTrimmed = "raise",
    ) -> Page:
        """Up to ``limit`` messages after a position, in order. Nothing at or before ``page.position`` is ever published later.

        With ``kinds``, ``echo`` or ``hidden`` a page may be empty and others follow: go on while ``page.behind`` is not 0.

        :param after: a position; None: from the first message that is there.
        :param kinds: only messages of these kinds.
        :param client: the reader's own name, for ``echo=False``: leave out the messages that it published.
        :param hidden: False: leave out messages that are claimed, delayed or expired now; the position passes them all the same.
        :param on_trimmed: ``raise``, or ``skip`` messages that retention has deleted: ``page.skipped`` has their number.
        :raises TrimmedError: messages after the position were trimmed.
        :raises PositionError: it is a position of another feed, database or epoch.
        """
        return await run(self._sync.read, after, limit, kinds=kinds, client=client, echo=echo, hidden=hidden, on_trimmed=on_trimmed)

    async def get(self, positions: Message | str | Iterable[Message | str]) -> list[Message]:
        """The messages with these ids or positions (``message.position``) that are there, in the order of the feed; up to 10,000.

        :raises TransientStorageError: one of them has no number yet, and another process is numbering: try again.
        :raises PositionError: it is a position of another feed, database or epoch.
        """
        return await run(self._sync.get, positions)

    async def start(self) -> str:
        """The position before the first message that is there."""
        return await run(self._sync.start)

    async def end(self) -> str:
        """The position after the last message: a reader that begins here gets what is published from now on.

        And, if another process is numbering messages at this moment, or this one may not, maybe some of these.
        """
        return await run(self._sync.end)

    async def rank(self) -> int:
        """Number the messages that wait for it now, as publishers and readers do by themselves; return how many.

        It ends although others go on publishing. A few of theirs may be among those that it numbers.
        """
        return await run(self._sync.rank)

    async def trim(self) -> int:
        """Delete the messages that retention does not keep; return how many.

        Workers do so once a minute, and so do publishers, but not those that publish with ``using=`` only.

        :raises NoSuchFeedError: there is no such feed.
        """
        return await run(self._sync.trim)

    async def claim(self, limit: int = 10, *, lease: float = 300.0, grace: float = 60.0) -> AsyncMessageClaim | None:
        """Claim the first messages that are free, up to ``limit``: nobody else can until the claim ends. None: none is free.

        A message that was claimed ``max_attempts`` times and not deleted becomes a dead job of the queue with the feed's name.

        :param limit: messages, at most 1000.
        :param lease: seconds until others can claim those that are not deleted; :meth:`MessageClaim.extend` extends them.
        :param grace: seconds after the end of the claim before which none of the messages expires.
        :raises FeedError: the feed was made without claims.
        """
        found = await run(self._sync.claim, limit, lease=lease, grace=grace)
        return None if found is None else AsyncMessageClaim(found)

    async def pop(self, limit: int = 1, *, using: AsyncUsing | None = None) -> list[Message]:
        """Delete the first messages that are free, up to ``limit``, and return them: at most once, if this process dies.

        :param using: a connection or session with a transaction: they are deleted when it commits, together with the effect, and
            free again if it does not.
        :raises FeedError: the feed was made without claims.
        """
        return await run(self._sync.pop, limit, using=joined(using))

    async def find_claim(self, claim: str) -> AsyncMessageClaim:
        """A claim by its id, with the messages that are left of it.

        :raises UnknownClaimError: there is none, or others have claimed all its messages.
        :raises ClaimExpiredError: it has ended.
        """
        found = await run(self._sync.find_claim, claim)
        return AsyncMessageClaim(found)

    async def claims(self) -> list[ClaimInfo]:
        """The claims that have not ended; those that end first come first.

        :raises FeedError: the feed was made without claims.
        """
        return await run(self._sync.claims)

    async def delete(
        self, messages: Message | str | Iterable[Message | str], *, claim: str | None = None, using: AsyncUsing | None = None
    ) -> int:
        """Delete messages, or those with these positions, up to 10,000, for all readers; all or none. Return how many.

        :param claim: the id of the claim that has them. Without it messages are deleted that nobody has claimed now, and those
            that are gone are passed over.
        :param using: a connection or session with a transaction: they are deleted when it commits.
        :raises MessageClaimedError: one of them is claimed, and there is no ``claim``.
        :raises MessageNotClaimedError: the claim does not have one of them.
        :raises ClaimExpiredError: the claim has ended.
        :raises UnknownClaimError: there is no such claim.
        :raises PositionError: it is a position of another feed, database or epoch.
        """
        return await run(self._sync.delete, messages, claim=claim, using=joined(using))

    async def stats(self) -> FeedStats:
        """Count the messages: free, claimed and delayed; the oldest and the newest of them.

        :raises FeedError: the feed was made without claims.
        """
        return await run(self._sync.stats)

    async def cursor(
        self, name: str, *, start: str = "start", lease: float = 30.0, take_over: bool = False, on_trimmed: OnTrimmed = "raise"
    ) -> AsyncCursor:
        """Open a durable cursor: one process holds it, reads on from its position, and acknowledges what it has done.

        Use it in a ``with`` block, which ends the hold.

        :param start: where a new cursor begins: ``start``, ``end``, or a position.
        :param lease: seconds without a read or acknowledgement after which another process may open it.
        :param take_over: open it although another process holds it; that one's next acknowledgement is LOST.
        :raises CursorHeldError: another process holds it.
        """
        found = await run(self._sync.cursor, name, start=start, lease=lease, take_over=take_over, on_trimmed=on_trimmed)
        return AsyncCursor(found)

    async def resume(self, name: str, generation: int, *, lease: float = 30.0, on_trimmed: OnTrimmed = "raise") -> AsyncCursor:
        """The open cursor that has this ``cursor.generation``, in any process: what it reads next follows what was acknowledged.

        :param lease: seconds without a read or acknowledgement after which another process may open it.
        :raises LeaseLostError: another process has opened the cursor, or it was closed, moved or deleted.
        """
        found = await run(self._sync.resume, name, generation, lease=lease, on_trimmed=on_trimmed)
        return AsyncCursor(found)

    async def forward(
        self,
        cursor: str,
        queue: str,
        *,
        kind: str | None = None,
        group: bool | str = False,
        limit: int = 100,
        idle: float | None = 0.0,
        start: str = "start",
        lease: float = 30.0,
        take_over: bool = False,
        on_trimmed: OnTrimmed = "raise",
    ) -> int:
        """Enqueue a job for each message after the position of a cursor, each once; return how many.

        The jobs and the position are committed together, ``limit`` messages at a time.

        :param cursor: its name; one process at a time forwards by it. ``start``, ``lease``, ``take_over`` and ``on_trimmed`` are
            those of :meth:`cursor`.
        :param queue: where the jobs go, with the payloads and headers of the messages.
        :param kind: of the jobs; None: that of each message.
        :param group: True: messages with the same key become one group of jobs, which run in the order of the feed. A text: all
            jobs are of this group.
        :param limit: most messages in one transaction.
        :param idle: seconds to wait for another message; 0: end when none is left; None: never end.
        :raises CursorHeldError: another process holds the cursor.
        :raises LeaseLostError: another process has opened the cursor, or it was moved or deleted. What was committed stays.
        :raises TrimmedError: messages were trimmed before they were forwarded.
        """
        return await run(
            self._sync.forward,
            cursor,
            queue,
            kind=kind,
            group=group,
            limit=limit,
            idle=idle,
            start=start,
            lease=lease,
            take_over=take_over,
            on_trimmed=on_trimmed,
        )

    async def shared(
        self, name: str, *, queue: str | None = None, max_attempts: int = 3, start: str = "start", on_trimmed: OnTrimmed = "raise"
    ) -> AsyncSharedCursor:
        """Open a cursor that any number of consumers share: each claims spans of messages, and each message is for one of them.

        :param queue: where messages that fail become jobs; default: the queue with the cursor's name.
        :param max_attempts: a span that was claimed this often and not completed becomes single jobs at its next claim.
        :param start: where a new cursor begins: ``start``, ``end``, or a position.
        :param on_trimmed: what a claim does where messages were trimmed before: ``raise``, or ``skip`` them.
        :raises FeedError: the cursor is one for a single holder.
        """
        found = await run(self._sync.shared, name, queue=queue, max_attempts=max_attempts, start=start, on_trimmed=on_trimmed)
        return AsyncSharedCursor(found)

    async def cursors(self) -> list[CursorInfo]:
        """The cursors of this feed, by name."""
        return await run(self._sync.cursors)

    async def spans(self, cursor: str) -> list[SpanInfo]:
        """The open spans of a shared cursor, by number.

        :raises FeedError: there is no such cursor, or it is not shared.
        """
        return await run(self._sync.spans, cursor)

    async def seek(self, name: str, position: str) -> None:
        """Move a cursor, forwards or back; a process that holds it, or spans of it, loses them.

        :param position: ``start``, ``end`` or a position.
        :raises NoSuchFeedError: there is no such feed.
        :raises NoSuchCursorError: it has no such cursor.
        :raises PositionError: the feed cannot be read from there.
        """
        await run(self._sync.seek, name, position)

    async def remove_cursor(self, name: str) -> bool:
        """Delete a cursor, so that retention does not wait for it; False: there is none.

        :raises NoSuchFeedError: there is no such feed.
        """
        return await run(self._sync.remove_cursor, name)


class AsyncFeeds(Twin[Feeds]):
    """The feeds of one database. They are created by their first use; :meth:`set` creates one with other settings."""

    async def list(
        self, feeds: Sequence[str] | None = None, *, after: str | None = None, limit: int | None = None
    ) -> list[FeedInfo]:
        """The feeds by name, of these or of all.

        :param after: the name of the last feed of the previous page.
        :param limit: most feeds.
        """
        return await run(self._sync.list, feeds, after=after, limit=limit)

    async def set(
        self,
        name: str,
        *,
        ordering: FeedOrdering | None = None,
        keep_for: float | None = None,
        keep_rows: int | None = None,
        keep_unread: int | None = None,
        claims: bool | None = None,
        max_attempts: int | None = None,
        delay: float | None = None,
        expires_in: float | None = None,
    ) -> None:
        """Create the feed with these settings, or change them. What is None stays as it is.

        :param ordering: ``ranked`` (default on servers): publishers never wait for each other, and messages get their numbers
            right after the commit. ``counter`` (default on SQLite): publishers of the feed wait for each other's commit.
            Only a new feed takes it.
        :param keep_for: seconds for which messages are kept; 0: without limit. A new feed keeps them for a week.
        :param keep_rows: number of messages that are kept; 0: without limit, as for a new feed.
        :param keep_unread: most messages that are kept longer for cursors that have not acknowledged them: 1,000,000 for a new
            feed; 0: retention does not wait for cursors. Messages that are claimed or delayed
            now count as unread.
        :param claims: True: consumers can claim messages and delete them. Only a new feed takes it.
        :param max_attempts: a message that was claimed this often and not deleted becomes a dead job at its next claim; 0: never
            (a new feed).
        :param delay: seconds before which a message cannot be claimed that is published without a ``delay``; 0: none (a new feed).
        :param expires_in: seconds after which a message expires that is published without ``expires_in``; 0: never (a new feed).
            Other processes use a new ``delay`` and ``expires_in`` within a second.
        :raises NoSuchFeedError: there is no such feed, and these settings cannot make one.
        :raises FeedError: the feed exists and has another ordering, or has no claims, or has them.
        """
        await run(
            self._sync.set,
            name,
            ordering=ordering,
            keep_for=keep_for,
            keep_rows=keep_rows,
            keep_unread=keep_unread,
            claims=claims,
            max_attempts=max_attempts,
            delay=delay,
            expires_in=expires_in,
        )

    async def cursors(self, name: str | None = None, *, feeds: Sequence[str] | None = None) -> Infos:
        """The cursors of all feeds, by feed and name.

        :param name: only those with this name, such as all of a member of several chats.
        :param feeds: only those of these feeds.
        """
        return await run(self._sync.cursors, name, feeds=feeds)

    async def ack(self, name: str, upto: Iterable[Message | str]) -> Verdicts:
        """Acknowledge messages of several feeds at once, each with all before it, whoever holds the cursors; none moves back.

        :param name: of the cursors, one in each of the feeds.
        :param upto: messages or positions; of those of one feed the last one counts.
        :return: for each of them, APPLIED or LOST: its feed has no such cursor, a shared one, or other messages since a purge.
        :raises PositionError: one is ahead of its feed; nothing was changed.
        """
        return await run(self._sync.ack, name, upto)

    async def purge(self, name: str) -> int:
        """Delete all messages of a feed; return how many. Cursors go on after them and lose their holders; positions are refused.

        :raises NoSuchFeedError: there is no such feed.
        """
        return await run(self._sync.purge, name)

    async def delete(self, name: str) -> bool:
        """Delete a feed with its messages and cursors; False: there is none.

        It waits for open transactions that have published to it; those that publish later publish to a new feed with this name.
        """
        return await run(self._sync.delete, name)

    async def restored(self) -> int:
        """Call this once after the database was restored from a backup: holders lose their cursors, earlier positions are refused.

        Without it a reader whose position is newer than the backup would miss the messages that take the same numbers again.
        Return the number of feeds.
        """
        return await run(self._sync.restored)
