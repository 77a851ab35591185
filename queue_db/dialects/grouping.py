"""Groups: the first jobs of many groups in few statements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar, cast

from sqlalchemy import (
    ColumnElement,
    Integer,
    String,
    Table,
    Text,
    bindparam,
    column,
    func,
    literal,
    literal_column,
    select,
    union_all,
)

from queue_db.dialects.seam import ClaimSeam
from queue_db.dialects.texts import column_text
from queue_db.dialects.transactions import Sender

#: A job of a group: the group's place in the list that was given, from 0, and the job's id, version and ``available_at``.
Member = tuple[int, int, int, int]

# Numbers of groups in one query: there is a kept statement for each.
_ARMS = (1, 8, 64)


class Grouping(ClaimSeam):
    """What groups need of a database, with defaults that work on most."""

    #: Whether an UPDATE of some ids (:meth:`by_id`) locks the rows in their order.
    updates_in_order: ClassVar[bool] = False

    def one_of(self, column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
        """Whether ``column`` is in the list ``name``, a parameter: part of a statement that is built once and kept."""
        return column.in_(bindparam(name, expanding=True))

    def first_in_groups(self, tx: Sender, jobs: Table, queue: str, keys: Sequence[str], most: int, *, locks: bool) -> list[Member]:
        """The first ``most`` jobs by id of each group of ``queue``, in any order.

        :param keys: of the groups.
        :param locks: read the latest rows and lock them.
        """
        found: list[Member] = []
        for start in range(0, len(keys), _ARMS[-1]):
            some = keys[start : start + _ARMS[-1]]
            arms = next(size for size in _ARMS if size >= len(some))
            values = {"of_queue": queue, "most": most}
            # Those that are too many ask for the last one again.
            values |= {f"key_{place}": some[min(place, len(some) - 1)] for place in range(arms)}
            rows = tx.fetch(_first_members(self, jobs, arms, locks=locks), values)
            found += [(start + place, *member) for place, *member in rows if place < len(some)]
        return found


@lru_cache(maxsize=64)
def _first_members(dialect: Grouping, jobs: Table, arms: int, *, locks: bool) -> Any:
    """The first jobs of a number of groups, a query for each."""
    queries = []
    for place in range(arms):
        query = (
            select(literal(place, Integer).label("place"), jobs.c.id, jobs.c.version, jobs.c.available_at)
            .where(
                jobs.c.queue == bindparam("of_queue", type_=jobs.c.queue.type),
                jobs.c.group_key == bindparam(f"key_{place}", type_=jobs.c.group_key.type),
            )
            .order_by(jobs.c.id)
            .limit(bindparam("most", type_=Integer))
        )
        # In subqueries: not every database takes a LIMIT, or a lock, in an arm of a UNION.
        arm = dialect.lock_rows(query, skip=False) if locks else query
        queries.append(select(arm.subquery(f"group_{place}")))
    return queries[0] if arms == 1 else union_all(*queries)


@lru_cache(maxsize=64)
def first_of_each(jobs: Table, hint: str) -> Any:
    """MySQL and MariaDB: the first job of each of the groups ``keys``, a JSON array, with the group's place in it.

    :param hint: to use the index of groups.
    """
    group, keys = cast("String", jobs.c.group_key.type), bindparam("keys", type_=Text())
    # Without a character set of its own, the column has the database's, and what that lacks becomes a question mark.
    columns = f"nth FOR ORDINALITY, name VARCHAR({group.length}) CHARACTER SET utf8mb4 PATH '$'"
    array: ColumnElement[Any] = literal_column(f"'$[*]' COLUMNS ({columns})")
    given = func.json_table(keys, array).table_valued(column("nth", Integer()), column("name", group), name="given")
    member = jobs.alias("member")
    mine = (member.c.queue == bindparam("of_queue"), member.c.group_key == column_text(given.c.name, type_=group))
    # By all columns of the index, or MySQL would read the whole group and sort it.
    first = select(member.c.id).where(*mine).order_by(member.c.queue, member.c.group_key, member.c.id).limit(1)
    found = select((given.c.nth - 1).label("place"), first.with_hint(member, hint).scalar_subquery().label("id")).subquery("found")
    rows = select(found.c.place, jobs.c.id, jobs.c.version, jobs.c.available_at).prefix_with("STRAIGHT_JOIN")
    return rows.join_from(found, jobs, jobs.c.id == found.c.id)
