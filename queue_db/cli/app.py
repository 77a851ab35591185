"""The commands of ``queue-db``, in the order of its help."""

from __future__ import annotations

from typing import Annotated

import typer

from queue_db import __version__
from queue_db.cli.commands import unwrapped
from queue_db.cli.statuses import MEANINGS
from queue_db.slices import load

_ABOUT = """A job queue in the SQL database that you already have.

To start: "queue-db migrate" creates the tables, "queue-db enqueue" adds a job, "queue-db work" runs jobs, "queue-db top" shows
queues and workers.

Give the database by --url or the environment variable QUEUE_DB_URL, or name one of ~/.config/queue-db.toml by --profile. Results
go to standard output, everything else to standard error. With --json every line of standard output is one JSON object; a failed
command prints {"error": {"type": …, "code": …, "message": …}} there, unless its options or arguments cannot be read: then only
standard error has the reason."""

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


#: The commands in the order of the help, by module. Those of a slice stand in its package.
_COMMANDS = (
    *("cli.migrate", "cli.doctor", "cli.prune", "cli.actions", "compare.cli", "service.cli", "cli.tokens"),
    *("cli.enqueue", "cli.jobs", "cli.dead"),
    *("cli.queues", "cli.graphs", "cli.schedules", "cli.feeds", "cli.cursors", "cli.routes", "cli.streams"),
    *("cli.work", "cli.workers", "cli.top"),
)

for _module in _COMMANDS:
    _commands = load(_module, "app")
    app.add_typer(_commands, rich_help_panel=_commands.rich_help_panel)
