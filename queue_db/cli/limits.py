"""``queue-db limit``: the limits of a queue."""

from __future__ import annotations

from typing import Annotated

import typer

from queue_db import arguments
from queue_db.cli import panels
from queue_db.cli.commands import command
from queue_db.cli.control import print_controls, warn_if_unused
from queue_db.cli.options import CommonOptions
from queue_db.cli.recording import record
from queue_db.db import QueueDB
from queue_db.errors import ArgumentError
from queue_db.limits.verbs import change_controls
from queue_db.model import Controls
from queue_db.store import controls

app = typer.Typer(rich_help_panel=panels.QUEUES)


@command(
    app,
    "limit",
    "queue-db limit",
    "queue-db limit mail",
    "queue-db limit mail --concurrency 20",
    "queue-db limit mail --rate 50 --per 60",
    "queue-db limit mail --none",
)
def limit(
    queue: Annotated[
        str | None,
        typer.Argument(
            metavar="[QUEUE]",
            help="Name of the queue. Without it: list all queues that are paused or limited.",
            show_default=False,
        ),
    ] = None,
    *,
    concurrency: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="At most N jobs of the queue are leased at a time, over all workers.")
    ] = None,
    rate: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="At most N jobs are claimed per --per seconds, over all workers.")
    ] = None,
    per: Annotated[
        float | None, typer.Option(metavar="SECONDS", show_default="1", help="The time span of --rate; needs --rate.")
    ] = None,
    per_group: Annotated[
        int | None, typer.Option(min=1, metavar="N", show_default="1", help="At most N jobs of one group are leased at a time.")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Remove all limits of the queue. A pause stays.")] = False,
    common: CommonOptions,
) -> None:
    """Show or change the limits of a queue, which hold for all workers together.

    Without options: show the pause and the limits, and change nothing. Options that are not given keep their value.
    """
    changes = _changes(concurrency, rate, per, per_group)
    if none and changes:
        raise ArgumentError("--none removes all limits: use it alone")
    if queue is None and (none or changes):
        raise ArgumentError("a limit needs the name of its queue")
    with common.open() as db:
        if queue is None:
            _list(db, common)
            return
        if none:
            db.queue(queue).limit()
            record(db, "limit", f"queue {queue}", detail={"none": True})
        elif changes:
            db.queue(queue).controls()  # checks the name and the tables
            change_controls(db.core, queue, changes)
            given = {"concurrency": concurrency, "rate": rate, "per": per, "per_group": per_group}
            record(db, "limit", f"queue {queue}", detail=given)
            warn_if_unused(db, queue)
        print_controls(queue, db.queue(queue).controls(), common)


def _changes(concurrency: int | None, rate: int | None, per: float | None, per_group: int | None) -> dict[str, float | None]:
    """Return the limits to change and their values."""
    if per is not None and rate is None:
        raise ArgumentError("--per is the time span of --rate: give --rate too")
    if per is not None:
        arguments.seconds("--per", per, zero=False)
    span = 1.0 if per is None and rate is not None else per
    given = {"concurrency": concurrency, "rate": rate, "per": span, "per_group": per_group}
    return {name: value for name, value in given.items() if value is not None}


def _list(db: QueueDB, common: CommonOptions) -> None:
    found = db.core.read("controls.read", controls.read)
    for name, one in sorted(found.items()):
        if one != Controls():
            print_controls(name, one, common)
