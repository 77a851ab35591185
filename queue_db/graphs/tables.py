"""The tables of graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, UniqueConstraint, text

from queue_db.dialects.clock import now_us
from queue_db.store.schema import BIG_ID, KIND_LENGTH, LONG_TEXT, MYSQL, POSTGRESQL_CHURN, QUEUE_LENGTH

if TYPE_CHECKING:
    from queue_db.store.schema.tables import Tables

#: The length of the name of a node, in characters.
NAME_LENGTH = 200


@dataclass(frozen=True, slots=True)
class GraphTables:
    """The tables of graphs in one store."""

    graphs: Table
    nodes: Table
    edges: Table
    results: Table


def described(name: str, metadata: MetaData) -> GraphTables:
    """Make the tables beside the table ``name`` of the jobs."""
    return GraphTables(_graphs(name, metadata), _nodes(name, metadata), _edges(name, metadata), _results(name, metadata))


def graph_tables(tables: Tables) -> GraphTables:
    """The tables of graphs beside those of the queue."""
    found: GraphTables = tables.slices["graphs"]
    return found


def _graphs(name: str, metadata: MetaData) -> Table:
    """The graphs. What became of their nodes is counted when it is asked for: no row of a graph is locked by its jobs."""
    return Table(
        f"{name}_graphs",
        metadata,
        Column("id", BIG_ID, primary_key=True, autoincrement=True),
        Column("name", String(NAME_LENGTH)),
        # For this many microseconds after its end the graph is kept.
        Column("lasts", BigInteger, nullable=False),
        Column("created_at", BigInteger, nullable=False, server_default=now_us()),
        # Set by the first prune after the end. Delete the graphs that have expired:
        #   SELECT id FROM jobs_graphs WHERE expires_at < ? ORDER BY expires_at LIMIT ?
        Column("expires_at", BigInteger),
        Index(f"{name}_graphs_age", "expires_at"),
        sqlite_autoincrement=True,
        **MYSQL,
    )


def _nodes(name: str, metadata: MetaData) -> Table:
    """The nodes. The id of a node is the id of its job, and ``jobs.callback_id`` is minus the id of the graph."""
    return Table(
        f"{name}_nodes",
        metadata,
        Column("id", BIG_ID, primary_key=True, autoincrement=False),
        Column("graph_id", BigInteger, nullable=False),
        Column("name", String(NAME_LENGTH), nullable=False),
        Column("queue", String(QUEUE_LENGTH), nullable=False),
        Column("kind", String(KIND_LENGTH), nullable=False),
        # 0 for a node without parents; otherwise one more than the highest layer of its parents.
        Column("layer", Integer, nullable=False, server_default=text("0")),
        Column("if_failed", String(6), nullable=False),
        Column("state", String(9), nullable=False),
        # How many parents the node still waits for.
        Column("pending", Integer, nullable=False),
        Column("finished_at", BigInteger),
        # The job of a node that was cancelled with its graph or after its parent, for a retry.
        Column("stored", LONG_TEXT),
        # The nodes of a graph, and the node with a name:
        #   SELECT … FROM jobs_nodes WHERE graph_id = ? AND name = ?
        UniqueConstraint("graph_id", "name", name=f"{name}_nodes_name"),
        postgresql_with=POSTGRESQL_CHURN,
        **MYSQL,
    )


def _edges(name: str, metadata: MetaData) -> Table:
    """For each node, the nodes that wait for it."""
    return Table(
        f"{name}_edges",
        metadata,
        Column("parent", BIG_ID, primary_key=True, autoincrement=False),
        Column("child", BIG_ID, primary_key=True, autoincrement=False),
        # The parents of a node: SELECT parent FROM jobs_edges WHERE child = ?
        Index(f"{name}_edges_child", "child"),
        sqlite_with_rowid=False,
        **MYSQL,
    )


def _results(name: str, metadata: MetaData) -> Table:
    """What the handlers of completed nodes have returned. A handler that returns None has no row."""
    return Table(
        f"{name}_results",
        metadata,
        Column("id", BIG_ID, primary_key=True, autoincrement=False),  # of the node
        Column("result", LONG_TEXT, nullable=False),
        **MYSQL,
    )
