"""Queues without a guarantee, which the checker must notice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import delete

from queue_db.removal import Delete, Removal
from queue_db.store import Transaction

#: The versions that must be noticed.
BROKEN = ("fence",)


@dataclass(frozen=True)
class DeleteById(Delete):
    """A completion without a fence: whoever has had the job deletes it, and is told that it was in time."""

    def remove(self, tx: Transaction, pairs: Sequence[tuple[int, int]]) -> set[int]:
        ids = [job_id for job_id, _ in pairs]
        tx.connection.execute(delete(tx.tables.jobs).where(tx.tables.jobs.c.id.in_(ids)))
        return set(ids)


def removal(what: str) -> str | Removal:
    """How completed jobs leave a queue that is broken in this way; empty: one that is not."""
    return DeleteById() if what == "fence" else "delete"
