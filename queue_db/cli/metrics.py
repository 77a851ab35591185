"""``queue-db metrics``: the numbers of each queue, now and over time."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer

from queue_db.cli import output, panels
from queue_db.cli.commands import command
from queue_db.cli.options import CommonOptions
from queue_db.errors import ArgumentError
from queue_db.model import from_micros
from queue_db.monitoring.metrics import QueueMetrics

app = typer.Typer(rich_help_panel=panels.QUEUES)


@command(
    app,
    "metrics",
    "queue-db metrics",
    "queue-db metrics --json | jq .oldest",
    "queue-db metrics mail --last 3600 --width 60",
)
def metrics(
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="Only this queue.", show_default=False)] = None,
    *,
    last: Annotated[
        float | None,
        typer.Option("--last", metavar="SECONDS", help="The history of the last SECONDS, up to 30 days, not the latest numbers."),
    ] = None,
    width: Annotated[
        int,
        typer.Option("--width", metavar="SECONDS", help="Seconds per line of the history: a multiple of 10; beyond a day of 600."),
    ] = 10,
    common: CommonOptions,
) -> None:
    """Show the numbers of each queue that workers wrote: jobs by state, and what happened in the last minute.

    Reads no jobs, so it is quick however many there are; "queue-db stats" counts them now. "10,000+": there may be more, as a count
    stops there; --last shows all, counted less often. workers: that claim from the queue. no handler: jobs of kinds for which no
    worker has had a handler.
    """
    if last is not None and not 0 <= last <= 366 * 86_400:
        raise ArgumentError(f"--last {last:g}: must be 0 to {366 * 86_400:,} seconds")
    with common.open() as db:
        if last is None:
            found = [one for one in db.metrics.latest() if queue in (None, one.queue)]
        else:
            found = db.metrics.history(queue, since=from_micros(db.core.now()) - timedelta(seconds=last), width=width)
    if common.as_json:
        for one in found:
            output.record(asdict(one) | {"at": output.moment(one.at)})
        return
    states = ("available", "scheduled", "blocked", "running", "held", "dead")
    counts = ("completed", "failed", "died", "lost", "missed")
    output.table(
        ("queue", "at", *states, "oldest", *counts, "in", "workers", "paused", "no handler"),
        [_line(one, (*states,), (*counts,)) for one in found],
    )


def _line(one: QueueMetrics, states: tuple[str, ...], counts: tuple[str, ...]) -> tuple[object, ...]:
    before, after = ([getattr(one, name) for name in names] for names in (states, counts))
    shown = [output.at_least(number, name in one.capped) for name, number in zip(states, before, strict=True)]
    return (
        one.queue,
        one.at.isoformat(" ", "seconds"),
        *shown,
        output.span(one.oldest),
        *after,
        output.span(one.duration),
        one.workers,
        one.paused and "paused",
        one.unknown,
    )
