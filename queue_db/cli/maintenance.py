"""``queue-db prune`` and ``repair-groups``: maintenance that workers do once a minute."""

from __future__ import annotations

import typer

from queue_db.cli import output, panels
from queue_db.cli.commands import command
from queue_db.cli.options import CommonOptions, QueueArgument
from queue_db.cli.recording import record

app = typer.Typer(rich_help_panel=panels.SETUP)


@command(app, "prune", "queue-db prune", "queue-db prune --json")
def prune(*, common: CommonOptions) -> None:
    """Delete expired results and unique keys, and the errors of attempts older than 30 days. Workers do this once a minute."""
    with common.open() as db, output.busy("pruning"):
        deleted = db.prune()
        if deleted:
            record(db, "prune", "expired rows", deleted)
    common.print({"deleted": deleted}, f"deleted {deleted:,} expired rows")


@command(app, "repair-groups", "queue-db repair-groups mail")
def repair_groups(queue: QueueArgument, *, common: CommonOptions) -> None:
    """Unblock the groups of a queue after its jobs were deleted with SQL. Workers do this once a minute.

    Deleting a grouped job with SQL leaves the next job of its group blocked.
    """
    with common.open() as db:
        repaired = db.queue(queue).repair_groups()
        if repaired:
            record(db, "repair", f"groups of queue {queue}", repaired)
    common.print({"queue": queue, "repaired": repaired}, f"repaired {repaired:,} groups of queue {queue!r}")
