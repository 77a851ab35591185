"""The dialect seam: a few verbs with portable defaults. To add a database, subclass :class:`Dialect` and name it.

A subclass registers itself under each of its ``names`` (SQLAlchemy's dialect names). What a class leaves alone works on any
database with row counts that tell matched rows, though in more statements.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any, ClassVar, Protocol, TypeVar

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Delete,
    Engine,
    Executable,
    Row,
    Select,
    Table,
    Update,
    and_,
    case,
    delete,
    func,
    insert,
    select,
    tuple_,
    update,
)
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.schema import CreateSchema, DropSchema

from queue_db.dialects import direct, transactions
from queue_db.dialects.chunks import Unpacked
from queue_db.dialects.claim_plan import (
    ASSIGNED,
    HEAD,
    ID,
    LOOKED_AT,
    PRIORITY,
    VERSION,
    ClaimPlan,
    TakeResult,
    as_claimed,
    change_of,
    fast_path_look,
    look,
    lowest_heads,
    won_by,
)
from queue_db.dialects.clock import now_us
from queue_db.dialects.statements import (
    Columns,
    Pairs,
    copied,
    delete_of,
    delete_returning,
    hold_of,
    insert_into,
    new,
    stays,
    wanted,
)
from queue_db.dialects.tabbed import Value
from queue_db.errors import (
    ConfigurationError,
    PermanentStorageError,
    StorageError,
    TransientStorageError,
    UnsupportedError,
)
from queue_db.model import Capability, Fault, NewJob


class Listener(Protocol):
    """A connection that hears notifications."""

    def fileno(self) -> int:
        """To be waited for with ``select``: readable when there is something to hear."""
        ...

    def heard(self) -> set[str]:
        """What came since the last call.

        :raises StorageError: the connection is broken.
        """
        ...

    def close(self) -> None:
        """Hear no more."""
        ...


Rows = Sequence[NewJob]
"""New jobs. Their due time follows from ``after`` and ``not_before``, when it is known what time it is."""

Statement = TypeVar("Statement", Select[Any], Update, Delete)


class Dialect:
    """What one database says differently, with defaults that work on most."""

    #: SQLAlchemy dialect names that this class answers for.
    names: ClassVar[tuple[str, ...]] = ()
    #: Shown to people.
    title: ClassVar[str] = "SQL database"
    #: The extra and the driver to install when a URL names none.
    default_driver: ClassVar[str | None] = None
    extra: ClassVar[str] = ""
    #: The same for asyncio.
    async_driver: ClassVar[str | None] = None
    async_extra: ClassVar[str] = ""
    #: The oldest server that works, as ``server_version_info`` tells it.
    minimum: ClassVar[tuple[int, ...]] = ()
    #: Whether connections that we make commit each statement by itself, so that one statement is one round trip.
    autocommits: ClassVar[bool] = False
    #: Whether somebody else works while a statement runs, so that this process has time for the next one.
    served: ClassVar[bool] = True
    #: Whether others see a commit before it is on the disk: InnoDB shows it and flushes then, PostgreSQL the other way round.
    shows_unflushed: ClassVar[bool] = False
    #: Whether :meth:`take` can delete the jobs that it claims in the same statement.
    deletes_on_claim: ClassVar[bool] = False
    #: Whether a transaction can tell others of its commit: see :meth:`notify` and :meth:`listen`.
    notifies: ClassVar[bool] = False
    #: What begins a transaction that is going to write.
    begins_writing: ClassVar[str] = "BEGIN"
    #: Error codes that ask for another try.
    transient: ClassVar[frozenset[str]] = frozenset()
    #: Error codes of a server that takes no changes: a standby, or one that has become one. They ask for another try elsewhere.
    read_only: ClassVar[frozenset[str]] = frozenset()
    #: Error codes of transactions that got into each other's way.
    faults: ClassVar[Mapping[str, Fault]] = {}

    def __init_subclass__(cls, **kw: Any) -> None:
        super().__init_subclass__(**kw)
        for name in cls.names:
            _REGISTRY[name] = cls

    @classmethod
    def driver(cls, *, asynchronous: bool) -> str | None:
        """The driver for a URL that names none; None: SQLAlchemy's own choice."""
        return cls.async_driver if asynchronous else cls.default_driver

    # --- what it is -------------------------------------------------------------------------------------------------

    def capabilities(self, sql: SQLAlchemyDialect) -> frozenset[Capability]:
        """What this server can do. SQLAlchemy's compiler is not asked: it drops SKIP LOCKED on SQLite without a word."""
        return frozenset({Capability.CONCURRENT_WRITERS})

    def server(self, sql: SQLAlchemyDialect) -> str:
        """Name and version for people."""
        return f"{self.title} {'.'.join(str(part) for part in sql.server_version_info or ())}"

    def minimum_for(self, sql: SQLAlchemyDialect) -> tuple[int, ...]:
        """The oldest version of this kind of server that works."""
        return self.minimum

    def facts(self, connection: Connection, jobs: Table) -> dict[str, str]:
        """Settings of the server and of the table that people should see when something is slow or strange."""
        return {}

    def closed_sequences(self, connection: Connection, tables: Sequence[Table]) -> list[str]:
        """The sequences of these tables' ids that the user may not use. Default: ids need no right of their own."""
        return []

    def process(self, connection: Connection) -> int | None:
        """The id of one of the server's processes, as the server tells it; None if it does not."""
        return None

    # --- a place of one's own ---------------------------------------------------------------------------------------

    def scratch_schema(self, url: URL, name: str) -> tuple[URL, str | None]:
        """Where tables can stand apart from all others: the URL to open, and the schema. Default: a schema of that name."""
        return url, name

    def make_scratch_schema(self, connection: Connection, name: str) -> None:
        """Make that place."""
        connection.execute(CreateSchema(name))

    def drop_scratch_schema(self, connection: Connection, name: str) -> None:
        """Remove it with everything in it, if it is there."""
        connection.execute(DropSchema(name, cascade=True, if_exists=True))

    def analyze(self, connection: Connection, table: Table) -> None:
        """Let the planner look at the table. Default: it knows."""

    # --- prepare ----------------------------------------------------------------------------------------------------

    def engine_options(self, url: URL) -> dict[str, Any]:
        """Arguments of ``create_engine`` for an engine that we make: isolation and a limit on every network wait."""
        return {}

    def short_lived_options(self, url: URL, *, local_infile: bool = False) -> dict[str, Any]:
        """:meth:`engine_options` for a short visit, also through a pooler that gives each transaction another session.

        ``local_infile``: the server may ask this process for the rows of a file that it loads.
        """
        return self.engine_options(url)

    def limit_waits(self, engine: Engine) -> None:
        """Bound what a visit may wait for, where the options above do not: for each transaction by itself."""

    def pool_options(self, url: URL, size: int, overflow: int) -> dict[str, Any]:
        """Arguments of ``create_engine`` for a pool that keeps ``size`` connections and makes ``overflow`` more when needed."""
        return {"pool_size": size, "max_overflow": overflow}

    def missing(self, url: URL) -> str | None:
        """What of the database is not there and would be made by opening it, for people; None: nothing. Default."""
        return None

    def from_anywhere(self, url: URL) -> URL:
        """The URL as a process in another folder must write it. Default: the same."""
        return url

    def jdbc(self, url: URL, driver: str | None) -> tuple[str, str, dict[str, str]]:
        """For Spark's own JDBC source: the address without user and password, the driver's class, and the driver's properties.

        :raises ArgumentError: for an option in the URL that has no name in JDBC, or a ``driver`` that is not known.
        :raises UnsupportedError: for a database that Spark's source does not go to. Default.
        """
        raise UnsupportedError(
            f"Spark's own JDBC source does not go to {self.title}: add jobs with queue_db.spark.enqueue and take them with "
            "queue_db.spark.drain, or use a server: PostgreSQL, MySQL or MariaDB",
            capability="JDBC",
            dialect=url.get_backend_name(),
        )

    def prepare(self, engine: Engine, *, made_here: bool) -> Engine:
        """Return the engine as our own transactions use it. An engine that is not ``made_here`` is the caller's: left as it is."""
        return engine

    def on_demand(self, connection: Connection, *, write: bool = True) -> transactions.OnDemand:
        """On one of our own connections, which commit each statement by itself: let :meth:`begin` begin a transaction."""
        return transactions.OnDemand(connection, self.begins_writing if write else "BEGIN")

    def begin(self, connection: Connection) -> None:
        """Make what follows one transaction, if it is not one already. In a caller's transaction there is nothing to do."""
        transaction = transactions.own(connection)
        if transaction is not None:
            transaction.begin()

    def commits_each_statement(self, connection: Connection) -> bool:
        """Whether a caller's connection has no transaction: the driver is in autocommit mode. Costs no round trip."""
        driver: Any = connection.connection.dbapi_connection
        try:
            return connection.dialect.detect_autocommit_setting(driver)
        except NotImplementedError:
            # Another driver: what SQLAlchemy was told is known, what the driver was told is not.
            return connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT"

    # --- statements that are made once and kept ---------------------------------------------------------------------

    def fetch(self, connection: Connection, statement: Executable, values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """The rows of ``statement``, an object that is made once and kept; on our own connections by the shortest way."""
        transaction = transactions.own(connection)
        if transaction is None or not self.bypasses_sqlalchemy(connection.dialect):
            return connection.execute(statement, values).all()
        transaction.sent += 1
        text, arguments = self.render(connection, statement, values)
        return direct.fetch(connection, text, arguments)

    def execute(self, connection: Connection, statement: Executable, values: Mapping[str, Any]) -> int:
        """:meth:`fetch` for a statement that returns no rows: how many it touched."""
        transaction = transactions.own(connection)
        if transaction is None or not self.bypasses_sqlalchemy(connection.dialect):
            return connection.execute(statement, values).rowcount
        transaction.sent += 1
        text, arguments = self.render(connection, statement, values)
        return direct.change(connection, text, arguments)

    def bypasses_sqlalchemy(self, sql: SQLAlchemyDialect) -> bool:
        """Whether such statements can be handed to this driver. Default: to one that can take values by position."""
        return sql.paramstyle in direct.PARAMSTYLES

    def render(self, connection: Connection, statement: Executable, values: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
        """Text and arguments for the driver of one of our own connections."""
        return direct.written(statement, connection.dialect).filled(values)

    # --- hints ------------------------------------------------------------------------------------------------------

    def notify(self, connection: Connection, channel: str, text: str) -> None:
        """When this transaction commits, let all who listen to ``channel`` hear ``text``. Default: nobody does."""

    def listen(self, engine: Engine, channel: str) -> Listener | None:
        """A connection that hears what is notified on ``channel``. Default: none, look from time to time instead (None)."""
        return None

    # --- the clock --------------------------------------------------------------------------------------------------

    def clock_query(self) -> Select[Any]:
        """Ask the database for its time, in microseconds."""
        return select(now_us())

    def random(self) -> ColumnElement[float]:
        """A random number in [0, 1), anew for each row."""
        return func.random()

    # --- rows -------------------------------------------------------------------------------------------------------

    def lock_rows(self, rows: Select[Any], *, skip: bool) -> Select[Any]:
        """Lock what ``rows`` selects until the transaction ends; ``skip``: step over what others have locked."""
        return rows.with_for_update(skip_locked=skip)

    def match(self, jobs: Table, pairs: Pairs) -> ColumnElement[bool]:
        """Rows whose ``(id, version)`` is one of ``pairs``, found by primary key."""
        if len(pairs) == 1:
            ((job_id, version),) = pairs
            return and_(jobs.c.id == job_id, jobs.c.version == version)
        # The ids alone drive the primary key; not every planner sees a range in the pairs.
        return and_(jobs.c.id.in_([job_id for job_id, _ in pairs]), tuple_(jobs.c.id, jobs.c.version).in_(list(pairs)))

    def by_id(self, statement: Statement, jobs: Table) -> Statement:
        """The same, told to find its rows by primary key where the planner might not. Default: planners do."""
        return statement

    def take(
        self,
        connection: Connection,
        plan: ClaimPlan,
        parameters: Mapping[str, Any],
        *,
        fast_path: bool = False,
        delete_on_claim: bool = False,
    ) -> TakeResult:
        """Take the candidates: read them, update those that still have their version, and read back if that were not all.

        :param fast_path: jobs are expected: use a cheaper statement, if there is one, which cannot distinguish an empty queue from
            lost candidates.
        :param delete_on_claim: delete the jobs won in the same statement; only if :attr:`deletes_on_claim`.
        """
        if plan.locks:
            self.begin(connection)
        found = self.fetch(connection, fast_path_look(self, plan), parameters) if fast_path else ()
        if len(found) < parameters["limit"]:
            # The queue ends here, or there are other priorities: look at all of it.
            found = self.fetch(connection, look(plan), parameters)
        unseen = sorted(row[PRIORITY] for row in found if row[ID] is None)
        # Nothing beyond a priority that was not looked into.
        candidates = [row for row in found if row[ID] is not None and not (unseen and unseen[0] < row[PRIORITY])]
        heads = lowest_heads((row[PRIORITY], row[HEAD]) for row in candidates if row[HEAD] is not None)
        if not candidates:
            return TakeResult((), 0, heads, unseen)
        # In id order: two claims that overlap wait for each other in one direction only.
        pairs = sorted((row[ID], row[VERSION]) for row in candidates)
        # The lease counts from the look, so that its end is known without reading it back. A look that has waited is too old.
        until = candidates[0][LOOKED_AT] + parameters["lease"]
        assigned = {name: parameters[name] for name in ASSIGNED if name in parameters}
        if not plan.waits:
            assigned["until"] = until
            del assigned["lease"]
            assigned.pop("now", None)
        won = self.execute(connection, change_of(self, plan, one=len(pairs) == 1), assigned | wanted(pairs))
        if won == len(pairs) and not plan.waits:
            return TakeResult([as_claimed(row, until) for row in candidates], len(pairs), heads, unseen)
        if won == 0:
            return TakeResult((), len(pairs), heads, unseen)
        mine = {"of_ids": [job_id for job_id, _ in pairs], "token": parameters["token"]}
        return TakeResult(self.fetch(connection, won_by(self, plan), mine), len(pairs), heads, unseen)

    def change(
        self, connection: Connection, jobs: Table, pairs: Pairs, values: Mapping[str, Any], parameters: Mapping[str, Any]
    ) -> set[int]:
        """Change the rows that match ``pairs`` and return their ids. ``values`` raise ``version`` by one."""
        if len(pairs) > 1:
            # A count does not tell which of several rows matched: look first, and hold what was seen.
            self.begin(connection)
            pairs = self.hold(connection, jobs, pairs)
        if not pairs:
            return set()
        statement = self.by_id(update(jobs).where(self.match(jobs, pairs)).values(values), jobs)
        changed = connection.execute(statement, parameters).rowcount
        return {job_id for job_id, _ in pairs} if changed else set()

    def update_returning(
        self,
        connection: Connection,
        jobs: Table,
        pairs: Pairs,
        values: Mapping[str, Any],
        returning: Sequence[ColumnElement[Any]],
        parameters: Mapping[str, Any],
    ) -> Sequence[Row[Any]]:
        """:meth:`change`, and ``returning`` of the changed rows as they are then, found by the version just given."""
        changed = self.change(connection, jobs, pairs, values, parameters)
        if not changed:
            return ()
        after = [(job_id, version + 1) for job_id, version in pairs if job_id in changed]
        return connection.execute(self.by_id(select(*returning).where(self.match(jobs, after)), jobs)).all()

    def delete_returning(self, connection: Connection, jobs: Table, pairs: Pairs) -> set[int]:
        """Delete the rows that match ``pairs`` and return their ids."""
        if len(pairs) > 1:
            self.begin(connection)
            pairs = self.hold(connection, jobs, pairs)
        if not pairs:
            return set()
        deleted = self.execute(connection, delete_of(self, jobs, one=len(pairs) == 1), wanted(pairs))
        return {job_id for job_id, _ in pairs} if deleted else set()

    def hold(self, connection: Connection, jobs: Table, pairs: Pairs) -> Pairs:
        """Lock the rows that match, in id order, until the transaction ends; return their ``(id, version)``."""
        found = self.fetch(connection, hold_of(self, jobs, one=len(pairs) == 1), wanted(sorted(pairs)))
        return [(job_id, version) for job_id, version in found]

    def move_to_held(
        self,
        connection: Connection,
        jobs: Table,
        held: Table,
        *,
        due: Sequence[ColumnElement[bool]],
        limit: int,
        values: Mapping[str, ColumnElement[Any]],
        reserved: Mapping[str, Any] | None,
        skip: bool,
        parameters: Mapping[str, Any],
    ) -> int:
        """Move the first ``limit`` of the ``due`` jobs, in claim order, into ``held`` as ``values``; return how many.

        Jobs on which more hangs (:func:`stays`) stay in ``jobs`` too, changed by ``reserved``; None: none of the due ones is such.

        :param values: ``stream`` and ``batch``, which no row of ``held`` has yet, and what else a row there has.
        :param skip: others do the same at this moment: step over what they have locked.
        """
        rows = self.by_claim(select(*values.values()), jobs)
        rows = rows.where(*due).order_by(jobs.c.priority, jobs.c.available_at, jobs.c.id).limit(limit)
        taken = connection.execute(insert(held).from_select(list(values), self.lock_rows(rows, skip=skip)), parameters).rowcount
        if taken > 0:
            mine = and_(held.c.stream == values["stream"], held.c.batch == values["batch"])
            if reserved is not None:
                named = connection.execute(select(held.c.id, held.c.version - 1).where(mine, stays(held))).all()
                for start in range(0, len(named), _PAIRS):
                    pairs = [(job_id, version) for job_id, version in named[start : start + _PAIRS]]
                    # In their order: MySQL reads the new value of a column that it has assigned already.
                    mark = update(jobs).where(self.match(jobs, pairs)).ordered_values(*reserved.items())
                    connection.execute(self.by_id(mark, jobs), parameters)
            self.delete_held(connection, jobs, held, and_(mine, ~stays(held)))
        return taken

    def by_claim(self, rows: Select[Any], jobs: Table) -> Select[Any]:
        """The same, told to find its rows by the claim index, in its order, where the planner might not. Default: planners do."""
        return rows

    def delete_held(self, connection: Connection, jobs: Table, held: Table, which: ColumnElement[bool]) -> None:
        """Delete the jobs that ``which`` rows of ``held`` are of."""
        connection.execute(delete(jobs).where(jobs.c.id == held.c.id, which))

    # --- new rows ---------------------------------------------------------------------------------------------------

    def insert_new(self, connection: Connection, jobs: Table, rows: Rows, now: int | None) -> list[int | None]:
        """Insert ``rows`` and return their ids by position; None where a live job has the unique key already.

        The keys within ``rows`` are different from each other. ``now``: microseconds, None for the database's clock.
        """
        keys = [row.key for row in rows if row.key is not None]
        for race in range(_RACES):
            # A caller's old snapshot does not show the row that beat us; a locking read does.
            taken = self.live_keys(connection, jobs, keys, current=race > 0)
            fresh = [row for row in rows if row.key not in taken] if taken else rows
            try:
                ids = iter(self.bulk_load(connection, jobs, fresh, now) if fresh else ())
            except IntegrityError:
                # Somebody enqueued one of the keys between our look and our insert; the statement undid itself.
                continue
            return [None if row.key in taken else next(ids) for row in rows] if taken else list(ids)
        raise TransientStorageError("unique keys were enqueued by others again and again", statement_name="insert_new")

    def live_keys(
        self, connection: Connection, jobs: Table, keys: Collection[tuple[str, str]], *, current: bool = False
    ) -> dict[tuple[str, str] | None, tuple[int, int]]:
        """``(queue, unique_key)`` → ``(id, version)`` of the live jobs that have one of ``keys``."""
        if not keys:
            return {}
        query = select(jobs.c.queue, jobs.c.unique_key, jobs.c.id, jobs.c.version).where(
            jobs.c.queue.in_({queue for queue, _ in keys}), jobs.c.unique_key.in_([key for _, key in keys])
        )
        found = connection.execute(self.lock_rows(query, skip=False) if current else query)
        return {(row.queue, row.unique_key): (row.id, row.version) for row in found}

    def bulk_load(self, connection: Connection, jobs: Table, rows: Rows, now: int | None) -> list[int]:
        """Insert all of ``rows`` in one statement where the database can, and return their ids by position."""
        if len(rows) == 1:
            return [connection.execute(insert(jobs).values(self.single(rows[0], now)).returning(jobs.c.id)).scalar_one()]
        columns, values = self.dated(connection, rows, now)
        full = [dict(zip(columns, row, strict=True)) for row in values]
        statement = insert(jobs).returning(jobs.c.id, sort_by_parameter_order=True)
        return list(connection.execute(statement, full, execution_options=_ONE_PAGE).scalars())

    def single(self, row: NewJob, now: int | None) -> dict[str, Any]:
        """``row`` as it stands in the table; the clock is read in the statement."""
        clock: Any = now_us() if now is None else now
        given = {name: getattr(row, name) for name in copied([row])}
        return given | {"available_at": due_time(clock, row.after, row.not_before), "created_at": clock}

    def dated(self, connection: Connection, rows: Rows, now: int | None) -> tuple[Columns, list[tuple[Any, ...]]]:
        """The columns of ``rows`` that are inserted, when they are due and were made among them, and their values.

        Drivers and SQLAlchemy join many rows into one statement only if their values are plain, so the clock is read before.
        """
        clock: int = now if now is not None else connection.execute(self.clock_query()).scalar_one()
        columns = copied(rows)
        width = len(columns)
        values = [(*row[:width], max(clock + row.after, row.not_before), clock) for row in rows]
        return (*columns, "available_at", "created_at"), values

    def load(self, connection: Connection, jobs: Table, columns: Columns, rows: Sequence[tuple[Any, ...]]) -> int:
        """Insert rows of these columns as the driver does it fastest; return its ``lastrowid``."""
        statement, names = insert_into(jobs, columns), new(columns)
        transaction = transactions.own(connection)
        if transaction is None or not self.bypasses_sqlalchemy(connection.dialect):
            named = [dict(zip(names, row, strict=True)) for row in rows]
            return int(connection.execute(statement, named).lastrowid or 0)
        transaction.sent += 1
        written = direct.written(statement, connection.dialect)
        return direct.load(connection, written.text, [*map(itemgetter(*map(names.index, written.order)), rows)])

    def append(
        self, connection: Connection, table: Table, columns: Mapping[str, Sequence[Value]], same: Mapping[str, Value] | None = None
    ) -> None:
        """Add rows to any table, in bulk: column → values, all of the same length; ``same``: what is the same in all of them.

        Whoever calls this begins a transaction before: it may take more than one statement.
        """
        rows = [dict(zip(columns, row, strict=True)) | dict(same or {}) for row in zip(*columns.values(), strict=True)]
        connection.execute(insert(table), rows)

    def as_csv(self, connection: Connection, query: Select[Any]) -> bytes | None:
        """The rows of ``query`` as CSV, NULL as nothing at all and texts that are empty in quotes. Default: it cannot (None).

        For many rows it costs a fraction of what Python objects cost.
        """
        return None

    def unpacked(self, chunk: ColumnElement[str], fields: Sequence[str]) -> Unpacked | None:
        """Let the database take a chunk of jobs apart (:mod:`queue_db.dialects.chunks`). Default: it cannot."""
        return None

    # --- errors -----------------------------------------------------------------------------------------------------

    def code(self, error: DBAPIError) -> str | None:
        """SQLSTATE, error number or result code of a driver's exception, as text."""
        return getattr(error.orig, "sqlstate", None)

    def fault(self, error: SQLAlchemyError) -> Fault:
        """What kind of collision an error tells of."""
        code = self.code(error) if isinstance(error, DBAPIError) else None
        return self.faults.get(code or "", Fault.OTHER)

    def translate(self, error: DBAPIError, statement_name: str) -> StorageError:
        """Our exception for a driver's, judged by its code and never by its text."""
        code = self.code(error)
        transient = error.connection_invalidated or (
            # A connection that could not be made has no SQLSTATE: the server may be restarting.
            isinstance(error, OperationalError) if code is None else self.is_transient(code)
        )
        away = error.connection_invalidated or (transient if code is None else self.is_away(code))
        kind = TransientStorageError if transient else PermanentStorageError
        detail = (self.detail(error).strip().splitlines() or [type(error.orig).__name__])[0]
        return kind(f"{statement_name}: {detail}", sqlstate=code, statement_name=statement_name, server_away=away)

    def detail(self, error: DBAPIError) -> str:
        """What the driver says, for people."""
        return str(error.orig)

    def is_down(self, engine: Engine) -> bool:
        """Whether no server takes connections at this moment, asked after one failed without a code. Default: it cannot tell."""
        return False

    def is_transient(self, code: str) -> bool:
        """Whether the same transaction may succeed when it is run again."""
        return code in self.transient or code in self.read_only

    def is_away(self, code: str) -> bool:
        """Whether every other statement fails now, too: no collision with another transaction."""
        return self.is_transient(code) and code not in self.faults

    def leads_astray(self, error: SQLAlchemyError) -> bool:
        """Whether the connection leads to a server that takes no changes, so that a new one may lead to another."""
        return isinstance(error, DBAPIError) and (self.code(error) or "") in self.read_only


class ReturningDialect(Dialect):
    """A database whose UPDATE and DELETE tell which rows they touched: one statement for each verb."""

    def change(
        self, connection: Connection, jobs: Table, pairs: Pairs, values: Mapping[str, Any], parameters: Mapping[str, Any]
    ) -> set[int]:
        return {row.id for row in self.update_returning(connection, jobs, pairs, values, [jobs.c.id], parameters)}

    def update_returning(
        self,
        connection: Connection,
        jobs: Table,
        pairs: Pairs,
        values: Mapping[str, Any],
        returning: Sequence[ColumnElement[Any]],
        parameters: Mapping[str, Any],
    ) -> Sequence[Row[Any]]:
        statement = update(jobs).where(self.match(jobs, pairs)).values(values).returning(*returning)
        return connection.execute(statement, parameters).all()

    def delete_returning(self, connection: Connection, jobs: Table, pairs: Pairs) -> set[int]:
        gone = self.fetch(connection, delete_returning(jobs, one=len(pairs) == 1), wanted(pairs))
        return {job_id for (job_id,) in gone}


_REGISTRY: dict[str, type[Dialect]] = {}

# Jobs with unique keys in one statement.
_PAIRS = 1000

# How often an insert steps back for a key that somebody else enqueued meanwhile.
_RACES = 8

# A chunk is one statement: a second page could fail after the first one is in.
_ONE_PAGE = {"insertmanyvalues_page_size": 100_000}


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


def due_time(now: Any, after: Any, not_before: Any) -> ColumnElement[int]:
    """When a new job is due: ``after`` microseconds from now, and not before ``not_before``.

    Never before now, so that claims may remember where the due jobs begin.
    """
    return case((now + after >= not_before, now + after), else_=not_before)
