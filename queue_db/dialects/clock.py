"""The database's clock as a SQL expression: microseconds since 1970, UTC, the same within one statement.

Leases, delays and expiry use this clock and never a worker's clock. Each dialect has its own form of the expression.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Select, String, bindparam, case, select
from sqlalchemy.exc import CompileError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction


class now_us(GenericFunction[int]):  # noqa: N801 - reads like the SQL function that it stands for
    """Microseconds since 1970-01-01T00:00Z at the start of the statement."""

    type = BigInteger()
    inherit_cache = True


class instant(GenericFunction[Any]):  # noqa: N801 - reads like a SQL function
    """Converts microseconds since 1970 to the database's own type for times, in UTC, for users who read the tables with SQL.

    If the dialect does not define the conversion, the value stays in microseconds.
    """

    inherit_cache = True


class now_us_after_waiting(GenericFunction[int]):  # noqa: N801 - reads like a SQL function
    """The time at which a row is written. It is later than :class:`now_us` if the statement has waited for a lock."""

    type = BigInteger()
    inherit_cache = True


@compiles(now_us_after_waiting)
def _the_same(element: now_us_after_waiting, compiler: Any, **kw: Any) -> str:
    # By default, one statement locks the candidates and the next one updates them. So the UPDATE starts after the wait for locks.
    return str(compiler.process(now_us(), **kw))


@compiles(instant)
def _microseconds(element: instant, compiler: Any, **kw: Any) -> str:
    return str(compiler.process(element.clauses.clauses[0], **kw))


@compiles(now_us)
def _unknown(element: now_us, compiler: Any, **kw: Any) -> str:
    raise CompileError(
        f'the dialect {compiler.dialect.name!r} does not say how to write now_us: add @compiles(now_us, "{compiler.dialect.name}")'
    )


def write_as(name: str, like: str) -> None:
    """Let the SQLAlchemy dialect ``name`` write the functions of this module as the dialect ``like`` does."""
    functions: tuple[Any, ...] = (now_us, now_us_after_waiting, instant, column_text)
    for function in functions:
        written = function._compiler_dispatcher.specs  # noqa: SLF001 - SQLAlchemy has no public way
        if like in written:
            compiles(function, name)(written[like])


def clock_query() -> Select[Any]:
    """Select the database's time, in microseconds."""
    return select(now_us())


def moment(settable: bool, *, after_waiting: bool = False) -> ColumnElement[int]:
    """The time in a statement: the database's clock, or the parameter ``now`` (microseconds).

    :param settable: use the parameter.
    :param after_waiting: read the clock after the statement has waited for its locks.
    """
    if settable:
        return bindparam("now", type_=BigInteger())
    return now_us_after_waiting() if after_waiting else now_us()


def due_time(now: Any, after: Any, not_before: Any) -> ColumnElement[int]:
    """When a new job is due: ``after`` microseconds from now, and not before ``not_before``.

    The due time is never before now. Low-water marks rely on this.
    """
    return case((now + after >= not_before, now + after), else_=not_before)


class column_text(GenericFunction[str]):  # noqa: N801 - reads like the SQL function that it stands for
    """Casts a text to the type and the collation of the tables' text columns."""

    inherit_cache = True


@compiles(column_text)
def _cast(element: column_text, compiler: Any, **kw: Any) -> str:
    return f"CAST({compiler.process(element.clauses.clauses[0], **kw)} AS VARCHAR({length(element)}))"


def length(element: column_text) -> int:
    """The maximum number of characters of the text."""
    kind: Any = element.type
    return int(kind.length)


def text_parameter(name: str, longest: int) -> ColumnElement[str]:
    """The parameter ``name``, of at most ``longest`` characters."""
    return column_text(bindparam(name, type_=String(longest)), type_=String(longest))
