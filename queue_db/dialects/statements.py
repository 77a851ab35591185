"""The statements that enqueue, change and delete jobs, as texts that most databases accept. They are built once and kept.

SQLAlchemy quotes the table names. Values are always bound, as in ``:of_id``.
"""

# ruff: noqa: S608 - the texts are made of constants and of table names that SQLAlchemy has quoted; values are bound.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    BindParameter,
    ColumnElement,
    Executable,
    Integer,
    String,
    Table,
    Text,
    TextClause,
    bindparam,
    column,
    or_,
    text,
)
from sqlalchemy.engine.interfaces import Dialect as SQLAlchemyDialect
from sqlalchemy.types import TupleType

from queue_db.dialects.clock import now_us
from queue_db.dialects.prepared import NEVER
from queue_db.model import MOST_VERSION, Capability, NewJob

if TYPE_CHECKING:
    from queue_db.dialects.base import Dialect

Pairs = Sequence[tuple[int, int]]
"""The ``(id, version)`` of each of several jobs."""

Columns = tuple[str, ...]

#: The type of an array of ids or versions.
IDS = ARRAY(BigInteger())

#: The types of the list parameters of :func:`matching`.
LISTS: Mapping[str, Any] = {"of_ids": BigInteger(), "of_pairs": TupleType(BigInteger(), BigInteger())}

# The text columns among those that statements return. All other columns are numbers.
_TEXTS = frozenset({"kind", "payload", "headers", "unique_key", "last_error", "group_key"})

# The types of parameters, by the beginning of their names. Any other parameter is a text.
_TYPES: dict[str, Any] = {
    **dict.fromkeys(("limit", "read", "start", "front", "priority_", "other_priority_"), Integer()),
    **dict.fromkeys(("now", "lease", "until", "floor_", "other_floor_", "of_id", "of_version"), BigInteger()),
    **dict.fromkeys(("new_priority", "new_max_attempts", "max_attempts", "attempts"), Integer()),
    **dict.fromkeys(("new_callback_id", "new_after", "new_not_before", "delay", "unknown_since", "not_before"), BigInteger()),
}


def kept(sql: str, *returns: str, **lists: Any) -> Executable:
    """Make ``sql`` a statement with typed parameters and columns. The caller keeps it, so that it is made once.

    :param returns: the columns that the statement returns.
    :param lists: the type of each list parameter. With an array type the list is sent as one parameter. Otherwise it is the type of
        an element, and each element is sent as a parameter of its own.
    """
    statement = text(sql)
    statement = statement.bindparams(*(_parameter(name, lists) for name in statement.compile().params))
    return (
        statement.columns(*(column(name, Text() if name in _TEXTS else BigInteger()) for name in returns)) if returns else statement
    )


def match(dialect: Dialect, pairs: Pairs) -> TextClause:
    """The condition ``dialect.matching`` with these pairs, for a SQLAlchemy statement whose only table is the table of jobs."""
    values, lists = dialect.wanted(pairs), dialect.lists
    return (
        text(dialect.matching(one=len(pairs) == 1)).bindparams(*(_parameter(name, lists) for name in values)).bindparams(**values)
    )


def _parameter(name: str, lists: Mapping[str, Any]) -> BindParameter[Any]:
    if name in lists:
        return bindparam(name, type_=lists[name], expanding=not isinstance(lists[name], ARRAY))
    return bindparam(name, type_=next((kind for start, kind in _TYPES.items() if name.startswith(start)), String()))


