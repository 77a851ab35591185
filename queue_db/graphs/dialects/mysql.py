"""MySQL and MariaDB for graphs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from sqlalchemy import ColumnElement, Integer, String, Table, Text, bindparam, column, func, insert, literal_column, select, update
from sqlalchemy.types import TypeEngine

from queue_db.graphs.dialects.base import QUEUED, GraphDialect, WaitingNode, admission, is_blocked, waiting_for_one
from queue_db.graphs.tables import graph_tables
from queue_db.store.base import Transaction

#: The fewest rows that are sent as one parameter, and the most of them: of columns with numbers only, and of others.
_MANY, _NUMBERS, _TEXTS = 100, 10_000, 500


class MySQLForGraphs(GraphDialect):
    """One statement changes nodes and their jobs; one parameter has many rows."""

    names: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")

    def insert_all(self, tx: Transaction, table: Table, columns: Mapping[str, Sequence[Any]]) -> None:
        number, kinds = len(next(iter(columns.values()))), {_kind(table.c[name].type) for name in columns}
        if number < _MANY or None in kinds:
            super().insert_all(tx, table, columns)
            return
        # The driver and the server take long for each parameter of a statement.
        at_once = _NUMBERS if kinds == {"BIGINT"} else _TEXTS
        for start in range(0, number, at_once):
            rows = list(zip(*[values[start : start + at_once] for values in columns.values()], strict=True))
            tx.execute(_insertion(table, tuple(columns)), {"given": json.dumps(rows, ensure_ascii=False)})

    def waiting_for(self, tx: Transaction, parent: int) -> list[WaitingNode] | None:
        # InnoDB reads and locks the edges of one parent in the order of their children.
        return [WaitingNode(*row) for row in tx.fetch(waiting_for_one(self, graph_tables(tx.tables)), {"parent": parent})]

    def start(self, tx: Transaction, ids: Sequence[int]) -> int:
        nodes, jobs = graph_tables(tx.tables).nodes, tx.tables.jobs
        changed = tx.execute(_start_both(self, nodes, jobs, settable=tx.store.clock is not None), {"ids": ids, **tx.time()})
        if changed == 2 * len(ids):
            return len(ids)
        return super().start(tx, ids)  # a job is missing: change the nodes alone, and count the jobs


@lru_cache(maxsize=64)
def _insertion(table: Table, names: tuple[str, ...]) -> Any:
    """Insert the rows of these columns in the JSON array ``given``."""
    listed = ", ".join(f"c{place} {_kind(table.c[name].type)} PATH '$[{place}]'" for place, name in enumerate(names))
    array: ColumnElement[Any] = literal_column(f"'$[*]' COLUMNS ({listed})")
    columns = [column(f"c{place}", table.c[name].type) for place, name in enumerate(names)]
    given = func.json_table(bindparam("given", type_=Text()), array).table_valued(*columns, name="given")
    return insert(table).from_select(list(names), select(*given.c))


def _kind(of: TypeEngine[Any]) -> str | None:
    """The type of such a column in JSON_TABLE; None: its values may be too long for one parameter with many rows."""
    if isinstance(of, Integer):
        return "BIGINT"
    # Without CHARACTER SET, the column has the database's character set. Characters that it lacks would become question marks.
    return f"VARCHAR({of.length}) CHARACTER SET utf8mb4" if isinstance(of, String) and of.length else None


@lru_cache(maxsize=64)
def _start_both(of: GraphDialect, nodes: Table, jobs: Table, *, settable: bool) -> Any:
    new: dict[Any, Any] = {nodes.c.state: QUEUED, nodes.c.pending: literal_column("0")}
    new |= {jobs.c[name]: value for name, value in admission(jobs, settable=settable).items()}
    return update(nodes).where(of.lists.one_of(nodes.c.id, "ids"), jobs.c.id == nodes.c.id, is_blocked(jobs)).values(new)
