"""The claim seam: what claims, settles and enqueues need of a database, with portable defaults."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Delete,
    Engine,
    Executable,
    Select,
    Table,
    Update,
    func,
    insert,
    select,
)
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect
from sqlalchemy.exc import IntegrityError

from queue_db.dialects import claim_sql, direct, statements, transactions
from queue_db.dialects.claim_plan import ID, LOOKED_AT, VERSION, as_claimed, assigned, candidates_in, result_of
from queue_db.dialects.claim_sql import ClaimText, Lock
from queue_db.dialects.clock import now_us
from queue_db.dialects.listening import Listener, LoopListener
from queue_db.dialects.statements import ONE_NEW, Columns, Pairs, copied
from queue_db.dialects.transactions import Sender
from queue_db.errors import TransientStorageError
from queue_db.model import Capability, ClaimResult, Completion, NewJob, Notice

Rows = Sequence[NewJob]
"""New jobs. ``after`` and ``not_before`` give their due time, once the database's time is known."""

Values = Mapping[str, Any]

Statement = TypeVar("Statement", Select[Any], Update, Delete)

# How often an insert is repeated after another transaction has inserted one of its keys.
_RACES = 8

# A chunk is one statement: a second page could fail after the first one is in.
_ONE_PAGE = {"insertmanyvalues_page_size": 100_000}