class JobsText:
    """The parts of the statements on one table of jobs for one database. It keeps the statements that it has built.

    :param settable: whether the time is the parameter ``now``; otherwise it is the database's clock.
    """

    def __init__(self, dialect: Dialect, jobs: Table, sql: SQLAlchemyDialect, *, settable: bool) -> None:
        self._dialect = dialect
        self._sql = sql
        #: ``made(delete, one=True)`` returns ``delete(self, one=True)`` and caches it in this object.
        self.made = lru_cache(maxsize=64)(lambda make, **which: make(self, **which))
        #: The name of the table, as a part of the names of its indexes.
        self.name: str = jobs.name
        self.table = sql.identifier_preparer.format_table(jobs)
        #: The table, with a hint to use the primary key if the planner needs it.
        self.by_id = f"{self.table}{dialect.by_id_hint}"
        self.now = ":now" if settable else self.written(now_us())
        #: The dialect's form of :func:`matching`.
        self.matching = dialect.matching

    def kept(self, sql: str, *returns: str) -> Executable:
        """A statement of :func:`kept` with the list parameters of :attr:`matching`."""
        return kept(sql, *returns, **self._dialect.lists)

    def written(self, expression: ColumnElement[Any]) -> str:
        """An expression without parameters as SQL text of this database."""
        sql = str(expression.compile(dialect=self._sql, compile_kwargs={"literal_binds": True}))
        # A percent sign must not be escaped here, because SQLAlchemy escapes the whole text later. A colon must be escaped, because
        # an unescaped colon begins a parameter.
        return sql.replace(str(text("%").compile(dialect=self._sql)), "%").replace(":", "\\:")

    def locked(self, *, skip: bool) -> str:
        """The clause at the end of a SELECT that locks the selected rows; empty if the database has no row locks."""
        if Capability.ROW_LOCKS not in self._dialect.product(self._sql).capabilities:
            return ""
        return " FOR UPDATE SKIP LOCKED" if skip else " FOR UPDATE"


@lru_cache(maxsize=64)
def on(dialect: Dialect, jobs: Table, sql: SQLAlchemyDialect, *, settable: bool = False) -> JobsText:
    """The parts of the statements on this table, kept for later calls."""
    return JobsText(dialect, jobs, sql, settable=settable)


# --- new jobs -----------------------------------------------------------------------------------------------------------

# The columns that are inserted unchanged for a job without group and batch, as most jobs are. Without the columns group_key and
# callback_id an insert is a tenth cheaper.
_PLAIN = ("queue", "kind", "payload", "headers", "priority", "max_attempts", "unique_key")
# The columns that are inserted unchanged for a job with a group or a batch.
_TIED = (*_PLAIN, "group_key", "callback_id")

#: The names of the parameters for the fields of a :class:`NewJob`. :func:`insert_one` uses most of these parameters.
ONE_NEW = tuple(f"new_{name}" for name in NewJob._fields)


def copied(rows: Sequence[NewJob]) -> Columns:
    """The columns that are inserted unchanged for these jobs. The columns are the first fields of a :class:`NewJob`."""
    for row in rows:
        if row.group_key is not None or row.callback_id is not None:
            return _TIED
    return _PLAIN


def due(now: str, after: str = ":new_after", not_before: str = ":new_not_before") -> str:
    """When a new job is due: ``after`` microseconds from now, and not before ``not_before``.

    The due time is never before now. Low-water marks rely on this.
    """
    return f"CASE WHEN {now} + {after} >= {not_before} THEN {now} + {after} ELSE {not_before} END"


def insertion(jobs: JobsText, columns: Columns) -> str:
    """The text of an INSERT of one job with these columns. Its parameters are in :data:`ONE_NEW`."""
    values = f"{', '.join(new(columns))}, {due(jobs.now)}, {jobs.now}"
    return f"INSERT INTO {jobs.table} ({', '.join(columns)}, available_at, created_at) VALUES ({values})"


def insert_one(jobs: JobsText, *, columns: Columns, returns: bool) -> Executable:
    """Insert one job with these columns; ``returns``: return its id."""
    insert = insertion(jobs, columns)
    return kept(f"{insert} RETURNING id", "id") if returns else kept(insert)


def insert_into(jobs: JobsText, *, columns: Columns, returns: bool = False) -> Executable:
    """Insert one row with these columns; ``returns``: return its id."""
    insert = f"INSERT INTO {jobs.table} ({', '.join(columns)}) VALUES ({', '.join(new(columns))})"
    return kept(f"{insert} RETURNING id", "id") if returns else kept(insert)


def new(columns: Columns) -> list[str]:
    """The placeholders of the parameters for these columns."""
    return [f":new_{name}" for name in columns]


# --- jobs by (id, version) ----------------------------------------------------------------------------------------------

#: The new value of ``version`` in a change: the old value plus 1. At the maximum of the column, which no lease reaches, the version
#: stays the same.
NEXT_VERSION = f"CASE WHEN version < {MOST_VERSION} THEN version + 1 ELSE version END"


