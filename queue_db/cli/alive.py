"""``queue-db alive``: a health check of the workers of this machine or container."""

from __future__ import annotations

import socket
from typing import Annotated

import typer

from queue_db import arguments
from queue_db.cli import output, panels, statuses
from queue_db.cli.commands import command
from queue_db.cli.options import CommonOptions
from queue_db.db import QueueDB
from queue_db.store import worker_registry
from queue_db.worker.registration import host_identity, is_alive

app = typer.Typer(rich_help_panel=panels.WORKERS)


@command(app, "alive", "queue-db alive", "queue-db alive --workers 4 --within 60 || [ $? -eq 3 ]")
def alive(
    *,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="How many workers must be alive.")] = 1,
    within: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Maximum age of a worker's last heartbeat. Workers send one every 5 s."),
    ] = 60.0,
    common: CommonOptions,
) -> None:
    """Check that workers of this machine or container send heartbeats: status 1 if fewer than --workers do.

    The heartbeats are read from the database. Status 3 means that the database does not answer: the workers wait for it too, and
    restarting them does not help, so let the health check pass, as in the second example.
    """
    arguments.seconds("within", within, zero=False)
    with common.open() as db:
        db.ready()
        ages = _silent(db, within)
    if common.as_json:
        output.record({"workers": len(ages), "silent": round(min(ages), 3) if ages else None})
    else:
        output.line(f"{len(ages)} workers" + (f", last heartbeat {min(ages):.1f} s ago" if ages else ""))
    if len(ages) < workers:
        raise typer.Exit(statuses.NEGATIVE)


def _silent(db: QueueDB, within: float) -> list[float]:
    """Seconds since the last report of each living worker of this machine or container, if less than ``within``."""
    host = host_identity() or socket.gethostname()[:100]
    rows = db.core.read("worker_registry.all_workers", worker_registry.all_workers, host)
    silent = [max(0.0, (row.now - row.seen_at) / 1_000_000) for row in rows if is_alive(row.name.rpartition("#")[0], row.pid)]
    return [seconds for seconds in silent if seconds <= within]
