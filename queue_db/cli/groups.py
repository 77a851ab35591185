"""``queue-db groups``: groups whose jobs wait, and their repair."""

from __future__ import annotations

import typer

from queue_db.cli import output, panels
from queue_db.cli.commands import command
from queue_db.cli.options import CommonOptions, QueueArgument
from queue_db.cli.recording import user
from queue_db.monitoring.waiting_groups import MOST, MOST_JOBS, heads
from queue_db.operations import groups as operations

app = typer.Typer(
    name="groups",
    help="Groups: jobs of one group run one at a time, in their order.",
    no_args_is_help=True,
    rich_help_panel=panels.JOBS,
)


@command(app, "list", "queue-db groups list mail", "queue-db groups list mail --json | jq -r .last_error")
def list_groups(queue: QueueArgument, *, common: CommonOptions) -> None:
    """List the groups of a queue with jobs that wait, and the job that each waits for, those with most blocked jobs first.

    Looks at the first 200 blocked jobs of the queue. blocked: how many of these wait in the group.
    """
    with common.open() as db:
        db.queue(queue)  # checks the name
        found, more = heads(db, [queue])
    if common.as_json:
        for one in found:
            job = None if one.job is None else output.job_record(one.job)
            output.record({"queue": one.queue, "group": one.group, "blocked": one.blocked, "job": job})
        return
    output.table(
        ("group", "blocked", "waits for", "state", "attempts", "due", "last error"),
        [
            (one.group, one.blocked, *[None] * 5)
            if one.job is None
            else (
                one.group,
                one.blocked,
                f"{one.job.kind} {one.job.id}",
                one.job.state.value,
                f"{one.job.attempts}/{one.job.max_attempts}",
                one.job.available_at.isoformat(" ", "seconds"),
                output.brief(one.job.last_error or ""),
            )
            for one in found
        ],
    )
    if more:
        output.note(f"of the first {MOST_JOBS} blocked jobs, and at most {MOST} groups; there are more")


@command(app, "repair", "queue-db groups repair mail")
def repair(queue: QueueArgument, *, common: CommonOptions) -> None:
    """Unblock the groups of a queue after its jobs were deleted with SQL. Workers do this once a minute.

    Deleting a grouped job with SQL leaves the next job of its group blocked.
    """
    with common.open() as db:
        repaired = operations.repair(db, user(), queue)
    common.print({"queue": queue, "repaired": repaired}, f"repaired {repaired:,} groups of queue {queue!r}")
