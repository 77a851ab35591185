"""``queue-db pause`` and ``resume``; what the commands on the controls of a queue share."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from queue_db import arguments
from queue_db.cli import output, panels, statuses
from queue_db.cli.commands import command
from queue_db.cli.options import CommonOptions, QueueArgument
from queue_db.cli.recording import user
from queue_db.db import QueueDB
from queue_db.model import Controls
from queue_db.monitoring.store import counts
from queue_db.operations import queues

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
        idle = True
        queues.pause(db, user(), queue)
        if wait is not None:
            idle = db.queue(queue).pause(wait=wait)
        warn_if_unused(db, queue)
        print_controls(queue, db.queue(queue).controls(), common)
    if not idle:
        output.note(f"jobs of {queue} are still running after {wait:g} s")
        raise typer.Exit(statuses.NEGATIVE)


@command(app, "resume", "queue-db resume mail")
def resume(queue: QueueArgument, *, common: CommonOptions) -> None:
    """Let workers claim from a paused queue again."""
    with common.open() as db:
        queues.resume(db, user(), queue)
        warn_if_unused(db, queue)
        print_controls(queue, db.queue(queue).controls(), common)


def warn_if_unused(db: QueueDB, queue: str) -> None:
    """A queue comes into being with its first job, so a misspelled name is no error."""
    if not db.core.read("monitoring.used", counts.used, queue) and not any(queue in worker.queues for worker in db.workers()):
        output.note(f"queue {queue!r} has no jobs and no workers: is the name right?")


def print_controls(queue: str, settings: Controls, common: CommonOptions) -> None:
    """Print the pause and the limits of a queue."""
    parts = ["paused" if settings.paused else "not paused"]
    parts.append("no concurrency limit" if settings.concurrency is None else f"at most {settings.concurrency} at a time")
    parts.append("no rate limit" if settings.rate is None else f"at most {settings.rate} per {settings.per:g} s")
    if settings.per_group > 1:
        parts.append(f"{settings.per_group} of each group at a time")
    common.print({"queue": queue} | asdict(settings), f"{queue}: {', '.join(parts)}")
