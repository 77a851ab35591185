"""Another due time or priority for a job that waits."""

from __future__ import annotations

from typing import Any, NamedTuple

from queue_db.dialects.statements import NEXT_VERSION
from queue_db.dialects.statements import due as due_text
from queue_db.model import Group
from queue_db.store import groups
from queue_db.store.base import Transaction


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
    assignments, values = [f"version = {NEXT_VERSION}"], dict[str, Any](tx.time())
    if group is not None:
        # The transaction that admits the group's next job finds it by its version.
        groups.lock(tx, [group])
    else:
        time = "available_at"
        if due is not None:
            time = f"({due_text('{now}')})"
            values |= {"new_after": due.after, "new_not_before": due.not_before}
        if priority is not None:
            # Claims start at the low-water marks of each priority: never before now.
            assignments.append(f"available_at = CASE WHEN {time} > {{now}} THEN {time} ELSE {{now}} END")
        elif due is not None:
            # A job that is due, and is to be, keeps its place.
            keeps = f"available_at <= {{now}} AND {time} <= {{now}}"
            assignments.append(f"available_at = CASE WHEN {keeps} THEN available_at ELSE {time} END")
        # Its lease, if it had one, has run out.
        assignments.append("claim_token = NULL, worker = NULL, progress = NULL, progress_note = NULL")
    if priority is not None:
        assignments.append("priority = :new_priority")
        values["new_priority"] = priority
    return bool(tx.dialect.change(tx, tx.tables.jobs, [(job_id, version)], ", ".join(assignments), values))
