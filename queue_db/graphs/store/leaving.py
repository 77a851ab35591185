"""What becomes of a graph when jobs of its nodes leave, in the transaction in which they leave.

A node that waits has a number of parents that have not left: ``pending``. A parent that leaves counts it down, and the node that is
at 0 starts. Its row is locked first, so of several parents that leave at once exactly one sees the 0.

Rows are locked in one order: first the jobs that leave, then their nodes, then those that wait for them, ascending. No row stands
for the whole graph, so two jobs of a graph that have no child in common never wait for each other.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from functools import lru_cache, partial
from typing import Any

from sqlalchemy import ColumnElement, Integer, Row, Select, Table, bindparam, literal_column, select, update

from queue_db.dialects.clock import moment
from queue_db.graphs.cancellations import Cancellations, NodesCancelled
from queue_db.graphs.dialects import GraphDialect, Started, WaitingNode
from queue_db.graphs.model import IfFailed, NodeState
from queue_db.graphs.store import rows
from queue_db.graphs.tables import graph_tables
from queue_db.slices import Left
from queue_db.store import settle
from queue_db.store.base import Transaction
from queue_db.store.on_leave import Departure
from queue_db.store.portions import portions
from queue_db.store.schema import NEVER


class Event(Enum):
    """What has happened to a parent."""

    COMPLETED = "completed"
    DEAD = "dead"
    CANCELLED = "cancelled"
    #: It was dead, which was counted at its death, and now nobody can redrive it.
    GIVEN_UP = "given up"


#: The columns of a job that a cancelled node keeps for a retry.
STORED = ("queue", "kind", "payload", "headers", "priority", "max_attempts", "unique_key", "group_key", "version", "created_at")


def left(tx: Transaction, jobs: Mapping[int, Left]) -> None:
    """Start or cancel the nodes that waited for ``jobs`` (id → how it left)."""
    completed: list[int] = []
    results: dict[int, str] = {}
    events: dict[int, Event] = {}
    for job_id, one in jobs.items():
        if one.departure is Departure.COMPLETED:
            completed.append(job_id)
            if one.result is not None:
                results[job_id] = one.result
        else:
            events[job_id] = Event.DEAD if one.departure is Departure.DEAD else Event.CANCELLED
    for event, state in ((Event.DEAD, NodeState.DEAD), (Event.CANCELLED, NodeState.CANCELLED)):
        if of_state := [job_id for job_id, happened in events.items() if happened is event]:
            _set_state(tx, of_state, state)
    if results:
        rows.on(tx.dialect).insert_all(tx, graph_tables(tx.tables).results, {"id": list(results), "result": list(results.values())})
    cancelled: dict[int, list[int]] = {}
    for some in rows.parts(completed):
        started = rows.on(tx.dialect).complete(tx, some)
        if started is None:
            _set_state(tx, some, NodeState.COMPLETED)
            events |= dict.fromkeys(some, Event.COMPLETED)
        else:
            events |= _started(tx, started, cancelled)
    tell(tx, events, cancelled)


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
        tell(tx, dict.fromkeys(gone, Event.GIVEN_UP), {})


def kept(tx: Transaction, job_id: ColumnElement[int]) -> Select[Any]:
    """Select the cancelled node that can bring back the job with the id in this column of the SELECT around this one."""
    nodes = graph_tables(tx.tables).nodes
    return select(nodes.c.id).where(nodes.c.id == job_id, nodes.c.stored.is_not(None))


def tell(tx: Transaction, events: Mapping[int, Event], cancelled: dict[int, list[int]]) -> None:
    """Start or cancel the nodes that waited for these (id → what has happened), and those that waited for the cancelled ones.

    :param cancelled: the nodes that are cancelled already, by graph.
    """
    while events:
        events = _tell_children(tx, events, cancelled)
    for graph, ids in cancelled.items():
        reports: Cancellations = tx.store.beside["graphs"]
        report = partial(reports.record, NodesCancelled(graph, sorted(ids)))
        if tx.own:
            tx.after_commit(report)
        else:
            report()


def _tell_children(tx: Transaction, events: Mapping[int, Event], cancelled: dict[int, list[int]]) -> dict[int, Event]:
    """Do it for the children; return what has happened to them, for the next call."""
    waiting, happened = _children(tx, events)
    started: list[Started] = []
    counted: dict[int, list[int]] = {}
    given_up: list[int] = []
    for node in waiting:
        mine = happened[node.id]
        if _must_give_up(node, mine):
            given_up.append(node.id)
            cancelled.setdefault(node.graph, []).append(node.id)
            continue
        counts = _COUNTED_BY[node.if_failed]
        down = sum(number for event, number in mine.items() if event in counts)
        if down >= node.pending:
            started.append(Started(node.id, node.graph, node.queue, admitted=True))
        elif down:
            counted.setdefault(-down, []).append(node.id)
    count(tx, counted)
    lost = _started(tx, _admitted(tx, started), cancelled)
    if given_up:
        cancel_waiting(tx, given_up)
    return lost | dict.fromkeys(given_up, Event.CANCELLED)


def _children(tx: Transaction, events: Mapping[int, Event]) -> tuple[Sequence[WaitingNode], Mapping[int, Mapping[Event, int]]]:
    """Lock the nodes that wait for these, and say how many parents of each have had which event."""
    if len(events) == 1:
        ((parent, event),) = events.items()
        waiting = rows.on(tx.dialect).waiting_for(tx, parent)
        if waiting is not None:
            return waiting, {node.id: {event: 1} for node in waiting}
    happened: dict[int, dict[Event, int]] = {}
    if set(events.values()) == {Event.COMPLETED}:
        happened = {child: {Event.COMPLETED: number} for child, number in rows.children_of(tx, events).items()}
        return rows.waiting(tx, happened) if happened else (), happened
    for parent, child in rows.edges_from(tx, events):
        mine = happened.setdefault(child, {})
        event = events[parent]
        mine[event] = mine.get(event, 0) + 1
    return rows.waiting(tx, happened) if happened else (), happened


#: The events of parents after which a node does not wait for them any more, by its ``if_failed``.
_COUNTED_BY: dict[IfFailed, frozenset[Event]] = {
    "cancel": frozenset({Event.COMPLETED}),
    "run": frozenset({Event.COMPLETED, Event.DEAD, Event.CANCELLED}),
    "wait": frozenset({Event.COMPLETED}),
}


def _must_give_up(node: WaitingNode, happened: Collection[Event]) -> bool:
    """Whether a node can never start after this."""
    match node.if_failed:
        case "cancel":
            return Event.DEAD in happened or Event.CANCELLED in happened
        case "wait":  # a dead parent may be redriven
            return Event.CANCELLED in happened or Event.GIVEN_UP in happened
        case _:
            return False


def _admitted(tx: Transaction, started: Sequence[Started]) -> list[Started]:
    """Put the jobs of these nodes into their queues; a job may be missing."""
    missing: set[int] = set()
    for some in rows.parts([node.id for node in started]):
        if rows.on(tx.dialect).start(tx, some) < len(some):
            missing.update(set(some) - rows.on(tx.dialect).with_jobs(tx, some))
    return [node._replace(admitted=False) if node.id in missing else node for node in started]


def _started(tx: Transaction, started: Sequence[Started], cancelled: dict[int, list[int]]) -> dict[int, Event]:
    """Wake the workers; return what has happened to nodes whose jobs somebody has deleted without this library: cancelled."""
    lost = [node for node in started if not node.admitted]
    if lost:
        _set_state(tx, [node.id for node in lost], NodeState.CANCELLED)
        for node in lost:
            cancelled.setdefault(node.graph, []).append(node.id)
    if started:
        tx.wake(*{node.queue for node in started if node.admitted})
    return dict.fromkeys([node.id for node in lost], Event.CANCELLED)


def count(tx: Transaction, more: Mapping[int, Collection[int]]) -> None:
    """Let nodes, which are locked, wait for ``number`` more parents, or fewer if it is below 0 (number → nodes)."""
    for number, ids in more.items():
        for some in rows.parts(ids):
            tx.execute(_counted(rows.on(tx.dialect), graph_tables(tx.tables).nodes), {"ids": some, "number": number})


def uncount(tx: Transaction, parents: Collection[int], but: Collection[int] = ()) -> None:
    """Nodes that run whatever becomes of ``parents``, and still wait for others, wait for these again.

    :param but: nodes that count these parents already.
    """
    again = Counter(child for _, child in rows.edges_from(tx, parents) if child not in but)
    more: dict[int, list[int]] = {}
    for node in rows.waiting(tx, again) if again else ():
        if node.if_failed == "run":
            more.setdefault(again[node.id], []).append(node.id)
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
        columns = [jobs.c[name] for name in ("id", *STORED, "available_at", "due_at", "claim_token")]
        query = select(*columns).where(jobs.c.id.in_(some)).order_by(jobs.c.id)
        found = tx.connection.execute(tx.dialect.lock_rows(tx.dialect.by_id(query, jobs), skip=False)).all()
        if found:
            pairs.append([(row.id, row.version) for row in found])
            tx.connection.execute(keep, [{"node": row.id, "job": json.dumps(_kept(row))} for row in found])
    return pairs


def _kept(row: Row[Any]) -> dict[str, Any]:
    """What a retry makes a job of, with the time at which it is due."""
    due = row.available_at if row.claim_token is None and row.available_at < NEVER else row.due_at
    return {name: getattr(row, name) for name in STORED} | {"due_at": due}


def _set_state(tx: Transaction, ids: Collection[int], state: NodeState) -> None:
    for some in rows.parts(ids):
        tx.execute(
            _over(rows.on(tx.dialect), graph_tables(tx.tables).nodes, state, settable=tx.store.clock is not None),
            {"ids": some, **tx.time()},
        )


@lru_cache(maxsize=64)
def _over(of: GraphDialect, nodes: Table, state: NodeState, *, settable: bool) -> Any:
    over = update(nodes).values(state=literal_column(f"'{state.value}'"), finished_at=moment(settable), pending=literal_column("0"))
    return of.dialect.by_id(over.where(of.lists.one_of(nodes.c.id, "ids")), nodes)


@lru_cache(maxsize=64)
def _counted(of: GraphDialect, nodes: Table) -> Any:
    counted = update(nodes).values(pending=nodes.c.pending + bindparam("number", type_=Integer))
    return of.dialect.by_id(counted.where(of.lists.one_of(nodes.c.id, "ids")), nodes)
