"""SQLite 3.35 and later. It has one writer at a time, so a claim has no misses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from sqlalchemy import (
    Executable,
    Table,
    func,
    select,
)
from sqlalchemy.ext.compiler import compiles

from queue_db.dialects import statements, transactions
from queue_db.dialects.base import ReturningDialect, Values
from queue_db.dialects.claim_sql import ClaimText, read_new_priorities, result_of, update_existing
from queue_db.dialects.clock import instant, now_us
from queue_db.dialects.error_codes import ErrorCodes
from queue_db.dialects.inserts import Inserts, Rows, dated, load
from queue_db.dialects.server import Drivers, Server
from queue_db.dialects.sqlite_server import ERRORS, SQLiteServer, run_beside
from queue_db.dialects.statements import Columns, JobsText, Pairs, kept
from queue_db.dialects.transactions import Sender
from queue_db.model import Capability, ClaimResult, Completion


@compiles(now_us, "sqlite")
def _now(element: now_us, compiler: Any, **kw: Any) -> str:
    # julianday is exact to the millisecond; unixepoch('subsec') would need 3.42.
    return "(CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)"


@compiles(instant, "sqlite")
def _instant(element: instant, compiler: Any, **kw: Any) -> str:
    micros = compiler.process(next(iter(element.clauses)), **kw)
    return f"strftime('%Y-%m-%d %H:%M:%f', {micros} / 1000000.0, 'unixepoch')"


class SQLiteInserts(Inserts):
    """Inserts new jobs, many rows with ``executemany``."""

    def bulk_load(self, tx: Sender, jobs: Table, rows: Rows, now: int | None) -> list[int]:
        load(tx, jobs, *dated(tx, rows, now))
        # The driver has no ``lastrowid`` after ``executemany``. There is only one writer, so the ids are consecutive.
        last = tx.connection.execute(select(func.last_insert_rowid())).scalar_one()
        return list(range(last - len(rows) + 1, last + 1))


class SQLite(ReturningDialect):
    """A file that one writer holds at a time."""

    names: ClassVar[tuple[str, ...]] = ("sqlite",)
    title: ClassVar[str] = "SQLite"
    minimum: ClassVar[tuple[int, ...]] = (3, 35)
    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.DELETE_RETURNING, Capability.UPDATE_RETURNING})
    drivers: ClassVar[Drivers] = Drivers(asynchronous="aiosqlite", async_extra="async-sqlite")
    errors: ClassVar[ErrorCodes] = ERRORS
    inserts: ClassVar[Inserts] = SQLiteInserts()
    server_type: ClassVar[type[Server]] = SQLiteServer
    autocommits: ClassVar[bool] = True
    served: ClassVar[bool] = False
    # The driver begins its transaction before the first change and then upgrades a read lock. If two claims upgrade their locks,
    # one fails at once with SQLITE_BUSY. With BEGIN IMMEDIATE a transaction takes the write lock first, so the second claim waits.
    begins_writing: ClassVar[str] = "BEGIN IMMEDIATE"

    def hold(self, tx: Sender, jobs: Table, pairs: Pairs, *, skip: bool = False) -> Pairs:
        # SQLite has no row locks, so their order does not matter. The write lock of the transaction protects the rows.
        tx.begin()
        texts = statements.on(self, jobs, tx.connection.dialect)
        if len(pairs) == 1:
            rows = tx.fetch(texts.made(statements.select, columns=("id", "version"), one=True), self.wanted(pairs))
        else:
            rows = tx.fetch(texts.made(_matching), {"of_pairs": _encoded(pairs)})
        return [(job_id, version) for job_id, version in rows]

    def update_returning(
        self, tx: Sender, jobs: Table, pairs: Pairs, assignments: str, values: Values, returning: Columns
    ) -> Sequence[Sequence[Any]]:
        if len(pairs) == 1:
            return super().update_returning(tx, jobs, pairs, assignments, values, returning)
        texts = statements.on(self, jobs, tx.connection.dialect, settable="now" in values)
        update = texts.made(_update, assignments=assignments, returning=returning)
        return tx.fetch(update, {**values, "of_pairs": _encoded(pairs)})

    def delete_returning(self, tx: Sender, jobs: Table, pairs: Pairs) -> set[int]:
        tx.begin()  # one DELETE for each job, in a savepoint
        if not tx.autocommits:
            with transactions.savepoint(tx.connection):
                return self._delete_held(tx, jobs, pairs)
        run_beside(tx.connection, f"SAVEPOINT {_POINT}")
        if self._delete_each(tx, jobs, pairs) == len(pairs):
            run_beside(tx.connection, f"RELEASE {_POINT}")
            return {job_id for job_id, _ in pairs}
        # Some leases are lost, but the count does not show which ones. So undo the deletion and look.
        run_beside(tx.connection, f"ROLLBACK TO {_POINT}")
        return self._delete_held(tx, jobs, pairs)

    def _delete_each(self, tx: Sender, jobs: Table, pairs: Pairs) -> int:
        """Delete the rows that match ``pairs``; return their number."""
        texts = statements.on(self, jobs, tx.connection.dialect)
        return tx.execute_many(texts.made(statements.delete, one=True), _PAIR, pairs)[0]

    def _delete_held(self, tx: Sender, jobs: Table, pairs: Pairs) -> set[int]:
        held = self.hold(tx, jobs, pairs)
        if held:
            self._delete_each(tx, jobs, held)
        return {job_id for job_id, _ in held}

    def execute_claim(
        self,
        tx: Sender,
        claim: ClaimText,
        parameters: Mapping[str, Any],
        *,
        fast_path: bool = False,
        delete_on_claim: bool = False,
        completes: Completion | None = None,
    ) -> ClaimResult:
        rows = tx.fetch(claim.made(update_existing), parameters)
        new_priorities: list[int] = []
        if claim.shape.ranges and len(rows) < parameters["limit"]:
            # RETURNING returns only claimed rows, so another statement reads the new priorities.
            new_priorities = sorted(priority for (priority,) in tx.fetch(claim.made(read_new_priorities), parameters))
        # SQLite removes deleted index entries at once. So claims can always start at the beginning and need no min_due.
        return result_of(parameters, rows, len(rows), new_priorities=new_priorities)


# ruff: noqa: S608 - the texts are made of constants and of table names that SQLAlchemy has quoted; values are bound.

# After ANALYZE of a nearly empty table, SQLite scans the whole table to find ``id IN (…)``, even after the table has grown to a
# million jobs. SQLite 3.53 always scans the table. SQLite 3.40 scans it if, at the time of ANALYZE, the table had a job with a key
# and one with a group. A join also leads to a scan. SQLite never scans the table for ``id = …`` in a statement on one table, or for
# the existing row of ON CONFLICT (id). So the statements on several jobs use one of these two forms.

# The id of a given pair.
_GIVEN_ID = 'CAST(given."key" AS BIGINT)'
# The FROM and WHERE clauses that select the given pairs whose job has the given version. ``{}`` stands for the table of jobs.
_GIVEN = f"json_each(:of_pairs) AS given WHERE (SELECT held.version FROM {{}} AS held WHERE held.id = {_GIVEN_ID}) = given.value"


_PAIR = ("of_id", "of_version")
_POINT = "queue_db_delete"


def _encoded(pairs: Pairs) -> str:
    """The pairs as a JSON object, id → version."""
    return "{" + ",".join([f'"{job_id}":{version}' for job_id, version in pairs]) + "}"


def _matching(jobs: JobsText) -> Executable:
    """Select the given pairs that match a row of the table."""
    rows = f"SELECT {_GIVEN_ID}, given.value FROM {_GIVEN.format(jobs.table)}"
    return kept(rows, "id", "version")


def _update(jobs: JobsText, *, assignments: str, returning: Columns) -> Executable:
    """Update the rows that match the given pairs. The statement is an INSERT, but all its rows exist, so it only updates."""
    rows = f"SELECT {_GIVEN_ID}, '', '' FROM {_GIVEN.format(jobs.table)}"
    change = f"ON CONFLICT (id) DO UPDATE SET {assignments.format(now=jobs.now)} RETURNING {', '.join(returning)}"
    return kept(f"INSERT INTO {jobs.table} (id, queue, payload) {rows} {change}", *returning)
