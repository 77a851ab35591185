"""What all changes of nodes share: the rows of nodes, locked in the order of their ids, and their jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Table, case, select, update

from queue_db.dialects import Dialect
from queue_db.dialects.clock import moment
from queue_db.graphs.model import IfFailed, NodeState
from queue_db.graphs.tables import GraphTables, graph_tables
from queue_db.groups.dialects import GroupDialect
from queue_db.store.base import Transaction, next_version
from queue_db.store.portions import portions
from queue_db.store.schema import BLOCKED

#: The most nodes in one statement without a value for each node. SQLite allows 32,766 parameters, and fewer before 3.32.
MANY = 5000


@lru_cache(maxsize=64)
def on(dialect: Dialect) -> GroupDialect:
    """Kept, since the statements below are kept by it."""
    return GroupDialect.of(dialect)


class WaitingNode(NamedTuple):
    """A node that waits for parents."""

    id: int
    graph: int
    queue: str
    pending: int
    if_failed: IfFailed


def parts(ids: Collection[int]) -> Iterable[Sequence[int]]:
    """The ids in ascending order, in parts for one statement each."""
    return portions(sorted(ids), MANY)


def edges_from(tx: Transaction, parents: Collection[int]) -> list[tuple[int, int]]:
    """``(parent, child)`` of each edge that begins at one of ``parents``."""
    edges: list[tuple[int, int]] = []
    for some in parts(parents):
        edges += [
            (parent, child) for parent, child in tx.fetch(_edges_from(on(tx.dialect), graph_tables(tx.tables)), {"ids": some})
        ]
    return edges


@lru_cache(maxsize=64)
def _edges_from(of: GroupDialect, tables: GraphTables) -> Any:
    return select(tables.edges.c.parent, tables.edges.c.child).where(of.one_of(tables.edges.c.parent, "ids"))


def waiting(tx: Transaction, ids: Collection[int]) -> list[WaitingNode]:
    """Lock those of the nodes that are waiting, in the order of their ids, and return them."""
    found: list[WaitingNode] = []
    for some in parts(ids):
        rows = tx.fetch(_waiting(on(tx.dialect), graph_tables(tx.tables).nodes), {"ids": some})
        found += [WaitingNode(*row) for row in rows]
    return found


@lru_cache(maxsize=64)
def _waiting(of: GroupDialect, nodes: Table) -> Any:
    columns = (nodes.c.id, nodes.c.graph_id, nodes.c.queue, nodes.c.pending, nodes.c.if_failed)
    mine = of.one_of(nodes.c.id, "ids")
    query = select(*columns).where(mine, nodes.c.state == NodeState.WAITING.value).order_by(nodes.c.id)
    return of.dialect.lock_rows(of.dialect.by_id(query, nodes), skip=False)


def admit(tx: Transaction, ids: Collection[int]) -> set[int]:
    """Make the blocked jobs of these nodes due, and return the ids of those that have no job any more."""
    lost: set[int] = set()
    for some in parts(ids):
        changed = tx.execute(
            _admitted(on(tx.dialect), tx.tables.jobs, settable=tx.store.clock is not None), {"ids": some, **tx.time()}
        )
        if changed < len(some):
            jobs = tx.tables.jobs
            there = tx.connection.execute(select(jobs.c.id).where(jobs.c.id.in_(some))).scalars()
            lost |= set(some) - set(there)
    return lost


@lru_cache(maxsize=64)
def _admitted(of: GroupDialect, jobs: Table, *, settable: bool) -> Any:
    now = moment(settable)
    # The due time is never in the past: claims start at low-water marks, and would miss jobs below them.
    due = case((jobs.c.due_at > now, jobs.c.due_at), else_=now)
    mine = of.one_of(jobs.c.id, "ids")
    raised = update(jobs).values(available_at=due, version=next_version(jobs)).where(mine, jobs.c.available_at == BLOCKED)
    return of.dialect.by_id(raised, jobs)
