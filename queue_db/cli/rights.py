"""Which rights a database user lacks to run a worker: each statement is executed with a condition that matches no row."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from sqlalchemy import Column, Connection, MetaData, String, Table, delete, false, insert, inspect, select, update
from sqlalchemy.exc import DBAPIError

from queue_db.cli.diagnosis import Diagnosis
from queue_db.db import QueueDB
from queue_db.errors import StorageError

_Statements = dict[tuple[Table, str], Any]


def missing(db: QueueDB) -> list[str]:
    """Return one sentence per table on which a worker's rights are missing, with the GRANT that adds them.

    One sentence alone if the schema is closed to the user, or if the database takes no changes.
    """
    if closed := closed_schema(db):
        return closed
    statements = _statements(db)
    try:
        db.database.run(partial(_execute, list(statements.values())), name="rights", attempts=1)
        refusals = {}
    except StorageError:
        # A refused statement ends its transaction, so each runs in its own.
        refusals = dict(_refusals(db, statements))
    dialect = db.store.dialect
    diagnosis = Diagnosis.of(dialect)
    for error in refusals.values():
        if error.sqlstate in dialect.errors.read_only:
            return [f"the database refuses to change anything: {error.text}; {diagnosis.when_read_only}"]
    user = db.database.run(diagnosis.grantee, name="rights", write=False)
    found = []
    for table in dict.fromkeys(table for table, _ in refusals):
        verbs = {verb: error for (other, verb), error in refusals.items() if other is table}
        names, reason = ", ".join(verbs), next(iter(verbs.values())).text
        found.append(f"no right to {names} on {table.fullname} ({reason}): GRANT {names} ON {table.fullname} TO {user}")
    sequences = db.database.run(partial(diagnosis.closed_sequences, tables=_tables(db)), name="rights", write=False)
    return found + [f"no right to use the sequence {one}: GRANT USAGE ON SEQUENCE {one} TO {user}" for one in sequences]


def closed_schema(db: QueueDB) -> list[str]:
    """Return a sentence with the GRANT if the user has no right to use the schema of the tables: then they seem to be missing."""

    def ask(connection: Connection) -> list[str]:
        diagnosis = Diagnosis.of(db.store.dialect)
        closed = diagnosis.closed_schema(connection, db.store.tables.jobs)
        if closed is None:
            return []
        return [f"no right to use the schema {closed}: GRANT USAGE ON SCHEMA {closed} TO {diagnosis.grantee(connection)}"]

    return db.database.run(ask, name="rights", write=False)


def _tables(db: QueueDB) -> list[Table]:
    return list(db.store.tables.metadata.tables.values())


def _statements(db: QueueDB) -> _Statements:
    names = db.store.tables
    version = Table(names.version, MetaData(), Column("version_num", String), schema=names.schema)
    statements: _Statements = {(version, "SELECT"): select(version.c.version_num).where(false())}
    for table in db.database.run(partial(_existing, tables=_tables(db)), name="rights", write=False):
        key = next(iter(table.primary_key.columns))
        statements[table, "SELECT"] = select(key).where(false())
        statements[table, "UPDATE"] = update(table).values({key: key}).where(false())
        if table is db.store.tables.slices["groups"].stripes:
            continue  # only the migration inserts rows
        given = [column for column in table.c if column.computed is None]
        statements[table, "INSERT"] = insert(table).from_select(given, select(*given).where(false()))
        statements[table, "DELETE"] = delete(table).where(false())
    return statements


def _existing(connection: Connection, tables: list[Table]) -> list[Table]:
    """Return the tables that exist; one of a later migration may be missing."""
    inspector = inspect(connection)

    def exists(table: Table) -> bool:
        try:
            return inspector.has_table(table.name, schema=table.schema)
        except DBAPIError:
            return True  # MySQL hides a table from a user without rights to it

    return [table for table in tables if exists(table)]


def _refusals(db: QueueDB, statements: _Statements) -> Iterator[tuple[tuple[Table, str], StorageError]]:
    for what, statement in statements.items():
        try:
            db.database.run(partial(_execute, [statement]), name="rights", attempts=1)
        except StorageError as error:
            yield what, error


def _execute(statements: list[Any], connection: Connection) -> None:
    for statement in statements:
        connection.execute(statement)
