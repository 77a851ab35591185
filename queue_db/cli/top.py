"""``queue-db top``: queues and workers, live."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import compress
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from queue_db.cli import output, panels
from queue_db.cli.commands import command
from queue_db.cli.options import CommonOptions, ReplicasOption
from queue_db.cli.queues import with_jobs
from queue_db.db import QueueDB
from queue_db.model import Controls
from queue_db.monitoring.insights import SILENT, controlled
from queue_db.monitoring.model import QueueStats, WorkerInfo
from queue_db.monitoring.sampling import MOST

app = typer.Typer(rich_help_panel=panels.WORKERS)

_QUEUE_COLUMNS = ("queue", "available", "scheduled", "blocked", "running", "held", "dead", "waiting", "progress", "controls")
_WORKER_COLUMNS = (
    *("worker", "state", "in hand", "stuck", "completed", "done/s"),
    *("failed", "dead", "lost", "queues", "uptime", "heartbeat"),
)
# Characters; a narrower terminal shows no uptime.
_WIDE = 100
_TEXT_COLUMNS = {"queue", "controls", "worker", "state", "queues"}


@command(app, "top", "queue-db top", "queue-db top --once --json | jq .workers")
def top(
    *,
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Time between two refreshes.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
    replicas: ReplicasOption = None,
    common: CommonOptions,
) -> None:
    """Show queues and workers until Ctrl-C. Each refresh counts the jobs of all queues; with --json each prints one line.

    Queues have the columns of "queue-db queues show", and: controls: pause and limits. Up to 10,000 jobs of each state are counted;
    "10,000+": there may be more.

    Workers have these columns, among others. in hand: jobs claimed and not settled. stuck: slots of handlers that have not returned
    after a timeout or a lost lease. completed to lost: counts since the worker's start. done/s: jobs completed per second between
    its last two heartbeats, which come every 5 s. heartbeat: age of the last one; after three missed heartbeats the worker is
    probably dead. A terminal of less than 100 columns shows no uptime.
    """
    with common.open(replicas=replicas) as db:
        rates = Rates()
        if common.as_json or once:
            while True:
                snapshot = _read(db, rates)
                if common.as_json:
                    output.record(_record(snapshot))
                else:
                    console = Console(width=None if sys.stdout.isatty() else 150)
                    console.print(_tables(snapshot, console.width))
                if once:
                    return
                time.sleep(every)
        with Live(auto_refresh=False, screen=sys.stdout.isatty()) as screen:
            while True:
                screen.update(_tables(_read(db, rates), screen.console.width), refresh=True)
                time.sleep(every)


class Rates:
    """Jobs that each worker completes per second, from its last two heartbeats.

    The screen refreshes more often than heartbeats come: a rate between two refreshes would alternate between 0 and a multiple.
    """

    def __init__(self) -> None:
        self._last: dict[str, WorkerInfo] = {}
        self._rates: dict[str, float] = {}

    def update(self, workers: Iterable[WorkerInfo]) -> dict[str, float]:
        """Return the rates by worker name; workers with one heartbeat or with missed heartbeats have none."""
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
class _Snapshot:
    """What one refresh has read."""

    stats: list[QueueStats]
    controls: dict[str, Controls]
    workers: list[WorkerInfo]
    #: Jobs completed per second, by worker.
    rates: dict[str, float]


def _read(db: QueueDB, rates: Rates) -> _Snapshot:
    found = list(with_jobs(db, None))
    workers = db.workers()
    return _Snapshot([queue.stats(most=MOST) for queue in found], controlled(db), workers, rates.update(workers))


def _record(snapshot: _Snapshot) -> dict[str, Any]:
    return {
        "queues": [asdict(one) | {"controls": asdict(snapshot.controls.get(one.queue, Controls()))} for one in snapshot.stats],
        "workers": [asdict(one) | {"completed_per_second": snapshot.rates.get(one.name)} for one in snapshot.workers],
    }


def _tables(snapshot: _Snapshot, width: int) -> Group:
    queue_table = _table(_QUEUE_COLUMNS)
    for one in snapshot.stats:
        queue_table.add_row(*_queue_row(one, snapshot.controls.get(one.queue, Controls())))
    shown = [title != "uptime" or width >= _WIDE for title in _WORKER_COLUMNS]
    worker_table = _table(compress(_WORKER_COLUMNS, shown))
    for worker in snapshot.workers:
        worker_table.add_row(*compress(_worker_row(worker, snapshot.rates.get(worker.name)), shown))
    total = f", {sum(snapshot.rates.values()):,.1f} done/s" if snapshot.rates else ""
    return Group(queue_table, Text(""), worker_table, Text(f"{len(snapshot.workers)} workers{total}", style="dim"))


def _queue_row(one: QueueStats, controls: Controls) -> tuple[str, ...]:
    states = ("available", "scheduled", "blocked", "running", "held", "dead")
    return (
        output.brief(one.queue),
        *(f"{getattr(one, state):,}{'+' if state in one.capped else ''}" for state in states),
        output.span(one.oldest_available_age) or "–",
        output.share(one.progress) or "–",
        _limits(controls),
    )


def _worker_row(worker: WorkerInfo, rate: float | None) -> tuple[str, ...]:
    completed, *others = [f"{worker.counters.get(name, 0):,}" for name in ("completed", "failed", "dead", "lost")]
    return (
        output.brief(worker.name),
        worker.state,
        str(worker.in_hand),
        str(worker.stuck),
        completed,
        "" if rate is None else f"{rate:,.1f}",
        *others,
        output.brief(", ".join(f"{name} {slots}" for name, slots in worker.queues.items())),
        output.span((worker.seen_at - worker.started_at).total_seconds()) or "",
        output.span(worker.silent) or "",
    )


def _limits(controls: Controls) -> str:
    parts = ["paused"] if controls.paused else []
    if controls.concurrency is not None:
        parts.append(f"≤ {controls.concurrency} at a time")
    if controls.rate is not None:
        parts.append(f"≤ {controls.rate} per {controls.per:g} s")
    return ", ".join(parts)


def _table(columns: Iterable[str]) -> Table:
    grid = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    for title in columns:
        # A narrow terminal folds texts; titles and numbers stay whole.
        number = title not in _TEXT_COLUMNS
        grid.add_column(
            title, justify="right" if number else "left", overflow="fold", no_wrap=number, min_width=None if number else len(title)
        )
    return grid
