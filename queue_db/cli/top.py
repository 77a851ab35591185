"""``queue-db top``: queues and workers, live."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from queue_db.cli import output
from queue_db.cli.commands import JsonOption, SchemaOption, TableOption, UrlOption, command, opened, queues
from queue_db.model import Controls, QueueStats, WorkerInfo
from queue_db.queues import QueueDB


def add_to(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "top", "queue-db top", "queue-db top --once --json | jq .workers")
    def top(
        *,
        every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Time between two looks.")] = 2.0,
        once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Show queues and workers until Ctrl-C: what waits, what runs, who works, and what became of the jobs.

        Each look counts the jobs of all queues. stuck: slots of handlers that have not come back after a timeout or a lost lease.
        progress: how far the running jobs are that say so, on average. done/s: completed
        by all workers since the look before. silent: how long ago the worker was last seen; after a few of its words are missing,
        it is most likely dead. With --json each look is a line.
        """
        with opened(url, table, schema) as db:
            if as_json or once:
                while True:
                    seen = _look(db)
                    if as_json:
                        output.record(_told(seen))
                    else:
                        Console(width=None if sys.stdout.isatty() else 140).print(_drawn(seen, None))
                    if once:
                        return
                    time.sleep(every)
            before: _Seen | None = None
            with Live(auto_refresh=False, screen=sys.stdout.isatty()) as screen:
                while True:
                    seen = _look(db)
                    screen.update(_drawn(seen, before), refresh=True)
                    before = seen
                    time.sleep(every)


class _Seen:
    """What one look has seen."""

    def __init__(self, stats: list[QueueStats], controls: dict[str, Controls], workers: list[WorkerInfo]) -> None:
        self.at = time.monotonic()
        self.stats = stats
        self.controls = controls
        self.workers = workers

    @property
    def completed(self) -> int:
        """By all workers that are there."""
        return sum(worker.counters.get("completed", 0) for worker in self.workers)


def _look(db: QueueDB) -> _Seen:
    found = list(queues(db, None))
    return _Seen([queue.stats() for queue in found], {queue.name: queue.controls() for queue in found}, db.workers())


def _told(seen: _Seen) -> dict[str, Any]:
    return {
        "queues": [asdict(one) | {"controls": asdict(seen.controls[one.queue])} for one in seen.stats],
        "workers": [
            asdict(one) | {"started_at": output.moment(one.started_at), "seen_at": output.moment(one.seen_at)}
            for one in seen.workers
        ],
    }


def _drawn(seen: _Seen, before: _Seen | None) -> Group:
    waiting = _table("queue", "available", "scheduled", "blocked", "running", "held", "dead", "waiting", "progress", "said")
    for one in seen.stats:
        age = output.span(one.oldest_available_age) or "–"
        numbers = (one.available, one.scheduled, one.blocked, one.running, one.held, one.dead)
        far = output.share(one.progress) or "–"
        said = _said(seen.controls[one.queue])
        waiting.add_row(output.brief(one.queue), *(f"{number:,}" for number in numbers), age, far, said)
    working = _table("worker", "state", "in hand", "stuck", "completed", "failed", "dead", "lost", "queues", "up", "silent")
    for worker in seen.workers:
        counts = [f"{worker.counters.get(name, 0):,}" for name in ("completed", "failed", "dead", "lost")]
        names = ", ".join(f"{name} {slots}" for name, slots in worker.queues.items())
        up = output.span((worker.seen_at - worker.started_at).total_seconds()) or ""
        silent = output.span(worker.silent) or ""
        working.add_row(
            output.brief(worker.name),
            worker.state,
            str(worker.in_hand),
            str(worker.stuck),
            *counts,
            output.brief(names),
            up,
            silent,
        )
    rate = ""
    if before is not None and seen.at > before.at:
        rate = f", {max(0, seen.completed - before.completed) / (seen.at - before.at):,.0f} done/s"
    return Group(waiting, Text(""), working, Text(f"{len(seen.workers)} workers{rate}", style="dim"))


def _said(controls: Controls) -> str:
    words = ["paused"] if controls.paused else []
    if controls.concurrency is not None:
        words.append(f"≤ {controls.concurrency} at once")
    if controls.rate is not None:
        words.append(f"≤ {controls.rate} in {controls.per:g} s")
    return ", ".join(words)


def _table(*titles: str) -> Table:
    grid = Table(box=None, pad_edge=False, header_style="bold")
    words = {"queue", "said", "worker", "state", "queues"}
    for title in titles:
        grid.add_column(title, justify="left" if title in words else "right", overflow="fold")
    return grid
