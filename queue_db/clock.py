"""The database's clock as a SQL expression: microseconds since 1970, UTC, the same within one statement.

Leases, delays and expiry compare with this and never with a worker's clock. Each dialect says how it is written.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, bindparam
from sqlalchemy.exc import CompileError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction


class now_us(GenericFunction[int]):  # noqa: N801 - reads like the SQL function that it stands for
    """Microseconds since 1970-01-01T00:00Z at the start of the statement."""

    type = BigInteger()
    inherit_cache = True


@compiles(now_us)
def _unknown(element: now_us, compiler: Any, **kw: Any) -> str:
    raise CompileError(
        f"the dialect {compiler.dialect.name!r} does not say how to read its clock: "
        f'add @compiles(now_us, "{compiler.dialect.name}")'
    )


def moment(settable: bool) -> ColumnElement[int]:
    """The clock of a statement: the database's, or the parameter ``now`` (microseconds) when a caller sets the time."""
    return bindparam("now", type_=BigInteger()) if settable else now_us()
