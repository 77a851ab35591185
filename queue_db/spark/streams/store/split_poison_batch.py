"""A batch that no query completes is cut in pieces, until the job at fault is alone and goes to the dead table."""

from __future__ import annotations

import json
import secrets
from typing import Any

from sqlalchemy import Row, and_, func, insert, select, update

from queue_db.spark.dialects.base import keeps_row
from queue_db.spark.tables import spark_tables
from queue_db.store import by_key
from queue_db.store.base import Transaction

# With fewer pieces it takes more restarts until the job is alone; each piece is a batch, which costs a trigger.
_PIECES = 10


def give_up(tx: Transaction, stream: str, batch: Row[Any]) -> bool:
    """Cut ``batch``; the caller has locked the row of its stream. True: it was one job, which dies when the batch is completed.

    The first piece keeps the number and token of the batch, which a checkpoint may have. The others become new batches after all
    others. Each has one delivery left.
    """
    ours = spark_tables(tx.tables)
    held, batches, streams = ours.held, ours.batches, ours.streams
    mine = and_(held.c.stream == batch.stream, held.c.batch == batch.batch)
    this = {"stream": batch.stream, "batch": batch.batch}
    if batch.size <= 1:
        reason = f"stream {stream} received this job as often as maxDeliveries allows, and never completed it"
        tx.connection.execute(update(held).where(mine, held.c.dead_reason.is_(None)).values(dead_reason=reason))
        by_key.change(tx, batches, this, {"parts": "[]"})
        return True
    ids = list(tx.connection.execute(select(held.c.id).where(mine).order_by(held.c.id)).scalars())
    size = -(-len(ids) // _PIECES)
    pieces = [ids[place : place + size] for place in range(0, len(ids), size)]
    # A job has had the attempts of its row plus the deliveries of the batch, less one: the pieces continue from there.
    tx.connection.execute(update(held).where(mine).values(attempts=held.c.attempts + 1))
    same = {"deliveries": batch.deliveries - 1, "oldest_at": batch.oldest_at, "claimed_at": batch.claimed_at}
    last: int = tx.connection.execute(select(streams.c.allocated).where(streams.c.id == batch.stream)).scalar_one()
    for number, piece in enumerate(pieces):
        within = and_(mine, held.c.id.between(piece[0], piece[-1]))
        keyed = tx.connection.execute(select(func.count()).select_from(held).where(within, keeps_row(held))).scalar_one()
        record = {"size": len(piece), "keyed": keyed, "parts": json.dumps([[piece[0], piece[-1], len(piece)]]), **same}
        if number == 0:
            by_key.change(tx, batches, this, record)
            continue
        new = {"stream": batch.stream, "batch": last + number, "claim": secrets.token_hex(16)}
        tx.connection.execute(insert(batches).values(record | new))
        tx.connection.execute(update(held).where(within).values(batch=last + number))
    by_key.change(tx, streams, {"id": batch.stream}, {"allocated": last + len(pieces) - 1})
    return False