class ClaimSeam:
    """What claims, settles and enqueues need of a database. Each member has a default that works on most."""

    #: Whether the library's own connections commit each statement by itself, so that one statement is one round trip.
    autocommits: ClassVar[bool] = False
    #: Whether a server runs the statements, so that this process can work meanwhile.
    served: ClassVar[bool] = True
    #: Whether the statement of the fast path can delete jobs: those that it claims, or completed ones before.
    deletes_on_claim: ClassVar[bool] = False
    #: Limits of calls of claim for which SKIP LOCKED pays: around those at which it was measured to be at least 1.1 × as fast as
    #: windows (docs/explanation.md).
    skip_locked_pays: ClassVar[range] = range(0)
    #: Whether INSERT can return the id of a row. Otherwise the driver knows it, as ``lastrowid``.
    returns_new_id: ClassVar[bool] = True
    #: Whether a WITH clause can have statements that change rows.
    changes_in_with: ClassVar[bool] = False
    #: Whether a commit can notify other connections: see :meth:`notify` and :meth:`listen`.
    notifies: ClassVar[bool] = False
    #: The statement that begins a transaction with changes.
    begins_writing: ClassVar[str] = "BEGIN"
    #: What :meth:`bypasses_sqlalchemy` says of the driver of the library's own connections, once one is open.
    direct: bool = False

    def capabilities(self, sql: SQLAlchemyDialect) -> frozenset[Capability]:
        """What this server can do. SQLAlchemy's compiler cannot be asked: on SQLite it omits SKIP LOCKED silently."""
        return frozenset({Capability.CONCURRENT_WRITERS})

    # --- transactions -----------------------------------------------------------------------------------------------

    def on_demand(self, pooled: transactions.PooledConnection, *, write: bool = True) -> transactions.OnDemand:
        """For a connection of the library, which commits each statement by itself: :meth:`begin` begins a transaction."""
        return transactions.OnDemand(pooled, self.begins_writing if write else "BEGIN", direct=self.direct)

    def begin_changes(self, connection: Connection) -> None:
        """Several changes come in a transaction that SQLAlchemy or a caller has begun. Default: nothing more to begin."""

    def commits_each_statement(self, connection: Connection) -> bool:
        """Whether a caller's connection is in the driver's autocommit mode. Costs no round trip."""
        driver: Any = connection.connection.dbapi_connection
        try:
            return connection.dialect.detect_autocommit_setting(driver)
        except NotImplementedError:
            # The mode of this driver is unknown; that of SQLAlchemy is known.
            return connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT"

    # --- statements that are built once and kept --------------------------------------------------------------------

    def bypasses_sqlalchemy(self, sql: SQLAlchemyDialect) -> bool:
        """Whether kept statements go to this driver's cursor directly. Default: if it takes values by position."""
        return sql.paramstyle in direct.PARAMSTYLES

    def render(self, own: transactions.OnDemand, statement: Executable, values: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
        """Text and arguments for the driver's cursor."""
        parts = direct.written(statement, own.connection.dialect)
        if parts.lists or parts.fixed:
            return parts.filled(values)
        return parts.text, tuple(map(values.__getitem__, parts.order))

    # --- notifications ------------------------------------------------------------------------------------------------------

    def notify(self, tx: Sender, channel: str, text: str) -> None:
        """Notify the listeners of ``channel`` with ``text`` when this transaction commits. Default: no effect."""

    def listen(self, engine: Engine, channel: str) -> Listener | None:
        """A connection that receives the notifications of ``channel``. Default: None, poll instead."""
        return None

    def listen_on_loop(self, engine: Engine, broken: Callable[[], None]) -> LoopListener | None:
        """The same for tasks of an event loop, with a driver for asyncio; ``broken`` is called there. Called in a greenlet."""
        return None

    # --- the clock --------------------------------------------------------------------------------------------------

    def clock_query(self) -> Select[Any]:
        """Select the database's time, in microseconds."""
        return select(now_us())

    def random(self) -> ColumnElement[float]:
        """A random number in [0, 1) for each row."""
        return func.random()

    # --- rows -------------------------------------------------------------------------------------------------------

    def lock_rows(self, rows: Select[Any], *, skip: bool, pinned: bool = False) -> Select[Any]:
        """Lock the rows until the transaction ends; ``skip``: step over rows that other transactions have locked.

        :param pinned: lock them although others have pinned them (:meth:`pin_rows`). Only for rows that are not deleted, and found
            by another index than the one by which they are pinned.
        """
        return rows.with_for_update(skip_locked=skip, key_share=pinned)

    def pin_rows(self, keys: Select[Any]) -> Select[Any]:
        """Read the latest rows and keep others from deleting them until the transaction ends; any number may pin a row.

        :param keys: selects columns of one index, and finds the rows by it: InnoDB then locks the entry in this index and not the
            row, which others can go on changing. PostgreSQL has a lock for that.
        """
        return keys.with_for_update(read=True, key_share=True)

    def lock_clause(self, sql: SQLAlchemyDialect, *, skip: bool) -> str:
        """:meth:`lock_rows` for a SELECT that is a text: what stands behind it. Default: nothing without ``ROW_LOCKS``."""
        if Capability.ROW_LOCKS not in self.capabilities(sql):
            return ""
        return " FOR UPDATE SKIP LOCKED" if skip else " FOR UPDATE"

    #: :meth:`by_id` for a statement that is a text: what stands behind the table.
    by_id_hint: ClassVar[str] = ""

    #: Rows whose ``(id, version)`` is given, found by primary key, in a statement that is a text; with the types of its lists.
    matching = staticmethod(statements.matching)
    lists: ClassVar[Mapping[str, Any]] = statements.LISTS
    #: The parameters of :attr:`matching`.
    wanted = staticmethod(statements.wanted)

    def match(self, jobs: Table, pairs: Pairs) -> ColumnElement[bool]:
        """The same for a statement of SQLAlchemy."""
        return statements.matches(jobs, pairs)

    def by_id(self, statement: Statement, jobs: Table) -> Statement:
        """The statement with a hint to use the primary key, where the planner might not. Default: it does."""
        return statement

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
        """Read candidates, update those that still have their version, and read them back if some were lost.

        :param fast_path: jobs are expected: use a cheaper statement, if there is one, which cannot distinguish an empty queue from
            lost candidates.
        :param delete_on_claim: delete the jobs won in the same statement; only if :attr:`deletes_on_claim`.
        :param completes: delete these completed jobs before, in the same statement, and set its ``done``; only if
            :attr:`deletes_on_claim`. Or take nothing.
        """
        lock = claim.shape.lock
        locks, waits = lock is not Lock.NONE, lock is Lock.WAIT
        if locks:
            tx.begin()
        found = tx.fetch(claim.made(claim_sql.fast_path_look), parameters) if fast_path else ()
        # With fewer rows the queue ends here, or has other priorities.
        conclusive = len(found) >= parameters["limit"]
        if not conclusive and not (fast_path and locks):
            # Rows locked by a first look would come after those that a second look reads, and other transactions can wait for them.
            found, conclusive = tx.fetch(claim.made(claim_sql.look), parameters), True
        candidates, heads, unseen = candidates_in(found)
        if not candidates:
            return result_of(parameters, heads=heads, unseen=unseen, conclusive=conclusive)
        # In id order: overlapping claims wait for each other in one direction only.
        pairs = sorted((row[ID], row[VERSION]) for row in candidates)
        # The lease counts from the read, so that its end is known without another read; not after a wait for locks.
        until = candidates[0][LOOKED_AT] + parameters["lease"]
        values = assigned(parameters, until, waits=waits) | statements.wanted(pairs)
        changed = tx.execute(claim.made(claim_sql.take, one=len(pairs) == 1), values)
        won: Sequence[Sequence[Any]] = ()
        if changed == len(pairs) and not waits:
            won = [as_claimed(row, until) for row in candidates]
        elif changed:
            mine = {"of_ids": [job_id for job_id, _ in pairs], "token": parameters["token"]}
            won = tx.fetch(claim.made(claim_sql.won), mine)
        return result_of(parameters, won, len(candidates), heads=heads, unseen=unseen, conclusive=conclusive)

    def change(self, tx: Sender, jobs: Table, pairs: Pairs, assignments: str, values: Values) -> set[int]:
        """Update the rows that match ``pairs`` and return their ids.

        :param assignments: of the columns, as a text in which ``{now}`` is the time: the database's, or the parameter ``now`` if
            ``values`` has it. They raise ``version`` by one.
        """
        if len(pairs) > 1:
            # A count does not show which of several rows matched: lock them first.
            tx.begin()
            pairs = self.hold(tx, jobs, pairs)
        if not pairs:
            return set()
        texts = statements.on(self, jobs, tx.connection.dialect, settable="now" in values)
        update = texts.made(statements.update, assignments=assignments, one=len(pairs) == 1)
        return {job_id for job_id, _ in pairs} if tx.execute(update, {**values, **self.wanted(pairs)}) else set()

    def update_returning(
        self, tx: Sender, jobs: Table, pairs: Pairs, assignments: str, values: Values, returning: Columns
    ) -> Sequence[Sequence[Any]]:
        """:meth:`change`; returns these columns of the changed rows, found by their new version."""
        changed = self.change(tx, jobs, pairs, assignments, values)
        if not changed:
            return ()
        after = [(job_id, version + 1) for job_id, version in pairs if job_id in changed]
        texts = statements.on(self, jobs, tx.connection.dialect)
        return tx.fetch(texts.made(statements.select, columns=returning, one=len(after) == 1), self.wanted(after))

    def delete_returning(self, tx: Sender, jobs: Table, pairs: Pairs) -> set[int]:
        """Delete the rows that match ``pairs`` and return their ids."""
        if len(pairs) > 1:
            tx.begin()
            pairs = self.hold(tx, jobs, pairs)
        if not pairs:
            return set()
        texts = statements.on(self, jobs, tx.connection.dialect)
        deleted = tx.execute(texts.made(statements.delete, one=len(pairs) == 1), self.wanted(pairs))
        return {job_id for job_id, _ in pairs} if deleted else set()

    def hold(self, tx: Sender, jobs: Table, pairs: Pairs) -> Pairs:
        """Lock the rows that match, in id order, until the transaction ends; return their ``(id, version)``."""
        texts = statements.on(self, jobs, tx.connection.dialect)
        rows = tx.fetch(texts.made(statements.hold, one=len(pairs) == 1), self.wanted(sorted(pairs)))
        return [(job_id, version) for job_id, version in rows]

    def by_claim(self, rows: Select[Any], jobs: Table) -> Select[Any]:
        """The query with a hint to use the claim index in its order, where the planner might not. Default: it does."""
        return rows

    # --- new rows ---------------------------------------------------------------------------------------------------

    def insert_new(self, tx: Sender, jobs: Table, rows: Rows, now: int | None, notice: Notice | None = None) -> list[int | None]:
        """Insert ``rows`` and return their ids by position; None where a live job has the unique key already.

        The keys within ``rows`` differ from each other.

        :param now: microseconds; None: the database's clock.
        :param notice: for :meth:`notify`, in the same statement where the database can; only if :attr:`notifies`.
        """
        keys = [(row.queue, row.unique_key) for row in rows if row.unique_key is not None]
        for race in range(_RACES):
            # A caller's old snapshot does not show the row that was faster; a locking read does.
            taken = self.live_keys(tx, jobs, keys, current=race > 0) if keys else None
            fresh = [row for row in rows if row.key not in taken] if taken else rows
            try:
                if len(fresh) != 1:
                    ids: Iterable[int] = self.bulk_load(tx, jobs, fresh, now) if fresh else ()
                else:
                    # By a kept statement: SQLAlchemy's work for a new one costs more than the insert.
                    names, row = (ONE_NEW, fresh[0]) if now is None else ((*ONE_NEW, "now"), (*fresh[0], now))
                    texts = statements.on(self, jobs, tx.connection.dialect, settable=now is not None)
                    one = texts.made(statements.insert_one, columns=copied(fresh), returns=self.returns_new_id)
                    if self.returns_new_id:
                        ids = [job_id for (job_id,) in tx.fetch(one, dict(zip(names, row, strict=True)))]
                    else:
                        _, last = tx.execute_many(one, names, [row])
                        ids = (last,)
            except IntegrityError:
                # Another transaction inserted one of the keys between the read and the insert; the statement undid itself.
                continue
            if not taken:
                return list(ids)
            inserted = iter(ids)
            return [None if row.key in taken else next(inserted) for row in rows]
        raise TransientStorageError("other transactions inserted the same unique keys repeatedly", statement_name="insert_new")

    def live_keys(
        self, tx: Sender, jobs: Table, keys: Collection[tuple[str, str]], *, current: bool = False
    ) -> dict[tuple[str, str] | None, tuple[int, int]]:
        """``(queue, unique_key)`` → ``(id, version)`` of the live jobs that have one of ``keys``."""
        if not keys:
            return {}
        query = select(jobs.c.queue, jobs.c.unique_key, jobs.c.id, jobs.c.version).where(
            jobs.c.queue.in_({queue for queue, _ in keys}), jobs.c.unique_key.in_([key for _, key in keys])
        )
        found = tx.connection.execute(self.lock_rows(query, skip=False) if current else query)
        return {(row.queue, row.unique_key): (row.id, row.version) for row in found}

    def bulk_load(self, tx: Sender, jobs: Table, rows: Rows, now: int | None) -> list[int]:
        """Insert several ``rows``, in one statement where the database can, and return their ids by position."""
        columns, values = self.dated(tx, rows, now)
        full = [dict(zip(columns, row, strict=True)) for row in values]
        statement = insert(jobs).returning(jobs.c.id, sort_by_parameter_order=True)
        return list(tx.connection.execute(statement, full, execution_options=_ONE_PAGE).scalars())

    def dated(self, tx: Sender, rows: Rows, now: int | None) -> tuple[Columns, list[tuple[Any, ...]]]:
        """The columns of ``rows`` to insert, with due time and creation time, and their values.

        Drivers and SQLAlchemy join many rows into one statement only if their values are plain, so the clock is read first.
        """
        clock: int = now if now is not None else tx.connection.execute(self.clock_query()).scalar_one()
        columns = copied(rows)
        width = len(columns)
        values = [(*row[:width], max(clock + row.after, row.not_before), clock) for row in rows]
        return (*columns, "available_at", "created_at"), values

    def load(self, tx: Sender, jobs: Table, columns: Columns, rows: Sequence[tuple[Any, ...]]) -> int:
        """Insert rows of these columns by the driver's fastest way; return its ``lastrowid``."""
        texts = statements.on(self, jobs, tx.connection.dialect)
        _, last = tx.execute_many(texts.made(statements.insert_into, columns=columns), [f"new_{name}" for name in columns], rows)
        return last
