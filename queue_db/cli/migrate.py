"""``queue-db migrate``."""

from __future__ import annotations

from typing import Annotated

import typer

from queue_db.administration import migrate as migrations
from queue_db.cli import output, panels, profiles, statuses
from queue_db.cli.commands import command
from queue_db.cli.options import CommonOptions, YesOption
from queue_db.database import schema_version
from queue_db.database.urls import missing_file, parse_url
from queue_db.errors import ArgumentError, SchemaOutOfDateError
from queue_db.store.schema.tables import HEAD, tables

app = typer.Typer(rich_help_panel=panels.SETUP)


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
        str, typer.Option("--revision", metavar="head|base|NAME", help="Target: head is the newest, base removes the tables.")
    ] = "head",
    check: Annotated[bool, typer.Option("--check", help="Only check whether the tables are up to date: status 0 or 1.")] = False,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the statements from the current revision to the target; execute nothing.")
    ] = False,
    start: Annotated[
        str | None, typer.Option("--from", metavar="base|NAME", help="With --sql: start from this revision, without connecting.")
    ] = None,
    yes: YesOption = False,
    common: CommonOptions,
) -> None:
    """Create the tables, or migrate them to another revision. Run it after installing and before each upgrade of queue-db.

    Migrate first, then deploy the new code: the old code works with the new tables if the migration only adds to them. The
    changelog names the migrations for which all processes must stop.

    A migration to an older revision drops tables or columns, and --revision base drops all jobs. The command lists what will be
    lost and asks for a confirmation, unless --yes is given.
    """
    if check and sql:
        raise ArgumentError("--check and --sql exclude each other: give one of them")
    if start is not None and not sql:
        raise ArgumentError("--from is for --sql: a migration starts from the revision of the tables")
    if sql:
        text = _sql(common, start, revision)
        output.record({"sql": text}) if common.as_json else typer.echo(text, nl=False)
    elif check:
        _check(common)
    else:
        _migrate(common, revision, yes=yes)


def _migrate(common: CommonOptions, revision: str, *, yes: bool) -> None:
    with common.open(create=True) as db:
        version = schema_version.found(db.database, db.store.tables)
        before = version.revision
        lost = [] if revision == "head" else migrations.losses(db.store.tables, version, revision)
        if lost:
            profiles.confirm_loss(f"From revision {before} down to {revision}, {db.url} will lose: {'; '.join(lost)}.", yes=yes)
        else:
            profiles.confirm(f"migrate the tables from {before} to {revision}")
        db.migrate(revision=revision)
        after = schema_version.found(db.database, db.store.tables).revision
    same = before == after
    change = f"is at {_named(after)}: nothing to do" if same else f"migrated from {_named(before)} to {_named(after)}"
    record = {"table": common.table, "schema": common.schema, "before": before, "revision": after}
    common.print(record, f"table {common.table!r} {change}")


def _sql(common: CommonOptions, start: str | None, revision: str) -> str:
    """Return the statements from ``start``, by default from the revision of the tables."""
    parsed = parse_url(common.required_url())
    if start is None and missing_file(parsed):
        start = "base"
    if start is not None:
        dialect = parsed.get_dialect()()
        text = migrations.offline_sql(dialect, tables(common.table, common.schema), revision, start=start)
    else:
        with common.open() as db:
            version = schema_version.found(db.database, db.store.tables)
            start = version.revision or "base"
            text = "" if revision == "head" and version.fits else db.migration_sql(revision, start=start)
    if not text:
        output.note(f"nothing to do from revision {start} to {revision}")
    return text


def _check(common: CommonOptions) -> None:
    message, version = None, schema_version.SchemaVersion(None)
    try:
        with common.open() as db:
            version = schema_version.found(db.database, db.store.tables)
            db.check()
    except SchemaOutOfDateError as error:
        message = str(error)
    if common.as_json:
        output.record(
            {
                "up_to_date": message is None,
                "found": version.revision,
                "works_since": version.works_since,
                "required": HEAD,
                "message": message,
            }
        )
    elif message is None:
        newer = f"newer than {HEAD} and compatible with it" if version.newer_and_fits else "up to date"
        output.line(f"table {common.table!r} is at {_named(version.revision)}: {newer}")
    if message is not None:
        output.note(f"queue-db: {message}")
        raise typer.Exit(statuses.NEGATIVE)


def _named(revision: str | None) -> str:
    return "nothing" if revision is None else f"revision {revision}"
