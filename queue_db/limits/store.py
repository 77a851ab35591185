"""The limits of queues: the concurrency and the rate, and how much of them each worker uses.

A queue's concurrency is divided into *shares*. Each worker has a share, and keeps no more jobs in hand than its share. The sum of
the shares is at most the queue's concurrency. So the limit holds over all processes, and claims do not have to check it. A dead
worker's share expires.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import delete, func, insert, or_, select, update

from queue_db.limits.tables import shares_of
from queue_db.store import by_key, controls
from queue_db.store.base import Transaction

_SECOND = 1_000_000


def change(tx: Transaction, queue: str, values: Mapping[str, int | None]) -> bool:
    """Set some columns of a queue's row.

    A new ``rate`` without ``per`` keeps the old ``per``, or gets one second. Without a rate, ``per`` is removed.

    :return: False: ``values`` has a ``per``, but there is no rate; nothing was changed.
    :raises IntegrityError: another transaction has just inserted the row: try again.
    """
    if values.keys() & {"rate", "per"}:
        # Lock the row, so that no other transaction sets or removes the rate before the write.
        before = by_key.lock(tx, tx.tables.queues, {"name": queue}, "rate", "per")
        rate = values.get("rate", None if before is None else before.rate)
        per = values.get("per", None if before is None else before.per)
        if rate is None and values.get("per") is not None:
            return False
        per = None if rate is None else per or _SECOND
        values = {**values, "rate": rate, "per": per}
        if before is None or before != (rate, per):
            values["spent_until"] = 0  # the same rate again is not refilled
    if "per_group" in values and _is_fair(tx, queue):
        # Its column says that no job waits for others of its group.
        values = {name: value for name, value in values.items() if name != "per_group"}
    if values:
        controls.change(tx, queue, values)
    return True


def _is_fair(tx: Transaction, queue: str) -> bool:
    row = by_key.lock(tx, tx.tables.queues, {"name": queue}, "fair")
    return row is not None and bool(row.fair)


def take_share(tx: Transaction, queue: str, worker: str, wanted: int, lasts: int) -> int | None:
    """Set the share of ``worker`` to as much of ``wanted`` as the queue's concurrency allows, for ``lasts`` microseconds.

    The share may become smaller; ``wanted=0`` deletes it.

    :return: the new share; None: the queue no longer has a concurrency limit.
    """
    shares = shares_of(tx.tables)
    # Lock the queue's row, so that workers compute their shares one after the other.
    queues, key = tx.tables.queues, {"name": queue}
    row = by_key.lock(tx, queues, key, "concurrency")
    if row is None or row.concurrency is None:
        return None
    by_key.touch(tx, queues, key, "spent_until")  # of the rate; microseconds
    now = tx.read_clock()
    others = tx.connection.execute(
        select(func.coalesce(func.sum(shares.c.slots), 0)).where(
            shares.c.queue == queue, shares.c.worker != worker, shares.c.until > now
        )
    ).scalar_one()
    mine: int = max(0, min(wanted, row.concurrency - int(others)))
    own = {"queue": queue, "worker": worker}
    values = {"slots": mine, "until": now + lasts}
    if not mine:
        by_key.delete(tx, shares, own)
    elif not by_key.change(tx, shares, own, values):
        tx.connection.execute(insert(shares).values(own | values))
    return mine


def drop_shares(tx: Transaction, worker: str) -> int:
    """Delete the shares of the worker ``worker``, of the workers ``worker#…`` in its process, and all expired shares.

    :return: how many of them were of the worker.
    """
    shares = shares_of(tx.tables)
    of_process = or_(shares.c.worker == worker, shares.c.worker.startswith(f"{worker}#", autoescape=True))
    own = tx.connection.execute(delete(shares).where(of_process)).rowcount
    tx.connection.execute(delete(shares).where(shares.c.until < tx.now), tx.time())
    return own


def rescue(tx: Transaction, worker: str) -> int | None:
    """Release the shares of a dead worker: see :func:`drop_shares`. None: it had some, which are no jobs; 0: it had none."""
    return None if drop_shares(tx, worker) else 0


def spend(tx: Transaction, queue: str, wanted: int) -> tuple[int, int]:
    """Take permission to begin up to ``wanted`` jobs from the queue's rate.

    Each job costs ``per / rate`` microseconds. If no job has begun for ``per``, up to ``rate`` jobs may begin at once.

    :return: how many jobs may begin now, and the microseconds until the next job may begin.
    """
    table, key = tx.tables.queues, {"name": queue}
    row = by_key.lock(tx, table, key, "rate", "per", "spent_until")
    if row is None or row.rate is None:
        return wanted, 0
    now = tx.read_clock()
    cost = row.per / row.rate
    spent = max(row.spent_until, now)
    count = max(0, min(wanted, int((now + row.per - spent) / cost + 1e-9)))
    spent += round(count * cost)
    if count:
        by_key.change(tx, table, key, {"spent_until": spent})
    return count, max(0, round(spent + cost - row.per - now))


def refund(tx: Transaction, queue: str, micros: int) -> None:
    """Give ``micros`` back to the queue's rate, for jobs that :func:`spend` has counted and that did not begin."""
    table = tx.tables.queues
    tx.connection.execute(update(table).where(table.c.name == queue).values(spent_until=table.c.spent_until - micros))
