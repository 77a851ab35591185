"""``queue-db stats``, ``peek`` and ``show``: reading jobs without claiming them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from queue_db.cli import output, panels
from queue_db.cli.commands import command
from queue_db.cli.options import CommonOptions, LimitOption, QueueArgument, QueueOption
from queue_db.db import QueueDB
from queue_db.errors import QueueDBError
from queue_db.model import Job
from queue_db.monitoring.model import QueueStats
from queue_db.queue import Queue

IdArgument = Annotated[int, typer.Argument(min=0, metavar="ID", help="Id of the job.")]

app = typer.Typer(rich_help_panel=panels.JOBS)


@command(app, "stats", "queue-db stats", "queue-db stats mail --json | jq .available")
def stats(
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="Only this queue.", show_default=False)] = None,
    *,
    common: CommonOptions,
) -> None:
    """Count the jobs of each queue by state and kind. This reads all jobs of the queue.

    available: due now. scheduled: due later, retries included. blocked: waiting for earlier jobs of their groups. running: leased
    by a worker. held: claimed by a stream. dead: out of attempts or given up. waiting: how long ago the oldest available job
    became due. progress: mean of the running jobs that report one.
    """
    with common.open() as db:
        found = [one.stats() for one in queues(db, queue)]
    if common.as_json:
        for one in found:
            output.record(asdict(one))
        return
    columns = ("queue", "kind", "available", "scheduled", "blocked", "running", "held", "dead", "waiting", "progress")
    output.table(columns, [row for one in found for row in _rows(one)])


@command(app, "peek", "queue-db peek mail", "queue-db peek mail --limit 100 --json | jq -r .payload.to")
def peek(queue: QueueArgument, *, limit: LimitOption = 10, common: CommonOptions) -> None:
    """Show the due jobs that workers would claim next, in claim order, without claiming them."""
    with common.open() as db:
        jobs = db.queue(queue).peek(limit)
    print_jobs(jobs, "due since", common)


@command(app, "show", "queue-db show 42", "queue-db show 42 --json | jq .state")
def show(job_id: IdArgument, *, queue: QueueOption = None, common: CommonOptions) -> None:
    """Show one live or dead job. Status 1 if there is none: completed jobs leave the table."""
    with common.open() as db:
        record = output.job_record(job := find_job(db, job_id, queue))
    if common.as_json:
        output.record(record)
        return
    texts = {"payload": output.payload_text(job.payload), "headers": output.payload_text(dict(job.headers))}
    output.sheet(record | texts)


def queues(db: QueueDB, name: str | None) -> Iterator[Queue]:
    """Yield the queue of that name, or without a name every queue that has jobs."""
    if name is not None:
        yield db.queue(name)
        return
    for found in db.queues():
        try:
            yield db.queue(found)
        except QueueDBError as error:
            output.note(f"skipped a queue whose name, written by an INSERT of your own, is invalid: {error}")


def find_job(db: QueueDB, job_id: int, queue: str | None) -> Job:
    """Return the job of that id, in one queue or in any.

    :raises JobNotFoundError: there is none.
    """
    return db.get(job_id) if queue is None else db.queue(queue).get(job_id)


def print_jobs(jobs: list[Job], time_column: str, common: CommonOptions) -> None:
    """Print a list of jobs.

    :param time_column: heading of the column with ``available_at``.
    """
    if common.as_json:
        for job in jobs:
            output.record(output.job_record(job))
        return
    output.table(
        ("id", "queue", "kind", "priority", "attempts", time_column, "payload", "last error"),
        [
            (
                job.id,
                job.queue,
                job.kind,
                job.priority,
                f"{job.attempts}/{job.max_attempts}",
                job.available_at.isoformat(" ", "seconds"),
                output.brief(output.payload_text(job.payload)),
                output.brief(job.last_error or ""),
            )
            for job in jobs
        ],
    )


def _rows(one: QueueStats) -> Iterator[tuple[object, ...]]:
    waiting, progress = output.span(one.oldest_available_age), output.share(one.progress)
    counts = (one.available, one.scheduled, one.blocked, one.running, one.held, one.dead)
    yield (one.queue, "", *counts, waiting, progress)
    for kind, n in one.by_kind.items():
        yield ("", kind, n.available, n.scheduled, n.blocked, n.running, "", n.dead, "", "")
