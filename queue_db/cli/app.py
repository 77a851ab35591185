"""The commands of ``queue-db``, in the order of its help."""

from __future__ import annotations

from typing import Annotated

import typer

from queue_db import __version__
from queue_db.cli import (
    actions,
    alive,
    claims,
    compare,
    control,
    cursors,
    dead,
    doctor,
    enqueue,
    failures,
    feeds,
    finished,
    inspection,
    maintenance,
    metrics,
    migrate,
    removal,
    routes,
    schedules,
    serve,
    streams,
    tokens,
    top,
    work,
)
from queue_db.cli.commands import unwrapped
from queue_db.cli.statuses import MEANINGS

_ABOUT = """A job queue in the SQL database that you already have.

To start: "queue-db migrate" creates the tables, "queue-db enqueue" adds a job, "queue-db work" runs jobs, "queue-db top" shows
queues and workers.

Give the database by --url or the environment variable QUEUE_DB_URL. Results go to standard output, everything else to
standard error. With --json every line of standard output is one JSON object; a failed command prints
{"error": {"type": …, "message": …}} there, unless its options or arguments cannot be read: then only standard error has the
reason."""

app = typer.Typer(
    name="queue-db",
    help=unwrapped(_ABOUT),
    epilog="\n\n".join(["Exit statuses:", *(f"{status}: {meaning}" for status, meaning in MEANINGS.items())]),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"queue-db {__version__}")
        raise typer.Exit


@app.callback()
def queue_db(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Options without a command."""


for _module in (
    *(migrate, doctor, maintenance, actions, compare, serve, tokens),
    *(enqueue, inspection, removal, dead, failures, finished),
    *(control, schedules, feeds, cursors, claims, routes, streams),
    *(work, top, metrics, alive),
):
    app.add_typer(_module.app, rich_help_panel=_module.app.rich_help_panel)
app.add_typer(routes.topics, rich_help_panel=routes.topics.rich_help_panel)
