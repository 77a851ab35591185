"""``queue-db streams list``, ``complete`` and ``release``: what readers of streams hold."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from queue_db.cli import output
from queue_db.cli.commands import JsonOption, SchemaOption, TableOption, UrlOption, YesOption, command, confirm, opened
from queue_db.db import QueueDB
from queue_db.errors import ArgumentError

NameArgument = Annotated[str | None, typer.Argument(metavar="[NAME]", help="The stream's name.", show_default=False)]
ExpiredOption = Annotated[
    bool, typer.Option("--expired", help="Instead of one by name: all that have had no reader for longer than they keep jobs.")
]
CheckpointOption = Annotated[
    Path | None, typer.Option("--checkpoint", metavar="DIR", help="The query's checkpoint: only what it has committed is written.")
]
QueueOption = Annotated[str | None, typer.Option("--queue", metavar="QUEUE", help="Only streams of this queue.")]


def add_to(app: typer.Typer) -> None:
    """Add the group and its commands."""
    group = typer.Typer(
        name="streams",
        help="Streams that read queues from Spark, and the jobs that they hold until they are written elsewhere.",
        no_args_is_help=True,
    )
    app.add_typer(group)

    @command(group, "list", "queue-db streams list", "queue-db streams list --queue events --json | jq .held")
    def list_streams(
        *,
        queue: QueueOption = None,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """List the streams: who reads them, what they hold, and since when.

        batches: completed/claimed. held: jobs claimed and not completed. maybe written: of these a query was given so many, and may
        have written them. oldest: how long ago the oldest of these was enqueued.
        seen: when a reader last came by. kept: seconds without a reader after which the held jobs return to the queue.
        """
        with opened(url, table, schema) as db:
            found = db.streams.list(queue)
        if as_json:
            for stream in found:
                output.record(asdict(stream))
            return
        output.table(
            ("stream", "queue", "holder", "batches", "held", "maybe written", "oldest", "seen", "kept"),
            [
                (
                    stream.name,
                    stream.queue,
                    stream.holder,
                    f"{stream.completed}/{stream.claimed}",
                    stream.held,
                    stream.maybe_written,
                    output.span(stream.oldest_held_age),
                    stream.seen_at.isoformat(" ", "seconds"),
                    output.span(stream.retention),
                )
                for stream in found
            ],
        )

    _add_complete(group)

    @command(
        group,
        "release",
        "queue-db streams release etl",
        "queue-db streams release etl --yes --json",
        "queue-db streams release --expired --yes",
    )
    def release(
        name: NameArgument = None,
        *,
        expired: ExpiredOption = False,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        yes: YesOption = False,
        as_json: JsonOption = False,
    ) -> None:
        """Give the jobs that a stream holds back to its queue.

        A query that still reads the stream stops, and its checkpoint is refused: start it again with a new one. What the query has
        written of these jobs, committed or not, will be done again: look at "maybe written" in the list, and take
        "queue-db streams complete" for what is written.
        """
        if (name is None) != expired:
            raise ArgumentError("which stream? Give its name, or else --expired")
        with opened(url, table, schema) as db:
            which = "expired streams hold" if name is None else f"stream {name!r} holds"
            confirm(f"The jobs that {which} in {db.url} return to their queue, and the checkpoints end. {_risk(db, name)}", yes=yes)
            if name is None:
                for one in db.streams.expire():
                    output.record({"stream": one}) if as_json else output.line(f"gave back the jobs of stream {one!r}")
                return
            released = db.streams.release(name)
        if as_json:
            output.record({"stream": name, "released": released})
        else:
            output.line(f"gave back {released:,} jobs of stream {name!r}")


def _add_complete(group: typer.Typer) -> None:
    @command(
        group,
        "complete",
        "queue-db streams complete etl --checkpoint /data/checkpoints/etl",
        "queue-db streams complete etl --yes --json",
    )
    def complete(
        name: Annotated[str, typer.Argument(metavar="NAME", help="The stream's name.")],
        *,
        checkpoint: CheckpointOption = None,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        yes: YesOption = False,
        as_json: JsonOption = False,
    ) -> None:
        """The jobs that a stream holds are written: they leave the queue.

        For a query that was stopped for good. With the checkpoint only those leave that Spark has committed. Without it all of them
        leave, so look into the sink first: what is not there would be lost. A query that still reads the stream stops; its
        checkpoint is still good if it has committed these jobs.
        """
        with opened(url, table, schema) as db:
            what = "All jobs" if checkpoint is None else f"The jobs that {str(checkpoint)!r} has committed, of those"
            confirm(f"{what} that stream {name!r} holds in {db.url} are written, and leave the queue.", yes=yes)
            completed = db.streams.complete(name, checkpoint=checkpoint)
        if as_json:
            output.record({"stream": name, "completed": completed})
        else:
            output.line(f"completed {completed:,} jobs of stream {name!r}")


def _risk(db: QueueDB, name: str | None) -> str:
    """What may be done again when jobs are given back."""
    written = sum(stream.maybe_written for stream in db.streams.list() if stream.name == name)
    if name is None:
        return "What a query has written of them is done again."
    return f"Up to {written:,} of them may be written already, and are done again then." if written else "None of them is written."
