"""PostgreSQL 13 and later, through psycopg2, and asyncpg for asyncio."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from sqlalchemy import (
    Select,
    Table,
    tuple_,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles

from queue_db.dialects import postgresql_sql as shapes
from queue_db.dialects import prepared
from queue_db.dialects.base import ReturningDialect
from queue_db.dialects.claim_sql import ID, PAYLOAD, PRIORITY, VERSION, ClaimText, result_of
from queue_db.dialects.clock import instant, now_us, now_us_after_waiting
from queue_db.dialects.error_codes import ErrorCodes
from queue_db.dialects.inserts import Inserts
from queue_db.dialects.postgresql_inserts import PostgreSQLInserts
from queue_db.dialects.postgresql_server import ERRORS, PostgreSQLServer
from queue_db.dialects.postgresql_sql import HEAD, TRIED
from queue_db.dialects.server import Drivers, Server
from queue_db.dialects.transactions import Sender
from queue_db.model import Capability, ClaimResult, Completion, Fault, Notice, Seen


@compiles(now_us, "postgresql")
def _now(element: now_us, compiler: Any, **kw: Any) -> str:
    # statement_timestamp is stable within a statement, so it can limit an index range. clock_timestamp cannot.
    return "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)"


@compiles(instant, "postgresql")
def _instant(element: instant, compiler: Any, **kw: Any) -> str:
    micros = compiler.process(next(iter(element.clauses)), **kw)
    return f"(TIMESTAMPTZ '1970-01-01 00:00:00Z' + {micros} * INTERVAL '1 microsecond')"


@compiles(now_us_after_waiting, "postgresql")
def _now_after_waiting(element: now_us_after_waiting, compiler: Any, **kw: Any) -> str:
    # One statement locks and writes the rows, so the time at the start of the statement would be before the wait for locks.
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"


class PostgreSQL(ReturningDialect):
    """Claims and changes take one statement: UPDATE … RETURNING in a WITH clause, and arrays for many rows."""

    names: ClassVar[tuple[str, ...]] = ("postgresql",)
    title: ClassVar[str] = "PostgreSQL"
    minimum: ClassVar[tuple[int, ...]] = (13,)
    capabilities: ClassVar[frozenset[Capability]] = frozenset(Capability) - {Capability.SEVERAL_WRITERS}
    drivers: ClassVar[Drivers] = Drivers(
        "psycopg2",
        "postgresql",
        "asyncpg",
        "async-postgresql",
        {
            "sslmode": "ssl",
            **dict.fromkeys(("connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count")),
            **dict.fromkeys(("tcp_user_timeout", "application_name")),
        },
        5432,
    )
    errors: ClassVar[ErrorCodes] = ERRORS
    inserts: ClassVar[Inserts] = PostgreSQLInserts()
    server_type: ClassVar[type[Server]] = PostgreSQLServer
    autocommits: ClassVar[bool] = True
    notifies: ClassVar[bool] = True
    deletes_on_claim: ClassVar[bool] = True
    skip_locked_pays: ClassVar[range] = range(8, 32)
    changes_in_with: ClassVar[bool] = True
    _full_until = 0.0  # the monotonic time before which claims do not use the fast path

    matching = staticmethod(shapes.matching)
    lists: ClassVar[Mapping[str, Any]] = shapes.LISTS
    wanted = staticmethod(shapes.wanted)

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
        if fast_path and time.monotonic() >= self._full_until:
            # One UPDATE … RETURNING or DELETE … RETURNING costs half as much as the full statement.
            one = parameters["limit"] == 1
            try:
                if completes is not None:
                    rows = self._complete_and_claim(tx, claim, parameters, completes, one=one)
                else:
                    statement = claim.made(shapes.fast_path, one=one, delete_on_claim=delete_on_claim)
                    rows = tx.fetch(statement, parameters)
            except DBAPIError as error:
                self._leave_fast_path(tx, error)
                rows = ()
            wanted = parameters["limit"]
            if len(rows) < wanted:
                return result_of(parameters, rows, (rows[0][TRIED] or wanted) if rows else 0, seen=Seen.SOME)
            result = result_of(parameters, rows, wanted)
            # The first row is the first due job of the queue only if no candidate was lost and the candidates are no slice.
            if "start" not in parameters:
                first: Any = result.rows[0]
                result.min_due = {first.priority: first.due_at}
            return result
        if delete_on_claim or completes is not None:
            return result_of(parameters, seen=Seen.NOTHING)
        found = tx.fetch(claim.made(shapes.full_claim), parameters)
        new_priorities = sorted(row[PRIORITY] for row in found if row[ID] is None and row[TRIED] is None)
        # Candidates after a new priority were not tried.
        tried = [row for row in found if row[TRIED] is not None and not (new_priorities and new_priorities[0] < row[PRIORITY])]
        return result_of(
            parameters,
            [row for row in found if row[ID] is not None],
            sum(row[TRIED] for row in tried),
            min_due={row[PRIORITY]: row[HEAD] for row in tried},
            new_priorities=new_priorities,
        )

    def _complete_and_claim(
        self, tx: Sender, claim: ClaimText, parameters: Mapping[str, Any], completes: Completion, *, one: bool
    ) -> Sequence[Sequence[Any]]:
        """Delete completed jobs and claim other jobs; return the rows of the claimed jobs."""
        pairs = completes.pairs
        statement = claim.made(shapes.complete_and_claim, one=one, completes_one=len(pairs) == 1)
        *won, deleted = rows = tx.fetch(statement, {**parameters, **self.wanted(pairs)})
        if deleted[VERSION] is not None:  # the parts of a UNION ALL have no promised order
            won = [row for row in rows if row[VERSION] is not None]
            (deleted,) = [row for row in rows if row[VERSION] is None] or [deleted]
        if deleted[ID] == len(pairs):
            completes.done = {job_id for job_id, _ in pairs}
        else:
            completes.done = {int(job_id) for job_id in (deleted[PAYLOAD] or "").split()}
        return won

    def _leave_fast_path(self, tx: Sender, error: DBAPIError) -> None:
        """After a lock timeout, use the full statement for a while, because it steps over locked jobs.

        :raises DBAPIError: ``error`` is another error, or a transaction has begun, which ``error`` has aborted.
        """
        if self.errors.fault(error) is not Fault.LOCK_TIMEOUT:
            raise error
        self._full_until = time.monotonic() + _FULL_SECONDS
        if tx.begun or not tx.autocommits:
            raise error

    def by_group(self, rows: Select[Any], jobs: Table, key: str, above: int) -> Select[Any]:
        # With ``group_key = …`` and a large group, the planner might read the primary key from its beginning to get the order. So
        # the conditions are a range of (group_key, id). The condition on the id follows from this range. Without this condition,
        # PostgreSQL 13 would expect many rows, and read and sort all rows of the group.
        place = tuple_(jobs.c.group_key, jobs.c.id)
        within = (place > tuple_(key, above), jobs.c.group_key <= key, jobs.c.id > above)
        return rows.where(*within).order_by(jobs.c.group_key, jobs.c.id)

    render = staticmethod(prepared.render)

    def notify(self, tx: Sender, channel: str, text: str) -> None:
        tx.fetch(shapes.NOTIFICATION, Notice(channel, text)._asdict())


# Seconds for which claims use the full statement after a lock timeout.
_FULL_SECONDS = 10.0
