"""Insert the nodes of a graph: their jobs, rows and edges."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Row, insert, select, update

from queue_db.dialects.clock import due_time
from queue_db.errors import ArgumentError, LeaseLostError
from queue_db.graphs.model import IfFailed, NodeState
from queue_db.graphs.store import leaving, rows
from queue_db.graphs.tables import graph_tables
from queue_db.model import NewJob
from queue_db.store import enqueue
from queue_db.store.base import Transaction, each
from queue_db.store.enqueue import OnDuplicate
from queue_db.store.portions import portions
from queue_db.store.schema import BLOCKED

#: The most jobs in one INSERT.
_CHUNK = 1000

#: The place of the graph among the fields of a new job.
_LINK = NewJob._fields.index("callback_id")

_WAITING, _QUEUED = NodeState.WAITING.value, NodeState.QUEUED.value


class Planned(NamedTuple):
    """A node to insert."""

    name: str
    job: NewJob
    layer: int
    if_failed: IfFailed
    #: The positions of its parents among the planned nodes; they come first.
    parents: Sequence[int]
    #: The ids of its other parents, which are in the graph already.
    joined: Sequence[int] = ()


def make(tx: Transaction, name: str | None, lasts: int) -> int:
    """Insert a graph without nodes, which is kept for ``lasts`` microseconds after its end; return its id."""
    table = graph_tables(tx.tables).graphs
    made = tx.connection.execute(insert(table).values(name=name, lasts=lasts, created_at=tx.now), tx.time())
    assert made.inserted_primary_key is not None  # noqa: S101 - an INSERT of one row always has it
    return int(made.inserted_primary_key[0])


def add(
    tx: Transaction, graph: int, planned: Sequence[Planned], *, before: Sequence[int] = (), present: Sequence[int] = ()
) -> list[int]:
    """Insert these nodes and return their ids by position.

    :param before: nodes of the graph that wait, and are locked; each of them also waits for each of the new nodes.
    :param present: the nodes in ``joined`` that have not left.
    """
    here = set(present)
    pending = [len(node.parents) + len(here.intersection(node.joined)) for node in planned]
    ids = _insert_jobs(tx, graph, planned, pending)
    tables, on, number = graph_tables(tx.tables), rows.on(tx.dialect), len(planned)
    columns: dict[str, Sequence[Any]] = {
        "id": ids,
        "graph_id": [graph] * number,
        "name": [node.name for node in planned],
        "queue": [node.job.queue for node in planned],
        "kind": [node.job.kind for node in planned],
        "layer": [node.layer for node in planned],
        "if_failed": [node.if_failed for node in planned],
        "state": [_WAITING if waits else _QUEUED for waits in pending],
        "pending": pending,
    }
    on.insert_all(tx, tables.nodes, columns)
    parents: list[int] = []
    children: list[int] = []
    for job_id, node in zip(ids, planned, strict=True):
        of_node = [*[ids[position] for position in node.parents], *node.joined]
        parents += of_node
        children += [job_id] * len(of_node)
    for child in before:
        parents += ids
        children += [child] * number
    if parents:
        on.insert_all(tx, tables.edges, {"parent": parents, "child": children})
    tx.wake(*{node.job.queue for node, waits in zip(planned, pending, strict=True) if not waits})
    return ids


def _insert_jobs(tx: Transaction, graph: int, planned: Sequence[Planned], pending: Sequence[int]) -> list[int]:
    """Insert the jobs, those of nodes with parents blocked; return their ids."""
    of_nodes = [
        NewJob._make((*node.job[:_LINK], -graph, node.job.unique_for, *((0, BLOCKED) if waits else node.job[-2:])))
        for node, waits in zip(planned, pending, strict=True)
    ]
    chunks, more = portions(of_nodes, _CHUNK), len(of_nodes) > _CHUNK
    if tx.own:  # as plain jobs: a caller's connection may be observed
        added = enqueue.load_jobs(tx, chunks, len(of_nodes), OnDuplicate.RAISE, more=more, tied=True)
    else:
        added = enqueue.insert_chunks(tx, chunks, OnDuplicate.RAISE, ids=True, more=more)
    ids = [job_id for job_id in added.ids if job_id is not None]  # none is skipped
    later = {
        job_id: node.job
        for job_id, node, waits in zip(ids, planned, pending, strict=True)
        if waits and (node.job.after or node.job.not_before)
    }
    jobs = tx.tables.jobs
    for due in portions(list(later)):
        after = each(jobs.c.id, {job_id: later[job_id].after for job_id in due}, BigInteger())
        not_before = each(jobs.c.id, {job_id: later[job_id].not_before for job_id in due}, BigInteger())
        changed = update(jobs).where(jobs.c.id.in_(due)).values(due_at=due_time(tx.now, after, not_before))
        tx.connection.execute(changed, tx.time())
    return ids


class Joining(NamedTuple):
    """Where a node that runs adds nodes to its graph."""

    graph: int
    id: int
    version: int


def join(tx: Transaction, at: Joining, planned: Sequence[Planned], others: Sequence[Sequence[str]]) -> list[int]:
    """Add nodes to the graph of a node that runs; those that wait for this node also wait for the new ones.

    Nodes whose names are there already are not added again: an earlier attempt of the job has added them.

    :param others: for each node, the names of its parents that are in the graph already.
    :raises LeaseLostError: the job has another version by now.
    """
    # The row is locked until the end, so the node cannot leave meanwhile.
    if not tx.dialect.hold(tx, tx.tables.jobs, [(at.id, at.version)]):
        raise LeaseLostError(at.id, at.version)
    known = named(tx, at.graph, {node.name for node in planned})
    fresh = [place for place, node in enumerate(planned) if node.name not in known]
    if fresh:
        place_of = {place: new for new, place in enumerate(fresh)}
        # Parents of the block that are there already are parents in the graph.
        before = {
            place: [*others[place], *(planned[parent].name for parent in planned[place].parents if parent not in place_of)]
            for place in fresh
        }
        locked = _others(tx, at.graph, {name for names in before.values() for name in names})
        new: list[Planned] = []
        for place in fresh:
            joined = [locked[name] for name in dict.fromkeys(before[place])]
            parents = [place_of[parent] for parent in planned[place].parents if parent in place_of]
            layer = 1 + max([*[one.layer for one in joined], *[new[parent].layer for parent in parents]], default=-1)
            new.append(planned[place]._replace(layer=layer, parents=parents, joined=[one.id for one in joined]))
        children = {child for _, child in rows.edges_from(tx, [at.id])}
        _check_order(tx, {one.id: name for name, one in locked.items()}, children)
        lower = _lower(tx, children, 1 + max(node.layer for node in new))
        # A retry brings cancelled ones back, and counts these parents then.
        held = rows.held(tx, children | lower.keys()) if children else {}
        present = [one.id for one in locked.values() if NodeState(one.state).open]
        ids = add(tx, at.graph, new, before=[job_id for job_id in held if job_id in children], present=present)
        if waiting := [job_id for job_id, state in held.items() if job_id in children and state is NodeState.WAITING]:
            leaving.count(tx, {len(ids): waiting})
        _set_layers(tx, lower)
        known |= {node.name: job_id for node, job_id in zip(new, ids, strict=True)}
    return [known[node.name] for node in planned]


def _lower(tx: Transaction, children: Collection[int], layer: int) -> dict[int, int]:
    """The layers of these nodes, at least ``layer``, and of all below them, as far as they have lower ones now."""
    nodes = graph_tables(tx.tables).nodes
    lower: dict[int, int] = {}
    new = dict.fromkeys(children, layer)
    while new:
        now: dict[int, int] = {}
        for some in rows.parts(new):
            query = select(nodes.c.id, nodes.c.layer).where(nodes.c.id.in_(some))
            now |= {row.id: row.layer for row in tx.connection.execute(query)}
        moved = {job_id: at for job_id, at in new.items() if now.get(job_id, at) < at}
        lower |= moved
        new = {}
        for parent, child in rows.edges_from(tx, moved) if moved else ():
            new[child] = max(new.get(child, 0), moved[parent] + 1)
    return lower


def _set_layers(tx: Transaction, layers: Mapping[int, int]) -> None:
    nodes = graph_tables(tx.tables).nodes
    for some in portions(sorted(layers)):
        moved = each(nodes.c.id, {job_id: layers[job_id] for job_id in some}, nodes.c.layer.type)
        tx.connection.execute(update(nodes).where(nodes.c.id.in_(some)).values(layer=moved))


def _check_order(tx: Transaction, parents: Mapping[int, str], children: Collection[int]) -> None:
    """Check that no new node waits for a node that waits for it.

    :param parents: the names of the nodes for which new nodes wait, by id.
    :param children: the nodes that will wait for the new nodes.
    :raises ArgumentError: a parent comes after the node that adds the new nodes.
    """
    below: set[int] = set()
    new = set(children) if parents else set()
    while new:
        below |= new
        if wrong := sorted(name for job_id, name in parents.items() if job_id in below):
            raise ArgumentError(f"after={wrong[0]!r}: this node waits for the one that adds nodes, so neither would ever start")
        new = {child for _, child in rows.edges_from(tx, new)} - below


def named(tx: Transaction, graph: int, names: set[str]) -> dict[str, int]:
    """The ids of the nodes of a graph with these names, by name; missing names are left out."""
    nodes = graph_tables(tx.tables).nodes
    found: dict[str, int] = {}
    for some in portions(sorted(names)):
        query = select(nodes.c.name, nodes.c.id).where(nodes.c.graph_id == graph, nodes.c.name.in_(some))
        found |= {row.name: row.id for row in tx.connection.execute(query)}
    return found


def _others(tx: Transaction, graph: int, names: set[str]) -> Mapping[str, Row[Any]]:
    """Lock the jobs of the nodes with these names, so that none of them leaves meanwhile: name → id, state and layer of the node.

    :raises ArgumentError: there is no such node, or it is dead or cancelled.
    """
    ids = named(tx, graph, names)
    if missing := sorted(names - ids.keys()):
        raise ArgumentError(f"after={missing[0]!r}: graph {graph} has no node with this name")
    nodes, jobs = graph_tables(tx.tables).nodes, tx.tables.jobs
    found: dict[str, Row[Any]] = {}
    for some in rows.parts(ids.values()):
        # A node leaves by a change of its job, so it waits here until the new edges are committed, and then counts them.
        held = select(jobs.c.id).where(jobs.c.id.in_(some)).order_by(jobs.c.id)
        tx.connection.execute(tx.dialect.lock_rows(tx.dialect.by_id(held, jobs), skip=False)).all()
        query = select(nodes.c.name, nodes.c.id, nodes.c.state, nodes.c.layer).where(nodes.c.id.in_(some))
        found |= {row.name: row for row in tx.connection.execute(query)}
    for name, row in found.items():
        if row.state in (NodeState.DEAD, NodeState.CANCELLED):
            raise ArgumentError(f"after={name!r}: this node is {row.state}, so nothing can wait for it")
    return found
