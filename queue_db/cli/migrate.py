"""``queue-db migrate``."""

from __future__ import annotations

from typing import Annotated

import typer

from queue_db.cli import output, statuses
from queue_db.cli.commands import JsonOption, SchemaOption, TableOption, UrlOption, YesOption, command, confirm, given, opened
from queue_db.database import migrate as migrations
from queue_db.database.database import parse_url
from queue_db.dialects import dialect_for
from queue_db.errors import ArgumentError, SchemaOutOfDateError
from queue_db.store.schema import tables


def add_to(app: typer.Typer) -> None:
    """Add the command."""

    @command(
        app,
        "migrate",
        "queue-db migrate --url sqlite:///queue.db",
        "queue-db migrate --check || echo 'run queue-db migrate first'",
        "queue-db migrate --sql > step.sql",
        "queue-db migrate --sql --from 0004 --url postgresql://host/name > step.sql",
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
        sql: Annotated[
            bool,
            typer.Option("--sql", help="Print the statements from the revision that the tables are at, and execute nothing."),
        ] = False,
        start: Annotated[
            str | None,
            typer.Option(
                "--from", metavar="base|NAME", help="With --sql: the revision to start from. The database is not connected to."
            ),
        ] = None,
        url: UrlOption = None,
        table: TableOption = "jobs",
        schema: SchemaOption = None,
        yes: YesOption = False,
        as_json: JsonOption = False,
    ) -> None:
        """Make the tables, or bring them to another revision. To be run when queue-db is installed and when it is upgraded.

        Migrate first, then deploy the new code: the old code works with the new tables as long as they only have additions.

        Each step down drops tables or columns, the first migration's all jobs: what is lost is listed, and that needs --yes, or an
        answer at a terminal.
        """
        if check and sql:
            raise ArgumentError("--check and --sql are two different questions: give one of them")
        if start is not None and not sql:
            raise ArgumentError("--from is for --sql: a migration starts from the revision that the tables are at")
        if sql:
            text = _sql(url, table, schema, start, revision)
            output.record({"sql": text}) if as_json else typer.echo(text, nl=False)
            return
        if check:
            _check(url, table, schema, as_json=as_json)
            return
        with opened(url, table, schema, create=True) as db:
            version = migrations.found(db.database, db.store.tables)
            before = version.revision
            lost = [] if revision == "head" else migrations.losses(db.store.tables, version, revision)
            if lost:
                confirm(f"From revision {before} down to {revision}, {db.url} will lose: {'; '.join(lost)}.", yes=yes)
            db.migrate(revision=revision)
            after = migrations.found(db.database, db.store.tables).revision
            if as_json:
                output.record({"table": table, "schema": schema, "before": before, "revision": after})
            elif before == after:
                output.line(f"table {table!r} is at {_named(after)}: nothing to do")
            else:
                output.line(f"table {table!r} went from {_named(before)} to {_named(after)}")


def _sql(url: str | None, table: str, schema: str | None, start: str | None, revision: str) -> str:
    """The statements from ``start``, or else from the revision that the tables are at."""
    parsed = parse_url(given(url))
    if start is None and dialect_for(parsed.get_backend_name()).missing(parsed):
        start = "base"
    if start is not None:
        dialect = parsed.get_dialect()()
        text = migrations.offline_sql(dialect, tables(table, schema), revision, start=start)
    else:
        with opened(url, table, schema) as db:
            version = migrations.found(db.database, db.store.tables)
            start = version.revision or "base"
            text = "" if revision == "head" and version.fits else db.migration_sql(revision, start=start)
    if not text:
        output.note(f"nothing to do from revision {start} to {revision}")
    return text


def _check(url: str | None, table: str, schema: str | None, *, as_json: bool) -> None:
    message, version = None, migrations.SchemaVersion(None)
    try:
        with opened(url, table, schema) as db:
            version = migrations.found(db.database, db.store.tables)
            db.check()
    except SchemaOutOfDateError as error:
        message = str(error)
    if as_json:
        output.record(
            {
                "up_to_date": message is None,
                "found": version.revision,
                "works_since": version.works_since,
                "required": migrations.HEAD,
                "message": message,
            }
        )
    elif message is None and version.newer_and_fits:
        output.line(f"table {table!r} is at {_named(version.revision)}: newer than {migrations.HEAD}, and works with it")
    elif message is None:
        output.line(f"table {table!r} is at {_named(version.revision)}, as required")
    if message is not None:
        output.note(f"queue-db: {message}")
        raise typer.Exit(statuses.NOT_SO)


def _named(revision: str | None) -> str:
    return "nothing" if revision is None else f"revision {revision}"
