"""Whether the database takes changes: a statement that is a change and changes nothing."""

from __future__ import annotations

from sqlalchemy import false, update

from queue_db.store.base import Transaction


def change_nothing(tx: Transaction) -> None:
    """Update no job. The database refuses it where it would refuse an update of one."""
    jobs = tx.tables.jobs
    tx.connection.execute(update(jobs).values(id=jobs.c.id).where(false()))
