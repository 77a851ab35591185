"""Connections that stay open between two uses: checking one out of the pool costs as much Python time as a claim.

An exception may come at any line: of a signal handler, by Ctrl-C, in a cancelled task. So a connection is used again only if it is
known to be idle, by the driver's own status and by our record. Any other is closed, and its server rolls back.
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
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry, PoolResetState, QueuePool

from queue_db.database.masking import masked
from queue_db.dialects import Dialect, raw_cursor, transactions
from queue_db.dialects.transactions import PooledConnection

log = logging.getLogger("queue_db.database")


class Connections:
    """The connections of one engine, each used by one caller at a time.

    :param keep: how many stay open while idle. 0: each returns to the engine's pool, as it must if the engine is the caller's or
        the pool binds connections to threads.
    :param count: called for each connection that is discarded because it may not be idle.
    :param made_here: the engine is not the caller's: its pool, too, takes back only connections that are idle.
    """

    def __init__(self, engine: Engine, dialect: Dialect, keep: int, count: Callable[[], None], *, made_here: bool = False) -> None:
        self._engine = engine
        self._dialect = dialect
        self._keep = keep
        self._count = count
        # Other pools give a thread the same connection twice, within its own transaction.
        self._alone = isinstance(engine.pool, QueuePool)
        if made_here:
            event.listen(engine, "reset", self._returned)
        # How many may be idle; none after the end.
        self._room = keep
        # append and pop are atomic.
        self._idle: deque[PooledConnection] = deque()
        self._process = os.getpid()
        # Never freed: asyncpg closes what is freed, and so takes its socket from the parent's event loop, too.
        self._inherited: list[object] = []

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
        if self._process != os.getpid():
            self.forget_parents()
        try:
            return self._idle.pop()
        except IndexError:
            pass  # none is idle
        try:
            return PooledConnection(self._engine.connect())
        except SQLAlchemyError:
            raise
        except BaseException as error:
            _discard_half_open(error)
            raise

    def forget_parents(self) -> None:
        """In a fork: use the parent's connections no more, nor those of the engine's pool."""
        if self._process != os.getpid():
            self._inherited.append((self._idle, self._engine.pool))
            self._idle = deque()
            self._engine.dispose(close=False)
            self._process = os.getpid()

    def put_back(self, pooled: PooledConnection, *, in_doubt: bool = False) -> None:
        """Return a connection in any state; a broken one is closed, and one that may not be idle, and each after :meth:`close`.

        :param in_doubt: an exception has come that may have interrupted a statement.
        """
        connection, usable = pooled.connection, pooled.proxied.dbapi_connection is not None
        if usable and (in_doubt or self._alone):
            at_rest = not in_doubt and raw_cursor.TRANSACTION not in pooled.info and self._dialect.is_idle(pooled.driver)
            if not at_rest and not self._recovered(pooled.driver, pooled.info):
                connection.invalidate()
                _close(connection)
                return
        if usable and len(self._idle) < self._room and not connection.in_transaction():
            self._idle.append(pooled)
            if not self._room:  # another thread has closed this meanwhile
                self.close()
        else:
            broken = connection.invalidated
            if usable and self._keep and not self._room:
                connection.detach()  # the engine's pool is disposed of, and would leave it open
            _close(connection)
            if broken:
                self._drop()

    def _recovered(self, driver: Any, info: MutableMapping[Any, Any]) -> bool:
        """Bring a connection in doubt to rest, or count and log that it will be closed."""
        if self._dialect.recover(driver):
            transactions.forget(info)
            return True
        self._count()
        what = "a connection to %s is closed: an interrupt has left its transaction in doubt"
        log.warning(what, masked(self._engine.url), extra={"outcome": "discarded"})
        return False

    def _returned(self, _: Any, record: ConnectionPoolEntry | None, state: PoolResetState) -> None:
        """A connection returns to the engine's pool, perhaps because nothing refers to it any more: a ``reset`` event."""
        driver = None if record is None else record.driver_connection
        # SQLAlchemy closes one that has left the pool, and one for which there is no greenlet.
        if (
            record is None
            or driver is None
            or not state.asyncio_safe
            or (raw_cursor.TRANSACTION not in record.info and self._dialect.is_idle(driver))
        ):
            return
        if not self._recovered(driver, record.info):
            record.invalidate()

    def _drop(self) -> None:
        """Close the idle connections: if one broke or leads to the wrong server, the others probably do too."""
        with suppress(IndexError):  # another thread has taken the last one
            while self._idle:
                connection = self._idle.pop().connection
                connection.invalidate()
                connection.close()

    def release(self) -> None:
        """Return the idle connections to the engine's pool."""
        self.forget_parents()
        with suppress(IndexError):  # another thread has taken the last one
            while self._idle:
                self._idle.pop().connection.close()

    def close(self) -> None:
        """Close the idle connections, and from now on each that is put back."""
        self._room = 0
        self.forget_parents()
        with suppress(IndexError):  # another thread has taken the last one
            while self._idle:
                connection = self._idle.pop().connection
                connection.detach()  # as in put_back
                connection.close()


def _close(connection: Connection) -> None:
    try:
        connection.close()
    except AssertionError as error:
        # SQLAlchemy's, of a transaction that is still active: the caller is told of the interrupt that has come there.
        raise (error.__context__ or error) from None


def _discard_half_open(error: BaseException) -> None:
    """Close what SQLAlchemy had checked out of the pool.

    On an application's engine it sends the isolation level then. If the connection returned to the pool with that reply unread, the
    next statement would take it for its own.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        half_open = frame.f_locals.get("self")
        if isinstance(half_open, Connection):
            with suppress(AttributeError):  # nothing was checked out yet
                half_open.invalidate()
            return
