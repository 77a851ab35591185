"""A text parameter as a column of a query: of a fixed length, and compared as the columns of the tables are."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, String, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction


class column_text(GenericFunction[str]):  # noqa: N801 - reads like the SQL function that it stands for
    """A text with the type and the collation of the tables' text columns."""

    inherit_cache = True


@compiles(column_text)
def _cast(element: column_text, compiler: Any, **kw: Any) -> str:
    return f"CAST({compiler.process(element.clauses.clauses[0], **kw)} AS VARCHAR({length(element)}))"


def length(element: column_text) -> int:
    """The most characters of the text."""
    kind: Any = element.type
    return int(kind.length)


def text_parameter(name: str, longest: int) -> ColumnElement[str]:
    """The parameter ``name``, of at most ``longest`` characters."""
    return column_text(bindparam(name, type_=String(longest)), type_=String(longest))
