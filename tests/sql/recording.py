"""Run the store's functions against a driver that answers by itself, and record what reaches it: no server is needed.

Everything above the driver is the real thing: the store, the dialect, SQLAlchemy's compiler for that driver, the kept statements
and their prepared form. The driver's cursor takes each text and makes up rows of the columns that the statement has.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from unittest import mock

from sqlalchemy import Connection, Engine, TupleType, create_engine, event
from sqlalchemy.sql.sqltypes import Float, Integer, NullType, Numeric

from queue_db.dialects import Dialect, dialect_for, prepared, raw_cursor
from queue_db.dialects.transactions import PooledConnection, Sender, own
from queue_db.store import Store
from queue_db.store.schema.tables import tables
from queue_db.store.wakeups import Notifications
from tests.sql.layout import fingerprint

#: Name of the folder → URL, and the server that the statements are written for.
DATABASES: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "postgresql": ("postgresql+psycopg2://", (16, 4)),
    "mysql": ("mysql+pymysql://", (8, 4, 0)),
    "mariadb": ("mariadb+pymysql://", (11, 8, 0)),
    "sqlite": ("sqlite://", (3, 40, 0)),
}

#: An older server that gets other statements → its database and version.
OLDER: Mapping[str, tuple[str, tuple[int, ...]]] = {"mariadb_10.11": ("mariadb", (10, 11, 0))}

# Begin and end transactions, and prepare: not statements of a path.
_CONTROL = re.compile(r"\s*(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|DEALLOCATE)\b")

# `make mutants` renames what it changes.
_MUTATED = re.compile(r"\bx(?:_|ǁ[^ǁ]+ǁ)(\w+)__mutmut_\w+$")

_PREPARE = re.compile(r"(?:DEALLOCATE \w+; )?PREPARE (\w+) \(.*?\) AS ", re.DOTALL)

# The store and the dialects of the queue, and those of slices.
_OURS = re.compile(r"queue_db\.(?:\w+\.)*(?:store|dialects|verbs)(?:\.|$)")

# Frames that hand statements on.
_CARRIERS = frozenset({"fetch", "execute", "execute_many", "load", "render", "begin", "_run", "change"})

#: What columns answer, unless a scenario says otherwise. A callable gets the number of the row.
ANSWERS: Mapping[str, Any] = {
    "id": lambda row: row + 1,
    "version": lambda row: 3,
    "priority": 0,
    "queue": "default",
    "name": "default",
    "payload": "null",
    "headers": None,
    "unique_key": lambda row: f"key {row}",
    "group_key": None,
    "callback_id": None,
    "last_error": None,
    "parts": "[[1, 2, 2]]",
    "paused": 0,
    "holder": None,
    "allocated": 0,
    "acked": 0,
    "secured": False,
}


@dataclass(frozen=True)
class Sent:
    """A statement that reached the driver."""

    text: str  #: with ``:name`` for each parameter
    sender: tuple[str, ...]  #: functions of the store and the dialect, from outside in
    alone: bool  #: no transaction had begun: it commits by itself
    prepared: bool
    #: Values that a kept statement brings along.
    constants: Mapping[str, Any]


_Known = tuple[str, list[tuple[str, Any]], Mapping[str, Any]]
"""A statement on its way: text for the reader, result columns, constants."""


@dataclass
class Recorder:
    """What a scenario sends, and how many rows its statements have."""

    rows: int = 1
    #: Number of a statement (from 0), or its first word → its rows.
    counts: Mapping[int | str, int] = field(default_factory=dict)
    answers: Mapping[str, Any] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    _prepared: dict[str, _Known] = field(default_factory=dict)
    _current: _Known | None = None
    #: The statement before: SQLAlchemy may send one several times, with a few rows each.
    _last: _Known | None = None
    connection: Connection | None = None
    #: How many rows the last insert of many had: what counts them answers it.
    inserted: int = 0

    def expect(self, compiled: Any, *, kept: bool = False) -> None:
        """The next text comes from this."""
        readable = _readable(compiled)
        columns = [(str(one.keyname), one.type) for one in getattr(compiled, "_result_columns", ())]
        constants = {name: value for name, value in compiled.params.items() if value is not None and f":{name}" in readable}
        self._current = readable, columns, constants if kept else {}

    def take(self, text: str) -> tuple[list[str], list[tuple[Any, ...]], int]:
        """The driver has got a statement: the names of its columns, rows and the number of rows touched."""
        found = _PREPARE.match(text)
        if found:
            assert self._current is not None
            self._prepared[found[1]] = self._current
            _same(self._current[0], text[found.end() :])
            return [], [], 0
        if _CONTROL.match(text):
            return [], [], 0
        executed = re.match(r"EXECUTE (\w+)", text)
        if executed:
            readable, columns, constants = self._prepared[executed[1]]
        else:
            self._last = self._current or self._repeated(text) or (_numbered(text), [], {})
            readable, columns, constants = self._last
            _same(readable, text)
        self._current = None
        number = len(self.sent)
        assert self.connection is not None
        transaction = own(self.connection)
        self.sent.append(Sent(readable, _senders(), transaction is not None and not transaction.begun, bool(executed), constants))
        rows = self.counts.get(number, self.counts.get(readable.split(maxsplit=1)[0], self.rows))
        if not columns and re.match(r"\s*(SELECT|SHOW)", text):
            columns = [("value", Integer())]
        if _single(readable):
            rows = 1
        if re.match(r"INSERT\b.*\bVALUES\b", text, re.DOTALL):
            rows = min(rows, 1 + text.count("), ("))  # one statement of several
        names = [name for name, _ in columns]
        return names, [tuple(self._value(name, kind, row) for name, kind in columns) for row in range(rows)], rows

    def _repeated(self, text: str) -> _Known | None:
        return self._last if self._last and fingerprint(self._last[0]) == fingerprint(text) else None

    def _value(self, name: str, kind: Any, row: int) -> Any:
        if name in ("inserted", "last_inserted"):
            return self.inserted
        for known in (self.answers, ANSWERS):
            if name in known:
                value = known[name]
                if callable(value):
                    return value(row)
                return value[row] if isinstance(value, list) else value
        return 1 if isinstance(kind, (Integer, Numeric, Float, NullType)) else "text"


def _single(text: str) -> bool:
    """Whether it always has one row: the clock, a setting, or the minimum of something."""
    flat = " ".join(text.split()).replace("EXTRACT(EPOCH FROM", "")
    aggregate = re.match(r"SELECT (?:min|max|count|coalesce\(sum)\(", flat) and "GROUP BY" not in flat
    return bool(aggregate) or (flat.startswith(("SELECT", "SHOW")) and " FROM " not in flat)


def _same(readable: str, text: str) -> None:
    if fingerprint(readable) != fingerprint(text):
        raise AssertionError(f"what was sent is not what is shown:\n{text}\n{readable}")


def _readable(compiled: Any) -> str:
    """The compiled text with ``:name`` for each parameter."""
    text = str(compiled)
    order = list(compiled.positiontup or ())
    lists = {}
    for bind in compiled.post_compile_params:
        name = compiled.bind_names[bind]
        inner = f"(:{name})"
        lists[name] = f"VALUES {inner}" if isinstance(bind.type, TupleType) and compiled.dialect.tuple_in_values else f":{name}"
    names = iter(order)

    def shown(found: re.Match[str]) -> str:
        whole = found[0]
        if whole[0] in "'\"`":
            return whole
        if whole.startswith("$"):
            return f":{order[int(whole[1:]) - 1]}"
        if whole.startswith("__["):
            name = found[2]
            if order and compiled.positional:
                assert next(names) == name
            return lists[name]
        if found[1]:
            return f":{found[1]}"
        return f":{next(names)}"

    placeholder = r"%\((\w+)\)s|__\[POSTCOMPILE_(\w+)\]|'[^']*'|\"[^\"]*\"|`[^`]*`|\$\d+"
    style = compiled.dialect.paramstyle
    if style == "format":
        placeholder += "|%s"
    elif style == "qmark":
        placeholder += r"|\?"
    return re.sub(placeholder, shown, text).replace("%%", "%")


def _numbered(text: str) -> str:
    """A text that SQLAlchemy did not write: its parameters have no names."""
    numbers = iter(range(1, 100))
    return re.sub(r"%\((\w+)\)s|%s|\?", lambda found: f":{found[1] or f'value_{next(numbers)}'}", text)


def _senders() -> tuple[str, ...]:
    """The functions of the package that are under way, from outside in, without those that only hand on."""
    found: list[str] = []
    frame = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        name = _MUTATED.sub(r"\1", frame.f_code.co_qualname)
        ours = _OURS.match(module)
        if (
            ours
            and not module.endswith((".raw_cursor", ".by_key", ".prepared", ".transactions"))
            and name.rpartition(".")[2] not in _CARRIERS
        ):
            place = f"{module.removeprefix('queue_db.')}.{name.partition('.<locals>')[0]}"
            if place not in found:
                found.append(place)
        frame = frame.f_back
    return tuple(reversed(found))


class _Cursor:
    arraysize = 1

    def __init__(self, recorder: Recorder, connection: _Driver) -> None:
        self._recorder, self.connection = recorder, connection
        self.description: list[tuple[Any, ...]] | None = None
        self.rowcount, self.lastrowid = 0, 1
        self._rows: list[tuple[Any, ...]] = []

    def execute(self, text: str, _values: Any = None) -> None:
        names, self._rows, self.rowcount = self._recorder.take(text)
        self.description = [(name, None, None, None, None, None, None) for name in names] or None

    def executemany(self, text: str, values: Sequence[Any]) -> None:
        self.execute(text)
        self.rowcount = self._recorder.inserted = len(values)

    def copy_expert(self, text: str, file: Any, size: int) -> None:
        self.execute(text)
        self.rowcount = 0
        while piece := file.read(size):
            self.rowcount += piece.count("\n")

    def fetchall(self) -> list[tuple[Any, ...]]:
        rows, self._rows = self._rows, []
        return rows

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._rows.pop(0) if self._rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        return self.fetchall()

    def close(self) -> None: ...


class _Driver:
    """A connection of a driver: no more than SQLAlchemy and the dialects ask of it."""

    in_transaction = False
    autocommit = True
    isolation_level = None
    notices: tuple[str, ...] = ()
    closed = False

    def __init__(self, recorder: Callable[[], Recorder]) -> None:
        self._recorder = recorder

    def cursor(self, *_: Any, **__: Any) -> _Cursor:
        return _Cursor(self._recorder(), self)

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...


@dataclass
class Place:
    """A database that is not there."""

    name: str
    engine: Engine
    store: Store
    _recorder: Recorder | None = None

    @contextmanager
    def recording(self, recorder: Recorder, *, begins: bool) -> Iterator[Connection]:
        """A connection of our own in use, in a transaction that has begun or not; what it sends is recorded."""
        self._recorder = recorder
        dialect = self.store.dialect
        with self.engine.connect() as connection, _noting(recorder, self.engine):
            recorder.connection = connection
            connection.info.clear()
            transaction = Sender(connection, dialect)
            transaction.lead(PooledConnection(connection))
            if begins:
                transaction.begin()
            yield connection
            transaction.commit()


def place(name: str) -> Place:
    """The database of that name, or an older server of :data:`OLDER`."""
    name, older = OLDER.get(name, (name, None))
    url, version = DATABASES[name]
    version = older or version
    made: list[Place] = []

    def current() -> Recorder:
        assert made[0]._recorder is not None
        return made[0]._recorder

    engine = create_engine(url, creator=lambda: _Driver(current), _initialize=False)
    sql: Any = engine.dialect
    sql.server_version_info = version
    if name == "mariadb":
        sql._set_mariadb(True, version)
        sql.delete_returning = sql.insert_returning = True
    sql.default_isolation_level = "READ COMMITTED"
    dialect = dialect_for(sql.name)
    dialect.uses_raw_cursor = True
    ours = tables(unique_queue=dialect.unique_queue)
    store = Store(
        ours,
        dialect,
        dialect.product(sql).capabilities,
        # By a clock on which each is due.
        notifications=Notifications(ours, clock=count().__next__),
    )
    made.append(Place(name, engine, store))
    return made[0]


@contextmanager
def _noting(recorder: Recorder, engine: Engine) -> Iterator[None]:
    """Let the recorder know each statement before its text comes."""
    written, kept = raw_cursor.written, prepared.prepared

    def note(connection: Any, statement: Any, several: Any, parameters: Any, _options: Any) -> None:
        first = several[0] if several else parameters
        keys = sorted(first) if first and getattr(statement, "is_insert", False) else None
        several_rows = len(several or ()) > 1
        recorder.expect(statement.compile(dialect=connection.dialect, column_keys=keys, for_executemany=several_rows))

    def note_written(statement: Any, dialect: Any) -> Any:
        recorder.expect(statement.compile(dialect=dialect), kept=True)
        return written(statement, dialect)

    def note_prepared(statement: Any) -> Any:
        if not statement.get_execution_options().get(prepared.NEVER):
            recorder.expect(statement.compile(dialect=prepared._DIALECT), kept=True)
        return kept(statement)

    event.listen(engine, "before_execute", note)
    try:
        with mock.patch.object(raw_cursor, "written", note_written), mock.patch.object(prepared, "prepared", note_prepared):
            yield
    finally:
        event.remove(engine, "before_execute", note)


__all__ = ["ANSWERS", "DATABASES", "OLDER", "Dialect", "Place", "Recorder", "Sent", "place"]
