"""``queue-db dead list``, ``redrive`` and ``purge``: the dead jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from queue_db.cli import output, panels
from queue_db.cli.commands import command
from queue_db.cli.inspection import print_jobs
from queue_db.cli.options import CommonOptions, ErrorClassOption, KindOption, LimitOption, QueueOption, YesOption
from queue_db.cli.recording import record
from queue_db.dead import MOST_COUNTED
from queue_db.errors import ArgumentError
from queue_db.monitoring.actions import dead_jobs

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Change nothing; print what would be changed.")]
AllOption = Annotated[bool, typer.Option("--all", help="All dead jobs of all queues.")]

# Most ids of jobs in the detail of an action.
_MOST_IDS = 100

app = typer.Typer(
    name="dead",
    help="Dead jobs: their last attempt failed, or a handler gave them up. List, redrive (move back into a queue) or delete them.",
    no_args_is_help=True,
    rich_help_panel=panels.JOBS,
)


@command(app, "list", "queue-db dead list", "queue-db dead list --queue mail --json | jq -r .last_error")
def list_dead(
    *,
    queue: QueueOption = None,
    kind: KindOption = None,
    error_class: ErrorClassOption = None,
    limit: LimitOption = 100,
    common: CommonOptions,
) -> None:
    """List dead jobs with their last error, longest dead first."""
    with common.open() as db:
        jobs = db.dead.list(queue, kind=kind, error_class=error_class, limit=limit)
    print_jobs(jobs, "dead since", common)


@command(app, "count", "queue-db dead count --queue mail --error-class TimeoutError", "queue-db dead count --json | jq .dead")
def count(
    *, queue: QueueOption = None, kind: KindOption = None, error_class: ErrorClassOption = None, common: CommonOptions
) -> None:
    """Count dead jobs, up to 10,000. "redrive" and "purge" with --dry-run count what they would change."""
    with common.open() as db:
        found = db.dead.count(queue, kind=kind, error_class=error_class, most=MOST_COUNTED + 1)
    more, dead = found > MOST_COUNTED, min(found, MOST_COUNTED)
    common.print({"dead": dead, "more": more}, f"more than {dead:,}" if more else f"{dead:,}")


@command(
    app,
    "redrive",
    "queue-db dead redrive 42 43",
    "queue-db dead redrive --queue mail --limit 10",
    "queue-db dead redrive --queue mail --kind welcome --error-class TimeoutError",
    "queue-db dead redrive --all --json",
)
def redrive(
    ids: Annotated[list[int] | None, typer.Argument(metavar="[ID]...", help="Only these jobs.", min=0, show_default=False)] = None,
    *,
    queue: QueueOption = None,
    kind: KindOption = None,
    error_class: ErrorClassOption = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, metavar="N", help="At most N jobs.")] = None,
    everything: AllOption = False,
    dry_run: DryRunOption = False,
    common: CommonOptions,
) -> None:
    """Move dead jobs back into their queues, with their old ids, due now and with no attempts counted; print the ids.

    A job stays dead if a live job has its unique key. The exit status is 1 if one of the IDs is not a dead job; then none is moved.
    """
    _choose(everything, {"ID": ids or None, "--queue": queue, "--kind": kind, "--error-class": error_class})
    with common.open() as db, output.busy("redriving"):
        redriven = db.dead.redrive(ids or None, queue=queue, kind=kind, error_class=error_class, limit=limit, dry_run=dry_run)
        detail = {"ids": ids[:_MOST_IDS] if ids else None, "limit": limit}
        if redriven and not dry_run:
            record(db, "redrive", dead_jobs(queue, kind, error_class), len(redriven), detail)
    for job_id in redriven:
        common.print({"id": job_id}, job_id)
    output.note(f"{'would redrive' if dry_run else 'redrove'} {len(redriven):,} jobs")


@command(
    app,
    "purge",
    "queue-db dead purge --queue mail --older-than 604800",
    "queue-db dead purge --queue mail --keep 1000",
    "queue-db dead purge --all --yes --json",
)
def purge(
    *,
    queue: QueueOption = None,
    kind: KindOption = None,
    error_class: ErrorClassOption = None,
    older_than: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Only jobs that have been dead for at least SECONDS.")
    ] = None,
    keep: Annotated[int | None, typer.Option(min=0, metavar="N", help="Keep the N most recent of them.")] = None,
    everything: AllOption = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    common: CommonOptions,
) -> None:
    """Delete dead jobs permanently."""
    filters = {"--queue": queue, "--kind": kind, "--error-class": error_class, "--older-than": older_than, "--keep": keep}
    _choose(everything, filters)
    which = f"of queue {queue!r}" if queue is not None else "of all queues"
    which += f" and kind {kind!r}" if kind is not None else ""
    which += f" and error class {error_class!r}" if error_class is not None else ""
    which += f", dead for {older_than:g} s or longer," if older_than is not None else ""
    which += f" except the last {keep:,}" if keep is not None else ""
    with common.open() as db:
        if not dry_run:
            output.confirm(f"Dead jobs {which} in {db.url} will be deleted.", yes=yes)
        with output.busy("counting" if dry_run else "purging"):
            chosen: dict[str, Any] = {"kind": kind, "error_class": error_class, "older_than": older_than, "keep": keep}
            deleted = db.dead.purge(queue, **chosen, dry_run=dry_run)
        if deleted and not dry_run:
            record(db, "purge", dead_jobs(queue, kind, error_class), deleted, {"older_than": older_than, "keep": keep})
    found: dict[str, Any] = {"deleted": deleted} | ({"dry_run": True} if dry_run else {})
    common.print(found, f"{'would delete' if dry_run else 'deleted'} {deleted:,} dead jobs")


def _choose(everything: bool, filters: Mapping[str, object]) -> None:
    """Check that the options say which jobs are meant: a forgotten filter must not change the jobs of all queues.

    :param everything: whether ``--all`` was given.
    :param filters: the values of the filters by their names; None: not given.
    :raises ArgumentError: there is no filter and no ``--all``, or both.
    """
    if everything == any(value is not None for value in filters.values()):
        raise ArgumentError(f"name the jobs with one of {', '.join(filters)}; --all alone stands for those of all queues")
