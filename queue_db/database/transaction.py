"""The library's own transactions: they begin, commit or roll back, and run again while the database asks for a retry."""

from __future__ import annotations

import random
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from sqlalchemy import RootTransaction
from sqlalchemy.exc import DBAPIError, InvalidRequestError, SQLAlchemyError

from queue_db.dialects.transactions import PooledConnection, Sender, interrupted
from queue_db.errors import StorageError, TransientStorageError
from queue_db.store import Store, Transaction

if TYPE_CHECKING:
    from queue_db.database.database import Database

#: The most runs of one transaction while the database asks for a retry. Together the waits between ten runs last over two seconds.
#: In this time a server can restart after a crash.
ATTEMPTS = 10

#: Seconds after the first failed run in which the transaction may run again.
RETRY_SECONDS = 30.0

# The first wait is random, up to this (seconds). The next waits are 1, 2, 4 … times this, each plus a random part up to this.
_FIRST_WAIT = 0.01

# The longest wait (seconds), without its random part.
_LONGEST_WAIT = 1.0


class Haste(threading.local):
    """A block in which transactions of this thread do not run again after they have waited too long for a lock."""

    on = False

    def __enter__(self) -> None:
        self.on = True

    def __exit__(self, *_: object) -> None:
        self.on = False


class Run(NamedTuple):
    """How a transaction runs.

    If the connection breaks during the COMMIT of a change, the outcome is unknown (``outcome_unknown``). Then the transaction runs
    again only if it is ``repeatable``.
    """

    #: The name of the verb or of the function of the store, for errors. A constant for several verbs has none: see :meth:`named`.
    name: str = ""
    #: Whether the transaction changes rows.
    write: bool = True
    #: The most runs while the database asks for a retry.
    attempts: int = ATTEMPTS
    #: The transaction is one statement, or the block calls ``tx.begin`` itself before several; the tests find a block that does not
    #: (queue_db/testing/lone_changes.py). On connections that autocommit, no BEGIN and COMMIT are sent around the block. If the
    #: connection breaks during a statement that commits by itself, the outcome is unknown.
    lazy: bool = False
    #: Whether the transaction can run twice without harm. If so, it runs again even if its outcome is unknown.
    repeatable: bool = False
    #: The transaction updates or inserts a row. It runs once more if another transaction inserts the row first.
    upserts: bool = False

    def named(self, name: str) -> Run:
        """A copy with this name."""
        return self._replace(name=name)


