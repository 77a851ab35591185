"""The options that several commands share, and the database that they name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

import typer

from queue_db.cli import output, profiles
from queue_db.cli.lasting import started
from queue_db.cli.statuses import NegativeError
from queue_db.database.schema_version import repair
from queue_db.database.urls import URL_VARIABLE, missing_file, parse_url
from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, ConfigurationError, SchemaOutOfDateError
from queue_db.store.schema.tables import HEAD

_Item = TypeVar("_Item")

#: The heading of the database options in ``--help``.
DATABASE_PANEL = "Database"

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]
QueueOption = Annotated[str | None, typer.Option("--queue", metavar="QUEUE", help="Only this queue.")]
KindOption = Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Only jobs of this kind.")]
ErrorClassOption = Annotated[
    str | None,
    typer.Option(
        "--error-class",
        metavar="CLASS",
        help="Only jobs that died by an exception of this class, such as ValueError: their last error begins with it and a colon.",
    ),
]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="At most N jobs.")]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        envvar=profiles.VARIABLE,
        show_envvar=True,
        metavar="NAME",
        rich_help_panel=DATABASE_PANEL,
        help="A database of ~/.config/queue-db.toml: its table profiles.NAME has url, and optionally table, schema and "
        "protected = true; then a command asks before it changes something, and --yes answers. --url wins over a profile.",
    ),
]

ReplicasOption = Annotated[
    str | None,
    typer.Option(
        "--replicas",
        envvar="QUEUE_DB_REPLICAS",
        show_envvar=True,
        metavar="URL",
        rich_help_panel=DATABASE_PANEL,
        help="URL of replicas, from which numbers and lists are read while they are at most 10 s behind.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonOptions:
    """Where the jobs are and how results are printed; :func:`queue_db.cli.commands.command` turns each field into an option."""

    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            envvar=URL_VARIABLE,
            show_envvar=True,
            metavar="URL",
            rich_help_panel=DATABASE_PANEL,
            help="Database URL, for example sqlite:///queue.db or postgresql://user:password@host/name. "
            "Other users of the machine can read a command's arguments, but not its environment.",
        ),
    ] = None
    profile: ProfileOption = None
    table: Annotated[
        str, typer.Option("--table", metavar="NAME", rich_help_panel=DATABASE_PANEL, help="Name of the jobs table.")
    ] = "jobs"
    schema: Annotated[
        str | None, typer.Option("--schema", metavar="NAME", rich_help_panel=DATABASE_PANEL, help="Database schema of the tables.")
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line instead of text.")] = False

    @contextmanager
    def open(self, *, create: bool = False, waits: bool = False, **settings: Any) -> Iterator[QueueDB]:
        """Open the database; it is closed at the end of the ``with`` block.

        :param create: create a missing SQLite file.
        :param waits: for a server that is away, as a command that runs until it is stopped does later; for a minute at most.
        :param settings: further arguments of :class:`queue_db.QueueDB`.
        :raises ConfigurationError: no URL, or an unusable one.
        :raises SchemaOutOfDateError: the SQLite file does not exist.
        :raises StorageError: the server does not answer or refuses the login.
        """
        url = self.required_url()
        parsed = parse_url(url)
        file = missing_file(parsed)
        if file and create:
            profiles.confirm(f"create the file {file}")  # the first connection makes it
        elif file:
            raise SchemaOutOfDateError(
                f"the file {file} does not exist: is --url right? To create it: {repair(parsed, self.table, self.schema)}",
                found=None,
                required=HEAD,
            )
        opens = partial(QueueDB, url, table=self.table, schema=self.schema, **settings)
        with started("opening the database", opens) if waits else opens() as db:
            yield db

    def required_url(self) -> str:
        """Return the URL.

        :raises ConfigurationError: none was given.
        """
        if not self.url:
            raise ConfigurationError(f"no database given: use --url or --profile, or set {URL_VARIABLE}")
        return self.url

    def print(self, record: Mapping[str, Any], text: object) -> None:
        """Print one result: ``record`` with ``--json``, ``text`` without."""
        if self.as_json:
            output.record(record)
        else:
            output.line(text)

    def print_all(
        self,
        found: Iterable[_Item],
        columns: Sequence[str],
        line: Callable[[_Item], Sequence[object]],
        record: Callable[[Any], Mapping[str, Any]] = asdict,
    ) -> None:
        """Print a list: a ``record`` of each with ``--json``, a table with a ``line`` of each without."""
        if self.as_json:
            for one in found:
                output.record(record(one))
        else:
            output.table(columns, [line(one) for one in found])

    def print_sheet(self, record: Mapping[str, Any], texts: Mapping[str, str] = MappingProxyType({})) -> None:
        """Print one thing with a line for each of its values.

        :param texts: of values that are no text.
        """
        if self.as_json:
            output.record(record)
        else:
            output.sheet({**record, **texts})

    def print_state(
        self, what: Mapping[str, Any], state: str, *, there: object = True, missing: str = "not found", code: str | None = None
    ) -> None:
        """Print what became of something, by its names.

        :param there: whether there was such a thing.
        :param code: of the error otherwise; None: it is of the first name, as ``no_such_schedule``.
        :raises NegativeError: there was none.
        """
        names = " ".join(str(one) for one in what.values() if one is not None)
        if not there:
            raise NegativeError(f"{names}: {missing}", code or f"no_such_{next(iter(what))}")
        self.print({**what, "state": state}, f"{names}: {state}")


def decoded(what: str, text: str | None) -> Any:
    """The value of a JSON text; None where there is none.

    :param what: subject and verb of the error, such as ``the headers are``.
    :raises ArgumentError: it is not JSON.
    """
    try:
        return None if text is None else json.loads(text)
    except ValueError as error:
        raise ArgumentError(f"{what} not JSON: {error}") from None
    except RecursionError:
        raise ArgumentError(f"{what} nested too deeply") from None


def moment(option: str, text: object) -> datetime:
    """The time that an option or a key of a JSON line has.

    :raises ArgumentError: it is none, or has no time zone.
    """
    try:
        when = datetime.fromisoformat(str(text))
    except ValueError:
        raise ArgumentError(f"{option}={text!r}: must be a time like 2026-01-31T08:00:00+01:00") from None
    if when.utcoffset() is None:
        raise ArgumentError(f"{option}={text!r} has no time zone: append Z for UTC, or an offset like +01:00")
    return when
