"""What graphs need of a database, with defaults that work on most."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Table, bindparam, case, literal_column, select, update

from queue_db.dialects.base import Companion
from queue_db.dialects.clock import moment
from queue_db.dialects.inserts import load
from queue_db.graphs.model import IfFailed, NodeState
from queue_db.graphs.tables import GraphTables, graph_tables
from queue_db.groups.dialects import GroupDialect
from queue_db.store.base import Transaction, next_version
from queue_db.store.portions import portions
from queue_db.store.schema import BLOCKED

#: The states as constants of the SQL, so that a statement is prepared once.
WAITING: ColumnElement[Any] = literal_column(f"'{NodeState.WAITING.value}'")
QUEUED: ColumnElement[Any] = literal_column(f"'{NodeState.QUEUED.value}'")
COMPLETED: ColumnElement[Any] = literal_column(f"'{NodeState.COMPLETED.value}'")


#: The most rows in one INSERT.
ROWS = 1000


class WaitingNode(NamedTuple):
    """A node that waits for parents, and whose row is locked."""

    id: int
    graph: int
    queue: str
    pending: int
    if_failed: IfFailed


class Started(NamedTuple):
    """A node whose last parent has left."""

    id: int
    graph: int
    queue: str
    #: Whether its job is due now; False: it is missing.
    admitted: bool


class GraphDialect(Companion):
    """How the rows of a graph are inserted, and what one statement can do when nodes are completed."""

    @property
    def lists(self) -> GroupDialect:
        """The companion that has ``one_of``, the condition for a list parameter."""
        return GroupDialect.of(self.dialect)

    def insert_all(self, tx: Transaction, table: Table, columns: Mapping[str, Sequence[Any]]) -> None:
        """Insert any number of rows with these values by column, none of which is NULL."""
        names, rows = tuple(columns), list(zip(*columns.values(), strict=True))
        for some in portions(rows, ROWS):
            load(tx, table, names, some)

    def complete(self, tx: Transaction, ids: Sequence[int]) -> list[Started] | None:
        """Set the state of completed nodes, count down those that wait for them, and admit the jobs of those that start.

        :return: the nodes that start; None, which is the default: nothing was done, since the database needs a statement for each.
        """
        return None

    def waiting_for(self, tx: Transaction, parent: int) -> list[WaitingNode] | None:
        """Lock the nodes that wait for one parent, in the order of their ids, and return them.

        :return: None, which is the default: nothing was done, since two statements are needed for the order.
        """
        return None

    def start(self, tx: Transaction, ids: Sequence[int]) -> int:
        """Set the state of nodes that start, and admit their jobs; return how many jobs were admitted."""
        tx.execute(_started(self, graph_tables(tx.tables).nodes), {"ids": ids})
        return self.admit(tx, ids)

    def admit(self, tx: Transaction, ids: Sequence[int]) -> int:
        """Admit the jobs of nodes; return how many jobs were blocked before."""
        admitted = _admitted(self, tx.tables.jobs, settable=tx.store.clock is not None)
        return tx.execute(admitted, {"ids": ids, **tx.time()})

    def admitted(self, tx: Transaction, counted: Iterable[Sequence[Any]]) -> list[Started]:
        """Admit the jobs of those nodes that wait for no parent any more.

        :param counted: the id, the graph, the queue and the number of parents of each node.
        """
        ready = {node: (graph, queue) for node, graph, queue, pending in counted if pending <= 0}
        there: Collection[int] = ready
        if ready and self.admit(tx, [*ready]) < len(ready):
            there = self.with_jobs(tx, ready)
        return [Started(node, *of, node in there) for node, of in ready.items()]

    def with_jobs(self, tx: Transaction, ids: Collection[int]) -> set[int]:
        """Those of the nodes whose jobs are there."""
        jobs = tx.tables.jobs
        return set(tx.connection.execute(select(jobs.c.id).where(jobs.c.id.in_([*ids]))).scalars())


@lru_cache(maxsize=64)
def _started(of: GraphDialect, nodes: Table) -> Any:
    started = update(nodes).values(state=QUEUED, pending=literal_column("0"))
    return of.dialect.by_id(started.where(of.lists.one_of(nodes.c.id, "ids")), nodes)


@lru_cache(maxsize=64)
def _admitted(of: GraphDialect, jobs: Table, *, settable: bool) -> Any:
    admitted = update(jobs).values(**admission(jobs, settable=settable))
    return of.dialect.by_id(admitted.where(of.lists.one_of(jobs.c.id, "ids"), is_blocked(jobs)), jobs)


def admission(jobs: Table, *, settable: bool) -> dict[str, Any]:
    """The new values of a blocked job that is admitted."""
    # The due time is not before the admission, which may have waited for the node: claims start at low-water marks, and would miss
    # jobs below them.
    now = moment(settable, after_waiting=True)
    return {"available_at": case((jobs.c.due_at > now, jobs.c.due_at), else_=now), "version": next_version(jobs)}


def is_blocked(jobs: Table) -> Any:
    """The condition that a job is blocked."""
    return jobs.c.available_at == literal_column(str(BLOCKED))


def counted_down(nodes: Table, number: ColumnElement[int]) -> Any:
    """Count down waiting nodes by ``number``; those that come to 0 are queued."""
    state = case((nodes.c.pending <= number, QUEUED), else_=nodes.c.state)
    return update(nodes).values(pending=nodes.c.pending - number, state=state)


@lru_cache(maxsize=64)
def completed(of: GraphDialect, nodes: Table, *, settable: bool) -> Any:
    """Set the state of the completed nodes in the list ``ids``."""
    over = update(nodes).values(state=COMPLETED, finished_at=moment(settable), pending=literal_column("0"))
    return of.dialect.by_id(over.where(of.lists.one_of(nodes.c.id, "ids")), nodes)


@lru_cache(maxsize=64)
def waiting_for_one(of: GraphDialect, tables: GraphTables) -> Any:
    """Lock the nodes that wait for the node ``parent``."""
    nodes, edges = tables.nodes, tables.edges
    columns = (nodes.c.id, nodes.c.graph_id, nodes.c.queue, nodes.c.pending, nodes.c.if_failed)
    mine = (edges.c.parent == bindparam("parent", type_=edges.c.parent.type), nodes.c.state == WAITING)
    query = select(*columns).join_from(edges, nodes, nodes.c.id == edges.c.child).where(*mine).order_by(edges.c.child)
    return of.dialect.lock_rows(query, skip=False)
