"""What groups need of a database, with defaults that work on most."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar

from sqlalchemy import ColumnElement, Integer, Table, bindparam, literal, select, union_all

from queue_db.dialects import Dialect
from queue_db.dialects.base import Companion
from queue_db.dialects.transactions import Sender

#: A job of a group: the index of the group in the given list of keys, and the job's id, version and ``available_at``.
Member = tuple[int, int, int, int]

# The possible numbers of groups in one query. There is one kept statement for each number.
_ARMS = (1, 8, 64)


class GroupDialect(Companion):
    """How the stripes are locked, and the first jobs of groups are read."""

    #: Whether an UPDATE with ``Dialect.by_id`` locks its rows in the order of their ids.
    updates_in_order: ClassVar[bool] = False

    def one_of(self, column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
        """The condition that ``column`` is in the list parameter ``name``, for a statement that is built once and kept."""
        return column.in_(bindparam(name, expanding=True))

    def first_in_groups(self, tx: Sender, jobs: Table, queue: str, keys: Sequence[str], most: int, *, locks: bool) -> list[Member]:
        """The ``most`` jobs with the lowest ids of each of these groups of ``queue``. The result has any order.

        :param keys: the keys of the groups.
        :param locks: read the latest rows and lock them.
        """
        members: list[Member] = []
        for start in range(0, len(keys), _ARMS[-1]):
            part = keys[start : start + _ARMS[-1]]
            arms = next(size for size in _ARMS if size >= len(part))
            values = {"of_queue": queue, "most": most}
            # Unused arms repeat the last key. Their rows are skipped below.
            values |= {f"key_{place}": part[min(place, len(part) - 1)] for place in range(arms)}
            rows = tx.fetch(_first_members(self.dialect, jobs, arms, locks=locks), values)
            members += [(start + place, *member) for place, *member in rows if place < len(part)]
        return members


@lru_cache(maxsize=64)
def _first_members(dialect: Dialect, jobs: Table, arms: int, *, locks: bool) -> Any:
    """The first jobs of ``arms`` groups: a UNION ALL with one query for each group."""
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
        # In subqueries, because not every database allows a LIMIT or a lock in an arm of a UNION.
        arm = dialect.lock_rows(query, skip=False) if locks else query
        queries.append(select(arm.subquery(f"group_{place}")))
    return queries[0] if arms == 1 else union_all(*queries)
