"""MySQL and MariaDB for graphs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar

from sqlalchemy import Table, literal_column, update

from queue_db.graphs.dialects.base import QUEUED, GraphDialect, WaitingNode, admission, is_blocked, waiting_for_one
from queue_db.graphs.tables import graph_tables
from queue_db.store.base import Transaction


class MySQLForGraphs(GraphDialect):
    """One statement changes nodes and their jobs."""

    names: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")

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
def _start_both(of: GraphDialect, nodes: Table, jobs: Table, *, settable: bool) -> Any:
    new: dict[Any, Any] = {nodes.c.state: QUEUED, nodes.c.pending: literal_column("0")}
    new |= {jobs.c[name]: value for name, value in admission(jobs, settable=settable).items()}
    return update(nodes).where(of.lists.one_of(nodes.c.id, "ids"), jobs.c.id == nodes.c.id, is_blocked(jobs)).values(new)
