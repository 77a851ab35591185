"""``queue-db dead``: the dead jobs, and the failures that they died by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from queue_db.cli import output, panels, profiles
from queue_db.cli.commands import command
from queue_db.cli.jobs import print_jobs
from queue_db.cli.options import CommonOptions, ErrorClassOption, KindOption, QueueOption, YesOption
from queue_db.cli.recording import user
from queue_db.dead import MOST_COUNTED
from queue_db.errors import ArgumentError
from queue_db.monitoring.failures import SCANNED, FailureGroup
from queue_db.operations import dead as operations
from queue_db.operations.dead import Purge, Redrive

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Change nothing; print what would be changed.")]
AllOption = Annotated[bool, typer.Option("--all", help="All dead jobs of all queues.")]

app = typer.Typer(
    name="dead",
    help="Dead jobs: their last attempt failed, or a handler gave them up. List them and their failures, redrive "
    "(move them back into a queue) or delete them.",
    no_args_is_help=True,
    rich_help_panel=panels.JOBS,
)


@command(
    app,
    "list",
    "queue-db dead list",
    "queue-db dead list --newest --limit 20",
    "queue-db dead list --queue mail --json | jq -r .last_error",
    "queue-db dead list --count --queue mail --error-class TimeoutError",
    "queue-db dead list --failures --queue mail",
    "queue-db dead list --failures --json | jq -r .trace",
)
def list_dead(
    *,
    count: Annotated[bool, typer.Option("--count", help="Print only how many there are, up to 10,000.")] = False,
    failures: Annotated[
        bool, typer.Option("--failures", help="The newest failed attempts instead, grouped by queue, kind and error class.")
    ] = False,
    queue: QueueOption = None,
    kind: KindOption = None,
    error_class: ErrorClassOption = None,
    newest: Annotated[bool, typer.Option("--newest", help="Those that died last come first.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="At most N jobs, or groups of failures.")] = 100,
    common: CommonOptions,
) -> None:
    """List dead jobs with their last error, longest dead first; or how often attempts failed, by error.

    With --failures: counts the newest 10,000 failed attempts, also of jobs that live, and how many of their jobs are dead.

    "redrive" and "purge" take --queue, --kind and --error-class of a group; with --dry-run they count what they would change.
    """
    if count and failures:
        raise ArgumentError("--count and --failures exclude each other: give one of them")
    if newest and (count or failures):
        raise ArgumentError(
            "--newest is for the list of jobs: leave out --count and --failures, which begins with the newest anyway"
        )
    with common.open() as db:
        if failures:
            _print_failures(db.failures(queue, kind=kind, error_class=error_class, limit=limit), common)
            return
        if count:
            found = db.dead.count(queue, kind=kind, error_class=error_class, most=MOST_COUNTED + 1)
        else:
            jobs = db.dead.list(queue, kind=kind, error_class=error_class, limit=limit, newest=newest)
            print_jobs(jobs, "dead since", common)
            return
    more, dead = found > MOST_COUNTED, min(found, MOST_COUNTED)
    common.print({"dead": dead, "more": more}, f"more than {dead:,}" if more else f"{dead:,}")


def _print_failures(found: Iterable[FailureGroup], common: CommonOptions) -> None:
    common.print_all(
        found,
        ("queue", "kind", "error class", "attempts", "dead", "first", "last", "last job", "last error"),
        lambda one: (
            *(one.queue, one.kind, one.error_class or "(a reason)"),
            *(one.count, one.dead, one.first_at, one.last_at, one.job_id, output.brief(one.message)),
        ),
    )
    if not common.as_json:
        output.note(f"of the newest {SCANNED:,} failed attempts of all queues; older ones are not counted")


@command(
    app,
    "redrive",
    "queue-db dead redrive 42 43",
    "queue-db dead redrive --queue mail --limit 10",
    "queue-db dead redrive --queue mail --kind welcome --error-class TimeoutError",
    "queue-db dead redrive --all --json",
)
def redrive(
    ids: Annotated[list[int] | None, typer.Argument(metavar="[ID]...", help="Only these jobs.", min=0)] = None,
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
    given = tuple(ids) if ids else None
    which = Redrive(queue=queue, kind=kind, error_class=error_class, ids=given, limit=limit, everything=everything)
    with common.open() as db:
        if not dry_run:
            profiles.confirm(f"redrive {which.target()}")
        with output.busy("redriving"):
            redriven = operations.redrive(db, user(), which, dry_run=dry_run)
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
    chosen = Purge(queue=queue, kind=kind, error_class=error_class, older_than=older_than, keep=keep, everything=everything)
    which = f"of queue {queue!r}" if queue is not None else "of all queues"
    which += f" and kind {kind!r}" if kind is not None else ""
    which += f" and error class {error_class!r}" if error_class is not None else ""
    which += f", dead for {older_than:g} s or longer," if older_than is not None else ""
    which += f" except the last {keep:,}" if keep is not None else ""
    with common.open() as db:
        if not dry_run:
            profiles.confirm_loss(f"Dead jobs {which} in {db.url} will be deleted.", yes=yes)
        with output.busy("counting" if dry_run else "purging"):
            deleted = operations.purge(db, user(), chosen, dry_run=dry_run)
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
