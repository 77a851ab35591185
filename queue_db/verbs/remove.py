"""Removing jobs from a queue: one live job, or all that wait."""

from __future__ import annotations

from queue_db import arguments
from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.errors import JobDeadError
from queue_db.model import MOST_VERSION, Job, State, Verdict
from queue_db.store import Transaction, dependents, sweep
from queue_db.store.callbacks import Departure
from queue_db.verbs.find_job import CHANGE_ATTEMPTS, find_job


def cancel_job(core: Core, queue: str, job_id: int, *, version: int | None) -> Verdict:
    """Cancel a live job of ``queue`` in any state; with ``version`` only if it still has this version.

    :return: LOST: it has another version, a stream holds it and cannot give it back, or it changed during each of five tries.
    :raises JobNotFoundError: there is no such live job.
    """
    if version is not None:
        arguments.whole("version", version, 0, MOST_VERSION)
    for _ in range(CHANGE_ATTEMPTS):
        job = find_job(core, job_id, queue)
        if job.state is State.DEAD:
            raise JobDeadError(job_id)
        if version is not None and job.version != version:
            return Verdict.LOST
        if core.run(Run("cancel"), _cancel, job):
            return Verdict.APPLIED
        # It changed between the read and the DELETE (claimed, extended, settled): read again.
    return Verdict.LOST


def purge_queue(core: Core, queue: str) -> int:
    """Delete all due, scheduled and blocked jobs of ``queue``, in batches; return how many."""
    # Jobs enqueued meanwhile stay, such as the job after a batch.
    upto = core.read(sweep.highest)
    deleted, above = 0, -1
    while True:
        gone, last = core.write(sweep.delete_waiting, queue, above=above, upto=upto, limit=sweep.BATCH)
        deleted += gone
        if last is None:
            return deleted
        above = last


def _cancel(tx: Transaction, job: Job) -> bool:
    gone = dependents.delete(tx, [(job.id, job.version)], lambda _: Departure.CANCELLED)
    if gone and job.state is State.RUNNING:
        tx.wake_cancelled(job.id)
    return bool(gone)
