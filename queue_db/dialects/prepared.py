"""Statements that PostgreSQL parses and plans once for a connection: planning is the largest part of claiming one job.

psycopg2 cannot prepare, but SQL can: ``PREPARE name AS …`` once, then ``EXECUTE name (…)``. The plan is generic, for any values,
and is renewed every minute, sooner where it is used often: one that was made while the table was small may read all of a large one.
PostgreSQL 17 and later then find a few jobs by reading the whole index of the claims.
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

#: Seconds after which a plan is renewed; and those after which it is, if it was used :data:`OFTEN` times.
PLAN_AGE = 60.0
BUSY_PLAN_AGE = 2.0
OFTEN = 100

#: An execution option of kept statements that are not prepared: there is little to plan, and a program may run them once.
NEVER = "queue_db_never_prepared"

_KEY = "queue_db.prepared"


class _Compiler(PGCompiler):
    """Writes whole numbers that are part of a statement into its text: each parameter costs on both sides."""

    def visit_bindparam(self, bindparam: BindParameter[Any], *rest: Any, **kw: Any) -> str:
        if type(bindparam.value) is int:
            return str(bindparam.value)
        return str(super().visit_bindparam(bindparam, *rest, **kw))  # type: ignore[no-untyped-call]


_DIALECT = postgresql.dialect(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]
_DIALECT.statement_compiler = _Compiler  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement for ``PREPARE``."""

    name: str  #: empty: it is not prepared
    prepare: str
    execute: str
    parameters: Sequence[str]  #: names, in the order of ``execute``
    lists: Mapping[str, Callable[[Sequence[Any]], str]]  #: those that are arrays → what writes them

    def arguments(self, values: raw_cursor.Values) -> tuple[Any, ...]:
        """The arguments of ``execute``. Arrays are sent as PostgreSQL's own text, several times faster than the driver's."""
        lists = self.lists
        return tuple([lists[name](values[name]) if name in lists else values[name] for name in self.parameters])


@dataclass(slots=True)
class _Plan:
    """The plan of a statement on one connection."""

    made: float  #: on the monotonic clock
    uses: int = 0

    def is_old(self, now: float) -> bool:
        """Of one that is older than :data:`BUSY_PLAN_AGE`."""
        return self.uses >= OFTEN or now - self.made > PLAN_AGE


@lru_cache(maxsize=512)
def prepared(statement: Executable) -> Prepared:
    """The parts of the kept ``statement``, compiled once for each."""
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
    """Prepare ``statement`` on the connection of this transaction, unless that has been done, and return what executes it."""
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
        # An interrupt between the statement and this note throws the connection away.
        known[parts.name] = plan
    plan.uses += 1
    return parts.execute, parts.arguments(values) if parts.lists else tuple([values[name] for name in parts.parameters])


def _array_of(kind: TypeEngine[Any]) -> Callable[[Sequence[Any]], str]:
    return _texts if isinstance(kind, String) else _numbers


def _numbers(numbers: Sequence[int | None]) -> str:
    # The text of the list is made at once, not of each number; blanks do not count.
    return f"{{{str(list(numbers))[1:-1].replace('None', 'NULL')}}}"


def _texts(texts: Sequence[Any]) -> str:
    if None in texts:
        return f"{{{','.join(['NULL' if text is None else _texts([text])[1:-1] for text in texts])}}}"
    # All at once too: no text in PostgreSQL has a zero character.
    escaped = "\0".join(texts).replace("\\", "\\\\").replace('"', '\\"').replace("\0", '","')
    return f'{{"{escaped}"}}' if texts else "{}"
