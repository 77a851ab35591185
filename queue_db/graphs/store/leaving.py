"""What becomes of a graph when jobs of its nodes leave, in the transaction in which they leave.

A node that waits has a number of parents that have not left: ``pending``. A parent that leaves counts it down, and the node that is
at 0 starts. Its row is locked first, so of several parents that leave at once exactly one sees the 0.

Rows are locked in one order: first the nodes that have left, then those that wait for them, ascending. No row stands for the whole
graph, so two jobs of a graph that have no child in common never wait for each other.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from functools import lru_cache, partial
from typing import Any

from sqlalchemy import Integer, Table, bindparam, insert, select, update

from queue_db.dialects.clock import moment
from queue_db.graphs.model import NodeState
from queue_db.graphs.store import rows
from queue_db.graphs.tables import graph_tables
from queue_db.groups.dialects import GroupDialect
from queue_db.slices import Left
from queue_db.store import settle
from queue_db.store.base import Transaction, each
from queue_db.store.on_leave import Departure
from queue_db.store.portions import portions

log = logging.getLogger("queue_db.graphs")


class Event(Enum):
    """What has happened to a parent."""

    COMPLETED = "completed"
    DEAD = "dead"
    CANCELLED = "cancelled"
    #: It was dead, which was counted at its death, and now nobody can redrive it.
    GIVEN_UP = "given up"


_EVENTS = {Departure.COMPLETED: Event.COMPLETED, Departure.DEAD: Event.DEAD, Departure.CANCELLED: Event.CANCELLED}
_STATES = {
    Departure.COMPLETED: NodeState.COMPLETED,
    Departure.DEAD: NodeState.DEAD,
    Departure.CANCELLED: NodeState.CANCELLED,
}

#: The columns of a job that a cancelled node keeps for a retry.
STORED = ("queue", "kind", "payload", "headers", "priority", "max_attempts", "unique_key", "version", "created_at", "due_at")


def left(tx: Transaction, jobs: Mapping[int, Left]) -> None:
    """Start or cancel the nodes that waited for ``jobs`` (id → how it left)."""
    by_state: dict[NodeState, list[int]] = {}
    for job_id, one in jobs.items():
        by_state.setdefault(_STATES[one.departure], []).append(job_id)
    for state, ids in by_state.items():
        _set_state(tx, ids, state)
    results = [{"id": job_id, "result": one.result} for job_id, one in jobs.items() if one.result is not None]
    if results:
        tx.connection.execute(insert(graph_tables(tx.tables).results), results)
    tell(tx, {job_id: _EVENTS[one.departure] for job_id, one in jobs.items()})


def redriven(tx: Transaction, ids: Sequence[int]) -> None:
    """The dead jobs of these nodes are back in their queues."""
    nodes = graph_tables(tx.tables).nodes
    for some in rows.parts(ids):
        back = update(nodes).where(nodes.c.id.in_(some)).values(state=NodeState.QUEUED.value, finished_at=None)
        tx.connection.execute(back)
    uncount(tx, ids)
    reopen(tx, ids)


def reopen(tx: Transaction, ids: Collection[int]) -> None:
    """The graphs of these nodes are not over any more, so they do not expire."""
    tables = graph_tables(tx.tables)
    for some in rows.parts(ids):
        of_nodes = list(
            tx.connection.execute(select(tables.nodes.c.graph_id).where(tables.nodes.c.id.in_(some)).distinct()).scalars()
        )
        mine = tables.graphs.c.id.in_(of_nodes)
        tx.connection.execute(update(tables.graphs).where(mine, tables.graphs.c.expires_at.is_not(None)).values(expires_at=None))


def purged(tx: Transaction, ids: Sequence[int]) -> None:
    """Give up those of the dead nodes whose jobs are gone."""
    nodes, dead = graph_tables(tx.tables).nodes, tx.tables.dead
    gone: list[int] = []
    for some in rows.parts(ids):
        without = select(nodes.c.id).where(nodes.c.id.in_(some), nodes.c.state == NodeState.DEAD.value)
        gone += tx.connection.execute(without.where(nodes.c.id.not_in(select(dead.c.id).where(dead.c.id.in_(some))))).scalars()
    if gone:
        _set_state(tx, gone, NodeState.CANCELLED)
        tell(tx, dict.fromkeys(gone, Event.GIVEN_UP))


def tell(tx: Transaction, events: Mapping[int, Event]) -> None:
    """Start or cancel the nodes that waited for these (id → what has happened), and those that waited for the cancelled ones."""
    cancelled: Counter[int] = Counter()
    while events:
        events = _tell_children(tx, events, cancelled)
    for graph, number in cancelled.items():
        message = "graph %d: %d nodes are cancelled, since a parent is dead or cancelled; retry them with db.graphs.retry(%d)"
        tx.after_commit(partial(log.warning, message, graph, number, graph))


def _tell_children(tx: Transaction, events: Mapping[int, Event], cancelled: Counter[int]) -> dict[int, Event]:
    """Do it for the children.

    :param cancelled: gets the numbers of cancelled nodes, by graph.
    :return: what has happened to the children, for the next call.
    """
    of_child: dict[int, Counter[Event]] = {}
    for parent, child in rows.edges_from(tx, events):
        of_child.setdefault(child, Counter())[events[parent]] += 1
    started: list[rows.WaitingNode] = []
    counted: dict[int, int] = {}
    given_up: list[int] = []
    for node in rows.waiting(tx, of_child) if of_child else ():
        happened = of_child[node.id]
        if _must_give_up(node, happened):
            given_up.append(node.id)
            cancelled[node.graph] += 1
            continue
        down = happened[Event.COMPLETED]
        if node.if_failed == "run":
            down += happened[Event.DEAD] + happened[Event.CANCELLED]
        if down >= node.pending:
            started.append(node)
        elif down:
            counted[node.id] = node.pending - down
    if counted:
        count(tx, counted)
    after = _start(tx, started, cancelled) if started else []
    if given_up:
        cancel_waiting(tx, given_up)
    return dict.fromkeys([*after, *given_up], Event.CANCELLED)


def _must_give_up(node: rows.WaitingNode, happened: Mapping[Event, int]) -> bool:
    """Whether a node can never start after this."""
    match node.if_failed:
        case "cancel":
            return bool(happened[Event.DEAD] or happened[Event.CANCELLED])
        case "wait":  # a dead parent may be redriven
            return bool(happened[Event.CANCELLED] or happened[Event.GIVEN_UP])
        case _:
            return False


def _start(tx: Transaction, started: Sequence[rows.WaitingNode], cancelled: Counter[int]) -> list[int]:
    """Put the jobs of these nodes into their queues; return the ids of those whose jobs are gone, and which are cancelled."""
    of = {node.id: node for node in started}
    for some in rows.parts(of):
        tx.execute(_started(rows.on(tx.dialect), graph_tables(tx.tables).nodes), {"ids": some})
    lost = sorted(rows.admit(tx, of))  # somebody has deleted them without this library
    if lost:
        _set_state(tx, lost, NodeState.CANCELLED)
        cancelled.update(of[job_id].graph for job_id in lost)
    tx.wake(*{node.queue for node in started})
    return lost


def count(tx: Transaction, pending: Mapping[int, int]) -> None:
    """Set for how many parents these nodes still wait (id → number)."""
    nodes = graph_tables(tx.tables).nodes
    for some in portions(sorted(pending)):
        value = each(nodes.c.id, {node: pending[node] for node in some}, Integer())
        if len(some) == 1:
            tx.execute(_counted(rows.on(tx.dialect), nodes), {"ids": some, "pending": pending[some[0]]})
        else:
            tx.connection.execute(tx.dialect.by_id(update(nodes).where(nodes.c.id.in_(some)).values(pending=value), nodes))


def uncount(tx: Transaction, parents: Collection[int]) -> None:
    """Nodes that run whatever becomes of ``parents``, and still wait for others, wait for these again."""
    again = Counter(child for _, child in rows.edges_from(tx, parents))
    found = rows.waiting(tx, again) if again else []
    if more := {node.id: node.pending + again[node.id] for node in found if node.if_failed == "run"}:
        count(tx, more)


def cancel_waiting(tx: Transaction, ids: Sequence[int]) -> None:
    """Cancel these nodes, which wait and are locked, and keep their jobs for a retry."""
    _set_state(tx, ids, NodeState.CANCELLED)
    for pairs in shelve(tx, ids):
        settle.delete(tx, pairs)


def shelve(tx: Transaction, ids: Collection[int]) -> list[list[tuple[int, int]]]:
    """Keep the jobs of these nodes for a retry; return ``(id, version)`` of the jobs, in parts for one statement each."""
    jobs, nodes = tx.tables.jobs, graph_tables(tx.tables).nodes
    pairs: list[list[tuple[int, int]]] = []
    keep = update(nodes).where(nodes.c.id == bindparam("node")).values(stored=bindparam("job"))
    for some in portions(sorted(ids)):
        query = select(jobs.c.id, *(jobs.c[name] for name in STORED)).where(jobs.c.id.in_(some)).order_by(jobs.c.id)
        found = tx.connection.execute(tx.dialect.lock_rows(tx.dialect.by_id(query, jobs), skip=False)).all()
        if found:
            pairs.append([(row.id, row.version) for row in found])
            tx.connection.execute(
                keep, [{"node": row.id, "job": json.dumps({k: getattr(row, k) for k in STORED})} for row in found]
            )
    return pairs


def _set_state(tx: Transaction, ids: Collection[int], state: NodeState) -> None:
    for some in rows.parts(ids):
        over = _over(rows.on(tx.dialect), graph_tables(tx.tables).nodes, state, settable=tx.store.clock is not None)
        tx.execute(over, {"ids": some, **tx.time()})


@lru_cache(maxsize=64)
def _over(of: GroupDialect, nodes: Table, state: NodeState, *, settable: bool) -> Any:
    over = update(nodes).values(state=state.value, finished_at=moment(settable), pending=0)
    return of.dialect.by_id(over.where(of.one_of(nodes.c.id, "ids")), nodes)


@lru_cache(maxsize=64)
def _started(of: GroupDialect, nodes: Table) -> Any:
    started = update(nodes).values(state=NodeState.QUEUED.value, pending=0)
    return of.dialect.by_id(started.where(of.one_of(nodes.c.id, "ids")), nodes)


@lru_cache(maxsize=64)
def _counted(of: GroupDialect, nodes: Table) -> Any:
    counted = update(nodes).values(pending=bindparam("pending", type_=Integer))
    return of.dialect.by_id(counted.where(of.one_of(nodes.c.id, "ids")), nodes)
