"""Publishing: messages of one caller, or of several at the same time, and what comes after the commit."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from queue_db import arguments
from queue_db.concurrency.batching import Batcher
from queue_db.database.transaction import Run
from queue_db.dialects.borrowed import Using
from queue_db.dialects.transactions import savepoint
from queue_db.errors import FeedError, StorageError, TransientStorageError, asking
from queue_db.feeds.building import MessageBuilder
from queue_db.feeds.notifications import notifications_of, wake_readers
from queue_db.feeds.position import Position, Unnumbered
from queue_db.feeds.retention import trim_once
from queue_db.feeds.settings import defaults, ordering_of
from queue_db.feeds.store import messages, publishes, rows
from queue_db.feeds.store.messages import First, NewMessage
from queue_db.feeds.store.publishes import Keyed
from queue_db.feeds.store.rows import FeedRow
from queue_db.store import Transaction

if TYPE_CHECKING:
    from queue_db.feeds.feed import Feed

log = logging.getLogger("queue_db.feeds")

# One statement; a reader that misses it looks by itself.
_NOTIFY = Run("notify", attempts=1, lazy=True)

# A second run with the same key publishes nothing.
_KEYED = Run(name="publish", repeatable=True)


# How many feeds of one name a publisher tries that are deleted before it publishes to them.
_NAMESAKES = 5

# Seconds between two times that this process numbers the messages of a feed after its publishes. Every reader numbers what it is
# about to read, so this only keeps the inbox short where nobody reads; after each publish it would cost more than the publish.
_RANK_EVERY = 1.0

# Seconds between two trims of a feed by its publishers.
_TRIM_EVERY = 60.0


class Publisher:
    """Publishes to one feed, from one process."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._builder = MessageBuilder(feed.core, feed.name, delays=True)
        self._batcher = Batcher(self._publish_all, callers=feed.core.database.callers(), size=_size)
        self._rank_at = 0.0
        self._trim_at = self._forget_at = time.monotonic() + _TRIM_EVERY

    def publish(
        self, new_messages: Iterable[Any], client: str | None, using: Using | None, idempotency_key: str | None
    ) -> list[str]:
        """Publish messages, all or none; return their ids."""
        listed = arguments.members("messages", new_messages, "messages")
        new = self._builder.with_uids(self._builder.messages(listed, client))
        if not new:
            return []
        if idempotency_key is not None:
            return self._publish_once(new, using, self._builder.keyed(f"feed {self._feed.name}", idempotency_key, listed, client))
        if using is not None:
            with self._feed.core.joined(using, "publish") as tx:
                row, first = self._publish_within(tx, new)
        else:
            # The listeners of an application's engine may set something of the current thread for its transaction.
            coalesces = ordering_of(self._feed.row()).coalesces and self._feed.core.database.made_here
            row, first = self._batcher.submit(new) if coalesces else self._publish(new)
            self.after_publish(row)
        return _ids(row, first, new)

    def _publish_once(self, new: Sequence[NewMessage], using: Using | None, keyed: Keyed) -> list[str]:
        """Publish, unless this was published before with the same key."""

        def publish(tx: Transaction) -> list[str]:
            def first_time() -> list[str]:
                return _ids(*self._publish_within(tx, new), new)

            ids: list[str] = publishes.once(tx, keyed, first_time)
            return ids

        if using is not None:
            # A savepoint: in a transaction that goes on after an error the key is not used.
            with self._feed.core.joined(using, "publish") as tx, savepoint(tx.connection):
                return publish(tx)
        ids = self._feed.core.run(_KEYED, publish)
        self.after_publish()
        if time.monotonic() >= self._forget_at:
            self._forget_at = time.monotonic() + _TRIM_EVERY
            try:
                self._feed.core.write("feeds.prune", publishes.prune, limit=messages.TRIMMED_AT_ONCE)
            except StorageError as error:  # what was published is committed
                log.warning("feed %r: old idempotency keys were not deleted; a later publish does it: %s", self._feed.name, error)
        return ids

    def _publish_all(self, parts: Sequence[Sequence[NewMessage]]) -> list[tuple[FeedRow, First | None]]:
        """Publish what several callers publish at the same time, in one transaction; the answer for each."""
        row, first = self._publish([message for new in parts for message in new])
        before = accumulate(map(len, parts), initial=0)
        return [(row, None if first is None else first._replace(seq=first.seq + at)) for at, _ in zip(before, parts, strict=False)]

    def _publish(self, new: Sequence[NewMessage]) -> tuple[FeedRow, First | None]:
        for _ in range(_NAMESAKES):
            row = self._feed.row()
            try:
                return row, self._feed.core.run(Run("publish"), _publish, row, new)
            except LookupError:
                # It was deleted: the name stands for a new feed now.
                self._feed.forget()
        raise TransientStorageError(f"feed {self._feed.name!r} is deleted again and again: nothing was published")

    def _publish_within(self, tx: Transaction, new: Sequence[NewMessage]) -> tuple[FeedRow, First | None]:
        # In the same transaction: another connection could wait for it, as on SQLite.
        for known in (self._feed.known(), None):
            row = known or rows.create(tx, self._feed.name, defaults(self._feed.core))
            try:
                first = _publish(tx, row, new)
            except LookupError:
                self._feed.forget()
                continue
            wake_readers(tx, self._feed.name)
            return row, first
        raise TransientStorageError(
            f"feed {self._feed.name!r} was deleted after this transaction had begun, and its isolation level still shows it: "
            "run it again"
        )

    def after_publish(self, row: FeedRow | None = None) -> None:
        """Notify readers; number and trim now and then. The messages are committed: an error is logged and not raised."""
        notifications = notifications_of(self._feed.core.store)
        try:
            row = row or self._feed.row()
            now = time.monotonic()
            if now >= self._rank_at:
                self._rank_at = now + _RANK_EVERY
                self._feed.rank_once(row)
            if self._feed.core.store.dialect.notifies and notifications.due(self._feed.name):
                # Not in the publisher's transaction: PostgreSQL commits those that notify one after the other, and this one need
                # not wait for the disk.
                self._feed.core.run(_NOTIFY, wake_readers, self._feed.name)
            if now >= self._trim_at:
                self._trim_at = now + _TRIM_EVERY
                if trim_once(self._feed.core, row) >= messages.at_once(row):
                    self._trim_at = now  # there may be more
        except StorageError as error:
            log.warning(
                "feed %r: messages were published, but not numbered or trimmed; the next reader or publisher does it: %s",
                self._feed.name,
                error,
            )
        try:
            notifications.wake(self._feed.name)
        except Exception:
            log.exception("feed %r: messages were published, but not all readers in this process were notified", self._feed.name)


def _ids(row: FeedRow, first: First | None, new: Sequence[NewMessage]) -> list[str]:
    """The positions of the messages, or what they are found by until they have one."""
    if first is None:
        return [str(Unnumbered(row.token, row.epoch, row.next_seq, one.uid or 0)) for one in new]
    return [str(Position(row.token, first.epoch, first.seq + at)) for at in range(len(new))]


def _size(new: Sequence[NewMessage]) -> tuple[int, int]:
    """Rows and characters of some messages."""
    return len(new), sum(len(one.payload) + len(one.headers or "") for one in new)


def _publish(tx: Transaction, row: FeedRow, new: Sequence[NewMessage]) -> First | None:
    if row.max_attempts is None and any(one.delay or one.lifetime for one in new):
        nothing = f"feed {row.name!r} was made without claims, so delay and expires_in mean nothing to it: "
        raise FeedError(**asking(f"{nothing}make a feed of another name with ", "claims"))
    return ordering_of(row).append(tx, row, messages.timed(row, new))
