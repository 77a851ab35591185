"""Ranked feeds: publishers insert into the inbox, in no one's way; a ranker gives the numbers, one transaction at a time.

The lock of the feed's row comes in a statement of its own. In one statement the inbox would be read as it was before the wait for
the lock, and messages that another ranker has just moved would get a second number.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

from sqlalchemy import Connection, Select, Table, bindparam, delete, func, insert, select, update

from queue_db.model import Capability
from queue_db.store.base import Store
from queue_db.store.feeds.messages import Extent, NewMessage, insert_rows, keep
from queue_db.store.feeds.rows import FeedRow, pin

#: Most messages ranked in one transaction.
RANKED_AT_ONCE = 1000

#: Characters of payloads ranked in one transaction, unless it is one message: they go through this process's memory, several times.
CHARACTERS_AT_ONCE = 16 << 20

_CONTENT = (*NewMessage._fields, "created_at")


def append(connection: Connection, store: Store, feed: FeedRow, messages: Sequence[NewMessage]) -> None:
    """Insert ``messages`` into the inbox. Their order is the order of their numbers later.

    :raises LookupError: the feed was deleted.
    """
    store.dialect.begin(connection)
    pin(connection, store, feed)
    insert_rows(connection, store, store.tables.feeds.inbox, [{"feed": feed.id, **message._asdict()} for message in messages])


@lru_cache(maxsize=64)
def _waiting(inbox: Table) -> Select[Any]:
    return select(inbox.c.id).where(inbox.c.feed == bindparam("feed")).limit(1)


def rank(connection: Connection, store: Store, feed: int) -> int:
    """Give the next numbers to the messages in the inbox, by id, at most :data:`RANKED_AT_ONCE`; return how many.

    0 if another transaction is ranking them.
    """
    tables = store.tables.feeds
    if not store.dialect.fetch(connection, _waiting(tables.inbox), {"feed": feed}):
        return 0
    store.dialect.begin(connection)
    query = select(*(tables.feeds.c[name] for name in Extent._fields))
    skip = Capability.SKIP_LOCKED in store.capabilities
    row = connection.execute(store.dialect.lock_rows(query.where(tables.feeds.c.id == feed), skip=skip, pinned=True)).first()
    if row is None:
        return 0
    inbox, messages = tables.inbox, tables.messages
    size = func.length(inbox.c.payload)
    waiting = select(inbox.c.id, size).where(inbox.c.feed == feed).order_by(inbox.c.id).limit(RANKED_AT_ONCE)
    ids = _first_few([(one, length) for one, length in connection.execute(waiting)])
    if not ids:
        return 0
    # By primary key: InnoDB would wait for the rows of open publishers that a range passes.
    number = {job_id: seq for seq, job_id in enumerate(ids, row.next_seq)}
    found = connection.execute(select(inbox.c.id, *(inbox.c[name] for name in _CONTENT)).where(inbox.c.id.in_(ids))).all()
    rows = [{"feed": feed, "seq": number[one.id], **{name: getattr(one, name) for name in _CONTENT}} for one in found]
    connection.execute(insert(messages), rows)
    connection.execute(delete(inbox).where(inbox.c.id.in_(ids)))
    next_seq = row.next_seq + len(ids)
    connection.execute(update(tables.feeds).where(tables.feeds.c.id == feed).values(next_seq=next_seq))
    keep(connection, store, feed, Extent(next_seq, *row[1:]), len(ids))
    return len(ids)


def _first_few(waiting: Sequence[tuple[int, int]]) -> list[int]:
    """The ids of the first messages that together are short enough; at least one."""
    upto = accumulate(length for _, length in waiting)
    return [one for at, ((one, _), total) in enumerate(zip(waiting, upto, strict=True)) if not at or total <= CHARACTERS_AT_ONCE]
