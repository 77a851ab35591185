"""A dialect: everything that differs between databases. To add a database, subclass :class:`Dialect` and set its ``names``.

A subclass registers itself under each of its ``names`` (SQLAlchemy's dialect names). The default members work on every database
whose row count of an UPDATE is the number of matched rows. They need more statements.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeVar

from sqlalchemy import (
    ColumnElement,
    Delete,
    Executable,
    Integer,
    Select,
    Table,
    TextClause,
    Update,
    bindparam,
    insert,
    literal,
    select,
    union_all,
)
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect
from sqlalchemy.exc import IntegrityError

from queue_db.dialects import claim_sql, raw_cursor, statements
from queue_db.dialects.claim_sql import (
    HEAD,
    ID,
    LOOKED_AT,
    PRIORITY,
    VERSION,
    ClaimText,
    Lock,
    as_claimed,
    candidates_in,
    result_of,
)
from queue_db.dialects.clock import now_us
from queue_db.dialects.server import Server
from queue_db.dialects.statements import ONE_NEW, Columns, Pairs, copied
from queue_db.dialects.transactions import Sender
from queue_db.errors import ConfigurationError, TransientStorageError
from queue_db.model import Capability, ClaimResult, Completion, NewJob, Notice, Seen

_REGISTRY: dict[str, type[Dialect]] = {}

Rows = Sequence[NewJob]
"""New jobs. The database's time and their fields ``after`` and ``not_before`` give their due time."""

Values = Mapping[str, Any]

Statement = TypeVar("Statement", Select[Any], Update, Delete)

# The number of times that an insert is tried when other transactions insert one of its unique keys first.
_RACES = 8

# All rows go in one statement: of two statements, the second could fail after the first has inserted its rows.
_ONE_PAGE = {"insertmanyvalues_page_size": 100_000}


#: A job of a group: the index of the group in the given list of keys, and the job's id, version and ``available_at``.
Member = tuple[int, int, int, int]

# The possible numbers of groups in one query. There is one kept statement for each number.
_ARMS = (1, 8, 64)


