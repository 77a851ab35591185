"""``queue-db workers``: the registered workers, the rescue of a dead one's jobs, and a health check."""

from __future__ import annotations

import socket
from typing import Annotated

import typer

from queue_db import arguments
from queue_db.cli import output, panels, statuses
from queue_db.cli.commands import command
from queue_db.cli.options import CommonOptions
from queue_db.cli.recording import user
from queue_db.db import QueueDB
from queue_db.operations import workers as operations
from queue_db.store import worker_registry
from queue_db.worker.registration import host_identity, is_alive

app = typer.Typer(
    name="workers",
    help="Workers: those that registered within the last hour. Clients over HTTP do not register.",
    no_args_is_help=True,
    rich_help_panel=panels.WORKERS,
)


@command(app, "list", "queue-db workers list", "queue-db workers list --json | jq -r 'select(.silent > 60) | .name'")
def list_workers(*, common: CommonOptions) -> None:
    """List the workers with a heartbeat within the last hour, by name. "queue-db top" shows them live.

    in hand: jobs claimed and not settled. stuck: slots of handlers that have not returned after a timeout or a lost lease.
    completed to lost: counts since the worker's start. heartbeat: age of the last one; they come every 5 s.
    """
    with common.open() as db:
        found = db.workers()
    counted = ("completed", "failed", "dead", "lost")
    common.print_all(
        found,
        ("worker", "state", "in hand", "stuck", *counted, "queues", "started", "heartbeat"),
        lambda one: (
            *(one.name, one.state, one.in_hand, one.stuck),
            *(one.counters.get(name, 0) for name in counted),
            ", ".join(f"{name} {slots}" for name, slots in one.queues.items()),
            one.started_at,
            output.span(one.silent),
        ),
    )


@command(app, "rescue", "queue-db workers rescue host7:4711-1a2b3c4d")
def rescue(
    name: Annotated[str, typer.Argument(metavar="NAME", help='Name of the worker, as jobs or "queue-db workers list" show it.')],
    *,
    common: CommonOptions,
) -> None:
    """Release the jobs of a dead worker, and its spans of shared cursors, before their leases end: they are due at once.

    Their attempts count. If the worker is alive after all, it loses its leases, and the jobs run twice.
    """
    with common.open() as db:
        rescued = operations.rescue(db, user(), name)
    common.print({"worker": name, "rescued": rescued}, f"released {rescued:,} jobs and spans of worker {name!r}")


@command(app, "alive", "queue-db workers alive", "queue-db workers alive --workers 4 --within 60 || [ $? -eq 3 ]")
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
    last = f", last heartbeat {min(ages):.1f} s ago" if ages else ""
    common.print({"workers": len(ages), "silent": round(min(ages), 3) if ages else None}, f"{len(ages)} workers{last}")
    if len(ages) < workers:
        raise typer.Exit(statuses.NEGATIVE)


def _silent(db: QueueDB, within: float) -> list[float]:
    """Seconds since the last report of each living worker of this machine or container, if less than ``within``."""
    host = host_identity() or socket.gethostname()[:100]
    rows = db.core.read("worker_registry.all_workers", worker_registry.all_workers, host)
    silent = [max(0.0, (row.now - row.seen_at) / 1_000_000) for row in rows if is_alive(row.name.rpartition("#")[0], row.pid)]
    return [seconds for seconds in silent if seconds <= within]
