"""Statements that PostgreSQL parses and plans once for each connection. Planning takes most of the time of claiming one job.

psycopg2 cannot prepare statements, so the library sends SQL: ``PREPARE name AS …`` once, and then ``EXECUTE name (…)``. The plan is
generic: it serves any values. A plan that was made while the table was small may be slow when the table is large. For example,
PostgreSQL 17 and later may read the whole claim index to find a few jobs. So each plan is renewed every minute, and sooner if the
plan is used often.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any

from sqlalchemy import ARRAY, BindParameter, Executable, Integer, String
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
    """A statement for ``PREPARE``.

    All its numbers are the elements of one array, and all its texts of another, because psycopg2 needs 8,000 machine instructions
    for each parameter. Each array is written as a text here, several times faster than by the driver.
    """

    name: str  #: empty: the statement is not prepared
    prepare: str
    execute: str
    #: Returns the numbers from the values by name; None: there are none.
    numbers: Callable[[raw_cursor.Values], Sequence[int | None]] | None = None
    #: Returns the texts.
    texts: Callable[[raw_cursor.Values], Sequence[Any]] | None = None
    #: The names of the other parameters, and the functions that write them.
    others: Sequence[tuple[str, Callable[[Any], Any]]] = ()


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
        return Prepared("", "", "")
    compiled: Any = statement.compile(dialect=_DIALECT)  # type: ignore[attr-defined]
    kinds = {name: compiled.binds[name].type for name in compiled.positiontup}
    numbers = [name for name, kind in kinds.items() if isinstance(kind, Integer)]
    texts = [name for name, kind in kinds.items() if isinstance(kind, String)]
    others = [name for name in kinds if name not in numbers and name not in texts]
    types, places = list[str](), dict[str, str]()
    for names, kind in ((numbers, "BIGINT[]"), (texts, "VARCHAR[]")):
        if names:
            types.append(kind)
            places |= {name: f"${len(types)}[{place}]" for place, name in enumerate(names, 1)}
    for name in others:
        types.append(kinds[name].compile(dialect=_DIALECT))
        places[name] = f"${len(types)}"
    given = [places[name] for name in kinds]
    text = _PLACE.sub(lambda found: given[int(found[1]) - 1] if found[1] else found[0], str(compiled))
    name = f"queue_db_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return Prepared(
        name=name,
        prepare=f"PREPARE {name} ({', '.join(types)}) AS {text}" if types else f"PREPARE {name} AS {text}",
        execute=f"EXECUTE {name} ({', '.join(['%s'] * len(types))})" if types else f"EXECUTE {name}",
        numbers=_getter(numbers),
        texts=_getter(texts),
        others=[(name, _writer(kinds[name])) for name in others],
    )


# The place of a parameter in a compiled text, or a part of the text in quotes, which has no parameters.
_PLACE = re.compile(r"'[^']*'|\"[^\"]*\"|\$(\d+)")


def _getter(names: Sequence[str]) -> Callable[[raw_cursor.Values], Sequence[Any]] | None:
    """A function that takes the values of these names from a mapping."""
    # itemgetter returns no tuple for a single name. So this name is taken twice; the statement does not read the second value.
    return itemgetter(*(names if len(names) > 1 else [*names, *names])) if names else None


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
    arguments: list[Any] = []
    if parts.numbers is not None:
        arguments.append(f"{{{str([*parts.numbers(values)])[1:-1].replace('None', 'NULL')}}}")
    if parts.texts is not None:
        texts = parts.texts(values)
        if None in texts or "\\" in (joined := "\0".join(texts)) or '"' in joined or joined.count("\0") >= len(texts):
            arguments.append(_texts(texts))
        else:
            arguments.append('{"' + joined.replace("\0", '","') + '"}')
    for name, write in parts.others:
        arguments.append(write(values[name]))
    return parts.execute, tuple(arguments)


def _writer(kind: TypeEngine[Any]) -> Callable[[Any], Any]:
    """The function that writes a value of this type. Arrays are written as texts, several times faster than by the driver."""
    if not isinstance(kind, ARRAY):
        return lambda value: value
    return _texts if isinstance(kind.item_type, String) else _numbers


def _numbers(numbers: Sequence[int | None]) -> str:
    # One call of str() for the whole list is faster than one call for each number. PostgreSQL ignores the blanks.
    return f"{{{str(list(numbers))[1:-1].replace('None', 'NULL')}}}"


def _texts(texts: Sequence[Any]) -> str:
    if None in texts:
        return f"{{{','.join(['NULL' if text is None else _texts([text])[1:-1] for text in texts])}}}"
    # Escape all texts at once. The separator is safe, because no text in PostgreSQL has a zero character.
    joined = "\0".join(texts)
    if joined.count("\0") > max(0, len(texts) - 1):
        raise ValueError("a text has a NUL character, which PostgreSQL cannot store")
    escaped = joined.replace("\\", "\\\\").replace('"', '\\"').replace("\0", '","')
    return f'{{"{escaped}"}}' if texts else "{}"
