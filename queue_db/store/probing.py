"""Whether the database takes changes: a statement that is a change and changes nothing."""

from __future__ import annotations

from sqlalchemy import Connection, false, update

from queue_db.store.base import Store


def change_nothing(connection: Connection, store: Store) -> None:
    """Update no job. The database refuses it where it would refuse an update of one."""
    jobs = store.tables.jobs
    connection.execute(update(jobs).values(id=jobs.c.id).where(false()))
