"""A dialect: everything that differs between databases. To add a database, subclass :class:`Dialect` and set its ``names``.

A subclass registers itself under each of its ``names`` (SQLAlchemy's dialect names). The members of :class:`Dialect` work on every
database whose row count of an UPDATE is the number of matched rows. A subclass overrides them to need fewer statements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar

from sqlalchemy import (
    Connection,
    Delete,
    Engine,
    Executable,
    Select,
    Table,
    Update,
)
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect

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
from queue_db.dialects.error_codes import ErrorCodes
from queue_db.dialects.inserts import Inserts
from queue_db.dialects.server import Drivers, Product, Server
from queue_db.dialects.statements import Columns, Pairs
from queue_db.dialects.transactions import Sender
from queue_db.errors import ConfigurationError
from queue_db.model import Capability, ClaimResult, Completion, Seen

_REGISTRY: dict[str, type[Dialect]] = {}

Values = Mapping[str, Any]

Statement = TypeVar("Statement", Select[Any], Update, Delete)


class Dialect:
    """How a database claims, settles and enqueues jobs. Each member has a default that works on most databases.

    A claim or a completion may commit each statement by itself. A member that sends several statements for one of them, or locks
    rows, calls ``tx.begin()`` first.

    What only one package needs of a database is in the subclass of :class:`Companion` of that package.
    """

    def __init_subclass__(cls, **kw: Any) -> None:
        super().__init_subclass__(**kw)
        for name in cls.names:
            _REGISTRY[name] = cls

    def __init__(self) -> None:
        #: The server or file of the database: opens the database and checks its connections.
        self.server = self.server_type(self)

    #: The SQLAlchemy dialect names that the class is for, or other first words of URLs that lead to such a SQLAlchemy dialect.
    names: ClassVar[tuple[str, ...]] = ()
    #: The name of the database in messages.
    title: ClassVar[str] = "SQL database"
    #: The oldest supported ``server_version_info``.
    minimum: ClassVar[tuple[int, ...]] = ()
    #: What every server of this dialect can do. :meth:`product` adds what only some servers can do.
    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.CONCURRENT_WRITERS})
    drivers: ClassVar[Drivers] = Drivers()
    errors: ClassVar[ErrorCodes] = ErrorCodes()
    inserts: ClassVar[Inserts] = Inserts()
    server_type: ClassVar[type[Server]] = Server
    #: Whether the library's own connections are in autocommit mode, so that a single statement takes one round trip.
    autocommits: ClassVar[bool] = False
    #: Whether a server runs the statements, so that this process can do other work during a statement.
    served: ClassVar[bool] = True
    #: The statement that begins a transaction with changes.
    begins_writing: ClassVar[str] = "BEGIN"
    #: The statement that begins each transaction, and its values. None, except with a pooler (queue_db/dialects/pgbouncer.py).
    begins_each: tuple[str, tuple[str, ...]] | None = None
    #: Whether kept statements go directly to the driver's cursor. It is set when the database is opened.
    uses_raw_cursor: bool = False

    #: Whether the statement of the fast path can delete the jobs that it claims, and delete completed jobs before the claim.
    deletes_on_claim: ClassVar[bool] = False
    #: The values of a claim's ``limit`` for which SKIP LOCKED is worthwhile: measurements found SKIP LOCKED at least 1.1 × as fast
    #: as windows near these values (docs/strategies.md).
    skip_locked_pays: ClassVar[range] = range(0)
    #: Whether a WITH clause can contain statements that change rows.
    changes_in_with: ClassVar[bool] = False
    #: Whether ``jobs`` has the column ``unique_queue``, for an index of unique keys on a database without partial indexes.
    unique_queue: ClassVar[bool] = False
    #: Whether a commit can notify other connections: see :meth:`notify`, and ``Server.listen``.
    notifies: ClassVar[bool] = False

    def product(self, sql: SQLAlchemyDialect, connection: Connection | None = None) -> Product:
        """The kind of server to which SQLAlchemy has connected; ``connection``: asked for what depends on its cluster."""
        return Product(self.title, self.minimum, self.capabilities)

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

    # --- rows -------------------------------------------------------------------------------------------------------

    def lock_rows(self, rows: Select[Any], *, skip: bool, pinned: bool = False) -> Select[Any]:
        """Return the query ``rows`` with a clause that locks its rows until the transaction ends.

        :param skip: step over rows that other transactions have locked.
        :param pinned: do not wait for transactions that have pinned a row (``pin`` in queue_db/feeds/store/rows.py). The
            transaction must not delete the rows, and the query must find them by another index than ``pin``.
        """
        return rows.with_for_update(skip_locked=skip, key_share=pinned)

    #: The hint of :meth:`by_id` for a statement that is a text. The hint follows the name of the table.
    by_id_hint: ClassVar[str] = ""

    #: Returns the condition, as text, for rows whose ``(id, version)`` is given. The primary key finds the rows.
    matching = staticmethod(statements.matching)
    #: Returns the parameters of :attr:`matching`.
    wanted = staticmethod(statements.wanted)
    #: The types of those parameters of :attr:`matching` that are lists.
    lists: ClassVar[Mapping[str, Any]] = statements.LISTS

    def by_id(self, statement: Statement, jobs: Table) -> Statement:
        """Return the statement with a hint to use the primary key. Default: no hint, because the planner uses this key anyway."""
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
        """Claim jobs: read candidates and update those that still have their version. Some databases need several statements.

        :param fast_path: jobs are expected, so use a cheaper statement, which cannot distinguish an empty queue from misses.
        :param delete_on_claim: delete the jobs won in the same statement; only if :attr:`deletes_on_claim`.
        :param completes: in the same statement, first delete these completed jobs, and set ``completes.done``. If one statement
            cannot do both, claim and delete nothing. Only if :attr:`deletes_on_claim`.
        """
        lock = claim.shape.lock
        locks, waits = lock is not Lock.NONE, lock is Lock.WAIT
        if locks:
            tx.begin()  # the rows stay locked until the UPDATE; without locks, the UPDATE checks the versions
        found = tx.fetch(claim.made(claim_sql.fast_path_look), parameters) if fast_path else ()
        enough, seen = len(found) >= parameters["limit"], Seen.ALL
        if not enough and fast_path and locks:
            # A fast path that locks gets no second look: rows locked by the first look could come after rows that the second look
            # locks. Transactions would then lock rows in different orders and could deadlock.
            seen = Seen.SOME
        elif not enough:
            # Without the fast path this is the only look. After the fast path it shows whether jobs of other priorities are due.
            found = tx.fetch(claim.made(claim_sql.look), parameters)
        new_priorities: list[int] = []
        if enough and found[0][HEAD] is not None:  # all candidates have one priority
            candidates, min_due = found, {found[0][PRIORITY]: found[0][HEAD]}
        else:
            candidates, min_due, new_priorities = candidates_in(found)
        if not candidates:
            return result_of(parameters, min_due=min_due, new_priorities=new_priorities, seen=seen)
        # The UPDATE gets the pairs in id order, so that overlapping claims cannot deadlock.
        pairs = sorted((row[ID], row[VERSION]) for row in candidates)
        # The lease starts at the time of the read, so its end is known here. With ``Lock.WAIT``, the lease starts at the UPDATE.
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
        """Delete the rows that match ``pairs`` and return their ids. For a single job ``settle.delete`` does not call this."""
        pairs = self.hold(tx, jobs, pairs)
        if not pairs:
            return set()
        texts = statements.on(self, jobs, tx.connection.dialect)
        deleted = tx.execute(texts.made(statements.delete, one=len(pairs) == 1), self.wanted(pairs))
        return {job_id for job_id, _ in pairs} if deleted else set()

    def hold(self, tx: Sender, jobs: Table, pairs: Pairs, *, skip: bool = False) -> Pairs:
        """Lock the rows that match ``pairs``, in id order, until the transaction ends. Return the pairs of the locked rows.

        This begins the transaction: a transaction of one statement may not have begun.

        :param skip: step over rows that other transactions have locked.
        """
        tx.begin()
        texts = statements.on(self, jobs, tx.connection.dialect)
        rows = tx.fetch(texts.made(statements.hold, one=len(pairs) == 1, skip=skip), self.wanted(sorted(pairs)))
        return [(job_id, version) for job_id, version in rows]

    def by_claim(self, rows: Select[Any], jobs: Table) -> Select[Any]:
        """Return the query with a hint to read the claim index, if the planner might choose another index. Default: no hint."""
        return rows

    def by_group(self, rows: Select[Any], jobs: Table, key: str, above: int) -> Select[Any]:
        """Select the ``rows`` of the group ``key`` with ids above ``above``, in id order, so that the planner uses the index."""
        return rows.where(jobs.c.group_key == key, jobs.c.id > above).order_by(jobs.c.id)


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

    :raises ConfigurationError: no dialect is registered under ``name``.
    """
    try:
        return _REGISTRY[name]()
    except KeyError:
        raise ConfigurationError(
            f"no dialect for {name!r}; known: {', '.join(sorted(_REGISTRY))}. "
            "Another database is added by subclassing queue_db.dialects.Dialect"
        ) from None


