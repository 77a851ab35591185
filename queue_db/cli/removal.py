"""``queue-db cancel`` and ``purge``: take jobs out of a queue."""

from __future__ import annotations

import typer

from queue_db.cli import output
from queue_db.cli.commands import (
    JsonOption,
    QueueArgument,
    SchemaOption,
    TableOption,
    UrlOption,
    YesOption,
    command,
    confirm,
    opened,
)
from queue_db.cli.inspection import IdArgument, InQueueOption, find
from queue_db.errors import LeaseLostError


def add_to(app: typer.Typer) -> None:
    """Add the commands."""

    @command(app, "cancel", "queue-db cancel 42", "queue-db cancel 42 --queue mail --json")
    def cancel(
        job_id: IdArgument,
        *,
        queue: InQueueOption = None,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Take a live job out of its queue, whatever its state; a worker that has it will find its lease lost.

        Status 1 if there is no such live job. Dead jobs are deleted by "dead purge".
        """
        with opened(url, table, schema) as db:
            job = find(db, job_id, queue)
            if not db.queue(job.queue).cancel(job.id):
                raise LeaseLostError(job.id, job.version)
        if as_json:
            output.record({"id": job.id, "queue": job.queue, "cancelled": True})
        else:
            output.line(f"cancelled job {job.id} of queue {job.queue!r}")

    @command(app, "purge", "queue-db purge mail", "queue-db purge mail --yes --json")
    def purge(
        queue: QueueArgument,
        *,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        yes: YesOption = False,
        as_json: JsonOption = False,
    ) -> None:
        """Delete all jobs of a queue that no worker has, due and scheduled. Dead jobs stay: see "dead purge"."""
        with opened(url, table, schema) as db:
            there = db.queue(queue)
            confirm(f"All waiting jobs of queue {queue!r} in {db.url} will be deleted.", yes=yes)
            with output.busy("purging"):
                deleted = there.purge()
        if as_json:
            output.record({"queue": queue, "deleted": deleted})
        else:
            output.line(f"deleted {deleted:,} jobs of queue {queue!r}")
