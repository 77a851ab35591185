"""What fair queues add to the queue. The module with their claims is imported when a queue is fair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from queue_db.fairness import tables
from queue_db.slices import Slice, load
from queue_db.store.base import Transaction

if TYPE_CHECKING:
    from queue_db.strategies.policies import Policy


def policies(tx: Transaction, before: Mapping[str, Policy]) -> dict[str, Policy]:
    """The policies of the fair queues."""
    queues = tx.tables.queues
    fair = tx.connection.execute(select(queues.c.name).where(queues.c.fair != 0)).scalars().all()
    tx.store.beside["fairness"] = frozenset(fair)  # groups/store/groups.py reads it
    found: dict[str, Any] = load("fairness.store", "policies")(tx, fair, before) if fair else {}
    return found


def prune(tx: Transaction, *, limit: int) -> int:
    """Delete what no limit uses any more."""
    deleted: int = load("fairness.store", "prune")(tx, limit=limit)
    return deleted


SLICE = Slice(tables=tables.described, policies=policies, prune=prune)