def dialect_of(engine: Engine) -> Dialect:
    """The dialect for the URL of an engine, or else for the name of its SQLAlchemy dialect.

    :raises ConfigurationError: no dialect is registered for either.
    """
    name = engine.url.get_backend_name()
    return dialect_for(name if name in _REGISTRY else engine.dialect.name)


def registered() -> dict[str, type[Dialect]]:
    """Every registered dialect by SQLAlchemy name."""
    return dict(_REGISTRY)


_Kind = TypeVar("_Kind", bound="Companion")


class Companion:
    """What one package needs from a database, besides the queue's dialect.

    Each package has one direct subclass, whose members work on most databases. For a database with a better way, the package
    derives a class from this subclass and sets its ``names``.
    """

    #: The names of the dialects that this class is for.
    names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    @classmethod
    def of(cls, dialect: Dialect) -> Self:
        """Return the companion for the nearest class of ``dialect`` that has one, or else an instance of this class."""
        # A subclass without names of its own is for no dialect.
        known = {name: kind for kind in _below(cls) for name in vars(kind).get("names", ())}
        named = (name for base in type(dialect).__mro__ for name in vars(base).get("names", ()))
        return next((known[name] for name in named if name in known), cls)(dialect)


def _below(kind: type[_Kind]) -> Iterator[type[_Kind]]:
    """All direct and indirect subclasses of ``kind``."""
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)
