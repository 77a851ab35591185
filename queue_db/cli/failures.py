"""``queue-db failures``: failed attempts, grouped."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from queue_db.cli import output, panels
from queue_db.cli.commands import command
from queue_db.cli.options import CommonOptions, ErrorClassOption, KindOption, QueueOption
from queue_db.monitoring.failures import SCANNED

app = typer.Typer(rich_help_panel=panels.JOBS)


@command(app, "failures", "queue-db failures --queue mail", "queue-db failures --json | jq -r .trace")
def failures(
    *,
    queue: QueueOption = None,
    kind: KindOption = None,
    error_class: ErrorClassOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="At most N groups.")] = 50,
    common: CommonOptions,
) -> None:
    """List the newest 10,000 failed attempts by queue, kind and error class, with how many of the jobs are dead by them.

    "queue-db dead redrive" and "queue-db dead purge" take --queue, --kind and --error-class of a group.
    """
    with common.open() as db:
        found = db.failures(queue, kind=kind, error_class=error_class, limit=limit)
    if common.as_json:
        for one in found:
            output.record(asdict(one) | {"first_at": output.moment(one.first_at), "last_at": output.moment(one.last_at)})
        return
    output.table(
        ("queue", "kind", "error class", "attempts", "dead", "first", "last", "last job", "last error"),
        [
            (
                one.queue,
                one.kind,
                one.error_class or "(a reason)",
                one.count,
                one.dead,
                one.first_at.isoformat(" ", "seconds"),
                one.last_at.isoformat(" ", "seconds"),
                one.job_id,
                output.brief(one.message),
            )
            for one in found
        ],
    )
    output.note(f"of the newest {SCANNED:,} failed attempts of all queues; older ones are not counted")
