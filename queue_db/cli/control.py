"""``queue-db pause``, ``resume`` and ``limit``: the controls of a queue."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from queue_db import arguments
from queue_db.cli import output, panels, statuses
from queue_db.cli.commands import command
from queue_db.cli.options import CommonOptions, QueueArgument
from queue_db.cli.recording import record
from queue_db.db import QueueDB
from queue_db.errors import ArgumentError
from queue_db.model import Controls
from queue_db.store import controls
from queue_db.verbs.control import change_controls

app = typer.Typer(rich_help_panel=panels.QUEUES)


@command(app, "pause", "queue-db pause mail", "queue-db pause mail --wait 60")
def pause(
    queue: QueueArgument,
    *,
    wait: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Wait up to SECONDS until no job of the queue is running; status 1 if one still is. "
            "Workers notice a pause within 1.5 s, which may be added to the wait.",
        ),
    ] = None,
    common: CommonOptions,
) -> None:
    """Stop all workers from claiming jobs of a queue until it is resumed. Running jobs continue."""
    with common.open() as db:
        if wait is not None:
            arguments.seconds("--wait", wait)
        idle = db.queue(queue).pause()
        record(db, "pause", f"queue {queue}")
        if wait is not None:
            idle = db.queue(queue).pause(wait=wait)
        _warn_if_unused(db, queue)
        _print(queue, db.queue(queue).controls(), common)
    if not idle:
        output.note(f"jobs of {queue} are still running after {wait:g} s")
        raise typer.Exit(statuses.NEGATIVE)


@command(app, "resume", "queue-db resume mail")
def resume(queue: QueueArgument, *, common: CommonOptions) -> None:
    """Let workers claim from a paused queue again."""
    with common.open() as db:
        db.queue(queue).resume()
        record(db, "resume", f"queue {queue}")
        _warn_if_unused(db, queue)
        _print(queue, db.queue(queue).controls(), common)


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
            db.queue(queue).repair_groups()
            _warn_if_unused(db, queue)
        _print(queue, db.queue(queue).controls(), common)


def _changes(concurrency: int | None, rate: int | None, per: float | None, per_group: int | None) -> dict[str, float | None]:
    """Return the limits to change and their values."""
    if per is not None and rate is None:
        raise ArgumentError("--per is the time span of --rate: give --rate too")
    if per is not None:
        arguments.seconds("--per", per, zero=False)
    span = 1.0 if per is None and rate is not None else per
    given = {"concurrency": concurrency, "rate": rate, "per": span, "per_group": per_group}
    return {name: value for name, value in given.items() if value is not None}


def _warn_if_unused(db: QueueDB, queue: str) -> None:
    """A queue comes into being with its first job, so a misspelled name is no error."""
    if not db.core.read("controls.used", controls.used, queue) and not any(queue in worker.queues for worker in db.workers()):
        output.note(f"queue {queue!r} has no jobs and no workers: is the name right?")


def _list(db: QueueDB, common: CommonOptions) -> None:
    found = db.core.read("controls.read", controls.read)
    for name, one in sorted(found.items()):
        if one != Controls():
            _print(name, one, common)


def _print(queue: str, settings: Controls, common: CommonOptions) -> None:
    parts = ["paused" if settings.paused else "not paused"]
    parts.append("no concurrency limit" if settings.concurrency is None else f"at most {settings.concurrency} at a time")
    parts.append("no rate limit" if settings.rate is None else f"at most {settings.rate} per {settings.per:g} s")
    if settings.per_group > 1:
        parts.append(f"{settings.per_group} of each group at a time")
    common.print({"queue": queue} | asdict(settings), f"{queue}: {', '.join(parts)}")
