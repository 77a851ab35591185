"""``queue-db stats``, ``peek`` and ``show``: look without claiming."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from queue_db.cli import output
from queue_db.cli.commands import (
    JsonOption,
    LimitOption,
    QueueArgument,
    SchemaOption,
    TableOption,
    UrlOption,
    command,
    opened,
    queues,
)
from queue_db.db import QueueDB
from queue_db.model import Job

IdArgument = Annotated[int, typer.Argument(min=0, metavar="ID", help="The job's number.")]
InQueueOption = Annotated[str | None, typer.Option("--queue", metavar="QUEUE", help="Look in this queue only.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""

    @command(app, "stats", "queue-db stats", "queue-db stats mail --json | jq .available")
    def stats(
        queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="Only this queue.", show_default=False)] = None,
        *,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Count the jobs of each queue by state and kind. Reads the whole queue.

        available: due now. scheduled: waiting for their time, also those to be tried again. blocked: waiting for jobs before them
        in their groups. running: leased by a worker.
        held: claimed by a stream. dead: given up. waiting: how long the job that has waited longest has been due. progress: how
        far the running jobs are that say so, on average.
        """
        with opened(url, table, schema) as db:
            found = [one.stats() for one in queues(db, queue)]
        if as_json:
            for one in found:
                output.record(asdict(one))
            return
        rows: list[tuple[object, ...]] = []
        for one in found:
            waiting = output.span(one.oldest_available_age)
            rows.append(
                (
                    one.queue,
                    "",
                    one.available,
                    one.scheduled,
                    one.blocked,
                    one.running,
                    one.held,
                    one.dead,
                    waiting,
                    output.share(one.progress),
                )
            )
            rows += [
                ("", kind, n.available, n.scheduled, n.blocked, n.running, "", n.dead, "", "") for kind, n in one.by_kind.items()
            ]
        shown = ("queue", "kind", "available", "scheduled", "blocked", "running", "held", "dead", "waiting", "progress")
        output.table(shown, rows)

    @command(app, "peek", "queue-db peek mail", "queue-db peek mail --limit 100 --json | jq -r .payload.to")
    def peek(
        queue: QueueArgument,
        *,
        limit: LimitOption = 10,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Show the due jobs that workers would get next, in their order, without taking them."""
        with opened(url, table, schema) as db:
            jobs = db.queue(queue).peek(limit)
        print_jobs(jobs, "due since", as_json=as_json)

    @command(app, "show", "queue-db show 42", "queue-db show 42 --json | jq .state")
    def show(
        job_id: IdArgument,
        *,
        queue: InQueueOption = None,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Show one job, live or dead. Status 1 if there is no such job: completed jobs leave the table."""
        with opened(url, table, schema) as db:
            job = find(db, job_id, queue)
        if as_json:
            output.record(output.job_record(job))
            return
        output.sheet(
            output.job_record(job)
            | {"payload": output.payload_text(job.payload), "headers": output.payload_text(dict(job.headers))}
        )


def find(db: QueueDB, job_id: int, name: str | None) -> Job:
    """The job, in the queue of that name or in any.

    :raises JobNotFoundError: there is none.
    """
    return db.get(job_id) if name is None else db.queue(name).get(job_id)


def print_jobs(jobs: list[Job], when: str, *, as_json: bool) -> None:
    """A list of jobs; ``when`` says what their ``available_at`` is."""
    if as_json:
        for job in jobs:
            output.record(output.job_record(job))
        return
    output.table(
        ("id", "queue", "kind", "priority", "attempts", when, "payload", "last error"),
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
