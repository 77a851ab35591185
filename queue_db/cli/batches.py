"""``queue-db batches``: the progress of batches of jobs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from queue_db.cli import output, panels
from queue_db.cli.commands import command
from queue_db.cli.options import CommonOptions

app = typer.Typer(
    name="batches",
    help="Batches: jobs that were enqueued together, with one that is enqueued when all of them have left.",
    no_args_is_help=True,
    rich_help_panel=panels.JOBS,
)


@command(app, "show", "queue-db batches show 7", "queue-db batches show 7 --json | jq .pending")
def show(
    batch_id: Annotated[int, typer.Argument(min=0, metavar="ID", help="Id of the batch.")],
    *,
    common: CommonOptions,
) -> None:
    """Show the progress of a batch. Status 1 if all its jobs have left and its last job was enqueued, or if there was none.

    queue: that of its last job. pending: jobs still in the queue. dead: of these, those that are dead.
    """
    with common.open() as db:
        found = db.batch(batch_id)
    if found is None:
        output.note(f"no batch {batch_id}: all its jobs have left, or it never existed")
        output.found(found)
        return
    record = asdict(found) | {"created_at": output.moment(found.created_at)}
    if common.as_json:
        output.record(record)
    else:
        output.sheet(record)
