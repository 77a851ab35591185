"""Statements that PostgreSQL parses and plans once for a connection: planning is the largest part of claiming one job.

psycopg2 cannot prepare, but SQL can: ``PREPARE name AS …`` once, then ``EXECUTE name (…)``. The plan is a general one, for any
values, and it is made anew now and then: one that was made while the table was empty need not suit it when it is full.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, CursorResult, Executable
from sqlalchemy.dialects import postgresql

#: Seconds after which a plan is made anew.
PLAN_AGE = 60.0

_PREPARED = "queue_db.prepared"
_DIALECT = postgresql.dialect(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Prepared:
    """A statement for ``PREPARE``."""

    name: str
    prepare: str
    execute: str
    parameters: Sequence[str]  #: names, in the order of ``execute``
    fixed: Mapping[str, Any]  #: values that the statement brings along


@lru_cache(maxsize=512)
def prepared(statement: Executable) -> Prepared:
    """The parts of ``statement``, which is an object that is kept: made once for each."""
    compiled: Any = statement.compile(dialect=_DIALECT)  # type: ignore[attr-defined]
    order = list(compiled.positiontup)
    types = [compiled.binds[name].type.compile(dialect=_DIALECT) for name in order]
    text = str(compiled)
    name = f"queue_db_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    places = ", ".join(["%s"] * len(order))
    fixed = {name: value for name, value in compiled.params.items() if value is not None}
    return Prepared(
        name=name,
        prepare=f"PREPARE {name} ({', '.join(types)}) AS {text}",
        execute=f"EXECUTE {name} ({places})" if order else f"EXECUTE {name}",
        parameters=order,
        fixed=fixed,
    )


def execute(connection: Connection, statement: Executable, values: Mapping[str, Any]) -> CursorResult[Any]:
    """Run ``statement`` with ``values``, prepared on this connection."""
    ready = prepared(statement)
    known: dict[str, float] = connection.info.setdefault(_PREPARED, {})
    now = time.monotonic()
    made = known.get(ready.name)
    if made is None or now - made > PLAN_AGE:
        forget = "" if made is None else f"DEALLOCATE {ready.name}; "
        known.pop(ready.name, None)
        connection.exec_driver_sql(forget + ready.prepare)
        known[ready.name] = now
    arguments = tuple(values[name] if name in values else ready.fixed[name] for name in ready.parameters)
    return connection.exec_driver_sql(ready.execute, arguments)
