"""``queue-db alive``: whether workers of this machine or container are at work, for health checks."""

from __future__ import annotations

from typing import Annotated

import typer

from queue_db import arguments
from queue_db.cli import output, statuses
from queue_db.cli.commands import JsonOption, SchemaOption, TableOption, UrlOption, command, opened
from queue_db.worker.presence import seen_here


def add_to(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "alive", "queue-db alive", "queue-db alive --workers 4 --within 60 || [ $? -eq 3 ]")
    def alive(
        *,
        workers: Annotated[int, typer.Option(min=1, metavar="N", help="How many workers must be there.")] = 1,
        within: Annotated[
            float, typer.Option(metavar="SECONDS", help="A worker is there that has reported so lately. They do every 5 s.")
        ] = 60.0,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Check that workers of this machine, or in a container those of this container, are alive: status 1 if they are not.

        It reads what the workers report to the database. Status 3: the database does not answer. The workers wait for it then, and
        to restart them does not help: let health checks pass, as the example does.
        """
        arguments.seconds("within", within, zero=False)
        with opened(url, table, schema) as db:
            db.ready()
            silent = seen_here(db, within)
        if as_json:
            output.record({"workers": len(silent), "silent": round(min(silent), 3) if silent else None})
        else:
            output.line(f"{len(silent)} workers" + (f", the last one seen {min(silent):.1f} s ago" if silent else ""))
        if len(silent) < workers:
            raise typer.Exit(statuses.NOT_SO)