class Dialect(Server):
    """How a database claims, settles and enqueues jobs. Each member has a default that works on most databases.

    :class:`~queue_db.dialects.server.Server` describes servers and connections. A :class:`Companion` has what one package needs.
    """

    def __init_subclass__(cls, **kw: Any) -> None:
        super().__init_subclass__(**kw)
        for name in cls.names:
            _REGISTRY[name] = cls

    #: Whether the statement of the fast path can delete the jobs that it claims, and delete completed jobs before the claim.
    deletes_on_claim: ClassVar[bool] = False
    #: The values of a claim's ``limit`` for which SKIP LOCKED is worthwhile: at about these values it was measured to be at least
    #: 1.1 × as fast as windows (docs/explanation.md).
    skip_locked_pays: ClassVar[range] = range(0)
    #: Whether INSERT can return the id of a row. Otherwise the id is the driver's ``lastrowid``.
    returns_new_id: ClassVar[bool] = True
    #: Whether a WITH clause can contain statements that change rows.
    changes_in_with: ClassVar[bool] = False
    #: Whether a commit can notify other connections: see :meth:`notify` and :meth:`listen`.
    notifies: ClassVar[bool] = False

    # --- statements that are built once and kept --------------------------------------------------------------------

    def render(self, tx: Sender, statement: Executable, values: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
        """Return the text and the arguments of a kept statement for the driver's cursor."""
        parts = raw_cursor.written(statement, tx.connection.dialect)
        if parts.lists or parts.fixed:
            return parts.filled(values)
        return parts.text, tuple(map(values.__getitem__, parts.order))

    # --- notifications ------------------------------------------------------------------------------------------------------

    def notify(self, tx: Sender, channel: str, text: str) -> None:
        """Notify the listeners of ``channel`` with ``text`` when this transaction commits. Default: no effect."""

    # --- the clock --------------------------------------------------------------------------------------------------

    def clock_query(self) -> Select[Any]:
        """Select the database's time, in microseconds."""
        return select(now_us())

    # --- rows -------------------------------------------------------------------------------------------------------

    def lock_rows(self, rows: Select[Any], *, skip: bool, pinned: bool = False) -> Select[Any]:
        """Lock the rows until the transaction ends; ``skip``: step over rows that other transactions have locked.

        :param pinned: lock rows that other transactions have pinned (:meth:`pin_rows`) without a wait for these transactions. Only
            for rows that the transaction does not delete, and that it finds by another index than the one of ``pin_rows``.
        """
        return rows.with_for_update(skip_locked=skip, key_share=pinned)

    def pin_rows(self, keys: Select[Any]) -> Select[Any]:
        """Read the latest rows and keep other transactions from deleting them until this one ends.

        Any number of transactions can pin a row at the same time.

        :param keys: a query that selects only columns of one index and finds the rows by this index. InnoDB then locks the index
            entry and not the row, so other transactions can still update the row. PostgreSQL has a lock mode for that.
        """
        return keys.with_for_update(read=True, key_share=True)

    def lock_clause(self, sql: SQLAlchemyDialect, *, skip: bool) -> str:
        """The clause at the end of a SELECT that locks its rows, as text. Default: an empty text without ``ROW_LOCKS``."""
        if Capability.ROW_LOCKS not in self.capabilities(sql):
            return ""
        return " FOR UPDATE SKIP LOCKED" if skip else " FOR UPDATE"

    #: The hint of :meth:`by_id` for a statement that is a text. It follows the name of the table.
    by_id_hint: ClassVar[str] = ""

    #: Returns the condition, as text, for rows whose ``(id, version)`` is given. The primary key finds the rows.
    matching = staticmethod(statements.matching)
    #: Returns the parameters of the condition. :attr:`lists` has the types of those parameters that are lists.
    wanted = staticmethod(statements.wanted)
    lists: ClassVar[Mapping[str, Any]] = statements.LISTS

    def match(self, pairs: Pairs) -> TextClause:
        """The condition ``matching`` with these pairs, for a statement of SQLAlchemy on the table of jobs alone."""
        return statements.condition(self.matching(one=len(pairs) == 1), self.wanted(pairs), **self.lists)

    def by_id(self, statement: Statement, jobs: Table) -> Statement:
        """Return the statement with a hint to use the primary key. Default: no hint, because the planner uses it anyway."""
        return statement

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
        """Read candidates and update those that still have their version. If some are misses, read the jobs won.

        :param fast_path: jobs are expected, so use a cheaper statement, which cannot distinguish an empty queue from misses.
        :param delete_on_claim: delete the jobs won in the same statement; only if :attr:`deletes_on_claim`.
        :param completes: in the same statement, first delete these completed jobs, and set ``completes.done``. If one statement
            cannot do both, claim and delete nothing. Only if :attr:`deletes_on_claim`.
        """
        lock = claim.shape.lock
        locks, waits = lock is not Lock.NONE, lock is Lock.WAIT
        if locks:
            tx.begin()
        found = tx.fetch(claim.made(claim_sql.fast_path_look), parameters) if fast_path else ()
        enough, seen = len(found) >= parameters["limit"], Seen.ALL
        if not enough and fast_path and locks:
            # A fast path that locks gets no second look: rows locked by the first look could come after rows that the second look
            # locks. Transactions would then lock rows in different orders.
            seen = Seen.SOME
        elif not enough:
            # Either the queue has no more due jobs or it has other priorities.
            found = tx.fetch(claim.made(claim_sql.look), parameters)
        new_priorities: list[int] = []
        if enough and found[0][HEAD] is not None:  # all are of one priority
            candidates, min_due = found, {found[0][PRIORITY]: found[0][HEAD]}
        else:
            candidates, min_due, new_priorities = candidates_in(found)
        if not candidates:
            return result_of(parameters, min_due=min_due, new_priorities=new_priorities, seen=seen)
        # In id order, so that overlapping claims cannot deadlock.
        pairs = sorted((row[ID], row[VERSION]) for row in candidates)
        # The lease starts at the time of the read, so its end is known. After a wait for locks it starts later.
        until = candidates[0][LOOKED_AT] + parameters["lease"]
        values = {**parameters, **statements.wanted(pairs), "until": until}
        changed = tx.execute(claim.made(claim_sql.update_claimed, one=len(pairs) == 1), values)
        won: Sequence[Sequence[Any]] = ()
        if changed == len(pairs) and not waits:
            won = as_claimed(candidates, until)
        elif changed:
            mine = {"of_ids": [job_id for job_id, _ in pairs], "token": parameters["token"]}
            won = tx.fetch(claim.made(claim_sql.won), mine)
        return result_of(parameters, won, len(candidates), min_due=min_due, new_priorities=new_priorities, seen=seen)

    def change(self, tx: Sender, jobs: Table, pairs: Pairs, assignments: str, values: Values) -> set[int]:
        """Update the rows that match ``pairs`` and return their ids.

        :param assignments: the SET clause as a text; it must increment ``version``. ``{now}`` stands for the database's clock, or
            for the parameter ``now`` if ``values`` has it.
        """
        if len(pairs) > 1:
            # The row count does not show which of several rows matched, so lock the matching rows first.
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
        """Do what :meth:`change` does, and return the columns ``returning`` of the changed rows."""
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

    def hold(self, tx: Sender, jobs: Table, pairs: Pairs, *, skip: bool = False) -> Pairs:
        """Lock the rows that match, in id order, until the transaction ends; return their ``(id, version)``.

        :param skip: step over rows that other transactions have locked.
        """
        texts = statements.on(self, jobs, tx.connection.dialect)
        rows = tx.fetch(texts.made(statements.hold, one=len(pairs) == 1, skip=skip), self.wanted(sorted(pairs)))
        return [(job_id, version) for job_id, version in rows]

    def by_claim(self, rows: Select[Any], jobs: Table) -> Select[Any]:
        """Return the query with a hint to read the claim index, if the planner might choose another index. Default: no hint."""
        return rows

    # --- new rows ---------------------------------------------------------------------------------------------------

    def insert_new(self, tx: Sender, jobs: Table, rows: Rows, now: int | None, notice: Notice | None = None) -> list[int | None]:
        """Insert ``rows`` and return their ids in the same order. The id is None if a live job already has the row's unique key.

        The unique keys within ``rows`` must differ from each other.

        :param now: microseconds; None: the database's clock.
        :param notice: a notification to send in the same statement; only if :attr:`notifies`.
        """
        keys = [(row.queue, row.unique_key) for row in rows if row.unique_key is not None]
        for race in range(_RACES):
            # After a lost race, a caller's old snapshot does not show the other transaction's row. A locking read does.
            taken = self.live_keys(tx, jobs, keys, current=race > 0) if keys else None
            fresh = [row for row in rows if row.key not in taken] if taken else rows
            try:
                if len(fresh) != 1:
                    ids: Iterable[int] = self.bulk_load(tx, jobs, fresh, now) if fresh else ()
                else:
                    names, row = (ONE_NEW, fresh[0]) if now is None else ((*ONE_NEW, "now"), (*fresh[0], now))
                    texts = statements.on(self, jobs, tx.connection.dialect, settable=now is not None)
                    single = texts.made(statements.insert_one, columns=copied(fresh), returns=self.returns_new_id)
                    if self.returns_new_id:
                        ids = [job_id for (job_id,) in tx.fetch(single, dict(zip(names, row, strict=True)))]
                    else:
                        _, last = tx.execute_many(single, names, [row])
                        ids = (last,)
            except IntegrityError:
                # Another transaction inserted one of the keys between the read and the insert. The failed insert had no effect.
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
        rows = tx.connection.execute(self.lock_rows(query, skip=False) if current else query)
        return {(row.queue, row.unique_key): (row.id, row.version) for row in rows}

    def bulk_load(self, tx: Sender, jobs: Table, rows: Rows, now: int | None) -> list[int]:
        """Insert several ``rows``, in one statement if the database can, and return their ids in the same order."""
        columns, values = self.dated(tx, rows, now)
        full = [dict(zip(columns, row, strict=True)) for row in values]
        statement = insert(jobs).returning(jobs.c.id, sort_by_parameter_order=True)
        return list(tx.connection.execute(statement, full, execution_options=_ONE_PAGE).scalars())

    def dated(self, tx: Sender, rows: Rows, now: int | None) -> tuple[Columns, list[tuple[Any, ...]]]:
        """Return the columns to insert, with due time and creation time, and the values of each row.

        The clock is read first, because drivers and SQLAlchemy join rows into one statement only if no value is an expression.
        """
        clock: int = now if now is not None else tx.connection.execute(self.clock_query()).scalar_one()
        columns = copied(rows)
        width = len(columns)
        values = [(*row[:width], max(clock + row.after, row.not_before), clock) for row in rows]
        return (*columns, "available_at", "created_at"), values

    def load(self, tx: Sender, jobs: Table, columns: Columns, rows: Sequence[tuple[Any, ...]]) -> int:
        """Insert rows of these columns with the driver's ``executemany``; return its ``lastrowid``."""
        texts = statements.on(self, jobs, tx.connection.dialect)
        _, last = tx.execute_many(texts.made(statements.insert_into, columns=columns), [f"new_{name}" for name in columns], rows)
        return last

    #: The most jobs in one call of :meth:`load_new`.
    loaded_at_once: ClassVar[int] = 1000
    #: The most jobs in one call of :meth:`load_new` if all of them are in memory. 0: the same as :attr:`loaded_at_once`.
    loaded_from_memory: ClassVar[int] = 0

    def load_new(
        self, tx: Sender, jobs: Table, chunks: Iterable[Rows], number: int, now: int | None, *, ids: bool
    ) -> tuple[int, Sequence[int]] | None:
        """Insert many new jobs without keys, groups and callbacks in a transaction that has begun.

        Default: None, because the database has no way that is faster than ``insert_new``. Then ``chunks`` is unread.

        :param chunks: the jobs. Each chunk is read while the database loads the chunks before it.
        :param number: the most jobs that ``chunks`` may have.
        :param now: microseconds; None: the database's clock.
        :param ids: whether to return the ids.
        :return: the number of jobs, and their ids in the order of the jobs.
        :raises Exception: reading ``chunks`` raised it.
        """
        return None

    # --- groups -----------------------------------------------------------------------------------------------------

    #: Whether an UPDATE with :meth:`by_id` locks its rows in the order of their ids.
    updates_in_order: ClassVar[bool] = False

    def one_of(self, column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
        """The condition that ``column`` is in the list parameter ``name``, for a statement that is built once and kept."""
        return column.in_(bindparam(name, expanding=True))

    def first_in_groups(self, tx: Sender, jobs: Table, queue: str, keys: Sequence[str], most: int, *, locks: bool) -> list[Member]:
        """The ``most`` jobs with the lowest ids of each of these groups of ``queue``. The result has any order.

        :param keys: the keys of the groups.
        :param locks: read the latest rows and lock them.
        """
        members: list[Member] = []
        for start in range(0, len(keys), _ARMS[-1]):
            part = keys[start : start + _ARMS[-1]]
            arms = next(size for size in _ARMS if size >= len(part))
            values = {"of_queue": queue, "most": most}
            # Unused arms repeat the last key. Their rows are skipped below.
            values |= {f"key_{place}": part[min(place, len(part) - 1)] for place in range(arms)}
            rows = tx.fetch(_first_members(self, jobs, arms, locks=locks), values)
            members += [(start + place, *member) for place, *member in rows if place < len(part)]
        return members

    def by_group(self, rows: Select[Any], jobs: Table, key: str, above: int) -> Select[Any]:
        """Select the ``rows`` of the group ``key`` with ids above ``above``, in id order, so that the planner uses the index."""
        return rows.where(jobs.c.group_key == key, jobs.c.id > above).order_by(jobs.c.id)


@lru_cache(maxsize=64)
def _first_members(dialect: Dialect, jobs: Table, arms: int, *, locks: bool) -> Any:
    """The first jobs of ``arms`` groups: a UNION ALL with one query for each group."""
    queries = []
    for place in range(arms):
        query = (
            select(literal(place, Integer).label("place"), jobs.c.id, jobs.c.version, jobs.c.available_at)
            .where(
                jobs.c.queue == bindparam("of_queue", type_=jobs.c.queue.type),
                jobs.c.group_key == bindparam(f"key_{place}", type_=jobs.c.group_key.type),
            )
            .order_by(jobs.c.id)
            .limit(bindparam("most", type_=Integer))
        )
        # In subqueries, because not every database allows a LIMIT or a lock in an arm of a UNION.
        arm = dialect.lock_rows(query, skip=False) if locks else query
        queries.append(select(arm.subquery(f"group_{place}")))
    return queries[0] if arms == 1 else union_all(*queries)


class ReturningDialect(Dialect):
    """A database with UPDATE … RETURNING and DELETE … RETURNING: one statement changes several jobs."""

    def change(self, tx: Sender, jobs: Table, pairs: Pairs, assignments: str, values: Values) -> set[int]:
        return {job_id for (job_id,) in self.update_returning(tx, jobs, pairs, assignments, values, ("id",))}

    def update_returning(
        self, tx: Sender, jobs: Table, pairs: Pairs, assignments: str, values: Values, returning: Columns
    ) -> Sequence[Sequence[Any]]:
        texts = statements.on(self, jobs, tx.connection.dialect, settable="now" in values)
        update = texts.made(statements.update, assignments=assignments, one=len(pairs) == 1, returning=returning)
        return tx.fetch(update, {**values, **self.wanted(pairs)})

    def delete_returning(self, tx: Sender, jobs: Table, pairs: Pairs) -> set[int]:
        texts = statements.on(self, jobs, tx.connection.dialect)
        deleted = tx.fetch(texts.made(statements.delete, one=len(pairs) == 1, returns=True), self.wanted(pairs))
        return {job_id for (job_id,) in deleted}


def dialect_for(name: str) -> Dialect:
    """The dialect registered under a SQLAlchemy dialect name.

    :raises ConfigurationError: when there is none.
    """
    try:
        return _REGISTRY[name]()
    except KeyError:
        raise ConfigurationError(
            f"no dialect for {name!r}; known: {', '.join(sorted(_REGISTRY))}. "
            "Another database is added by subclassing queue_db.dialects.Dialect"
        ) from None


def registered() -> dict[str, type[Dialect]]:
    """Every registered dialect by SQLAlchemy name."""
    return dict(_REGISTRY)


_Kind = TypeVar("_Kind", bound="Companion")


class Companion:
    """What one package needs from a database, besides the queue's dialect.

    A package has a subclass whose members work on most databases. A database with a better way has a subclass of that one.
    """

    #: The names of the dialects that this class is for.
    names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    @classmethod
    def of(cls, dialect: Dialect) -> Self:
        """The companion for this dialect or for its nearest base class that has one; otherwise an instance of this class."""
        # A subclass without names of its own is for no dialect.
        known = {name: kind for kind in _below(cls) for name in vars(kind).get("names", ())}
        named = (name for base in type(dialect).__mro__ for name in vars(base).get("names", ()))
        return next((known[name] for name in named if name in known), cls)(dialect)


def _below(kind: type[_Kind]) -> Iterator[type[_Kind]]:
    """All direct and indirect subclasses of ``kind``."""
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)
