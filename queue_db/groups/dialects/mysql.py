"""MySQL and MariaDB for groups."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar, cast

from sqlalchemy import ColumnElement, Integer, String, Table, Text, bindparam, column, func, literal_column, select

from queue_db.dialects.clock import column_text
from queue_db.dialects.mysql_server import is_mariadb
from queue_db.dialects.transactions import Sender
from queue_db.groups.dialects.base import GroupDialect, Member

# The first tested versions that read only the first row of a dependent subquery, in the order of its index. MariaDB 10.11 reads and
# sorts all rows of the group.
_ORDERED_MARIADB = (11, 8)
_ORDERED_MYSQL = (8, 4)


class MySQLForGroups(GroupDialect):
    """Reads the first jobs of all groups by one query."""

    names: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")

    # InnoDB stores rows in the order of the primary key. A range scan or a full scan by this key reads and locks them in id order.
    updates_in_order: ClassVar[bool] = True

    def first_in_groups(self, tx: Sender, jobs: Table, queue: str, keys: Sequence[str], most: int, *, locks: bool) -> list[Member]:
        sql = tx.connection.dialect
        ordered = (sql.server_version_info or ()) >= (_ORDERED_MARIADB if is_mariadb(sql) else _ORDERED_MYSQL)
        if most > 1 or locks or len(keys) == 1 or not ordered:
            return super().first_in_groups(tx, jobs, queue, keys, most, locks=locks)
        # One query for all groups: the server needs five times as long to parse and plan one query for each group.
        values = {"of_queue": queue, "keys": json.dumps(list(keys), ensure_ascii=False)}
        rows = tx.fetch(_first_of_each(jobs, f"FORCE INDEX ({jobs.name}_group)"), values)
        return [(place, job_id, version, due) for place, job_id, version, due in rows]


@lru_cache(maxsize=64)
def _first_of_each(jobs: Table, hint: str) -> Any:
    """Read the first job of each group. The parameter ``keys`` is a JSON array of group keys; ``place`` is the group's index in it.

    :param hint: a hint to use the index of groups.
    """
    group, keys = cast("String", jobs.c.group_key.type), bindparam("keys", type_=Text())
    # Without CHARACTER SET, the column has the database's character set. Characters that it lacks would become question marks.
    columns = f"nth FOR ORDINALITY, name VARCHAR({group.length}) CHARACTER SET utf8mb4 PATH '$'"
    array: ColumnElement[Any] = literal_column(f"'$[*]' COLUMNS ({columns})")
    given = func.json_table(keys, array).table_valued(column("nth", Integer()), column("name", group), name="given")
    member = jobs.alias("member")
    mine = (member.c.queue == bindparam("of_queue"), member.c.group_key == column_text(given.c.name, type_=group))
    # Order by all columns of the index; otherwise MySQL would read the whole group and sort it.
    first = select(member.c.id).where(*mine).order_by(member.c.queue, member.c.group_key, member.c.id).limit(1)
    found = select((given.c.nth - 1).label("place"), first.with_hint(member, hint).scalar_subquery().label("id")).subquery("found")
    rows = select(found.c.place, jobs.c.id, jobs.c.version, jobs.c.available_at).prefix_with("STRAIGHT_JOIN")
    return rows.join_from(found, jobs, jobs.c.id == found.c.id)
