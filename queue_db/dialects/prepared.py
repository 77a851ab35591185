"""Statements that PostgreSQL parses and plans once for each connection. Planning takes most of the time of claiming one job.

psycopg2 cannot prepare statements, so the library sends SQL: ``PREPARE name AS …`` once, and then ``EXECUTE name (…)``. The plan is
generic: it serves any values. A plan that was made while the table was small may be slow when the table is large. For example,
PostgreSQL 17 and later may read the whole claim index to find a few jobs. So each plan is renewed every minute, and sooner if the
plan is used often.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import ARRAY, BindParameter, Executable, String
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql.base import PGCompiler
from sqlalchemy.types import TypeEngine

from queue_db.dialects import raw_cursor
from queue_db.dialects.transactions import Sender

#: Seconds after which a plan is renewed.
PLAN_AGE = 60.0
#: Seconds after which a plan is renewed if it was used :data:`OFTEN` times.
BUSY_PLAN_AGE = 2.0
#: The number of uses from which on a plan is renewed after :data:`BUSY_PLAN_AGE`.
OFTEN = 100

#: An execution option of kept statements that are not prepared: planning them is cheap, or a program may run them only once.
NEVER = "queue_db_never_prepared"

_KEY = "queue_db.prepared"


class _Compiler(PGCompiler):
    """Writes constant integers of a statement into its text, because each parameter costs time in the client and the server."""

    def visit_bindparam(self, bindparam: BindParameter[Any], *rest: Any, **kw: Any) -> str:
        if type(bindparam.value) is int:
            return str(bindparam.value)
        return str(super().visit_bindparam(bindparam, *rest, **kw))  # type: ignore[no-untyped-call]


_DIALECT = postgresql.dialect(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]
_DIALECT.statement_compiler = _Compiler  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement for ``PREPARE``."""

    name: str  #: empty: the statement is not prepared
    prepare: str
    execute: str
    parameters: Sequence[str]  #: the names of the parameters in the order of ``execute``
    lists: Mapping[str, Callable[[Sequence[Any]], str]]  #: name of an array parameter → the function that writes it as text

    def arguments(self, values: raw_cursor.Values) -> tuple[Any, ...]:
        """Return the arguments of ``execute``. Arrays are written as texts here, several times faster than by the driver."""
        lists = self.lists
        return tuple([lists[name](values[name]) if name in lists else values[name] for name in self.parameters])


@dataclass(slots=True)
class _Plan:
    """The plan of a statement on one connection."""

    made: float  #: on the monotonic clock
    uses: int = 0

    def is_old(self, now: float) -> bool:
        """Whether to renew a plan that is older than :data:`BUSY_PLAN_AGE`."""
        return self.uses >= OFTEN or now - self.made > PLAN_AGE


@lru_cache(maxsize=512)
def prepared(statement: Executable) -> Prepared:
    """The parts of the kept ``statement``. Each statement is compiled once."""
    if statement.get_execution_options().get(NEVER):
        return Prepared("", "", "", (), {})
    compiled: Any = statement.compile(dialect=_DIALECT)  # type: ignore[attr-defined]
    order = list(compiled.positiontup)
    kinds = [compiled.binds[name].type for name in order]
    text = str(compiled)
    name = f"queue_db_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    places = ", ".join(["%s"] * len(order))
    types = ", ".join(kind.compile(dialect=_DIALECT) for kind in kinds)
    return Prepared(
        name=name,
        prepare=f"PREPARE {name} ({types}) AS {text}",
        execute=f"EXECUTE {name} ({places})" if order else f"EXECUTE {name}",
        parameters=order,
        lists={one: _array_of(kind.item_type) for one, kind in zip(order, kinds, strict=True) if isinstance(kind, ARRAY)},
    )


def render(tx: Sender, statement: Executable, values: raw_cursor.Values) -> tuple[str, tuple[Any, ...]]:
    """Prepare ``statement`` on the connection of ``tx`` if its plan is missing or old; return text and arguments to execute it."""
    parts = prepared(statement)
    if not parts.name:
        return raw_cursor.written(statement, tx.connection.dialect).filled(values)
    known: dict[str, _Plan] = tx.info.setdefault(_KEY, {})
    now = time.monotonic()
    plan = known.get(parts.name)
    if plan is None or (now - plan.made > BUSY_PLAN_AGE and plan.is_old(now)):
        deallocate = "" if plan is None else f"DEALLOCATE {parts.name}; "
        known.pop(parts.name, None)
        plan = _Plan(now)
        tx.execute(deallocate + parts.prepare, ())
        # An interrupt between PREPARE and this line does no harm, because the connection is then discarded.
        known[parts.name] = plan
    plan.uses += 1
    return parts.execute, parts.arguments(values) if parts.lists else tuple(map(values.__getitem__, parts.parameters))


def _array_of(kind: TypeEngine[Any]) -> Callable[[Sequence[Any]], str]:
    return _texts if isinstance(kind, String) else _numbers


def _numbers(numbers: Sequence[int | None]) -> str:
    # One call of str() for the whole list is faster than one call for each number. PostgreSQL ignores the blanks.
    return f"{{{str(list(numbers))[1:-1].replace('None', 'NULL')}}}"


def _texts(texts: Sequence[Any]) -> str:
    if None in texts:
        return f"{{{','.join(['NULL' if text is None else _texts([text])[1:-1] for text in texts])}}}"
    # Escape all texts at once. The separator is safe, because no text in PostgreSQL has a zero character.
    escaped = "\0".join(texts).replace("\\", "\\\\").replace('"', '\\"').replace("\0", '","')
    return f'{{"{escaped}"}}' if texts else "{}"
