"""``queue-db finished list``: the retained results of completed jobs."""

from __future__ import annotations

from typing import Any

import typer

from queue_db.cli import output, panels
from queue_db.cli.commands import command
from queue_db.cli.options import CommonOptions, KindOption, LimitOption, QueueOption
from queue_db.monitoring.model import Finished

app = typer.Typer(
    name="finished",
    help='Completed jobs that their handler or worker retains, with their results. "queue-db prune" deletes the expired ones.',
    no_args_is_help=True,
    rich_help_panel=panels.JOBS,
)


@command(app, "list", "queue-db finished list --queue mail", "queue-db finished list --kind report --json | jq .result")
def list_finished(*, queue: QueueOption = None, kind: KindOption = None, limit: LimitOption = 100, common: CommonOptions) -> None:
    """List retained completed jobs, by id."""
    with common.open() as db:
        jobs = db.finished_jobs(queue, kind=kind, limit=limit)
    if common.as_json:
        for job in jobs:
            output.record(_record(job))
        return
    output.table(
        ("id", "queue", "kind", "attempts", "finished", "expires", "result"),
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
