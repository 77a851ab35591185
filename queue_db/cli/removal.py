"""``queue-db cancel`` and ``purge``: removing jobs from a queue."""

from __future__ import annotations

import typer

from queue_db.cli import output, panels
from queue_db.cli.commands import command
from queue_db.cli.inspection import IdArgument, find_job
from queue_db.cli.options import CommonOptions, QueueArgument, QueueOption, YesOption
from queue_db.cli.recording import record
from queue_db.errors import LeaseLostError

app = typer.Typer(rich_help_panel=panels.JOBS)


@command(app, "cancel", "queue-db cancel 42", "queue-db cancel 42 --queue mail --json")
def cancel(job_id: IdArgument, *, queue: QueueOption = None, common: CommonOptions) -> None:
    """Remove a live job, whatever its state. If it is running, its worker loses the lease.

    Status 1 if there is no such live job. To delete dead jobs, use "queue-db dead purge".
    """
    with common.open() as db:
        job = find_job(db, job_id, queue)
        if not db.queue(job.queue).cancel(job.id):
            raise LeaseLostError(job.id, job.version)
        record(db, "cancel", f"job {job.id}", 1, {"queue": job.queue, "kind": job.kind})
    common.print(
        {"id": job.id, "queue": job.queue, "cancelled": True},
        f"cancelled job {job.id} of queue {job.queue!r}",
    )


@command(app, "purge", "queue-db purge mail", "queue-db purge mail --yes --json")
def purge(queue: QueueArgument, *, yes: YesOption = False, common: CommonOptions) -> None:
    """Delete all due, scheduled and blocked jobs of a queue. Running and dead jobs stay: see "queue-db dead purge"."""
    with common.open() as db:
        jobs = db.queue(queue)
        output.confirm(f"All waiting jobs of queue {queue!r} in {db.url} will be deleted.", yes=yes)
        with output.busy("purging"):
            deleted = jobs.purge()
        if deleted:
            record(db, "purge", f"queue {queue}", deleted)
    common.print({"queue": queue, "deleted": deleted}, f"deleted {deleted:,} jobs of queue {queue!r}")
