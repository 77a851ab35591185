"""Writes the progress that handlers report, under the fence of their leases. The version does not change."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

from sqlalchemy import Double, String, update

from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.dialects.statements import match
from queue_db.leased_job import LeasedJob
from queue_db.model import ProgressReport
from queue_db.store import Transaction, settle
from queue_db.store.base import each
from queue_db.store.schema import NOTE_LENGTH
from queue_db.verbs.running import EXTENSIONS, LOOK, Verbs, leases_in_motion


def report_progress(core: Core, reports: Mapping[LeasedJob, ProgressReport], *, attempts: int) -> int:
    """Write the reports in one statement; return how many jobs still had their leases.

    :param attempts: the most runs of the write while the database asks for a retry.
    """
    with Verbs(reports) as verb:
        # Of two leases of one job only the later one can hold.
        jobs = {job.id: job for job in sorted(reports, key=attrgetter("version")) if not job.settled}
        held = {job.id: job.version for job in jobs.values()}
        written = 0
        for _ in range(EXTENSIONS if held else 0):
            wanted = {pair: reports[jobs[pair[0]]] for pair in held.items()}
            written = core.run(Run("report_progress", attempts=attempts, lazy=True, repeatable=True), write_progress, wanted)
            moving = leases_in_motion(jobs, held, verb) if written < len(held) else {}
            if not moving or not (moved := core.run(LOOK, settle.extended, moving)):
                break
            held |= moved
        return written


def write_progress(tx: Transaction, reports: Mapping[tuple[int, int], ProgressReport]) -> int:
    """Write the reports of the jobs that are still at their ``(id, version)``, in one statement; return the number of these jobs.

    The versions stay the same: a report is not a change of state, and with a new version the heartbeat would lose the job.
    """
    jobs = tx.tables.jobs
    pairs = sorted(reports)
    values = {
        "progress": each(jobs.c.id, {pair[0]: reports[pair].fraction for pair in pairs}, Double()),
        "progress_note": each(jobs.c.id, {pair[0]: reports[pair].note for pair in pairs}, String(NOTE_LENGTH)),
    }
    statement = tx.dialect.by_id(update(jobs).where(match(tx.dialect, pairs)).values(values), jobs)
    return tx.connection.execute(statement).rowcount
