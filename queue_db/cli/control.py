"""``queue-db pause``, ``resume`` and ``limit``: what is said about a queue as a whole."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer

from queue_db import arguments
from queue_db.cli import output, statuses
from queue_db.cli.commands import JsonOption, QueueArgument, SchemaOption, TableOption, UrlOption, command, opened
from queue_db.db import QueueDB
from queue_db.errors import ArgumentError
from queue_db.model import Controls
from queue_db.queue import Queue
from queue_db.store import controls


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
            _remark(db, queue)
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
            _remark(db, queue)
            _show(db.queue(queue), as_json=as_json)

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
                metavar="[QUEUE]", help="Name of the queue. Without it: all that are paused or limited.", show_default=False
            ),
        ] = None,
        *,
        concurrency: Annotated[int | None, typer.Option(min=1, metavar="N", help="Most of its jobs in hand at once.")] = None,
        rate: Annotated[int | None, typer.Option(min=1, metavar="N", help="Most of its jobs begun in --per seconds.")] = None,
        per: Annotated[
            float | None,
            typer.Option(metavar="SECONDS", show_default="1", help="The time that --rate is for; only together with it."),
        ] = None,
        per_group: Annotated[
            int | None, typer.Option(min=1, metavar="N", show_default="1", help="Most jobs of one group in hand at once.")
        ] = None,
        none: Annotated[bool, typer.Option("--none", help="Remove all limits of the queue. A pause stays.")] = False,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Show or change what all workers together may do with a queue.

        Without options: show its pause and its limits, and change nothing. An option changes only what it names.
        """
        changes = _changes(concurrency, rate, per, per_group)
        if none and changes:
            raise ArgumentError("--none removes all limits: give it alone")
        if queue is None and (none or changes):
            raise ArgumentError("a limit of which queue? Give its name")
        with opened(url, table, schema) as db:
            if queue is None:
                _list(db, as_json=as_json)
                return
            if none:
                db.queue(queue).limit()
            elif changes:
                db.queue(queue).controls()  # its name and the tables are as they should be
                db.database.put(partial(controls.write, store=db.store, queue=queue, values=changes), name="control")
                db.queue(queue).mend()
                _remark(db, queue)
            _show(db.queue(queue), as_json=as_json)


def _changes(concurrency: int | None, rate: int | None, per: float | None, per_group: int | None) -> dict[str, int]:
    """The columns that change; those not given stay as they are."""
    if per is not None and rate is None:
        raise ArgumentError("--per is the time that --rate is for: give --rate too")
    changes = {}
    if concurrency is not None:
        changes["concurrency"] = arguments.whole("--concurrency", concurrency, 1)
    if rate is not None:
        span = arguments.seconds("--per", 1.0 if per is None else per, zero=False)
        changes |= {"rate": arguments.whole("--rate", rate, 1), "per": span, "spent_until": 0}
    if per_group is not None:
        changes["per_group"] = arguments.whole("--per-group", per_group, 1)
    return changes


def _remark(db: QueueDB, queue: str) -> None:
    """A queue is made by its first job: what is misspelled is paused without an error."""
    used = db.database.run(partial(controls.used, store=db.store, queue=queue), name="used", write=False)
    if not used and not any(queue in worker.queues for worker in db.workers()):
        output.note(f"queue {queue!r} has no jobs, and no worker works on it: is the name right?")


def _list(db: QueueDB, *, as_json: bool) -> None:
    db.ready()
    found = db.database.run(partial(controls.read, store=db.store), name="controls", write=False)
    for name, said in sorted(found.items()):
        if said != Controls():
            _line(name, said, as_json=as_json)


def _show(queue: Queue, *, as_json: bool) -> None:
    _line(queue.name, queue.controls(), as_json=as_json)


def _line(queue: str, said: Controls, *, as_json: bool) -> None:
    if as_json:
        output.record({"queue": queue} | asdict(said))
        return
    words = ["paused" if said.paused else "not paused"]
    words.append("any number at once" if said.concurrency is None else f"at most {said.concurrency} at once")
    words.append("at any rate" if said.rate is None else f"at most {said.rate} in {said.per:g} s")
    if said.per_group > 1:
        words.append(f"{said.per_group} of each group at once")
    output.line(f"{queue}: {', '.join(words)}")
