"""The version of the tables: read it, check it, and say how to bring the tables up to date. This works without Alembic."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import URL, Connection, Select, inspect, literal_column, select, table

from queue_db.database.database import Database
from queue_db.database.masking import MASK, masked
from queue_db.database.urls import URL_VARIABLE, parse_url
from queue_db.errors import ConfigurationError, SchemaOutOfDateError
from queue_db.store.schema.tables import HEAD, Tables

log = logging.getLogger("queue_db")


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """The version of the tables, as stored in the database."""

    #: The latest migration that was run; None: there are no tables.
    revision: str | None
    #: The ``HEAD`` of the oldest package that works with these tables; None: no migration has recorded it.
    works_since: str | None = None

    @property
    def fits(self) -> bool:
        """Whether this package works with the tables, because they are at its revision or at a compatible newer revision."""
        return self.revision == HEAD or self.newer_and_fits

    @property
    def newer_and_fits(self) -> bool:
        """Whether the tables are newer than this package, and the package works with them."""
        if self.revision is None or self.works_since is None:
            return False
        return self.works_since <= HEAD < self.revision


def found(database: Database, tables: Tables) -> SchemaVersion:
    """The version of the tables in the database."""
    return database.run(partial(found_on, tables=tables), name="migrate.found", write=False)


def found_on(connection: Connection, tables: Tables) -> SchemaVersion:
    """The version of the tables, read on this connection."""
    if not inspect(connection).has_table(tables.version, schema=tables.schema):
        return SchemaVersion(None)
    # Select every column: tables before revision 0008 have no column works_since.
    query: Select[Any] = select(literal_column("*")).select_from(table(tables.version, schema=tables.schema))
    row = connection.execute(query).mappings().first()
    return SchemaVersion(None) if row is None else SchemaVersion(row["version_num"], row.get("works_since"))


def require(version: SchemaVersion, tables: Tables, url: str) -> None:
    """Refuse tables with which this package does not work.

    :raises SchemaOutOfDateError: the package does not work with the tables; the message says what to do.
    """
    if version.fits:
        accept(version, tables)
        return
    command = f"{repair(url, tables.name, tables.schema)}  (or QueueDB.migrate())"
    if version.revision is None:
        message = f"the table {tables.name!r} of the queue is not there yet; make it with: {command}"
    elif version.revision > HEAD:
        raise too_old(version, tables)
    else:
        message = f"the tables {tables.name!r} are at revision {version.revision}, {HEAD} is required; run: {command}"
    raise SchemaOutOfDateError(message, found=version.revision, required=HEAD)


def repair(url: URL | str, table: str = "jobs", schema: str | None = None) -> str:
    """The command that makes the tables or brings them up to date. It does not show the password.

    The command has no URL if the environment variable of the command line already contains the URL.
    """
    options = "" if table == "jobs" else f" --table {table}"
    options += "" if schema is None else f" --schema {schema}"
    if _in_environment(url):
        return f"queue-db migrate{options}"
    printed = masked(url)
    hint = f"  (put the password in place of {MASK})" if MASK in printed else ""
    return f"queue-db migrate --url '{printed}'{options}{hint}"


def _in_environment(url: URL | str) -> bool:
    try:
        return masked(parse_url(os.environ.get(URL_VARIABLE, ""))) == masked(url)
    except ConfigurationError:
        return False


def accept(version: SchemaVersion, tables: Tables) -> None:
    """If the tables are newer than this package, which works with them, log that."""
    if version.newer_and_fits:
        text = "the tables %r are at revision %s; this queue-db was written for %s and works with them: upgrade it when convenient"
        log.info(text, tables.name, version.revision, HEAD)


def too_old(version: SchemaVersion, tables: Tables) -> SchemaOutOfDateError:
    """The error of a package that is too old for the tables."""
    needed = "" if version.works_since is None else f", works with {version.works_since} or later"
    return SchemaOutOfDateError(
        f"the tables {tables.name!r} are at revision {version.revision}, made by a newer queue-db{needed}; this one knows {HEAD}: "
        "upgrade the package (pip install -U queue-db)",
        found=version.revision,
        required=HEAD,
    )
