"""Statements that are compiled once and then sent to the driver's cursor directly.

For a single job, SQLAlchemy's work for each execution (parameters, an execution context, a result with named columns) takes longer
than the work of the database. Claims and completions use few different statements, so each statement is compiled once. An execution
then only puts the values in order. If the engine has listeners, the statements go through SQLAlchemy, so that the listeners see
them.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, Any

from sqlalchemy import Connection, Engine, Executable, TupleType
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect
from sqlalchemy.exc import DBAPIError

from queue_db.dialects.listening import look_at

Values = Mapping[str, Any]

#: The parameter styles that can be converted to positional parameters.
PARAMSTYLES = frozenset({"qmark", "format", "pyformat"})

# Seconds without traffic after which a network may have dropped a session.
_FORGOTTEN = 30.0

_ASKED_AT = "queue_db.asked_at"
_LOOK = "queue_db.look"

#: The key of the weak reference to the library's transaction in a connection's ``info``. Between transactions the value is None.
TRANSACTION = "queue_db.transaction"

# Characters that a COPY reads at a time. psycopg2's default of 8192 would need many more calls.
_PIECE = 1 << 18

_NAMED = re.compile(r"%\((\w+)\)s")
_PLACES = re.compile(rf"{_NAMED.pattern}|__\[POSTCOMPILE_\w+\]")


@dataclass(frozen=True, slots=True)
class Written:
    """A statement in the form of the driver."""

    text: str
    #: The names of the parameters, in their order in the text.
    order: Sequence[str]
    #: Values that are constants of the statement.
    fixed: Values
    #: Parameters that are lists: name → the marker in the text and the placeholder of one element.
    lists: Mapping[str, tuple[str, str]]

    def filled(self, values: Values) -> tuple[str, tuple[Any, ...]]:
        """Return the text and the arguments of the statement for these values."""
        if not self.lists:
            return self.text, tuple(map({**self.fixed, **values}.__getitem__, self.order))
        text, arguments = self.text, []
        for name in self.order:
            value = values[name] if name in values else self.fixed[name]
            if name not in self.lists:
                arguments.append(value)
                continue
            spot, element = self.lists[name]
            text = text.replace(spot, _repeated(element, len(value)))
            if isinstance(value[0], tuple):
                arguments.extend([part for item in value for part in item])
            else:
                arguments.extend(value)
        return text, tuple(arguments)


@lru_cache(maxsize=1024)
def _repeated(element: str, times: int) -> str:
    return ", ".join([element] * times)


@lru_cache(maxsize=512)
def written(statement: Executable, dialect: SQLAlchemyDialect) -> Written:
    """The kept ``statement`` in the form of this driver. Each statement is compiled once for each driver."""
    compiled: Any = statement.compile(dialect=dialect)  # type: ignore[attr-defined]
    place = "?" if dialect.paramstyle == "qmark" else "%s"
    text, lists = str(compiled), {}
    for bind in compiled.post_compile_params:
        spot = f"__[POSTCOMPILE_{compiled.bind_names[bind]}]"
        if isinstance(bind.type, TupleType):
            element = f"({', '.join([place] * len(bind.type.types))})"
            if dialect.tuple_in_values:
                text = text.replace(spot, f"VALUES {spot}")
        else:
            element = place
        lists[compiled.bind_names[bind]] = (spot, element)
    fixed = {name: value for name, value in compiled.params.items() if value is not None}
    if compiled.positional:
        return Written(text, tuple(compiled.positiontup), fixed, lists)
    # A driver that takes parameters by name also takes them by position.
    spots = {spot: name for name, (spot, _) in lists.items()}
    order = [spots.get(found[0]) or found[1] for found in _PLACES.finditer(text)]
    return Written(_NAMED.sub(place, text), tuple(order), fixed, lists)


def observed(engine: Engine) -> bool:
    """Whether the engine logs statements, or has listeners for statements. Listeners for errors get them from :func:`failed`."""
    return bool(engine._echo or engine.dispatch.before_cursor_execute or engine.dispatch.after_cursor_execute)  # noqa: SLF001


def lively(info: MutableMapping[Any, Any], source: Any) -> bool:
    """Whether a connection was used a moment ago and shows no sign that the server has closed it.

    A server that closes a session sends a message, so the socket is readable. A network may drop an idle session without a message.

    :param info: the connection's ``info``.
    :param source: the socket of the connection, or an object with the socket's ``fileno``.
    """
    now, asked_at = time.monotonic(), info.get(_ASKED_AT)
    if asked_at is None:
        info[_LOOK] = look_at(source)  # before the time: a signal handler's error may come between them
    info[_ASKED_AT] = now
    return asked_at is not None and now - asked_at <= _FORGOTTEN and not info[_LOOK]()


def copy(connection: Connection, text: str, file: IO[Any]) -> int:
    """Run a COPY from or to ``file`` on PostgreSQL with psycopg2, and return the number of rows.

    :raises DBAPIError: the exception that SQLAlchemy would raise, but its message does not show the row at which the COPY failed.
    """
    cursor: Any = None
    try:
        cursor = connection.connection.cursor()
        cursor.copy_expert(text, file, _PIECE)
        rows: int = cursor.rowcount
        cursor.close()
    except BaseException as error:
        _hide_row(error)
        failed(connection, text, cursor, error)
        raise
    return rows


def _hide_row(error: BaseException) -> None:
    """Keep only the primary message. The other lines show the row at which a COPY failed, and payloads must not be logged."""
    shown = getattr(getattr(error, "diag", None), "message_primary", None)
    if shown:
        error.args = (shown,)


def failed(connection: Connection, text: str, cursor: Any, error: BaseException) -> None:
    """Raise SQLAlchemy's exception for an error of the driver, and discard a broken connection.

    Any other error comes from a signal handler, Ctrl-C or a cancelled task, during or after a reply. For such an error, mark the
    transaction as interrupted and return. An interrupted transaction cannot commit, and its connection is not used again unless
    the database can recover it.
    """
    dialect, broken = connection.dialect, connection.invalidated
    driver: Any = dialect.loaded_dbapi
    if not isinstance(error, driver.Error):
        if broken:
            return
        if isinstance(cursor, sqlite3.Cursor):
            # A statement with unread rows holds the file's lock, even outside a transaction. Without this, the traceback would keep
            # the cursor alive.
            cursor.close()
        mark = connection.info.get(TRANSACTION)
        if mark is not None:
            mark().interrupted = True
        elif not isinstance(error, Exception):  # on a caller's connection, do what SQLAlchemy does
            connection.invalidate()
        return
    if dialect._has_events and dialect.dispatch.handle_error and not broken:  # noqa: SLF001
        # Only this method calls the engine's listeners for errors. It also does all that follows here.
        connection._handle_dbapi_exception(error, text, None, cursor, None)  # noqa: SLF001
    if not broken and dialect.is_disconnect(error, connection.connection, cursor):
        broken = True
        connection.invalidate(error)
        # The other connections of the pool are probably broken too.
        connection.engine.dispose()
    raise DBAPIError.instance(
        text, None, error, driver.Error, hide_parameters=True, connection_invalidated=broken, dialect=dialect
    ) from error
