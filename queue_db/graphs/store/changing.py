"""Cancel and retry graphs, and delete those that have expired."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Row, Select, delete, exists, func, insert, select, update

from queue_db.dead import store as dead_jobs
from queue_db.dialects.inserts import live_keys
from queue_db.errors import DuplicateJobError
from queue_db.graphs import order
from queue_db.graphs.model import NodeState
from queue_db.graphs.store import leaving, reading, rows
from queue_db.graphs.tables import graph_tables
from queue_db.model import MOST_VERSION, JobLinks, links_of
from queue_db.slices import dependents
from queue_db.store import settle
from queue_db.store.base import Transaction
from queue_db.store.on_leave import Departure
from queue_db.store.portions import portions
from queue_db.store.schema import BLOCKED

_OPEN = [state.value for state in NodeState if state.open]


def lock_nodes(tx: Transaction, graph: int) -> dict[int, Row[Any]]:
    """Lock the nodes of a graph, in the order of their ids, and return their rows by id."""
    query = tx.dialect.lock_rows(_nodes(tx, graph), skip=False)
    found: dict[int, Row[Any]] = {}
    # A node that runs may add others while this transaction waits for a row, so look again.
    while new := {row.id: row for row in tx.connection.execute(query)}:
        if new.keys() == found.keys():
            break
        found = new
    return found


def _nodes(tx: Transaction, graph: int) -> Select[Any]:
    nodes = graph_tables(tx.tables).nodes
    columns = (nodes.c.id, nodes.c.name, nodes.c.state, nodes.c.if_failed, nodes.c.pending, nodes.c.stored, nodes.c.queue)
    return select(*columns).where(nodes.c.graph_id == graph).order_by(nodes.c.id)


# --- cancel -------------------------------------------------------------------------------------------------------------


def cancel(tx: Transaction, graph: int, node: int | None) -> int:
    """Cancel the nodes of a graph that are to be done, or one node and what ``if_failed`` cancels with it; return how many left.

    The rows of their jobs are locked first, as where a job leaves by itself.
    """
    jobs = tx.tables.jobs
    before = _cancelled(tx, graph)
    parts = _shelved(tx, graph, node)
    links: dict[int, JobLinks] = {}
    running: list[int] = []
    for pairs in parts:
        held = select(jobs.c.id, jobs.c.queue, jobs.c.group_key, jobs.c.callback_id, jobs.c.available_at, jobs.c.claim_token)
        for row in tx.connection.execute(held.where(jobs.c.id.in_([job_id for job_id, _ in pairs]))):
            if (found := links_of(row.queue, row, blocked=row.available_at == BLOCKED)) is not None:
                links[row.id] = found
            if row.claim_token is not None:
                running.append(row.id)
    gone: set[int] = set()

    def leave() -> Mapping[int, Departure]:
        for pairs in parts:
            gone.update(settle.delete(tx, pairs))
        return dict.fromkeys(gone, Departure.CANCELLED)

    dependents().leave(tx, links, leave)
    for job_id in running:
        if job_id in gone:
            tx.wake_cancelled(job_id)
    return _cancelled(tx, graph) - before


def _shelved(tx: Transaction, graph: int, node: int | None) -> list[list[tuple[int, int]]]:
    """Lock the jobs of the open nodes, or of one of them, and keep them for a retry; return their ids and versions."""
    nodes = graph_tables(tx.tables).nodes
    query = select(nodes.c.id).where(nodes.c.graph_id == graph, nodes.c.state.in_(_OPEN)).order_by(nodes.c.id)
    if node is not None:
        return leaving.shelve(tx, list(tx.connection.execute(query.where(nodes.c.id == node)).scalars()))
    parts: list[list[tuple[int, int]]] = []
    seen: set[int] = set()
    # A node that runs may add others while this transaction waits for its row, so look again.
    while new := set(tx.connection.execute(query).scalars()) - seen:
        seen |= new
        parts += leaving.shelve(tx, new)
    return parts


def _cancelled(tx: Transaction, graph: int) -> int:
    nodes = graph_tables(tx.tables).nodes
    query = select(func.count()).where(nodes.c.graph_id == graph, nodes.c.state == NodeState.CANCELLED.value)
    return int(tx.connection.execute(query).scalar_one())


# --- retry --------------------------------------------------------------------------------------------------------------


class Retried(NamedTuple):
    """What a retry did: ids of nodes."""

    redriven: list[int]
    revived: list[int]


def retry(tx: Transaction, graph: int, node: int | None) -> Retried:
    """Redrive the dead nodes of a graph, and bring back its cancelled ones; with ``node`` this one and those below it."""
    found = lock_nodes(tx, graph)
    chosen, parents = _chosen(tx, found, node)
    dead = sorted(job_id for job_id in chosen if found[job_id].state == NodeState.DEAD)
    redriven: list[int] = []
    for some in portions(dead):
        back, _ = dead_jobs.redrive(tx, like=dead_jobs.Like(), ids=some, above=-1, limit=len(some))
        redriven += back
    pending = _revivable(found, chosen, parents, redriven)
    _revive(tx, graph, {job_id: found[job_id] for job_id in pending}, pending)
    queues = {found[job_id].queue for job_id in redriven} | {found[job_id].queue for job_id, waits in pending.items() if not waits}
    tx.wake(*queues)
    return Retried(redriven, sorted(pending))


def returning(tx: Transaction, graph: int, node: str | int | None) -> Counter[str]:
    """How many jobs :func:`retry` would put into each queue."""
    start = None if node is None else reading.node_in(tx, graph, node)
    if node is not None and start is None:
        return Counter()
    found = {row.id: row for row in tx.connection.execute(_nodes(tx, graph))}
    chosen, parents = _chosen(tx, found, start)
    dead = [job_id for job_id in chosen if found[job_id].state == NodeState.DEAD]
    return Counter(found[job_id].queue for job_id in (*dead, *_revivable(found, chosen, parents, dead)))


def _chosen(tx: Transaction, found: Mapping[int, Row[Any]], node: int | None) -> tuple[set[int], dict[int, list[int]]]:
    """The nodes that a retry is about, and the parents of each node."""
    children: dict[int, list[int]] = {}
    parents: dict[int, list[int]] = {}
    for parent, child in reading.edges_within(tx, list(found)):
        if child in found:
            children.setdefault(parent, []).append(child)
            parents.setdefault(child, []).append(parent)
    return set(found) if node is None else _below(node, children), parents


def _revivable(
    found: Mapping[int, Row[Any]], chosen: Collection[int], parents: Mapping[int, Sequence[int]], redriven: Sequence[int]
) -> dict[int, int]:
    """The cancelled nodes that come back when these dead ones are redriven: for how many parents each of them waits."""
    states = {job_id: NodeState(row.state) for job_id, row in found.items()} | dict.fromkeys(redriven, NodeState.QUEUED)
    pending: dict[int, int] = {}
    try:
        layers = order.layered(found, parents)
    except order.CycleError as error:
        raise order.refused(error, [found[job_id].name for job_id in error.nodes if isinstance(job_id, int)]) from None
    for job_id in layers:
        row = found[job_id]
        if job_id in chosen and states[job_id] is NodeState.CANCELLED and row.stored is not None:
            waits = _pending(row.if_failed, [states[parent] for parent in parents.get(job_id, ())])
            if waits is not None:
                pending[job_id] = waits
                states[job_id] = NodeState.WAITING if waits else NodeState.QUEUED
    return pending


def _below(node: int, children: Mapping[int, Sequence[int]]) -> set[int]:
    below, new = {node}, [node]
    while new:
        new = [child for parent in new for child in children.get(parent, ()) if child not in below]
        below.update(new)
    return below


def _pending(if_failed: str, parents: Collection[NodeState]) -> int | None:
    """For how many of its parents a node waits; None: it can never start."""
    failed = [state for state in parents if state in (NodeState.DEAD, NodeState.CANCELLED)]
    if failed and (if_failed == "cancel" or (if_failed == "wait" and NodeState.CANCELLED in failed)):
        return None
    return sum(state.open for state in parents) + (len(failed) if if_failed == "wait" else 0)


def _revive(tx: Transaction, graph: int, found: Mapping[int, Row[Any]], pending: Mapping[int, int]) -> None:
    """Insert the jobs of cancelled nodes again, under their ids, with higher versions."""
    if not found:
        return
    now, nodes, jobs = tx.read_clock(), graph_tables(tx.tables).nodes, tx.tables.jobs
    stored: dict[int, dict[str, Any]] = {job_id: json.loads(row.stored) for job_id, row in found.items()}
    keys = [(job["queue"], job["unique_key"]) for job in stored.values() if job["unique_key"] is not None]
    for (queue, key), (there, _) in ((one, at) for one, at in live_keys(tx, jobs, keys).items() if one is not None):
        name = next(found[job_id].name for job_id, job in stored.items() if (job["queue"], job["unique_key"]) == (queue, key))
        raise DuplicateJobError(unique_key=key, existing_id=there, node=name)
    made = [
        {
            **job,
            "id": job_id,
            "callback_id": -graph,
            "version": min(job["version"] + 1, MOST_VERSION),
            "available_at": BLOCKED if pending[job_id] else max(now, job["due_at"] or 0),
        }
        for job_id, job in stored.items()
    ]
    dead_jobs.block_behind_others(tx, made)
    for some in portions(made, 1000):
        tx.connection.execute(insert(jobs), list(some))
    by_number: dict[int, list[int]] = {}
    for job_id, waits in pending.items():
        by_number.setdefault(waits, []).append(job_id)
    for waits, ids in by_number.items():
        state = NodeState.WAITING if waits else NodeState.QUEUED
        for part in rows.parts(ids):
            back = update(nodes).where(nodes.c.id.in_(part))
            tx.connection.execute(back.values(state=state.value, pending=waits, stored=None, finished_at=None))
    leaving.uncount(tx, list(found), found.keys())
    leaving.reopen(tx, list(found))


# --- prune --------------------------------------------------------------------------------------------------------------


def prune(tx: Transaction, *, limit: int) -> int:
    """Note which graphs are over, and delete up to ``limit`` nodes of graphs that have expired; return how many."""
    tables = graph_tables(tx.tables)
    graphs, nodes, edges, results = tables.graphs, tables.nodes, tables.edges, tables.results
    _note_ends(tx)
    to_do = exists().where(nodes.c.graph_id == graphs.c.id, nodes.c.state.in_(_OPEN))
    expired = select(graphs.c.id).where(graphs.c.expires_at < tx.now, ~to_do).order_by(graphs.c.expires_at).limit(limit)
    ids = list(tx.connection.execute(expired, tx.time()).scalars())
    if not ids:
        return 0
    old = list(
        tx.connection.execute(select(nodes.c.id).where(nodes.c.graph_id.in_(ids)).order_by(nodes.c.id).limit(limit)).scalars()
    )
    if old:
        tx.connection.execute(delete(edges).where(edges.c.parent.in_(old)))
        tx.connection.execute(delete(results).where(results.c.id.in_(old)))
        tx.connection.execute(delete(nodes).where(nodes.c.id.in_(old)))
    if len(old) < limit:  # all nodes of these graphs are gone
        tx.connection.execute(delete(graphs).where(graphs.c.id.in_(ids)))
    return len(old)


def _note_ends(tx: Transaction) -> None:
    """Set ``expires_at`` of graphs that are over. Nodes that are retried empty it again."""
    tables = graph_tables(tx.tables)
    graphs, nodes = tables.graphs, tables.nodes
    mine = nodes.c.graph_id == graphs.c.id
    to_do = exists().where(mine, nodes.c.state.in_(_OPEN))
    ended = select(graphs.c.id, graphs.c.lasts).where(graphs.c.expires_at.is_(None), ~to_do).order_by(graphs.c.id).limit(100)
    for graph, lasts in tx.connection.execute(ended).all():
        last = tx.connection.execute(select(func.max(nodes.c.finished_at)).where(nodes.c.graph_id == graph)).scalar()
        over = update(graphs).where(graphs.c.id == graph, graphs.c.expires_at.is_(None))
        tx.connection.execute(over.values(expires_at=(last or 0) + lasts))
