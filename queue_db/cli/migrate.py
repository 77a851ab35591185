"""``queue-db migrate``."""

from __future__ import annotations

from typing import Annotated

import typer

from queue_db import migrate as migrations
from queue_db.cli import output, statuses
from queue_db.cli.commands import JsonOption, SchemaOption, TableOption, UrlOption, YesOption, command, confirm, opened
from queue_db.errors import ArgumentError, SchemaOutOfDateError
from queue_db.queues import QueueDB


def add_to(app: typer.Typer) -> None:
    """Add the command."""

    @command(
        app,
        "migrate",
        "queue-db migrate --url sqlite:///queue.db",
        "queue-db migrate --check || echo 'run queue-db migrate first'",
        "queue-db migrate --sql > tables.sql",
        "queue-db migrate --revision base --yes",
    )
    def migrate(
        *,
        revision: Annotated[
            str, typer.Option("--revision", metavar="head|base|NAME", help="Where to go: the newest, nothing, or a revision.")
        ] = "head",
        check: Annotated[
            bool, typer.Option("--check", help="Only tell whether the tables are up to date (status 0 or 1).")
        ] = False,
        sql: Annotated[bool, typer.Option("--sql", help="Print the statements for an empty database and execute nothing.")] = False,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        yes: YesOption = False,
        as_json: JsonOption = False,
    ) -> None:
        """Make the tables, or bring them to another revision. To be run when queue-db is installed and when it is upgraded.

        On the way down tables are dropped with the jobs in them: that needs --yes, or an answer at a terminal.
        """
        if check and sql:
            raise ArgumentError("--check and --sql are two different questions: give one of them")
        with opened(url, table, schema) as db:
            if sql:
                text = _sql(db, revision)
                output.record({"sql": text}) if as_json else typer.echo(text)
                return
            before = migrations.found(db.database, db.store.tables)
            if check:
                _check(db, before, as_json=as_json)
                return
            if before is not None and (revision == "base" or revision < before):
                confirm(
                    f"From revision {before} down to {revision}: tables of {db.url} will be dropped with the jobs in them.", yes=yes
                )
            db.migrate(revision=revision)
            after = migrations.found(db.database, db.store.tables)
            if as_json:
                output.record({"table": table, "schema": schema, "before": before, "revision": after})
            elif before == after:
                output.line(f"table {table!r} is at {_named(after)}: nothing to do")
            else:
                output.line(f"table {table!r} went from {_named(before)} to {_named(after)}")


def _sql(db: QueueDB, revision: str) -> str:
    if revision == "base":
        raise ArgumentError("--sql prints the way from an empty database to --revision; at base there is nothing")
    return db.migration_sql(revision)


def _check(db: QueueDB, found: str | None, *, as_json: bool) -> None:
    message = None
    try:
        db.check()
    except SchemaOutOfDateError as error:
        message = str(error)
    if as_json:
        output.record({"up_to_date": message is None, "found": found, "required": migrations.HEAD, "message": message})
    elif message is None:
        output.line(f"table {db.store.tables.name!r} is at {_named(found)}, as required")
    if message is not None:
        output.note(f"queue-db: {message}")
        raise typer.Exit(statuses.NOT_SO)


def _named(revision: str | None) -> str:
    return "nothing" if revision is None else f"revision {revision}"
