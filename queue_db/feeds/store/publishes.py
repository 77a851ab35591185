"""Publishes with an idempotency key: a repeated one changes nothing and gets the answer of the first."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from sqlalchemy import delete, select

from queue_db.errors import IdempotencyKeyError, TransientStorageError
from queue_db.feeds.tables import feed_tables
from queue_db.store import by_key
from queue_db.store.base import Transaction

#: Microseconds for which a repeated publish with an idempotency key is known.
KEYS_KEPT = 86_400 * 1_000_000


class Keyed(NamedTuple):
    """A publish with an idempotency key."""

    digest: str  #: of where it is published, and of the key
    request: str  #: of its messages


def once(tx: Transaction, keyed: Keyed, publish: Callable[[], Any]) -> Any:
    """Call ``publish`` and keep its answer, which JSON must have; or return what it has answered before with this key.

    A publish with the same key at the same time waits here for the end of the other one's transaction.

    :raises IdempotencyKeyError: the key was used for other messages.
    """
    publishes = feed_tables(tx.tables).publishes
    mine = {"digest": keyed.digest}
    new = {**mine, "request": keyed.request, "answer": "", "created_at": tx.now}
    if not by_key.insert_new(tx, publishes, new):
        # A caller's old snapshot does not show what a locking read does.
        found = by_key.lock(tx, publishes, mine, "request", "answer")
        if found is None:
            raise TransientStorageError("an idempotency key was deleted meanwhile: publish again")
        if found.request != keyed.request:
            raise IdempotencyKeyError("the idempotency key was used for other messages: a new publish needs a new key")
        return json.loads(found.answer)
    answer = publish()
    by_key.change(tx, publishes, mine, {"answer": json.dumps(answer)})
    return answer


def prune(tx: Transaction, *, limit: int) -> int:
    """Forget up to ``limit`` keys that are older than :data:`KEYS_KEPT`; return how many."""
    publishes = feed_tables(tx.tables).publishes
    old = publishes.c.created_at < tx.read_clock() - KEYS_KEPT
    digests = list(tx.connection.execute(select(publishes.c.digest).where(old).limit(limit)).scalars())
    if not digests:
        return 0
    return tx.connection.execute(delete(publishes).where(publishes.c.digest.in_(digests))).rowcount
