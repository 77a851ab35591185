"""The controls of queues: the pause, the concurrency and the rate, and how much of the concurrency each worker uses.

A queue's concurrency is divided into *shares*. Each worker has a share, and keeps no more jobs in hand than its share. The sum of
the shares is at most the queue's concurrency. So the limit holds over all processes, and claims do not have to check it. A dead
worker's share expires.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import delete, func, insert, literal, or_, select, update

from queue_db.model import Controls
from queue_db.slices import slices
from queue_db.store.base import Transaction

_SECOND = 1_000_000


def read(tx: Transaction, queues: Collection[str] | None = None) -> dict[str, Controls]:
    """The controls of ``queues`` by name, or of all queues if None; queues without controls are missing."""
    table = tx.tables.queues
    rows = tx.connection.execute(select(table) if queues is None else select(table).where(table.c.name.in_(list(queues))))
    return {
        row.name: Controls(
            paused=bool(row.paused),
            concurrency=row.concurrency,
            rate=row.rate,
            per=None if row.per is None else row.per / 1_000_000,
            per_group=row.per_group or 1,
        )
        for row in rows
    }


def change(tx: Transaction, queue: str, values: dict[str, int | None]) -> bool:
    """Set some columns of a queue's row.

    A new ``rate`` without ``per`` keeps the old ``per``, or gets one second. Without a rate, ``per`` is removed.

    :return: False: ``values`` has a ``per``, but there is no rate; nothing was changed.
    :raises IntegrityError: another transaction has just inserted the row: try again.
    """
    table = tx.tables.queues
    mine = table.c.name == queue
    if values.keys() & {"rate", "per"}:
        # Lock the row, so that no other transaction sets or removes the rate before the write.
        before = tx.connection.execute(tx.dialect.lock_rows(select(table.c.rate, table.c.per).where(mine), skip=False)).first()
        rate = values.get("rate", None if before is None else before.rate)
        per = values.get("per", None if before is None else before.per)
        if rate is None and values.get("per") is not None:
            return False
        values = {**values, "rate": rate, "per": None if rate is None else per or _SECOND, "spent_until": 0}
    if not tx.connection.execute(update(table).where(mine).values(values)).rowcount:
        tx.connection.execute(insert(table).values(name=queue, **values))
    return True


def used(tx: Transaction, queue: str) -> bool:
    """Whether the queue has a live or dead job, a finished job that is kept, or something of a slice."""
    tables = tx.tables
    rows = (table.c.queue == queue for table in (tables.jobs, tables.dead, tables.finished))
    has_rows = any(tx.connection.execute(select(literal(1)).where(of_queue).limit(1)).first() for of_queue in rows)
    return has_rows or any(part.knows(tx, queue) for part in slices().values() if part.knows is not None)


def take_share(tx: Transaction, queue: str, worker: str, wanted: int, lasts: int) -> int | None:
    """Set the share of ``worker`` to as much of ``wanted`` as the queue's concurrency allows, for ``lasts`` microseconds.

    The share may become smaller; ``wanted=0`` deletes it.

    :return: the new share; None: the queue no longer has a concurrency limit.
    """
    queues, shares = tx.tables.queues, tx.tables.shares
    # Lock the queue's row, so that workers compute their shares one after the other.
    limit: int | None = tx.connection.execute(
        tx.dialect.lock_rows(select(queues.c.concurrency).where(queues.c.name == queue), skip=False)
    ).scalar()
    if limit is None:
        return None
    now = tx.read_clock()
    others = tx.connection.execute(
        select(func.coalesce(func.sum(shares.c.slots), 0)).where(
            shares.c.queue == queue, shares.c.worker != worker, shares.c.until > now
        )
    ).scalar_one()
    mine = max(0, min(wanted, limit - int(others)))
    own = (shares.c.queue == queue, shares.c.worker == worker)
    if not mine:
        tx.connection.execute(delete(shares).where(*own))
    elif not tx.connection.execute(update(shares).where(*own).values(slots=mine, until=now + lasts)).rowcount:
        tx.connection.execute(insert(shares).values(queue=queue, worker=worker, slots=mine, until=now + lasts))
    return mine


def drop_shares(tx: Transaction, worker: str) -> None:
    """Delete the shares of the worker ``worker``, of the workers ``worker#…`` in its process, and all expired shares."""
    shares = tx.tables.shares
    of_process = or_(shares.c.worker == worker, shares.c.worker.startswith(f"{worker}#", autoescape=True))
    tx.connection.execute(delete(shares).where(of_process))
    tx.connection.execute(delete(shares).where(shares.c.until < tx.now), tx.time())


def spend(tx: Transaction, queue: str, wanted: int) -> tuple[int, int]:
    """Take permission to begin up to ``wanted`` jobs from the queue's rate.

    Each job costs ``per / rate`` microseconds. If no job has begun for ``per``, up to ``rate`` jobs may begin at once.

    :return: how many jobs may begin now, and the microseconds until the next job may begin.
    """
    table = tx.tables.queues
    query = select(table.c.rate, table.c.per, table.c.spent_until).where(table.c.name == queue)
    row = tx.connection.execute(tx.dialect.lock_rows(query, skip=False)).first()
    if row is None or row.rate is None:
        return wanted, 0
    now = tx.read_clock()
    cost = row.per / row.rate
    spent = max(row.spent_until, now)
    count = max(0, min(wanted, int((now + row.per - spent) / cost + 1e-9)))
    spent += round(count * cost)
    if count:
        tx.connection.execute(update(table).where(table.c.name == queue).values(spent_until=spent))
    return count, max(0, round(spent + cost - row.per - now))


def refund(tx: Transaction, queue: str, micros: int) -> None:
    """Give ``micros`` back to the queue's rate, for jobs that :func:`spend` has counted and that did not begin."""
    table = tx.tables.queues
    tx.connection.execute(update(table).where(table.c.name == queue).values(spent_until=table.c.spent_until - micros))
