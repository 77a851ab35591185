"""``queue-db top``: queues and workers, live."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from queue_db.cli import output
from queue_db.cli.commands import JsonOption, SchemaOption, TableOption, UrlOption, command, opened, queues
from queue_db.db import QueueDB
from queue_db.insights import SILENT
from queue_db.model import Controls, QueueStats, WorkerInfo


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
        progress: how far the running jobs are that say so, on average. done/s: completed between the last two reports of a worker,
        which come every five seconds; empty until there were two. silent: time since the worker's last report; after three missed
        reports it is probably dead. With --json each look is a line.
        """
        with opened(url, table, schema) as db:
            rates = Rates()
            if as_json or once:
                while True:
                    seen = _look(db, rates)
                    if as_json:
                        output.record(_told(seen))
                    else:
                        Console(width=None if sys.stdout.isatty() else 150).print(_drawn(seen))
                    if once:
                        return
                    time.sleep(every)
            with Live(auto_refresh=False, screen=sys.stdout.isatty()) as screen:
                while True:
                    screen.update(_drawn(_look(db, rates)), refresh=True)
                    time.sleep(every)


class Rates:
    """How many jobs each worker completes in a second, from its last two reports.

    Looks come more often than reports: a rate between two looks would be nothing, and then three times too much.
    """

    def __init__(self) -> None:
        self._last: dict[str, WorkerInfo] = {}
        self._rates: dict[str, float] = {}

    def see(self, workers: Iterable[WorkerInfo]) -> dict[str, float]:
        """The rates of these workers by name, as far as there were two reports of each; silent ones have none."""
        seen = {worker.name: worker for worker in workers}
        rates = {}
        for name, worker in seen.items():
            before = self._last.get(name)
            if before is not None and before.started_at == worker.started_at:
                seconds = (worker.seen_at - before.seen_at).total_seconds()
                completed = _completed(worker) - _completed(before)
                if seconds > 0 and completed >= 0:
                    rates[name] = completed / seconds
                elif seconds == 0 and name in self._rates:
                    rates[name] = self._rates[name]
            if worker.silent >= SILENT:
                rates.pop(name, None)
        self._last, self._rates = seen, rates
        return rates


def _completed(worker: WorkerInfo) -> int:
    return worker.counters.get("completed", 0)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one look has seen."""

    stats: list[QueueStats]
    controls: dict[str, Controls]
    workers: list[WorkerInfo]
    #: Jobs completed in a second, by worker.
    rates: dict[str, float]


def _look(db: QueueDB, rates: Rates) -> _Seen:
    found = list(queues(db, None))
    workers = db.workers()
    controls = {queue.name: queue.controls() for queue in found}
    return _Seen([queue.stats() for queue in found], controls, workers, rates.see(workers))


def _told(seen: _Seen) -> dict[str, Any]:
    return {
        "queues": [asdict(one) | {"controls": asdict(seen.controls[one.queue])} for one in seen.stats],
        "workers": [
            asdict(one)
            | {"started_at": output.moment(one.started_at), "seen_at": output.moment(one.seen_at)}
            | {"completed_per_second": seen.rates.get(one.name)}
            for one in seen.workers
        ],
    }


def _drawn(seen: _Seen) -> Group:
    waiting = _table("queue", "available", "scheduled", "blocked", "running", "held", "dead", "waiting", "progress", "said")
    for one in seen.stats:
        age = output.span(one.oldest_available_age) or "–"
        numbers = (one.available, one.scheduled, one.blocked, one.running, one.held, one.dead)
        far = output.share(one.progress) or "–"
        said = _said(seen.controls[one.queue])
        waiting.add_row(output.brief(one.queue), *(f"{number:,}" for number in numbers), age, far, said)
    working = _table(
        "worker", "state", "in hand", "stuck", "completed", "done/s", "failed", "dead", "lost", "queues", "up", "silent"
    )
    for worker in seen.workers:
        completed, *others = [f"{worker.counters.get(name, 0):,}" for name in ("completed", "failed", "dead", "lost")]
        rate = seen.rates.get(worker.name)
        names = ", ".join(f"{name} {slots}" for name, slots in worker.queues.items())
        up = output.span((worker.seen_at - worker.started_at).total_seconds()) or ""
        silent = output.span(worker.silent) or ""
        working.add_row(
            output.brief(worker.name),
            worker.state,
            str(worker.in_hand),
            str(worker.stuck),
            completed,
            "" if rate is None else f"{rate:,.1f}",
            *others,
            output.brief(names),
            up,
            silent,
        )
    total = f", {sum(seen.rates.values()):,.1f} done/s" if seen.rates else ""
    return Group(waiting, Text(""), working, Text(f"{len(seen.workers)} workers{total}", style="dim"))


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
