"""``queue-db finished list`` and ``prune``: what is kept of completed jobs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from queue_db.cli import output
from queue_db.cli.commands import JsonOption, KindOption, LimitOption, SchemaOption, TableOption, UrlOption, command, opened
from queue_db.model import Finished


def add_to(app: typer.Typer) -> None:
    """Add the group and its commands."""
    group = typer.Typer(
        name="finished",
        help="Completed jobs whose handler or worker keeps them for a while, with their results: list, delete what has expired.",
        no_args_is_help=True,
    )
    app.add_typer(group)

    @command(group, "list", "queue-db finished list --queue mail", "queue-db finished list --kind report --json | jq .result")
    def list_finished(
        *,
        queue: Annotated[str | None, typer.Option("--queue", metavar="QUEUE", help="Only jobs of this queue.")] = None,
        kind: KindOption = None,
        limit: LimitOption = 100,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """List completed jobs that are kept, by id."""
        with opened(url, table, schema) as db:
            jobs = db.finished_jobs(queue, kind=kind, limit=limit)
        if as_json:
            for job in jobs:
                output.record(_record(job))
            return
        output.table(
            ("id", "queue", "kind", "attempts", "finished", "kept until", "result"),
            [
                (
                    job.id,
                    job.queue,
                    job.kind,
                    job.attempts,
                    job.finished_at.isoformat(" ", "seconds"),
                    job.expires_at.isoformat(" ", "seconds"),
                    output.brief(output.payload_text(job.result)),
                )
                for job in jobs
            ],
        )

    @command(group, "prune", "queue-db finished prune", "queue-db finished prune --json")
    def prune(
        *,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Delete what has expired, and failed attempts of more than 30 days ago. Workers do this once a minute."""
        with opened(url, table, schema) as db, output.busy("pruning"):
            deleted = db.forget()
        if as_json:
            output.record({"deleted": deleted})
        else:
            output.line(f"deleted {deleted:,} finished jobs and failed attempts")


def _record(job: Finished) -> dict[str, Any]:
    return {
        "id": job.id,
        "queue": job.queue,
        "kind": job.kind,
        "payload": job.payload,
        "result": job.result,
        "attempts": job.attempts,
        "worker": job.worker,
        "created_at": output.moment(job.created_at),
        "finished_at": output.moment(job.finished_at),
        "expires_at": output.moment(job.expires_at),
    }
