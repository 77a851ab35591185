"""``queue-db streams list`` and ``release``: what readers of streams hold."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from queue_db.cli import output
from queue_db.cli.commands import JsonOption, SchemaOption, TableOption, UrlOption, YesOption, command, confirm, opened
from queue_db.errors import ArgumentError

NameArgument = Annotated[str | None, typer.Argument(metavar="[NAME]", help="The stream's name.", show_default=False)]
ExpiredOption = Annotated[
    bool, typer.Option("--expired", help="Instead of one by name: all that have had no reader for longer than they keep jobs.")
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

        batches: completed/claimed. held: jobs claimed and not completed. oldest: how long ago the oldest of these was enqueued.
        seen: when a reader last came by. kept: seconds without a reader after which the held jobs return to the queue.
        """
        with opened(url, table, schema) as db:
            found = db.streams.list(queue)
        if as_json:
            for stream in found:
                output.record(asdict(stream))
            return
        output.table(
            ("stream", "queue", "holder", "batches", "held", "oldest", "seen", "kept"),
            [
                (
                    stream.name,
                    stream.queue,
                    stream.holder,
                    f"{stream.completed}/{stream.claimed}",
                    stream.held,
                    output.span(stream.oldest_held_age),
                    stream.seen_at.isoformat(" ", "seconds"),
                    output.span(stream.retention),
                )
                for stream in found
            ],
        )

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
        written of these jobs, and not committed, will be done again.
        """
        if (name is None) != expired:
            raise ArgumentError("which stream? Give its name, or else --expired")
        with opened(url, table, schema) as db:
            which = "expired streams hold" if name is None else f"stream {name!r} holds"
            confirm(f"The jobs that {which} in {db.url} return to their queue, and the checkpoints end.", yes=yes)
            if name is None:
                for one in db.streams.expire():
                    output.record({"stream": one}) if as_json else output.line(f"gave back the jobs of stream {one!r}")
                return
            released = db.streams.release(name)
        if as_json:
            output.record({"stream": name, "released": released})
        else:
            output.line(f"gave back {released:,} jobs of stream {name!r}")
