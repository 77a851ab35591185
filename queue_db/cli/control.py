"""``queue-db pause``, ``resume`` and ``limit``: what is said about a queue as a whole."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from queue_db.cli import output, statuses
from queue_db.cli.commands import JsonOption, QueueArgument, SchemaOption, TableOption, UrlOption, command, opened
from queue_db.queue import Queue


def add_to(app: typer.Typer) -> None:
    """Add the commands."""

    @command(app, "pause", "queue-db pause mail", "queue-db pause mail --wait 60")
    def pause(
        queue: QueueArgument,
        *,
        wait: Annotated[
            float | None,
            typer.Option(
                metavar="SECONDS",
                help="Wait so long until none of its jobs runs; status 1 if one still does. "
                "Workers notice the pause within 1.5 s, so the answer may come so much later.",
            ),
        ] = None,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Let no worker claim from a queue, anywhere, until it is resumed. Running jobs go on."""
        with opened(url, table, schema) as db:
            rests = db.queue(queue).pause(wait=wait)
            _show(db.queue(queue), as_json=as_json)
        if not rests:
            output.note(f"jobs of {queue} are still running after {wait:g} s")
            raise typer.Exit(statuses.NOT_SO)

    @command(app, "resume", "queue-db resume mail")
    def resume(
        queue: QueueArgument,
        *,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Let workers claim from a paused queue again."""
        with opened(url, table, schema) as db:
            db.queue(queue).resume()
            _show(db.queue(queue), as_json=as_json)

    @command(app, "limit", "queue-db limit mail --concurrency 20", "queue-db limit mail --rate 50 --per 60", "queue-db limit mail")
    def limit(
        queue: QueueArgument,
        *,
        concurrency: Annotated[int | None, typer.Option(min=1, metavar="N", help="Most of its jobs in hand at once.")] = None,
        rate: Annotated[int | None, typer.Option(min=1, metavar="N", help="Most of its jobs begun in --per seconds.")] = None,
        per: Annotated[float, typer.Option(metavar="SECONDS", help="The time that --rate is for.")] = 1.0,
        per_group: Annotated[
            int | None, typer.Option(min=1, metavar="N", help="Most jobs of one group in hand at once; one if not given.")
        ] = None,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Say what all workers together may do with a queue; without options: whatever they can."""
        with opened(url, table, schema) as db:
            db.queue(queue).limit(concurrency=concurrency, rate=rate, per=per, per_group=per_group)
            _show(db.queue(queue), as_json=as_json)


def _show(queue: Queue, *, as_json: bool) -> None:
    said = queue.controls()
    if as_json:
        output.record({"queue": queue.name} | asdict(said))
        return
    words = ["paused" if said.paused else "not paused"]
    words.append("any number at once" if said.concurrency is None else f"at most {said.concurrency} at once")
    words.append("at any rate" if said.rate is None else f"at most {said.rate} in {said.per:g} s")
    if said.per_group > 1:
        words.append(f"{said.per_group} of each group at once")
    output.line(f"{queue.name}: {', '.join(words)}")
