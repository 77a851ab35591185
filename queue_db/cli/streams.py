"""``queue-db streams list``, ``complete`` and ``release``: the jobs that Spark streams hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from queue_db.cli import output, panels, profiles
from queue_db.cli.commands import command
from queue_db.cli.options import CommonOptions, QueueOption, YesOption
from queue_db.cli.recording import user
from queue_db.db import QueueDB
from queue_db.errors import ArgumentError
from queue_db.operations import rights
from queue_db.operations import streams as operations

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the stream.")]
OptionalNameArgument = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Name of the stream.")]

app = typer.Typer(
    name="streams",
    help="Spark queries that read a queue. A stream holds its jobs until the query has written them elsewhere.",
    no_args_is_help=True,
    rich_help_panel=panels.QUEUES,
)


@command(app, "list", "queue-db streams list", "queue-db streams list --queue events --json | jq .held")
def list_streams(*, queue: QueueOption = None, common: CommonOptions) -> None:
    """List the streams with their readers and the jobs that they hold.

    batches: completed/claimed. held: jobs claimed and not completed. maybe written: held jobs that were delivered to a query, which
    may have written them. oldest: how long ago the oldest held job was enqueued. seen: time of the reader's last access.
    retention: how long jobs are held without a reader before they are released.
    """
    with common.open() as db:
        found = db.streams.list(queue)
    common.print_all(
        found,
        ("stream", "queue", "holder", "batches", "held", "maybe written", "oldest", "seen", "retention"),
        lambda one: (
            *(one.name, one.queue, one.holder, f"{one.completed}/{one.claimed}", one.held, one.maybe_written),
            output.span(one.oldest_held_age),
            one.seen_at,
            output.span(one.retention),
        ),
    )


@command(
    app,
    "complete",
    "queue-db streams complete etl --checkpoint /data/checkpoints/etl",
    "queue-db streams complete etl --yes --json",
)
def complete(
    name: NameArgument,
    *,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="DIR", help="Checkpoint of the query: complete only the jobs that it has committed."),
    ] = None,
    yes: YesOption = False,
    common: CommonOptions,
) -> None:
    """Complete the jobs that a stream holds, because they have been written: they leave the queue.

    Use it for a query that was stopped permanently. Without --checkpoint all held jobs are completed, so check the sink first: jobs
    that it does not have would be lost. A query that still reads the stream stops; its checkpoint stays valid if it has committed
    these jobs.
    """
    with common.open() as db:
        rights.stream(db, user(), name)
        what = "All jobs" if checkpoint is None else f"The jobs committed in {str(checkpoint)!r}, among those"
        profiles.confirm_loss(f"{what} that stream {name!r} holds in {db.url} will be completed and leave the queue.", yes=yes)
        completed = operations.complete(db, user(), name, checkpoint=checkpoint)
    common.print({"stream": name, "completed": completed}, f"completed {completed:,} jobs of stream {name!r}")


@command(
    app,
    "release",
    "queue-db streams release etl",
    "queue-db streams release etl --yes --json",
    "queue-db streams release --expired --yes",
)
def release(
    name: OptionalNameArgument = None,
    *,
    expired: Annotated[
        bool, typer.Option("--expired", help="Instead of NAME: all streams without a reader for longer than their retention.")
    ] = False,
    yes: YesOption = False,
    common: CommonOptions,
) -> None:
    """Release the jobs that a stream holds: they are due again in its queue.

    A query that still reads the stream stops, and its checkpoint becomes invalid: start the query with a new one. Jobs that the
    query has already written, committed or not, will run again: see "maybe written" in "queue-db streams list", and use
    "queue-db streams complete" for jobs that have been written.
    """
    if (name is None) != expired:
        raise ArgumentError("no stream chosen: give its name, or else --expired")
    with common.open() as db:
        if name is not None:
            rights.stream(db, user(), name)
        which = "expired streams hold" if name is None else f"stream {name!r} holds"
        question = f"The jobs that {which} in {db.url} will return to their queue, and the checkpoints become invalid."
        profiles.confirm_loss(f"{question} {_risk(db, name)}", yes=yes)
        if name is None:
            for one in operations.release_expired(db, user()):
                common.print({"stream": one}, f"released the jobs of stream {one!r}")
            return
        released = operations.release(db, user(), name)
    common.print({"stream": name, "released": released}, f"released {released:,} jobs of stream {name!r}")


def _risk(db: QueueDB, name: str | None) -> str:
    """Describe the jobs that may run a second time after a release."""
    written = sum(stream.maybe_written for stream in db.streams.list() if stream.name == name)
    if name is None:
        return "Jobs that a query has already written will run again."
    return f"Up to {written:,} of them may already be written, and will run again." if written else "None of them has been written."
