"""Notifications that wake waiting readers: of new messages of a feed."""

from __future__ import annotations

import hashlib

from queue_db.dialects.transactions import Sender
from queue_db.feeds.tables import feed_tables
from queue_db.store import Store, Transaction
from queue_db.store.wakeups import Notifications

#: Seconds between two notifications of one feed through the database. A reader that was just woken looks again after 10 ms, and
#: then after twice as long each time.
EVERY = 0.1


class FeedNotifications(Notifications):
    """Notifies the readers of feeds. Each feed has a channel of its own: who listens to one is not woken by the others."""

    every = EVERY

    def notify(self, tx: Sender, feed: str) -> None:
        """Its commit notifies those who wait, whenever the last one was: a caller's transaction may commit much later."""
        if tx.dialect.notifies:
            tx.dialect.notify(tx, self.channel_of(feed), feed)

    def channel_of(self, feed: str) -> str:
        """The database's channel for notifications of one feed; any name fits into its 63 characters."""
        table = feed_tables(self._tables).feeds.fullname
        return f"queue_db.feed.{hashlib.sha256(f'{table} {feed}'.encode()).hexdigest()[:32]}"


def notifications_of(store: Store) -> FeedNotifications:
    """Those of this store, in this process."""
    found: FeedNotifications | None = store.beside.get("feeds")
    if found is None:
        # Two threads may come here at once: the first one's stays.
        found = store.beside.setdefault("feeds", FeedNotifications(store.tables))
    return found


def wake_readers(tx: Transaction, *feeds: str) -> None:
    """Its commit wakes those who wait for messages of these feeds in other processes."""
    for feed in feeds:
        notifications_of(tx.store).notify(tx, feed)
