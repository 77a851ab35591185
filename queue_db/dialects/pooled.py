"""PostgreSQL behind a pooler that gives each transaction another session, such as PgBouncer in transaction mode.

What a session is told at its start does not arrive, and what one transaction sets or prepares is not there in the next. So each
transaction says for itself what it needs, and each statement is a transaction: the settings travel with BEGIN, in one message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from sqlalchemy import Connection, Engine, event

from queue_db.dialects import greeting
from queue_db.dialects.transactions import OnDemand

#: A setting of no meaning to the server: who does not find it in a session knows that its options did not arrive.
MARK = "queue_db.session"

_SETTINGS = {"lock_timeout": "10000", "enable_seqscan": "off", "jit": "off"}

#: READ COMMITTED whatever the server's default is: elsewhere a lost version check is an error instead of no row.
BEGINS = "BEGIN ISOLATION LEVEL READ COMMITTED; " + "; ".join(f"SET LOCAL {name} = {value}" for name, value in _SETTINGS.items())


class Whole(OnDemand):
    """A transaction that begins at once."""

    __slots__ = ()

    def __enter__(self) -> Self:
        super().__enter__()
        self.begin()
        return self


class Pooling:
    """Finds out whether the connections of an engine come from such a pooler: at the first one."""

    def __init__(self) -> None:
        #: Whether they do; None: nobody knows yet.
        self.found: bool | None = None

    def watch(self, engine: Engine) -> None:
        """Let new connections of the engine be looked at."""
        event.listen(engine, "do_connect", self._connect)
        event.listen(engine, "connect", self._look)

    def _connect(self, dialect: Any, _record: Any, arguments: list[Any], options: dict[str, Any]) -> Any:
        if not self.found:
            try:
                return dialect.loaded_dbapi.connect(*arguments, **options)
            except dialect.loaded_dbapi.OperationalError:
                if self.found is False or not _refuses_options(options):
                    raise
                self.found = True
        return dialect.loaded_dbapi.connect(*arguments, **{name: value for name, value in options.items() if name != "options"})

    def _look(self, driver: Any, _record: Any) -> None:
        if self.found is not None:
            return
        with driver.cursor() as cursor:
            cursor.execute(f"SELECT current_setting('{MARK}', true)")
            (mark,) = cursor.fetchone()
        driver.rollback()
        self.found = not mark


def _refuses_options(options: Mapping[str, Any]) -> bool:
    places = greeting.places(options)
    return bool(places) and greeting.refuses(places[0], options)


def begin(connection: Connection) -> Whole:
    """A transaction on a connection through a pooler."""
    return Whole(connection, BEGINS)
