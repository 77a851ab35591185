"""What the verbs of one :class:`~queue_db.QueueDB` share: the database, the settings, and the transactions."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakSet

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.pool import Pool

from queue_db.backoff import Backoff
from queue_db.codecs import Codec, Schema
from queue_db.concurrency.keyed_cache import KeyedCache
from queue_db.concurrency.queue_counters import QueueCounters
from queue_db.database import schema_version
from queue_db.database.database import Database
from queue_db.database.driver_connections import Given, found_in
from queue_db.database.replicas import Replicas
from queue_db.database.transaction import OwnTransaction, Run
from queue_db.errors import ConfigurationError, StorageError
from queue_db.notifications.deaths import Death, Deaths
from queue_db.notifications.loop import LoopListening
from queue_db.removal import Removal
from queue_db.slices import load
from queue_db.store import LowWaterMarks, Store, Transaction
from queue_db.store.schema.tables import HEAD, Tables
from queue_db.store.wakeups import Ends, Notifications
from queue_db.strategies import Strategy, warn_of_other_nodes
from queue_db.strategies.policies import Policies

if TYPE_CHECKING:
    from queue_db.administration.verbs import Administration
    from queue_db.database.on_loop import LoopDatabases
    from queue_db.groups.verbs import Groups
    from queue_db.monitoring.inspection import Inspection

_P = ParamSpec("_P")
_T = TypeVar("_T")

# Characters of the random part of a process's name. Containers may share a host name and process ids, but not the random part.
_RANDOM = 8


_CLOCK = Run("clock", write=False)

#: Writes beside a change, in its transaction: the entry of an operation in the action log (queue_db/operations/entry.py). It gets
#: the transaction, its name, and the answer of its function. None: nothing is written.
#:
#: It is called for each transaction of the present context that may write and runs by :meth:`Core.run`, :meth:`Core.write`,
#: :meth:`Core.commit` or :meth:`Core.run_reporting_deaths`: also for those of other databases, and of the user's code that the verb
#: calls, such as a codec. So an entry looks at the store and the name. Transactions of callers (``using=``), and those that verbs
#: open with :meth:`Core.transaction`, do not call it.
beside: ContextVar[Callable[[Transaction, str, Any], None] | None] = ContextVar("beside", default=None)

#: A transaction without retries, for callers that try again later themselves. Each verb adds its name with :meth:`Run.named`.
ONCE = Run(attempts=1)


class Core:
    """One database with the settings of its queues. Every verb reads and writes through a core.

    A function of the store has the form ``function(tx, …)``. :meth:`read`, :meth:`write` and :meth:`run` run such a function in a
    transaction of its own, and then call :meth:`Transaction.follow`. :meth:`commit` leaves the call of ``follow`` to its caller.
    :meth:`transaction` is for verbs that are called for each job, because a ``with`` block saves a function call. The first
    transaction checks the tables.

    :param worker: the name that claimed jobs show; None: the name of the process.
    :raises UnsupportedError: the server lacks what the strategy or the removal needs.
    """

    #: Where :func:`observe` reads; None: from the database itself.
    replicas: Replicas | None = None

    def __init__(
        self,
        database: Database,
        tables: Tables,
        *,
        strategy: Strategy,
        removal: Removal,
        codec: Codec,
        schemas: dict[str, Schema],
        retry_after: Backoff,
        max_payload: int,
        worker: str | None,
        clock: Callable[[], int] | None,
    ) -> None:
        database.require(strategy.needs, f"strategy {strategy.name!r}")
        database.require(removal.needs, f"removal {removal.name!r}")
        _refuse_schema_map(database.engine, tables, "this engine")
        self.database = database
        self.store = Store(tables, database.dialect, database.capabilities, clock, notifications=Notifications(tables))
        warn_of_other_nodes(strategy, database.capabilities)
        self.strategy = strategy
        self.removal = removal
        self.codec = codec
        self.retry_after = retry_after
        self.max_payload = max_payload
        #: Payload schemas by kind.
        self.schemas = schemas
        #: Called at each enqueue. Its result is added to the headers of the jobs.
        self.header_provider: Callable[[], Mapping[str, Any]] | None = None
        #: The low-water marks of each queue: where its claims start.
        self.marks: KeyedCache[LowWaterMarks] = KeyedCache(lambda _: LowWaterMarks())
        self.notifications = self.store.notifications
        #: Where the tasks of an event loop wait for the database's notifications.
        self.loop_listening = LoopListening(database.listen_on_loop)
        #: Counts of what the verbs did in this process, by queue, until they are written to the metrics.
        self.queue_counters = QueueCounters()
        #: Tells who waits in this process for the end of a job.
        self.ends = Ends()
        self.deaths = Deaths(database, self.queue_counters, lambda: self.worker)
        #: The name that claimed jobs show. In a fork, the default name changes with the name of the process.
        self.worker = worker or _name
        if not worker:
            _named_by_process.add(self)
        # Connection pools that are known to lead to this database: our own, and pools of callers.
        self._pools: WeakSet[Pool] = WeakSet((database.engine.pool,))
        self._schema_fits = False
        #: How the claims of some queues choose.
        self.policies = Policies()
        self._first_look()

    def _first_look(self) -> None:
        """Check the tables and read the policies, so that the first verb does not have to."""
        # If the user has no right to read the version, or a node without its cluster refuses all queries, the first verb raises the
        # error.
        with suppress(StorageError):
            self._schema_fits = schema_version.found(self.database, self.store.tables).revision == HEAD
            if self._schema_fits:
                self.policies.read(self)

    @cached_property
    def inspection(self) -> Inspection:
        """The verbs that only read."""
        made: Inspection = load("monitoring.inspection", "Inspection")(self)
        return made

    @cached_property
    def administration(self) -> Administration:
        """The verbs on single jobs and queues for people and programs that administer them."""
        made: Administration = load("administration.verbs", "Administration")(self)
        return made

    @cached_property
    def groups(self) -> Groups:
        """The verbs of groups and batches."""
        made: Groups = load("groups.verbs", "Groups")(self)
        return made

    def headers(self) -> Mapping[str, Any] | None:
        """The headers that :attr:`header_provider` adds to jobs enqueued now."""
        return None if self.header_provider is None else self.header_provider()

    # --- the tables -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Read the version of the tables and check that this package works with it.

        :raises SchemaOutOfDateError: the package does not work with the tables; the message has the command that fixes them.
        """
        self._schema_fits = False
        tables = self.store.tables
        schema_version.require(schema_version.found(self.database, tables), tables, self.database.url)
        self._schema_fits = True

    def migrate(self, connection: Connection | None, revision: str) -> None:
        """Bring the tables to ``revision``. The next verb checks the tables again."""
        load("administration.migrate", "run")(self.database, self.store.tables, connection, revision)
        self._schema_fits = False

    def ready(self) -> None:
        """Check the tables, unless an earlier check found that they fit.

        :raises ConfigurationError: the database is closed.
        :raises SchemaOutOfDateError: the tables do not fit; the message has the command that fixes them.
        """
        self.database.check_open()
        if not self._schema_fits:
            self.check()

    # --- transactions -----------------------------------------------------------------------------------------------

    def read(self, name: str, query: Callable[Concatenate[Transaction, _P], _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run ``query``, which changes nothing, and return its answer.

        :param name: the name in errors, such as ``groups.repair``: a module of the store or a slice, then the function.
        """
        return self.run(Run(name, write=False), query, *args, **kwargs)

    def write(self, name: str, change: Callable[Concatenate[Transaction, _P], _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run ``change``, commit, and return its answer. ``name`` is as in :meth:`read`."""
        return self.run(Run(name), change, *args, **kwargs)

    def run(self, how: Run, function: Callable[Concatenate[Transaction, _P], _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run ``function(tx, …)`` in a transaction as ``how`` says, call :meth:`Transaction.follow`, and return the answer.

        :raises StorageError: the database refuses a statement, or still asks to try again after the last attempt.
        """
        try:
            answer, tx = self.commit(how, function, *args, **kwargs)
        except StorageError as error:
            if not (how.upserts and isinstance(error.__cause__, IntegrityError)):
                raise
            answer, tx = self.commit(how, function, *args, **kwargs)
        tx.follow()
        return answer

    def commit(
        self, how: Run, function: Callable[Concatenate[Transaction, _P], _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> tuple[_T, Transaction]:
        """Run ``function(tx, …)`` and commit; return the answer and the transaction.

        The caller must call :meth:`Transaction.follow` as its last step. This is for callers that handle errors of the transaction,
        or that do something between the commit and this last step.
        """
        tx = self.transaction(how)
        write_beside = beside.get() if how.write else None
        try:
            while not tx.committed:
                with tx:
                    if write_beside is not None:
                        tx.begin()
                    answer = function(tx, *args, **kwargs)
                    if write_beside is not None:
                        write_beside(tx, how.name, answer)
        finally:
            if not tx.committed:
                tx.give_back()
        return answer, tx

    def transaction(self, how: Run) -> OwnTransaction:
        """A transaction of our own, for a ``with`` block."""
        if not self._schema_fits:
            self.ready()
        return OwnTransaction(self.database, self.store, how)

    def run_reporting_deaths(
        self, how: Run, function: Callable[Concatenate[Transaction, _P], _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Run ``function`` as :meth:`run` does, and report the deaths that it adds to ``tx.deaths`` after the commit."""
        # An attempt whose COMMIT got no reply may have been committed. Then the next attempt does not find the jobs that died.
        deaths: dict[int, Death] = {}
        tx = self.transaction(how)
        write_beside = beside.get()
        try:
            while not tx.committed:
                doubts = tx.doubts
                with tx:
                    died = tx.deaths = {}
                    if write_beside is not None:
                        tx.begin()
                    answer = function(tx, *args, **kwargs)
                    if write_beside is not None:
                        write_beside(tx, how.name, answer)
                if tx.committed or tx.doubts > doubts:
                    deaths.update(died)
        finally:
            tx.give_back()
        try:
            self.deaths.record(deaths.values())
        finally:
            tx.follow()
        return answer

    def now(self) -> int:
        """Microseconds since 1970, by the clock of the database, or by ``clock`` if one was given."""
        return self.run(_CLOCK, _clock)

    @cached_property
    def on_loops(self) -> LoopDatabases:
        """Transactions for the coroutines of a synchronous program, on connections of their event loops."""
        # Imported at first use: the module needs greenlets and a driver for asyncio.
        from queue_db.database.on_loop import LoopDatabases

        return LoopDatabases(self.database)

    @contextmanager
    def joined(self, using: Any, name: str, *, write: bool = True) -> Iterator[Transaction]:
        """The caller's transaction. The library neither commits it nor runs it again.

        :param name: the name of the verb, for errors.
        :param write: whether the transaction is to change rows. A look must leave no lock on a file of SQLite.
        :raises ConfigurationError: ``using`` is no connection, leads to another database, or has no transaction.
        """
        self.ready()
        with self.database.joined(using, name, self._require_of_caller, write=write) as connection:
            tx = Transaction(connection, self.store, own=False)
            try:
                yield tx
            except BaseException:
                tx.rolled_back()
                raise

    def _require_of_caller(self, connection: Connection) -> None:
        _refuse_schema_map(connection, self.store.tables, "the connection of using=")
        found = found_in(connection)
        if found is not None:
            self._require_lent_here(connection, found)
        elif connection.engine.pool not in self._pools:
            self._require_here(connection)
            self._pools.add(connection.engine.pool)

    def _require_lent_here(self, connection: Connection, found: Given) -> None:
        """:meth:`_require_here` for a driver's connection. It is asked once, unless it can have no weak references."""
        lent = self.database.lent
        name = found.driver.database(found.connection) if self.database.dialect.served else None
        if name is None or name != self.database.engine.url.database:
            with suppress(TypeError):
                if found.connection in lent.known:
                    return
            self._require_here(connection, asked=True)
            with suppress(TypeError):
                lent.known.add(found.connection)
        lent.keep(connection, found)

    def _require_here(self, connection: Connection, *, asked: bool = False) -> None:
        """Check that a caller's connection leads to this database, as far as can be seen.

        :param asked: the name of the connection's database is asked from the database.
        :raises ConfigurationError: the connection leads to another file, or to a database of another name.
        """
        dialect, ours = self.database.dialect, self.database.engine
        # A host can have several names, so compare only the name of the database. A file can also have several names, so ask the
        # database for its file.
        names = (connection.engine.url.database, ours.url.database)
        if dialect.served and not asked and (None in names or names[0] == names[1]):
            return
        if dialect.server.schemas_are_databases and self.store.tables.jobs.schema is not None:
            return
        there = dialect.server.database_of(connection)
        with ours.connect() as own:
            here = dialect.server.database_of(own)
        if there != here:
            remedy = "use a connection to the same database, or a QueueDB for that one"
            raise ConfigurationError(f"using= is a connection to {there}, but this queue is in {here}: {remedy}")


def observe(core: Core, name: str, query: Callable[Concatenate[Transaction, _P], _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """:meth:`Core.read`, from a replica if there is one: for answers that are only shown, and by which nothing is decided."""
    if core.replicas is not None:
        core.ready()
        if (found := core.replicas.read(name, query, *args, **kwargs)) is not None:
            return found[0]
    return core.run(Run(name, write=False), query, *args, **kwargs)


def read_within(
    core: Core,
    using: Any,
    name: str,
    query: Callable[Concatenate[Transaction, _P], _T],
    /,
    *args: _P.args,
    **kwargs: _P.kwargs,
) -> _T:
    """:meth:`Core.read`, in the caller's transaction if ``using`` is given: it sees what that transaction has not committed yet."""
    if using is None:
        return core.read(name, query, *args, **kwargs)
    with core.joined(using, name, write=False) as tx:
        return query(tx, *args, **kwargs)


def _refuse_schema_map(of: Engine | Connection, tables: Tables, whose: str) -> None:
    """Refuse a schema_translate_map for the schema of the queue: the SQL texts that the library keeps would not follow it."""
    if tables.jobs.schema in (of.get_execution_options().get("schema_translate_map") or ()):
        raise ConfigurationError(f"{whose} has a schema_translate_map, which the queue's tables ignore: use QueueDB(…, schema=…)")


def _clock(tx: Transaction) -> int:
    return tx.read_clock()


# --- the name of this process ---------------------------------------------------------------------------------------


def _new_name() -> str:
    return f"{_readable(os.getpid())}{secrets.token_hex(_RANDOM // 2)}"


def _readable(pid: int) -> str:
    return f"{socket.gethostname()[:60]}:{pid}-"


def _renew() -> None:
    global _name  # noqa: PLW0603 - a fork is another process
    _name = _new_name()
    for core in list(_named_by_process):
        core.worker = _name


_name = _new_name()

# The cores whose ``worker`` is the name of the process.
_named_by_process: WeakSet[Core] = WeakSet()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def process_name() -> str:
    """The default worker name of this process: ``host:pid-random``. No other process ever has this name."""
    return _name


def names_process(worker: str, pid: int) -> bool:
    """Whether ``worker`` is the :func:`process_name` of a process with the id ``pid`` on a host with this host's name."""
    readable = _readable(pid)
    return worker.startswith(readable) and len(worker) == len(readable) + _RANDOM
