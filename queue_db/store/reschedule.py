"""Another due time or priority for a job that waits."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, and_, case, literal

from queue_db.dialects.clock import due_time, moment
from queue_db.model import Group
from queue_db.store import groups
from queue_db.store.base import Transaction, next_version


class Due(NamedTuple):
    """When a job is due: ``after`` microseconds from now, and not before ``not_before``."""

    after: int
    not_before: int


def reschedule(tx: Transaction, job_id: int, version: int, *, due: Due | None, priority: int | None, group: Group | None) -> bool:
    """Change the waiting job if it still has ``version``; return whether it had.

    :param due: None: the time stays.
    :param priority: None: the same.
    :param group: the group in which it is blocked: then it stays blocked, and ``due`` is None.
    """
    jobs = tx.tables.jobs
    values: dict[str, Any] = {"version": next_version(jobs)}
    if group is not None:
        # The transaction that admits the group's next job finds it by its version.
        groups.lock(tx, [group])
    else:
        now = moment(tx.store.clock is not None)
        time: ColumnElement[int] = jobs.c.available_at
        if due is not None:
            time = due_time(now, literal(due.after, BigInteger), literal(due.not_before, BigInteger))
        if priority is not None:
            # Claims start at the low-water marks of each priority: never before now.
            values["available_at"] = case((time > now, time), else_=now)
        elif due is not None:
            # A job that is due, and is to be, keeps its place.
            values["available_at"] = case((and_(jobs.c.available_at <= now, time <= now), jobs.c.available_at), else_=time)
        # Its lease, if it had one, has run out.
        values |= {"claim_token": None, "worker": None, "progress": None, "progress_note": None}
    if priority is not None:
        values["priority"] = priority
    return bool(tx.dialect.change(tx, jobs, [(job_id, version)], values, tx.time()))
