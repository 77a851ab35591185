"""The commands of ``queue-db``, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from queue_db import __version__
from queue_db.cli import (
    alive,
    compare,
    control,
    dead,
    doctor,
    enqueue,
    finished,
    inspection,
    migrate,
    removal,
    schedules,
    streams,
    top,
    work,
)
from queue_db.cli.statuses import MEANINGS

_ABOUT = """A job queue in the SQL database you already have.

The database comes from --url or the environment variable QUEUE_DB_URL. Results go to standard output, remarks to standard error.
With --json every line of standard output is one JSON object: one for each job or queue, and {"error": {"type": …, "message": …}}
when a command fails."""

app = typer.Typer(
    name="queue-db",
    help=_ABOUT,
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
    """Only options that belong to no command."""


migrate.add_to(app)
doctor.add_to(app)
enqueue.add_to(app)
inspection.add_to(app)
removal.add_to(app)
dead.add_to(app)
finished.add_to(app)
streams.add_to(app)
schedules.add_to(app)
control.add_to(app)
top.add_to(app)
alive.add_to(app)
work.add_to(app)
compare.add_to(app)
