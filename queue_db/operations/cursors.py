"""Operations on the cursors of feeds."""

from __future__ import annotations

from queue_db.db import QueueDB
from queue_db.operations import rights
from queue_db.operations.actor import Actor
from queue_db.operations.entry import entry


def seek(db: QueueDB, actor: Actor, feed: str, cursor: str, position: str) -> None:
    """Move a cursor, forwards or back; a process that holds it, or spans of it, loses them.

    :param position: ``start``, ``end`` or a position.
    :raises NoSuchFeedError: there is no such feed.
    :raises NoSuchCursorError: it has no such cursor.
    """
    actor.check("manage", feed)
    rights.feed(db, feed)
    with entry(db, actor, "seek", f"cursor {cursor} of feed {feed}", detail={"position": position}, of="feeds.seek"):
        db.feed(feed).seek(cursor, position)


def remove(db: QueueDB, actor: Actor, feed: str, cursor: str) -> bool:
    """Delete a cursor, so that retention does not wait for it; False: there is none.

    :raises NoSuchFeedError: there is no such feed.
    """
    actor.check("manage", feed)
    rights.feed(db, feed)
    with entry(db, actor, "remove", f"cursor {cursor} of feed {feed}", of="feeds.remove"):
        return db.feed(feed).remove_cursor(cursor)
