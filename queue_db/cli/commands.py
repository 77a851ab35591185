"""How every command is made and run: its options in common, the database it opens, and what becomes of an error."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from queue_db.cli import output, statuses
from queue_db.database.database import URL_VARIABLE, parse_url
from queue_db.database.masking import mask, secrets_in
from queue_db.database.migrate import repair
from queue_db.db import QueueDB
from queue_db.dialects import dialect_for
from queue_db.errors import ConfigurationError, QueueDBError, SchemaOutOfDateError
from queue_db.instrumentation.logging import JSONFormatter
from queue_db.queue import Queue
from queue_db.store.schema import HEAD

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar=URL_VARIABLE,
        show_envvar=True,
        metavar="URL",
        help="Database, for example sqlite:///queue.db or postgresql://user:password@host/name. "
        "In the environment variable it is not seen by other users of the machine.",
    ),
]
TableOption = Annotated[str, typer.Option("--table", metavar="NAME", help="Name of the jobs table.")]
SchemaOption = Annotated[str | None, typer.Option("--schema", metavar="NAME", help="Database schema that the tables are in.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print lines of JSON instead of text.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before data is deleted.")]
QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]
KindOption = Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Only jobs of this kind.")]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="At most so many.")]

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Command(TyperCommand):
    """A command whose errors are one sentence on standard error and an exit status."""

    def invoke(self, ctx: Any) -> Any:
        """Run it; raise :class:`typer.Exit` with the status of what went wrong."""
        secrets = secrets_in(ctx.params.get("url"))
        try:
            return super().invoke(ctx)
        except QueueDBError as error:
            message = mask(str(error), secrets)
            for note in getattr(error, "__notes__", ()):
                output.note(mask(note, secrets))
            output.note(f"queue-db: {message}")
            if ctx.params.get("as_json"):
                output.record({"error": {"type": type(error).__name__, "message": message}})
            raise typer.Exit(statuses.status_of(error)) from None
        except (KeyboardInterrupt, typer.Abort):
            output.note("queue-db: interrupted")
            raise typer.Exit(statuses.INTERRUPTED) from None
        except (typer.Exit, BrokenPipeError):
            raise
        except Exception as error:
            if isinstance(error, typer.BadParameter):
                raise
            output.note(mask(traceback.format_exc(), secrets))
            output.note("queue-db: this is a mistake in queue-db; please report it with the lines above")
            raise typer.Exit(statuses.BUG) from None


def command(app: typer.Typer, name: str, *examples: str) -> Callable[[_Function], _Function]:
    """Add a command to ``app`` with examples at the end of its help."""
    return app.command(name, cls=Command, epilog="\n\n".join(["Examples:", *examples]))


@contextmanager
def opened(
    url: str | None, table: str = "jobs", schema: str | None = None, *, create: bool = False, **options: Any
) -> Iterator[QueueDB]:
    """The database of a command, closed afterwards.

    :param create: make what is not there yet: a SQLite file.
    :raises ConfigurationError: no URL, or one that cannot be used.
    :raises StorageError: the server does not answer or refuses the login.
    """
    parsed = None if create else parse_url(given(url))
    if parsed is not None and (missing := dialect_for(parsed.get_backend_name()).missing(parsed)):
        raise SchemaOutOfDateError(
            f"{missing} is not there: is --url right? To make it: {repair(parsed, table, schema)}",
            found=None,
            required=HEAD,
        )
    with QueueDB(given(url), table=table, schema=schema, **options) as db:
        yield db


def given(url: str | None) -> str:
    """The URL, which has to be there.

    :raises ConfigurationError: no URL.
    """
    if not url:
        raise ConfigurationError(f"which database? Give --url, or set {URL_VARIABLE}")
    return url


def queues(db: QueueDB, name: str | None) -> Iterator[Queue]:
    """The queue of that name, or all that have jobs."""
    if name is not None:
        yield db.queue(name)
        return
    for found in db.queues():
        try:
            yield db.queue(found)
        except QueueDBError as error:
            output.note(f"left out: a queue that was made by an INSERT with a name that cannot be: {error}")


def confirm(question: str, *, yes: bool) -> None:
    """Ask before data is deleted: ``--yes`` answers, and where nobody can be asked it is required.

    :raises ConfigurationError: there is no terminal to ask at.
    :raises typer.Exit: the answer was no.
    """
    if yes:
        return
    if not _asks():
        raise ConfigurationError(f"{question} Say so with --yes: there is no terminal to ask at")
    if not typer.confirm(question, err=True):
        output.note("nothing was changed")
        raise typer.Exit(statuses.NOT_SO)


def _asks() -> bool:
    return sys.stdin.isatty()


class MaskedFormatter(logging.Formatter):
    """Log lines without the secrets of a URL, also in tracebacks."""

    def __init__(self, url: str | None) -> None:
        super().__init__("%(asctime)s %(levelname)s %(threadName)s: %(message)s")
        self._secrets = secrets_in(url)

    def format(self, record: logging.LogRecord) -> str:
        return output.shown(mask(super().format(record), self._secrets), newlines=True)


class MaskedJSONFormatter(JSONFormatter):
    """The same as JSON."""

    def __init__(self, url: str | None) -> None:
        super().__init__()
        self._secrets = secrets_in(url)

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        return {name: self._masked(value) for name, value in super().fields(record).items()}

    def _masked(self, value: object) -> object:
        return value if isinstance(value, int | float) else mask(str(value), self._secrets)
