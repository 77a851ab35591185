"""PostgreSQL for groups: lists of keys and ids are arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Integer,
    Table,
    Text,
    any_,
    bindparam,
    column,
    func,
    literal_column,
    select,
    true,
    tuple_,
)

from queue_db.dialects.transactions import Sender
from queue_db.groups.dialects.base import GroupDialect, Member


class PostgreSQLForGroups(GroupDialect):
    """Reads the first jobs of all groups by one query."""

    names: ClassVar[tuple[str, ...]] = ("postgresql",)

    def one_of(self, column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
        return column == any_(bindparam(name, type_=ARRAY(column.type)))

    def first_in_groups(self, tx: Sender, jobs: Table, queue: str, keys: Sequence[str], most: int, *, locks: bool) -> list[Member]:
        values = {"of_queue": queue, "keys": list(keys), "most": most}
        rows = tx.fetch(_first_in_groups(jobs, locks=locks), values)
        return [(place, job_id, version, due) for place, job_id, version, due in rows]


@lru_cache(maxsize=64)
def _first_in_groups(jobs: Table, *, locks: bool) -> Any:
    """Read the first ``most`` jobs of each group in the array ``keys``, with the group's index in this array."""
    keys = func.unnest(bindparam("keys", type_=ARRAY(Text)))
    given = keys.table_valued(column("key", Text), with_ordinality="place", name="given").render_derived(name="given")
    # With an equality on the key of a large group, the planner might read the primary key from its beginning for the order.
    place = tuple_(jobs.c.group_key, jobs.c.id)
    first = (
        select(jobs.c.id, jobs.c.version, jobs.c.available_at)
        .where(
            jobs.c.queue == bindparam("of_queue", type_=jobs.c.queue.type),
            place > tuple_(given.c.key, literal_column("0")),
            jobs.c.group_key <= given.c.key,
        )
        .order_by(jobs.c.group_key, jobs.c.id)
        .limit(bindparam("most", type_=Integer))
    )
    member = (first.with_for_update() if locks else first).lateral("member")
    return select((given.c.place - 1).label("place"), *member.c).select_from(given.join(member, true()))
