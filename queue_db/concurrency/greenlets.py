"""Runs synchronous code in greenlets, so that tasks of an event loop can await it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from typing import Any, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.orm import Session
from sqlalchemy.util import greenlet_spawn

from queue_db.errors import ConfigurationError

# Parts of asyncio's messages about a future or a socket of another event loop.
_OF_ANOTHER_LOOP = ("attached to a different loop", "Event loop is closed")

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def run(verb: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
    """Call ``verb`` in a new greenlet.

    :raises ConfigurationError: ``verb`` uses a connection of another event loop.
    """
    try:
        return await greenlet_spawn(partial(verb, *arguments, **named))
    except RuntimeError as error:
        if not any(words in str(error) for words in _OF_ANOTHER_LOOP):
            raise
        raise ConfigurationError(
            "a connection is used on another event loop than the one that opened it. An AsyncQueueDB belongs to the loop on which "
            "it was opened: open another one here. The coroutines of a worker run on a loop of the worker's own: give them an "
            "AsyncEngine that only they use"
        ) from error


@asynccontextmanager
async def within(block: AbstractContextManager[Connection]) -> AsyncIterator[AsyncConnection]:
    """Make an asynchronous context manager of a synchronous one that yields a connection."""
    connection = await run(block.__enter__)
    try:
        yield AsyncConnection(AsyncEngine(connection.engine), connection)
    except BaseException:
        if not await run(block.__exit__, *sys.exc_info()):
            raise
    else:
        await run(block.__exit__, None, None, None)


def joined(using: Any) -> Any:
    """The synchronous connection or session behind ``using``. A driver's connection stays as it is.

    :raises ConfigurationError: ``using`` is neither a connection nor a session, or is a connection that is not open.
    """
    if isinstance(using, AsyncSession):
        return using.sync_session
    of_sqlalchemy: Any = using if isinstance(using, AsyncConnection | Connection | Session | Engine) else None
    return using if of_sqlalchemy is None else opened(of_sqlalchemy)


def opened(connection: AsyncConnection | None) -> Connection | None:
    """The synchronous connection behind ``connection``."""
    if connection is None:
        return None
    if not isinstance(connection, AsyncConnection):
        raise ConfigurationError(f"using= takes a SQLAlchemy AsyncConnection or AsyncSession, not {type(connection).__name__}")
    if connection.sync_connection is None:
        raise ConfigurationError("this AsyncConnection is not open: async with engine.begin() as connection")
    return connection.sync_connection