class OwnTransaction(Transaction):
    """A transaction of the library's own, in a ``with`` block::

        tx = OwnTransaction(database, store, run)
        try:
            while not tx.committed:
                with tx:
                    answer = function(tx)
        finally:
            tx.give_back()
        tx.follow()

    The end of the block commits. If the database asks for a retry, the end of the block waits and hides the error. Then the loop
    runs the block again. If ``run.attempts`` is 1, there is no retry, so no loop is needed.

    :param store: the store whose tables the block uses; None: the block uses no tables.
    :raises StorageError: the database refuses a statement, or still asks for a retry after the last attempt.
    """

    __slots__ = ("_database", "_pooled", "_root", "_runs", "_until", "collisions", "committed", "doubts", "run")

    def __init__(self, database: Database, store: Store | None, run: Run) -> None:
        self._database = database
        self.dialect = database.dialect
        self.run = run
        self.own = True
        if store is not None:
            self.store = store
            self.tables = store.tables
        self.committed = False
        #: How many runs failed that may have been committed, and how many lost to other transactions and were rolled back.
        self._runs = self.doubts = self.collisions = 0
        self._pooled: PooledConnection | None = None
        self._root: RootTransaction | None = None
        self._mark = self.deaths = None

    def __enter__(self) -> Self:
        database, run = self._database, self.run
        while True:
            self.woken = {}
            self.following = []
            self.asked = True  # no statement that commits by itself has been sent yet
            self.sent = 0
            try:
                if database.closed:
                    database.check_open()
                try:
                    self._pooled = pooled = database.connections.take()
                except (RuntimeError, OSError) as error:
                    raise unreachable(error, run.name) from error
                if database.autocommits:
                    self.lead(pooled, write=run.write)
                    if not run.lazy or self.dialect.begins_each:
                        self.begin()
                else:
                    Sender.__init__(self, pooled.connection, self.dialect)
                    self.lend()
                    if run.write:
                        self.begin()
            except BaseException as error:
                before = self.collisions
                if not self.__exit__(type(error), error, error.__traceback__):
                    raise
                self.collisions = before  # the block has not run
            else:
                return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        database, pooled, failure = self._database, self._pooled, error
        in_doubt = True
        try:
            if error is None:
                try:
                    if self._root is not None:
                        self._commit_lent(self._root)
                    else:
                        if self.begun:
                            self.commit()
                        self.leave()
                    self.committed = True
                    in_doubt = self.interrupted
                except BaseException as raised:  # noqa: BLE001 - raised below
                    failure = raised
            if failure is not None and pooled is not None:
                in_doubt = self._undone(failure)
        finally:
            if pooled is not None:
                self._pooled = self._root = None
                try:
                    database.connections.put_back(pooled, in_doubt=in_doubt)
                except StorageError as raised:  # a signal handler raised it
                    raise self._late(raised)  # noqa: B904 - its cause is set
        if self.run.lazy and pooled is not None:
            counters = database.counters
            with database.counting:
                counters.statements += self.sent
        if failure is None:
            return False
        return self._again(failure, committing=error is None)

    def lend(self) -> None:
        """Let the block use the SQLAlchemy connection.

        If the block commits or rolls back, later statements are refused, and the end of the block raises an error.
        """
        # If the engine has listeners, the BEGIN went through SQLAlchemy, which has begun with it. Otherwise begin() sends nothing
        # on a connection that autocommits.
        self._root = self.connection.get_transaction() or self.connection.begin()
        self._root.__enter__()

    def check_lent(self) -> None:
        """Refuse to go on if the block has ended its transaction: its later statements would commit one by one.

        :raises InvalidRequestError: the block has committed or rolled back the transaction itself.
        """
        if self._root is not None and not self._root.is_active:
            raise InvalidRequestError("the block has committed or rolled back its transaction itself")

    def _commit_lent(self, root: RootTransaction) -> None:
        self.check_lent()
        if self._mark is None:
            root.commit()
        else:
            self.commit()
            self.leave()
        root.close()
        root.__exit__(None, None, None)

    def give_back(self) -> None:
        """Give the connection back, if an interrupt before the first line of ``__exit__`` has prevented this."""
        pooled, self._pooled = self._pooled, None
        if pooled is not None:
            self._database.connections.put_back(pooled, in_doubt=True)

    def _undone(self, error: BaseException) -> bool:
        """Roll back the transaction that ended with ``error``. Return whether the connection is in doubt."""
        self.rolled_back()
        root = self._root
        if self._mark is None and root is None:
            return True
        connection = self.connection
        in_doubt = interrupted(connection, error)
        if root is not None:
            # First: while SQLAlchemy is in the context of a transaction that the block has ended, it refuses each statement.
            try:
                root.__exit__(type(error), error, error.__traceback__)
            except SQLAlchemyError:
                self._database.drop_if_read_only(connection, error)
                return True
        if self._mark is not None:
            if in_doubt or self.interrupted:
                return True  # no ROLLBACK is sent: the connection will be closed, and then the server rolls back
            self.rollback()
            self.leave()
        if isinstance(error, SQLAlchemyError | StorageError):
            self._database.drop_if_read_only(connection, error)
        return in_doubt

    def _again(self, failure: BaseException, *, committing: bool) -> bool:
        """If the block may run again, pause and return True. If not, raise the library's exception in place of SQLAlchemy's.

        :param committing: whether the COMMIT failed; False: the block raised ``failure``.
        :return: False: ``with`` raises ``failure`` again.
        """
        run, problem = self.run, failure
        if isinstance(failure, StorageError) and run.write and self._maybe_done(committing=committing):
            problem = _unknown(failure, run.name, "a signal handler's error came in the middle of it")
        if isinstance(failure, SQLAlchemyError):
            problem = self._database.translated(failure, run.name)
            if run.write and (committing or not self.asked) and isinstance(failure, DBAPIError):
                # Only for a change: a transaction that only reads can simply run again.
                problem = self._doubted(failure, problem, "COMMIT" if committing else "the statement")
        self._runs += 1
        if isinstance(problem, StorageError):
            self.doubts += problem.outcome_unknown
            self.collisions += not problem.outcome_unknown and self.dialect.errors.is_collision(problem)
        if isinstance(problem, TransientStorageError) and self._may_run_again(problem):
            self._pause(problem)
            return True
        problem = self._with_doubts(problem)
        if problem is not failure:
            raise problem from failure
        if committing:
            raise failure
        return False

    def _doubted(self, failure: DBAPIError, problem: StorageError, during: str) -> StorageError:
        """``problem``, with an unknown outcome if the reply to the COMMIT or to the statement that commits says nothing of it."""
        if failure.connection_invalidated:
            return _unknown(problem, self.run.name, f"the connection broke during {during}")
        if problem.sqlstate in self.dialect.errors.in_doubt:
            return _unknown(problem, self.run.name, f"the server lost its cluster during {during}")
        return problem

    def _pause(self, problem: StorageError) -> None:
        """Wait before the next run.

        :raises ConfigurationError: the database was closed meanwhile.
        """
        database = self._database
        database.pause(min(_LONGEST_WAIT, _FIRST_WAIT * (2**self._runs // 4)) + random.uniform(0.0, _FIRST_WAIT))
        if database.closed and self.doubts:
            raise _unknown(problem, self.run.name, "this QueueDB was closed after a run that may have been committed") from problem
        if database.closed:
            database.check_open()
        with database.counting:
            database.counters.retried += 1

    def _with_doubts(self, problem: BaseException) -> BaseException:
        """``problem``, with an unknown outcome if an earlier run may have been committed. Callers of a lazy run look it up."""
        if not self.doubts or self.run.lazy or not isinstance(problem, StorageError) or problem.outcome_unknown:
            return problem
        if isinstance(problem, TransientStorageError):
            return _unknown(problem, self.run.name, "an earlier run may have been committed")
        problem.outcome_unknown = True
        problem.add_note("an earlier run of this transaction may have been committed")
        return problem

    def _late(self, error: StorageError) -> StorageError:
        """The exception to raise for ``error``, which came while the connection was given back."""
        if not (self.committed and self.run.write):
            return error
        late = _unknown(error, self.run.name, "a signal handler's error came after its COMMIT")
        late.__cause__ = error
        return late

    def _maybe_done(self, *, committing: bool) -> bool:
        """Whether a change may have been committed although the block ended with an error that is not the server's reply.

        A signal handler that uses the queue may raise such an error at any line, even after a statement that commits by itself has
        taken effect.
        """
        return committing or (self.run.lazy and self.sent > 0 and not self.asked)

    def _may_run_again(self, problem: TransientStorageError) -> bool:
        if problem.outcome_unknown and not self.run.repeatable:
            return False
        if self._runs >= self.run.attempts or problem.sqlstate in self.dialect.errors.expired:
            return False
        if self._database.haste.on and self.dialect.errors.is_lock_timeout(problem):
            return False
        now = time.monotonic()
        if self._runs == 1:
            self._until = now + RETRY_SECONDS
        return now < self._until


def unreachable(error: Exception, name: str) -> TransientStorageError:
    """The exception to raise when ``error`` prevented a connection.

    The error is transient: the first connection worked, so the driver is complete. There are two causes. If no server answers, the
    driver raises the operating system's error. A restarted server may demand the full password exchange over TLS once.
    """
    return TransientStorageError(f"{name}: {error}", statement_name=name, server_away=True)


def _unknown(problem: StorageError, name: str, during: str) -> TransientStorageError:
    """The exception for a transaction that may have been committed. ``during`` says what happened."""
    unknown = f"{during}, so it is unknown whether it took effect; "
    return TransientStorageError(
        f'{problem}: {unknown}a unique_key with on_duplicate="skip" makes an enqueue safe to repeat',
        cli=f"{problem}: {unknown}--unique-key with --on-duplicate skip makes an enqueue safe to repeat",
        sqlstate=problem.sqlstate,
        statement_name=name,
        outcome_unknown=True,
        server_away=True,
    )
