"""The limits of queues: the concurrency and the rate, and how much of them each worker uses.

A queue's concurrency is divided into *shares*. Each worker has a share, and keeps no more jobs in hand than its share. The sum of
the shares is at most the queue's concurrency. So the limit holds over all processes, and claims do not have to check it. A dead
worker's share expires.

A claim of a program without a share, as by REST, first takes a share for this claim alone (:func:`reserve`). Afterwards the jobs
that it got have permits instead (:func:`keep`). Both lock the queue's row, as a worker does that changes its share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, Table, and_, delete, exists, func, insert, or_, select, tuple_, update

from queue_db.limits.tables import WHOLE_QUEUE, limits_tables
from queue_db.store import by_key, controls
from queue_db.store.base import Transaction

_SECOND = 1_000_000

# How many permits of claims that are over a claim deletes, beside two for each of its jobs.
_OLD_PERMITS = 32


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
    shares = limits_tables(tx.tables).shares
    # Lock the queue's row, so that workers compute their shares one after the other.
    queues, key = tx.tables.queues, {"name": queue}
    row = by_key.lock(tx, queues, key, "concurrency")
    if row is None or row.concurrency is None:
        return None
    by_key.touch(tx, queues, key, "spent_until")  # of the rate; microseconds
    now = tx.read_clock()
    used = _shared(tx, queue, now, but=worker) + _permitted(tx, queue, now)
    mine: int = max(0, min(wanted, row.concurrency - used))
    own = {"queue": queue, "worker": worker}
    values = {"slots": mine, "until": now + lasts}
    if not mine:
        by_key.delete(tx, shares, own)
    elif not by_key.change(tx, shares, own, values):
        tx.connection.execute(insert(shares).values(own | values))
    return mine


def _shared(tx: Transaction, queue: str, now: int, *, but: str) -> int:
    """The sum of the shares of the others."""
    shares = limits_tables(tx.tables).shares
    valid = (shares.c.queue == queue, shares.c.worker != but, shares.c.until > now)
    return int(tx.connection.execute(select(func.coalesce(func.sum(shares.c.slots), 0)).where(*valid)).scalar_one())


def _permitted(tx: Transaction, queue: str, now: int) -> int:
    """How many jobs run with a permit."""
    permits, jobs = limits_tables(tx.tables).permits, tx.tables.jobs
    query = select(func.count()).select_from(permits.join(jobs, _held(permits, jobs)))
    return int(tx.connection.execute(query.where(_of_queue(permits, queue), jobs.c.available_at > now)).scalar_one())


def _held(permits: Table, jobs: Table) -> ColumnElement[bool]:
    """The condition that a job has the token of its permit. A token that a job has lost never comes back."""
    return and_(jobs.c.id == permits.c.job_id, jobs.c.claim_token == permits.c.claim_token)


def _of_queue(permits: Table, queue: str) -> ColumnElement[bool]:
    return and_(permits.c.queue == queue, permits.c.scope == WHOLE_QUEUE, permits.c.name == "")


class Reserved(NamedTuple):
    """What the limits of a queue allow one claim."""

    #: The most jobs.
    jobs: int
    #: Microseconds until the rate allows the next job.
    wait: int
    #: Whether the claim has a share.
    shared: bool
    #: What each job costs of the rate, in microseconds; 0: there is no rate.
    cost: float


def reserve(tx: Transaction, queue: str, holder: str, wanted: int, lasts: int) -> Reserved:
    """Take a share and a part of the rate for one claim of up to ``wanted`` jobs.

    :param lasts: microseconds after which the share ends, if no :func:`keep` ends it.
    """
    queues, shares, key = tx.tables.queues, limits_tables(tx.tables).shares, {"name": queue}
    row = by_key.lock(tx, queues, key, "concurrency", "rate", "per")
    if row is None:
        return Reserved(wanted, 0, shared=False, cost=0.0)
    by_key.touch(tx, queues, key, "spent_until")
    now, wait = tx.read_clock(), 0
    if row.concurrency is not None:
        used = _shared(tx, queue, now, but=holder) + _permitted(tx, queue, now)
        wanted = max(0, min(wanted, row.concurrency - used))
    if wanted:
        wanted, wait = spend(tx, queue, wanted)
    shared = bool(wanted) and row.concurrency is not None
    if shared:
        tx.connection.execute(insert(shares).values(queue=queue, worker=holder, slots=wanted, until=now + lasts))
    return Reserved(wanted, wait, shared, 0.0 if row.rate is None else row.per / row.rate)


def keep(tx: Transaction, queue: str, holder: str, claims: Sequence[tuple[int, str]], lease: int, unused: int) -> int:
    """End the share of ``holder``: from now on the jobs of its claim have permits. This may run twice.

    :param claims: id and token of each job.
    :param unused: microseconds to give back to the rate.
    :return: how many jobs, from the first one, may run. The share of the rest had expired, and other claims have their places.
    """
    tables = limits_tables(tx.tables)
    permits, shares, jobs = tables.permits, tables.shares, tx.tables.jobs
    queues, key, own = tx.tables.queues, {"name": queue}, {"queue": queue, "worker": holder}
    row = by_key.lock(tx, queues, key, "concurrency")
    by_key.touch(tx, queues, key, "spent_until")
    now = tx.read_clock()
    valid = tx.connection.execute(delete(shares).where(by_key.matches(shares, own), shares.c.until > now)).rowcount
    if (valid or by_key.delete(tx, shares, own)) and unused:
        refund(tx, queue, unused)
    places = len(claims)
    if claims:
        # A job may have another claim by now, and its permit stays.
        ids, tokens = [job_id for job_id, _ in claims], {token for _, token in claims}
        still = select(jobs.c.id).where(jobs.c.id.in_(ids), jobs.c.claim_token.in_(tokens))
        held = set(tx.connection.execute(still).scalars())
        if held:
            # Of earlier claims.
            tx.connection.execute(delete(permits).where(_of_queue(permits, queue), permits.c.job_id.in_(sorted(held))))
        if not valid and row is not None and row.concurrency is not None:
            used = _shared(tx, queue, now, but=holder) + _permitted(tx, queue, now)
            places = max(0, min(places, row.concurrency - used))
        permit = {"queue": queue, "scope": WHOLE_QUEUE, "name": "", "until": now + lease}
        new = [{**permit, "job_id": job_id, "claim_token": token} for job_id, token in claims[:places] if job_id in held]
        if new:
            tx.connection.execute(insert(permits), new)
    # Without workers nobody else deletes them. The lock of the queue's row keeps all others from its permits, except prune.
    delete_unused(tx, permits, _of_queue(permits, queue), ~exists().where(_held(permits, jobs)), 2 * len(claims) + _OLD_PERMITS)
    return places


def prune(tx: Transaction, *, limit: int) -> int:
    """Delete up to ``limit`` permits of claims that are over; return how many."""
    permits, jobs = limits_tables(tx.tables).permits, tx.tables.jobs
    # A job whose lease was extended still has the token.
    held = exists().where(_held(permits, jobs))
    return delete_unused(tx, permits, permits.c.until < tx.read_clock(), ~held, limit)


def delete_unused(tx: Transaction, table: Table, old: ColumnElement[bool], unused: ColumnElement[bool], limit: int) -> int:
    """Delete rows that are old and unused. They are read first, since a DELETE would lock what ``unused`` looks at, on MySQL."""
    keys = list(table.primary_key.columns)
    rows = tx.connection.execute(select(*keys).where(old, unused).order_by(*keys).limit(limit)).all()
    if not rows:
        return 0
    # Check the time again: a claim may have used the row since.
    return tx.connection.execute(delete(table).where(tuple_(*keys).in_([tuple(row) for row in rows]), old)).rowcount


def drop_shares(tx: Transaction, worker: str) -> int:
    """Delete the shares of the worker ``worker``, of the workers ``worker#…`` in its process, and all expired shares.

    :return: how many of them were of the worker.
    """
    shares = limits_tables(tx.tables).shares
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
