"""One reader of a feed for all triggers of a triggerer that watch it; each trigger keeps its own position, in a cursor.

Airflow runs the reader (``open_stream``), hands each page to every trigger, and says when the events that the triggers made of it
are in its database (``advance``). Only then the cursors move.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Hashable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

from queue_db.aio import AsyncCursor
from queue_db.contrib.airflow.connections import database
from queue_db.contrib.airflow.outages import Outage
from queue_db.errors import FeedError, StorageError
from queue_db.feeds import Message

#: Messages of a page.
PAGE = 100

#: Pages whose events are not stored yet. Airflow fails a trigger that is behind by 1024 pages.
MOST_PAGES = 10

log = logging.getLogger("queue_db.airflow")


@dataclass(eq=False)
class Watcher:
    """A trigger that takes part in a stream.

    :ivar seen: the number of the last message that it was given.
    :ivar replaced: a later trigger of this process has opened the same cursor.
    """

    cursor: AsyncCursor
    name: str
    seen: int
    new: bool = True
    replaced: bool = False

    async def acknowledge(self, message: Message) -> None:
        """Move the cursor.

        :raises FeedError: it was lost.
        """
        if self.replaced or self.cursor.seq >= message.seq:
            return
        if not await self.cursor.ack(message):
            raise FeedError(
                f"cursor {self.name!r} of feed {message.feed!r} was lost: it was moved or deleted, or another trigger or triggerer "
                "has opened it. Give each trigger a cursor of its own; the triggers start again from their cursors"
            )


@dataclass(frozen=True, eq=False)
class Broadcast:
    """A page of messages, and the triggers that it is for."""

    messages: Sequence[Message]
    watchers: Sequence[Watcher]

    def new_to(self, watcher: Watcher) -> list[Message]:
        """Its messages that a trigger has not seen; from now on it has.

        :raises FeedError: another trigger has opened its cursor.
        """
        if watcher.replaced:
            raise FeedError(f"two triggers have the cursor {watcher.name!r}: give each one a cursor of its own")
        if watcher not in self.watchers:
            # The page was read before the trigger joined. The reader goes back to its position.
            return []
        return [message for message in self.messages if message.seq > watcher.seen]

    def passed(self, watcher: Watcher) -> None:
        """A trigger has made all its events of this page. One that is cancelled between two of them has not."""
        if watcher in self.watchers:
            watcher.seen = max(watcher.seen, self.messages[-1].seq)


@dataclass(eq=False)
class Watchers:
    """The triggers of one stream, by cursor."""

    by_cursor: dict[str, Watcher] = field(default_factory=dict)
    #: Wakes the reader.
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @contextmanager
    def joined(self, cursor: AsyncCursor, name: str) -> Iterator[Watcher]:
        """Take part with an open cursor."""
        if name in self.by_cursor:
            self.by_cursor[name].replaced = True
        watcher = self.by_cursor[name] = Watcher(cursor, name, cursor.seq)
        self.changed.set()
        try:
            yield watcher
        finally:
            if self.by_cursor.get(name) is watcher:
                del self.by_cursor[name]

    def newcomers(self) -> list[Watcher]:
        """Those that have joined since the last call."""
        found = [watcher for watcher in self.by_cursor.values() if watcher.new]
        for watcher in found:
            watcher.new = False
        return found

    def established(self) -> tuple[Watcher, ...]:
        """Those whose positions the reader knows. Who has joined since the page was asked for may need earlier messages first."""
        return tuple(watcher for watcher in self.by_cursor.values() if not watcher.new)


_STREAMS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, Watchers]] = WeakKeyDictionary()


def watchers_of(stream: Hashable) -> Watchers:
    """The triggers of a stream on the running event loop."""
    return _STREAMS.setdefault(asyncio.get_running_loop(), {}).setdefault(stream, Watchers())


class FeedReader(SharedStreamProducer):
    """Reads a feed, from the earliest position of the triggers that watch it.

    :param stream: the key of the stream.
    :param poll: seconds between two looks at the feed while nothing is published.
    """

    def __init__(self, stream: Hashable, conn_id: str, feed: str, poll: float) -> None:
        self._conn_id = conn_id
        self._feed = feed
        self._poll = poll
        self._watchers = watchers_of(stream)
        self._pages = 0
        self._opened = AsyncExitStack()

    async def open_stream(self) -> AsyncIterator[tuple[Broadcast, Broadcast]]:
        """Pages, each with itself as what :meth:`advance` gets.

        :raises StorageError: the database has not answered for ten minutes, or refuses the login or the tables.
        """
        # Open until aclose: Airflow still calls advance when this has ended, and the last trigger has left.
        db = await self._opened.enter_async_context(database(self._conn_id))
        feed = db.feed(self._feed)
        outage = Outage(f"feed {self._feed!r}", self._poll)
        reached, position = 0, ""
        while True:
            self._watchers.changed.clear()
            for watcher in self._watchers.newcomers():
                if not position or watcher.cursor.seq < reached:
                    reached, position = watcher.cursor.seq, watcher.cursor.position
            if not position or self._pages >= MOST_PAGES:
                await self._watchers.changed.wait()
                continue
            try:
                page = await feed.read(position, PAGE, on_trimmed="skip")
            except StorageError as error:
                await asyncio.sleep(outage.pause(error))
                continue
            outage.over()
            if page.skipped:
                log.warning("feed %r: %d messages were deleted before they were read", self._feed, page.skipped)
            position = page.position
            if page.messages:
                reached = page.messages[-1].seq
                self._pages += 1
                broadcast = Broadcast(page.messages, self._watchers.established())
                yield broadcast, broadcast
            elif not page.behind:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._poll):
                        await self._watchers.changed.wait()

    async def aclose(self) -> None:
        """Close the database, unless others use it."""
        await self._opened.aclose()

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Acknowledge pages whose events Airflow has stored.

        :raises FeedError: the events of some trigger are not stored, or a cursor was lost; what comes before them, and the other
            cursors, are acknowledged. Airflow then ends the stream, and starts the triggers again, which read again what is not.
        """
        reached: dict[Watcher, Message] = {}
        wrong: list[FeedError] = []
        for broadcast, outcome in batch:
            if missing := outcome.failed + outcome.rejected:
                # Airflow does not say which triggers: nobody's cursor may pass this page.
                wrong.append(FeedError(f"feed {self._feed!r}: {missing} triggers have not stored their events"))
                break
            last = broadcast.messages[-1]
            # A trigger that ended just before the page was handed out was not given it.
            reached.update((watcher, last) for watcher in broadcast.watchers if watcher.seen >= last.seq)
        for watcher, last in reached.items():
            try:
                await watcher.acknowledge(last)
            except FeedError as error:
                wrong.append(error)
        if wrong:
            raise wrong[0]
        self._pages -= len(batch)
        self._watchers.changed.set()