#: The new value of ``attempts`` if the last attempt does not count.
ONE_ATTEMPT_LESS = "CASE WHEN attempts > 0 THEN attempts - 1 ELSE 0 END"


def each(name: str, values: Mapping[int, Any], ids: Sequence[int]) -> tuple[str, dict[str, Any]]:
    """Return a SQL expression for the value of each job, and its parameters. For equal values, the expression is one parameter."""
    given = [values[job_id] for job_id in ids]
    if given.count(given[0]) == len(given):
        return f":{name}", {name: given[0]}
    arms = " ".join([f"WHEN :of_id_{place} THEN :{name}_{place}" for place in range(len(ids))])
    parameters = {f"{name}_{place}": value for place, value in enumerate(given)}
    return f"CASE id {arms} END", parameters | {f"of_id_{place}": job_id for place, job_id in enumerate(ids)}


def matching(*, one: bool) -> str:
    """The condition for rows whose ``(id, version)`` is given; :func:`wanted` has the parameters."""
    if one:
        return "id = :of_id AND version = :of_version"
    # The condition on the ids lets the planner use the primary key. Not every planner can derive index ranges from the pairs.
    return "id IN :of_ids AND (id, version) IN :of_pairs"


def wanted(pairs: Pairs) -> dict[str, Any]:
    """The parameters of :func:`matching`."""
    if len(pairs) == 1:
        ((job_id, version),) = pairs
        return {"of_id": job_id, "of_version": version}
    return {"of_ids": [job_id for job_id, _ in pairs], "of_pairs": list(pairs)}


def update(jobs: JobsText, *, assignments: str, one: bool, returning: Columns = ()) -> Executable:
    """Change the rows that match; in ``assignments``, ``{now}`` stands for the time."""
    change = f"UPDATE {jobs.by_id} SET {assignments.format(now=jobs.now)} WHERE {jobs.matching(one=one)}"
    statement = jobs.kept(change + (f" RETURNING {', '.join(returning)}" if returning else ""), *returning)
    # If each job has its own value, the text depends on the number of jobs. There are too many such texts to prepare.
    return statement.execution_options(**{NEVER: True}) if "CASE id" in assignments else statement


def select(jobs: JobsText, *, columns: Columns, one: bool) -> Executable:
    """Read columns of the rows that match."""
    return jobs.kept(f"SELECT {', '.join(columns)} FROM {jobs.by_id} WHERE {jobs.matching(one=one)}", *columns)


def hold(jobs: JobsText, *, one: bool, skip: bool) -> Executable:
    """Lock the rows that match, in id order; ``skip``: step over rows that other transactions have locked."""
    rows = f"SELECT id, version FROM {jobs.by_id} WHERE {jobs.matching(one=one)} ORDER BY id{jobs.locked(skip=skip)}"
    return jobs.kept(rows, "id", "version")


def bury(jobs: JobsText, *, dead: str, columns: Columns, assignments: Columns) -> Executable:
    """Copy the jobs ``of_ids`` to the table of dead jobs.

    :param dead: the name of that table.
    :param columns: the columns that are copied unchanged.
    :param assignments: the other columns, each as ``value AS column``.
    """
    names = [*columns, *(assignment.rpartition(" AS ")[2] for assignment in assignments)]
    values = ", ".join([*columns, *assignments]).format(now=jobs.now)
    copy = f"INSERT INTO {dead} ({', '.join(names)}) SELECT {values} FROM {jobs.table} WHERE id IN :of_ids"
    return kept(copy, of_ids=BigInteger()).execution_options(**{NEVER: True})


def delete(jobs: JobsText, *, one: bool, returns: bool = False, hint: str = "") -> Executable:
    """Delete the rows that match."""
    change = f"DELETE FROM {jobs.table}{hint} WHERE {jobs.matching(one=one)}"
    return jobs.kept(f"{change} RETURNING id", "id") if returns else jobs.kept(change)


# --- for statements of SQLAlchemy ----------------------------------------------------------------------------------------


def has_dependents(table: Table) -> ColumnElement[bool]:
    """The condition that a job has a group or a batch, which must be updated when the job leaves."""
    return or_(table.c.group_key.is_not(None), table.c.callback_id.is_not(None))
