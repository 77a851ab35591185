"""How far the handlers of leased jobs are: written beside their leases, which it does not change."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Double, String, update

from queue_db.model import ProgressReport
from queue_db.store.base import Transaction, each
from queue_db.store.schema import NOTE_LENGTH


def write(tx: Transaction, reports: Mapping[tuple[int, int], ProgressReport]) -> int:
    """Write the reports of the jobs whose ``(id, version)`` holds, in one statement; return how many.

    It raises no version: to say something is no change of state, and a heartbeat must not lose its job to it.
    """
    jobs = tx.tables.jobs
    pairs = sorted(reports)
    values = {
        "progress": each(jobs.c.id, {pair[0]: reports[pair].fraction for pair in pairs}, Double()),
        "progress_note": each(jobs.c.id, {pair[0]: reports[pair].note for pair in pairs}, String(NOTE_LENGTH)),
    }
    statement = tx.dialect.by_id(update(jobs).where(tx.dialect.match(pairs)).values(values), jobs)
    return tx.connection.execute(statement).rowcount
