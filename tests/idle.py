"""The idle connections that a :class:`QueueDB` keeps."""

from __future__ import annotations

from queue_db import QueueDB


def release(db: QueueDB) -> None:
    """Return them to the engine's pool, so that the next verb takes one from there."""
    idle = db.database.connections._idle
    while idle:
        idle.pop().connection.close()
