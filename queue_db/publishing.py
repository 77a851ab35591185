"""Publish in an open transaction: code far below the block finds it, without an argument through all calls.

::

    with engine.begin() as connection, publishing_in(connection):
        place(order)  # calls `queue.enqueue("mail", …, using=current_transaction())`, or `task.delay()` of Celery

The adapters for Celery, Taskiq and Huey send in this transaction. A verb of the queue takes it only as ``using=``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from sqlalchemy.pool import PoolProxiedConnection

from queue_db.errors import ArgumentError, ConfigurationError

if TYPE_CHECKING:
    from queue_db.dialects.borrowed import AsyncUsing, Using

__all__ = ["current_transaction", "publishing_in"]


class _Block:
    """A block of :func:`publishing_in`. Tasks and threads that begin in it have its context, and may outlive it."""

    def __init__(self, connection: Any) -> None:
        self.connection, self.ended = connection, False


_block: ContextVar[_Block | None] = ContextVar("queue_db_publishing", default=None)


@contextmanager
def publishing_in(connection: Using | AsyncUsing) -> Iterator[None]:
    """Publish in your transaction: what is published in this block takes effect if the transaction commits, and only then.

    If a publish raises, roll back, and repeat the whole transaction: the database may have given it up. Of two blocks the inner
    one counts.

    :param connection: what ``using=`` takes: a connection or session of the queue's database, with a transaction; in coroutines
        one for asyncio.
    :raises ArgumentError: it is something else.
    """
    given: Any = connection
    if isinstance(given, PoolProxiedConnection):  # engine.raw_connection()
        given = given.driver_connection
    is_engine = hasattr(given, "raw_connection")  # a pool of connections, none of which has the transaction
    if is_engine or not any(hasattr(given, name) for name in ("get_bind", "dialect", "cursor")):
        raise ArgumentError(
            "publishing_in() takes a SQLAlchemy Connection or Session, those for asyncio, or an open connection of a driver or "
            f"Django, not an object of {type(given).__name__}"  # a URL may have a password
        )
    block = _Block(given)
    before = _block.set(block)
    try:
        yield
    finally:
        block.ended = True
        _block.reset(before)


def current_transaction() -> Any:
    """The connection of :func:`publishing_in`, for ``using=``; None: outside its block.

    :raises ConfigurationError: the block has ended, in which this task or thread has begun.
    """
    block = _block.get()
    if block is None:
        return None
    if block.ended:
        raise ConfigurationError("the block of publishing_in() has ended, in which this task or thread was begun: begin it outside")
    return block.connection
