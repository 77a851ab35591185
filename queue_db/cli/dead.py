"""``queue-db dead list``, ``redrive`` and ``purge``: the jobs that were given up."""

from __future__ import annotations

from typing import Annotated

import typer

from queue_db.cli import output
from queue_db.cli.commands import (
    JsonOption,
    KindOption,
    LimitOption,
    SchemaOption,
    TableOption,
    UrlOption,
    YesOption,
    command,
    confirm,
    opened,
)
from queue_db.cli.inspection import print_jobs
from queue_db.errors import ArgumentError

QueueOption = Annotated[str | None, typer.Option("--queue", metavar="QUEUE", help="Only jobs of this queue.")]


def add_to(app: typer.Typer) -> None:
    """Add the group and its commands."""
    group = typer.Typer(
        name="dead",
        help="Jobs that were given up, because their attempts were used up or by their handler: list, bring back, delete.",
        no_args_is_help=True,
    )
    app.add_typer(group)

    @command(group, "list", "queue-db dead list", "queue-db dead list --queue mail --json | jq -r .last_error")
    def list_dead(
        *,
        queue: QueueOption = None,
        kind: KindOption = None,
        limit: LimitOption = 100,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """List dead jobs, longest dead first, with the reason."""
        with opened(url, table, schema) as db:
            jobs = db.dead.list(queue, kind=kind, limit=limit)
        print_jobs(jobs, "dead since", as_json=as_json)

    @command(
        group,
        "redrive",
        "queue-db dead redrive 42 43",
        "queue-db dead redrive --queue mail --limit 10",
        "queue-db dead redrive --all --json",
    )
    def redrive(
        ids: Annotated[
            list[int] | None, typer.Argument(metavar="[ID]...", help="Only these jobs.", min=0, show_default=False)
        ] = None,
        *,
        queue: QueueOption = None,
        kind: KindOption = None,
        limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, metavar="N", help="At most so many.")] = None,
        everything: Annotated[bool, typer.Option("--all", help="All dead jobs of all queues.")] = False,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Bring dead jobs back, due now, untried, under their old ids; print these.

        A job whose unique key a live job has stays dead. Status 1 if an ID that was given is not dead; then none comes back.
        """
        chosen = bool(ids) or queue is not None or kind is not None
        if chosen == everything:
            raise ArgumentError("which jobs? Give ids, --queue or --kind, or else --all")
        with opened(url, table, schema) as db, output.busy("redriving"):
            back = db.dead.redrive(ids or None, queue=queue, kind=kind, limit=limit)
        for job_id in back:
            output.record({"id": job_id}) if as_json else output.line(job_id)
        output.note(f"brought back {len(back):,} jobs")

    @command(
        group,
        "purge",
        "queue-db dead purge --queue mail --older-than 604800",
        "queue-db dead purge --queue mail --keep 1000",
        "queue-db dead purge --yes --json",
    )
    def purge(
        *,
        queue: QueueOption = None,
        kind: KindOption = None,
        older_than: Annotated[
            float | None, typer.Option(metavar="SECONDS", help="Only jobs that have been dead for so many seconds.")
        ] = None,
        keep: Annotated[int | None, typer.Option(min=0, metavar="N", help="Not the N jobs of them that died last.")] = None,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        yes: YesOption = False,
        as_json: JsonOption = False,
    ) -> None:
        """Delete dead jobs for good."""
        which = f"of queue {queue!r}" if queue is not None else "of all queues"
        which += f" and kind {kind!r}" if kind is not None else ""
        which += f", dead for {older_than:g} s," if older_than is not None else ""
        which += f" save the last {keep:,}" if keep is not None else ""
        with opened(url, table, schema) as db:
            confirm(f"Dead jobs {which} in {db.url} will be deleted.", yes=yes)
            with output.busy("purging"):
                deleted = db.dead.purge(queue, kind=kind, older_than=older_than, keep=keep)
        if as_json:
            output.record({"deleted": deleted})
        else:
            output.line(f"deleted {deleted:,} dead jobs")
