"""Commits that do not wait for the disk."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Boolean
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction


class commits_early(GenericFunction[bool]):  # noqa: N801 - reads like a SQL function
    """A condition that is true. Where it is evaluated for a row, the commit of the transaction does not wait for the disk, if the
    database can choose. A crash of the server then loses the transaction, unless a later commit has waited.
    """

    type = Boolean()
    inherit_cache = True


@compiles(commits_early)
def _nothing(element: commits_early, compiler: Any, **kw: Any) -> str:
    return "1 = 1"


@compiles(commits_early, "postgresql")
def _until_the_end_of_the_transaction(element: commits_early, compiler: Any, **kw: Any) -> str:
    return "set_config('synchronous_commit', 'off', true) <> ''"
