"""One event loop for the whole run, for connections belong to the loop that opened them; and URLs for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from sqlalchemy import make_url
from sqlalchemy.util import greenlet_spawn
from sqlalchemy.util.concurrency import in_greenlet

_T = TypeVar("_T")

_RUNNER = asyncio.Runner()

#: The drivers for asyncio in the place of the others.
DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "postgresql": "postgresql+asyncpg",
    "mysql": "mysql+aiomysql",
    "mariadb": "mariadb+aiomysql",
}


def for_asyncio(url: str) -> str:
    """The same database by a driver for asyncio."""
    parsed = make_url(url)
    # MySQL's speak without TLS unless told otherwise.
    parsed = parsed.set(drivername=DRIVERS[parsed.get_backend_name()]).difference_update_query(["ssl_disabled"])
    return parsed.render_as_string(hide_password=False)


def on_the_loop(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run it to its end; for fixtures, which are no coroutines."""
    return _RUNNER.run(coroutine)


def spawned(call: Callable[[], _T]) -> _T:
    """Call synchronous code in a greenlet on the loop."""
    return call() if in_greenlet() else on_the_loop(greenlet_spawn(call))


def close() -> None:
    """The run is over."""
    _RUNNER.close()
