"""``queue-db prune``: delete what has expired."""

from __future__ import annotations

import typer

from queue_db.cli import output, panels, profiles
from queue_db.cli.commands import command
from queue_db.cli.options import CommonOptions
from queue_db.cli.recording import user
from queue_db.operations import database

app = typer.Typer(rich_help_panel=panels.SETUP)


@command(app, "prune", "queue-db prune", "queue-db prune --json")
def prune(*, common: CommonOptions) -> None:
    """Delete expired results and unique keys, and the errors of attempts older than 30 days. Workers do this once a minute."""
    with common.open() as db:
        profiles.confirm("prune expired rows")
        with output.busy("pruning"):
            deleted = database.prune(db, user())
    common.print({"deleted": deleted}, f"deleted {deleted:,} expired rows")
