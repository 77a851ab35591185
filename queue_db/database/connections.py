"""Connections that stay open between two uses: checking one out of the pool costs as much Python time as a claim.

An exception may be raised at any line: by a signal handler, by Ctrl-C, or because a task is cancelled. So a connection is used
again only if both the driver's status and our own record say that it is idle. Otherwise it is closed, and the server rolls back.
"""

from __future__ import annotations

import logging
import os
import traceback
from collections import deque
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry, PoolResetState, QueuePool

from queue_db.concurrency.forks import reset_after_fork
from queue_db.database.masking import masked
from queue_db.dialects import Dialect
from queue_db.dialects.raw_cursor import TRANSACTION
from queue_db.dialects.transactions import PooledConnection

log = logging.getLogger("queue_db.database")


class Connections:
    """The connections of one engine, each used by one caller at a time.

    :param keep: the number of idle connections that stay open. 0: each connection returns to the engine's pool. It must be 0 if the
        engine is the caller's, or if the pool binds connections to threads.
    :param count: called for each connection that is discarded because it may not be idle.
    :param made_here: whether the library made the engine. If so, the engine's pool also takes back only idle connections.
    """

    def __init__(self, engine: Engine, dialect: Dialect, keep: int, count: Callable[[], None], *, made_here: bool = False) -> None:
        self._engine = engine
        self._server = dialect.server
        self._keep = keep
        self._count = count
        # Whether only one caller uses a connection. Other pools may give a thread the connection of its open transaction again.
        self._alone = isinstance(engine.pool, QueuePool)
        if made_here:
            event.listen(engine, "reset", self._returned)
        # The number of connections that may be idle; 0 after close().
        self._room = keep
        # No lock is needed, because append and pop are atomic.
        self._idle: deque[PooledConnection] = deque()
        # Stands for this process. A connection that was taken before a fork is not kept in the child.
        self._process = object()
        # Servers such as uWSGI fork without Python's hooks, so the id is compared too.
        self._pid = os.getpid()
        # Whether the engine's pool has connections of the parent process.
        self._forked = False
        # The connections of the parent process. They are never freed: asyncpg would close a freed connection, and so remove its
        # socket from the parent's event loop.
        self._inherited: list[object] = []
        reset_after_fork(self)

    @contextmanager
    def one(self) -> Iterator[Connection]:
        """A connection for this block."""
        pooled = self.take()
        in_doubt = True
        try:
            yield pooled.connection
            in_doubt = False
        except SQLAlchemyError:
            in_doubt = False
            raise
        finally:
            self.put_back(pooled, in_doubt=in_doubt)

    def take(self) -> PooledConnection:
        """A connection for the caller alone, until :meth:`put_back`."""
        if self._pid != os.getpid():
            self.after_fork()
        try:
            return self._idle.pop()
        except IndexError:
            pass  # none is idle
        self.forget_parents()
        try:
            return PooledConnection(self._engine.connect(), self._process)
        except SQLAlchemyError:
            raise
        except BaseException as error:
            _discard_half_open(error)
            driver: Any = self._engine.dialect.loaded_dbapi
            if not isinstance(error, driver.Error):
                raise
            # An idle connection of an application's engine is refused or broken, and so are the others, probably.
            self._engine.dispose()
            raise DBAPIError.instance("", None, error, driver.Error, dialect=self._engine.dialect) from error

    def after_fork(self) -> None:
        """In a forked child: stop using the connections of the parent process."""
        self._inherited.append(self._idle)
        self._idle = deque()
        self._process = object()
        self._forked = True
        self._pid = os.getpid()  # last: another thread of the child may look at it

    def forget_parents(self) -> None:
        """In a forked child: stop using the connections of the engine's pool. The pool is replaced when it is first needed."""
        if self._pid != os.getpid():
            self.after_fork()
        if self._forked:
            self._inherited.append(self._engine.pool)
            self._engine.dispose(close=False)
            self._forked = False

    def put_back(self, pooled: PooledConnection, *, in_doubt: bool = False) -> None:
        """Take a connection back in any state. It is closed if it is broken, if it may not be idle, or after :meth:`close`.

        :param in_doubt: an exception may have interrupted a statement.
        """
        usable = pooled.proxied.dbapi_connection is not None
        at_rest = usable and not in_doubt and pooled.info.get(TRANSACTION) is None and self._server.is_idle(pooled.driver)
        idle = self._idle
        if at_rest and len(idle) < self._room and pooled.process is self._process and not pooled.connection.in_transaction():
            idle.append(pooled)
            if not self._room:  # another thread has called close()
                self.close()
            return
        connection = pooled.connection
        if usable and not at_rest and (in_doubt or self._alone) and not self._recovered(pooled.driver, pooled.info):
            connection.invalidate()
            _close(connection)
            return
        broken = connection.invalidated
        if usable and self._keep and not self._room:
            connection.detach()  # the disposed pool of the engine would leave the connection open
        _close(connection)
        if broken:
            self._close_idle(Connection.invalidate)  # all are probably broken, or lead to the wrong server

    def _recovered(self, driver: Any, info: MutableMapping[Any, Any]) -> bool:
        """Make a connection in doubt idle; return whether it is. If not, count and log that the connection will be closed."""
        if self._server.recover(driver):
            info[TRANSACTION] = None
            return True
        self._count()
        what = "a connection to %s is closed: an interrupt has left its transaction in doubt"
        log.warning(what, masked(self._engine.url), extra={"outcome": "discarded"})
        return False

    def _returned(self, _: Any, record: ConnectionPoolEntry | None, state: PoolResetState) -> None:
        """Handle the ``reset`` event: a connection returns to the engine's pool, possibly because it was garbage-collected."""
        driver = None if record is None else record.driver_connection
        # SQLAlchemy itself closes a connection that was detached from the pool, or that is returned outside a greenlet.
        if (
            record is None
            or driver is None
            or not state.asyncio_safe
            or (record.info.get(TRANSACTION) is None and self._server.is_idle(driver))
        ):
            return
        if not self._recovered(driver, record.info):
            record.invalidate()

    def renew(self) -> None:
        """Close the idle connections: the next ones may lead to another server."""
        self.forget_parents()
        self._close_idle(Connection.invalidate)
        self._engine.dispose()

    def close(self) -> None:
        """Close the idle connections, and from now on every connection that is put back."""
        self._room = 0
        self.forget_parents()
        self._close_idle(Connection.detach)  # as in put_back: the disposed pool would leave the connections open

    def _close_idle(self, before: Callable[[Connection], None]) -> None:
        """Call ``before`` with each idle connection, and close it."""
        with suppress(IndexError):  # another thread has taken the last one
            while self._idle:
                connection = self._idle.pop().connection
                before(connection)
                connection.close()


def _close(connection: Connection) -> None:
    try:
        connection.close()
    except AssertionError as error:
        # SQLAlchemy raises this if a transaction is still active. Raise the interrupt that prevented the end of the transaction.
        raise (error.__context__ or error) from None


def _discard_half_open(error: BaseException) -> None:
    """Close the connection that SQLAlchemy was checking out of the pool when ``error`` came.

    On an application's engine, SQLAlchemy sets the isolation level at the checkout. If the connection returned to the pool before
    the reply to this was read, the next statement would take this reply for its own.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        half_open = frame.f_locals.get("self")
        if isinstance(half_open, Connection):
            with suppress(AttributeError):  # no connection was checked out yet
                half_open.invalidate()
            return
