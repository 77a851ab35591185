"""PostgreSQL 13 and later, through psycopg2, and asyncpg for asyncio."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Engine,
    Select,
    Table,
    any_,
    bindparam,
    event,
    tuple_,
)
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles

from queue_db.dialects import asynchronous, direct, greeting, pooled, prepared, statements, transactions
from queue_db.dialects import postgresql_claim as shapes
from queue_db.dialects.base import ReturningDialect
from queue_db.dialects.claim_plan import DUE, ID, PRIORITY, VERSION, result_of
from queue_db.dialects.claim_sql import ClaimText
from queue_db.dialects.clock import instant, now_us, now_us_after_waiting
from queue_db.dialects.grouping import Member
from queue_db.dialects.listening import AsyncpgListener, PostgreSQLListener
from queue_db.dialects.postgresql_bulk import PostgreSQLBulk
from queue_db.dialects.postgresql_claim import HEAD, TRIED
from queue_db.dialects.postgresql_diagnosis import PostgreSQLDiagnosis
from queue_db.dialects.postgresql_opening import PostgreSQLOpening
from queue_db.dialects.seam import Rows
from queue_db.dialects.statements import ONE_NEW, Pairs, copied
from queue_db.dialects.transactions import Sender
from queue_db.errors import StorageError
from queue_db.model import Capability, ClaimResult, Completion, Fault, NewJob, Notice


@compiles(now_us, "postgresql")
def _now(element: now_us, compiler: Any, **kw: Any) -> str:
    # statement_timestamp is stable within a statement, so it may bound an index range; clock_timestamp may not.
    return "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)"


@compiles(instant, "postgresql")
def _instant(element: instant, compiler: Any, **kw: Any) -> str:
    micros = compiler.process(next(iter(element.clauses)), **kw)
    return f"(TIMESTAMPTZ '1970-01-01 00:00:00Z' + {micros} * INTERVAL '1 microsecond')"


@compiles(now_us_after_waiting, "postgresql")
def _now_after_waiting(element: now_us_after_waiting, compiler: Any, **kw: Any) -> str:
    # One statement locks and writes here.
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"


# The prepared statement does not exist, or exists already.
_NOT_MY_SESSION = frozenset({"26000", "42P05"})


class PostgreSQL(PostgreSQLOpening, PostgreSQLBulk, PostgreSQLDiagnosis, ReturningDialect):
    """One statement for everything: UPDATE … RETURNING in a WITH, arrays for many rows."""

    names: ClassVar[tuple[str, ...]] = ("postgresql",)
    title: ClassVar[str] = "PostgreSQL"
    default_driver: ClassVar[str | None] = "psycopg2"
    extra: ClassVar[str] = "postgresql"
    async_driver: ClassVar[str | None] = "asyncpg"
    async_extra: ClassVar[str] = "async-postgresql"
    autocommits: ClassVar[bool] = True
    notifies: ClassVar[bool] = True
    deletes_on_claim: ClassVar[bool] = True
    skip_locked_pays: ClassVar[range] = range(8, 32)
    changes_in_with: ClassVar[bool] = True
    minimum: ClassVar[tuple[int, ...]] = (13,)
    # Serialization failure, deadlock, lock not available, too many connections, shutting down, cannot connect now.
    # And what a prepared statement meets in a session that is not the one that it was prepared in.
    transient: ClassVar[frozenset[str]] = (
        frozenset({"40001", "40P01", "55P03", "53300", "57P01", "57P02", "57P03"}) | _NOT_MY_SESSION
    )

    read_only: ClassVar[frozenset[str]] = frozenset({"25006"})
    full: ClassVar[frozenset[str]] = frozenset({"53100"})
    # statement_timeout, or an administrator has cancelled it.
    expired: ClassVar[frozenset[str]] = frozenset({"57014"})

    faults: ClassVar[Mapping[str, Fault]] = {
        "40P01": Fault.DEADLOCK,
        "40001": Fault.SERIALIZATION,
        "55P03": Fault.LOCK_TIMEOUT,
    }

    def __init__(self) -> None:
        self._pooling = pooled.Pooling()

    def on_demand(self, pooled: transactions.PooledConnection, *, write: bool = True) -> transactions.OnDemand:
        # The connection has been made by now, so it is known.
        if self._pooling.found:
            return self._pooling.begin(pooled)
        return transactions.OnDemand(pooled, self.begins_writing if write else "BEGIN", direct=self.direct)

    _prepares = False
    _full_until = 0.0  # the monotonic time before which claims do not use the fast path

    def capabilities(self, sql: SQLAlchemyDialect) -> frozenset[Capability]:
        return frozenset(Capability)

    def prepare(self, engine: Engine, *, made_here: bool) -> Engine:
        self._prepares = made_here and engine.dialect.driver == "psycopg2"
        if not made_here:
            return engine.execution_options(isolation_level="READ COMMITTED")
        if engine.dialect.driver == "psycopg2":
            self._pooling.watch(engine)
        if engine.dialect.driver == "asyncpg":
            event.listen(engine, "do_connect", pooled.refuse_pooler)
            event.listen(engine, "connect", asynchronous.limit_waits)
        return engine

    def is_idle(self, driver: Any) -> bool:
        status = getattr(driver, "get_transaction_status", None)
        if status is not None:
            return bool(status() == _IDLE)
        transaction = getattr(driver, "is_in_transaction", None)  # asyncpg's
        return transaction is None or not transaction()

    matching = staticmethod(shapes.matching)
    lists: ClassVar[Mapping[str, Any]] = shapes.LISTS
    wanted = staticmethod(shapes.wanted)

    def match(self, jobs: Table, pairs: Pairs) -> ColumnElement[bool]:
        return super().match(jobs, pairs) if len(pairs) == 1 else shapes.matches(jobs, pairs)

    def take(
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
            # One UPDATE … RETURNING, or DELETE … RETURNING: half the work of the full statement.
            one = parameters["limit"] == 1
            try:
                if completes is not None:
                    rows = self._exchange(tx, claim, parameters, completes, one=one)
                else:
                    statement = claim.made(shapes.fast_path, one=one, delete_on_claim=delete_on_claim)
                    rows = tx.fetch(statement, parameters)
            except DBAPIError as error:
                self._leave_fast_path(tx, error)
                rows = ()
            return _fast_path_result(parameters, rows, one=one)
        if delete_on_claim or completes is not None:
            return result_of(parameters, conclusive=False, looked=False)
        found = tx.fetch(claim.made(shapes.full_claim), parameters)
        unseen = sorted(row[PRIORITY] for row in found if row[ID] is None and row[TRIED] is None)
        # Candidates beyond a priority that was not read were not tried.
        tried = [row for row in found if row[TRIED] is not None and not (unseen and unseen[0] < row[PRIORITY])]
        return result_of(
            parameters,
            [row for row in found if row[ID] is not None],
            sum(row[TRIED] for row in tried),
            heads={row[PRIORITY]: row[HEAD] for row in tried},
            unseen=unseen,
        )

    def _exchange(
        self, tx: Sender, claim: ClaimText, parameters: Mapping[str, Any], completes: Completion, *, one: bool
    ) -> Sequence[Sequence[Any]]:
        """Delete completed jobs and claim others; return the rows of the others."""
        statement = claim.made(shapes.exchange, one=one, completes_one=len(completes.pairs) == 1)
        found = tx.fetch(statement, {**parameters, **self.wanted(completes.pairs)})
        completes.done = {row[ID] for row in found if row[VERSION] is None}
        return [row for row in found if row[VERSION] is not None]

    def _leave_fast_path(self, tx: Sender, error: DBAPIError) -> None:
        """A transaction has locked a due job for longer than a claim takes: use the full statement for a while, it steps over it.

        :raises DBAPIError: it is another error, or has rolled back a transaction.
        """
        if self.fault(error) is not Fault.LOCK_TIMEOUT:
            raise error
        self._full_until = time.monotonic() + _FULL_SECONDS
        transaction = tx.on_demand
        if transaction is None or transaction.begun:
            raise error

    def one_of(self, column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
        return column == any_(bindparam(name, type_=ARRAY(column.type)))

    def first_in_groups(self, tx: Sender, jobs: Table, queue: str, keys: Sequence[str], most: int, *, locks: bool) -> list[Member]:
        values = {"of_queue": queue, "keys": list(keys), "most": most}
        rows = tx.fetch(shapes.first_in_groups(jobs, locks=locks), values)
        return [(place, job_id, version, due) for place, job_id, version, due in rows]

    def by_group(self, rows: Select[Any], jobs: Table, key: str, above: int) -> Select[Any]:
        # An equality with the key of a large group would let it read the primary key from its beginning, for the order. The
        # condition on the id follows from the others: with it, PostgreSQL 13 expects one row and does not read all to sort them.
        place = tuple_(jobs.c.group_key, jobs.c.id)
        within = (place > tuple_(key, above), jobs.c.group_key <= key, jobs.c.id > above)
        return rows.where(*within).order_by(jobs.c.group_key, jobs.c.id)

    def bypasses_sqlalchemy(self, sql: SQLAlchemyDialect) -> bool:
        return self._prepares and sql.driver == "psycopg2" and not self._pooling.found

    render = staticmethod(prepared.render)

    def known_alive(self, tx: Sender) -> bool:
        # A caller's connection may be of any driver, and has a transaction. Ours are of psycopg2: the other driver reads from its
        # socket all the time, and poolers need a transaction anyway.
        return tx.sends_directly and direct.lively(tx.connection)

    def notify(self, tx: Sender, channel: str, text: str) -> None:
        tx.fetch(shapes.NOTIFICATION, Notice(channel, text)._asdict())

    def listen(self, engine: Engine, channel: str) -> PostgreSQLListener | None:
        # Through a pooler no notification arrives.
        receives = engine.dialect.driver == "psycopg2" and not self._pooling.found
        return PostgreSQLListener(engine, channel) if receives else None

    def listen_on_loop(self, engine: Engine, broken: Callable[[], None]) -> AsyncpgListener | None:
        receives = engine.dialect.driver == "asyncpg" and not self._pooling.found
        return AsyncpgListener(engine, broken) if receives else None

    def insert_new(self, tx: Sender, jobs: Table, rows: Rows, now: int | None, notice: Notice | None = None) -> list[int | None]:
        # By kept statements: SQLAlchemy's work for a new one costs more than the insert.
        names = copied(rows)
        values: dict[str, Any] = {} if notice is None else notice._asdict()
        texts = statements.on(self, jobs, tx.connection.dialect, settable=now is not None)
        if len(rows) == 1 and rows[0].unique_key is None and now is None:
            values.update(zip(ONE_NEW, rows[0], strict=True))
            one = texts.made(shapes.insert_one, columns=names, notifies=notice is not None)
            return [row[0] for row in tx.fetch(one, values)]
        keyed = any(row.unique_key is not None for row in rows)
        columns = dict(zip(NewJob._fields, zip(*rows, strict=True), strict=True))
        given = {name: columns[name] for name in (*names, "after", "not_before")}
        same = frozenset([name for name, all_ in given.items() if name != "payload" and all_.count(all_[0]) == len(all_)])
        values |= {f"new_{name}": given[name][0] for name in same}
        values |= {f"all_{name}": list(all_) for name, all_ in given.items() if name not in same}
        if now is not None:
            values["now"] = now
        many = texts.made(shapes.insert_many, columns=names, same=same, keyed=keyed, notifies=notice is not None)
        inserted = tx.fetch(many, values)
        # Ids come from the sequence in the order of the sorted rows; rows without a key are never skipped.
        if not keyed:
            return sorted([row[0] for row in inserted])
        keyless = iter(sorted([job_id for job_id, _, key in inserted if key is None]))
        by_key = {(queue, key): job_id for job_id, queue, key in inserted if key is not None}
        return [next(keyless) if row.unique_key is None else by_key.get((row.queue, row.unique_key)) for row in rows]

    def code(self, error: DBAPIError) -> str | None:
        return getattr(error.orig, "pgcode", None) or getattr(error.orig, "sqlstate", None)

    def is_down(self, engine: Engine) -> bool:
        _, options = engine.dialect.create_connect_args(engine.url)
        return greeting.none_accepts(greeting.targets(options), options)

    def translate(self, error: DBAPIError, statement_name: str) -> StorageError:
        # Behind a pooler that gives each transaction another session, prepared statements are missing. The transaction runs again,
        # and nothing is prepared any more.
        if self.code(error) in _NOT_MY_SESSION:
            self._prepares = self.direct = False
        return super().translate(error, statement_name)

    def is_transient(self, code: str) -> bool:
        return super().is_transient(code) or code.startswith("08")

    def is_away(self, code: str) -> bool:
        return super().is_away(code) and code not in _NOT_MY_SESSION


# TRANSACTION_STATUS_IDLE of psycopg2; also another number while a reply is outstanding.
_IDLE = 0

# Seconds for which claims use the full statement after one has met a locked row.
_FULL_SECONDS = 10.0


def _fast_path_result(parameters: Mapping[str, Any], rows: Sequence[Sequence[Any]], *, one: bool) -> ClaimResult:
    if not rows:
        return result_of(parameters, conclusive=False)
    tried = 1 if one else rows[0][TRIED]
    # A slice does not show where the queue begins.
    heads = {} if "start" in parameters else {rows[0][PRIORITY]: rows[0][DUE] if one else rows[0][HEAD]}
    return result_of(parameters, rows, tried, heads=heads, conclusive=len(rows) == parameters["limit"])
