# Generated from queue_db/graphs/registry.py, queue_db/graphs/job_graph.py. Do not change it: `make aio` writes it anew.
"""Graphs, JobGraph for asyncio."""

from __future__ import annotations

from typing import Any, Unpack

from queue_db.aio.bases import Twin
from queue_db.concurrency.greenlets import run
from queue_db.graphs.building import NewGraph, NodeOptions, Parents
from queue_db.graphs.cancellations import Cancellations
from queue_db.graphs.job_graph import JobGraph
from queue_db.graphs.model import Graph, IfFailed, Node, NodeState
from queue_db.graphs.registry import GraphList, Graphs, NodeList


class AsyncGraphs(Twin[Graphs]):
    """The graphs of one database: jobs that start when their parents have left. ``db.graph()`` enqueues one."""

    @property
    def cancelled(self) -> Cancellations:
        """Reports the nodes that are cancelled in this process since a parent failed to listeners: ``cancelled.add(listener)``."""
        return self._sync.cancelled

    async def get(self, graph: int) -> Graph:
        """The graph with this id, with the numbers of its nodes by state and layer. Reads all its nodes.

        :raises GraphNotFoundError: there is no such graph, or it has expired.
        """
        return await run(self._sync.get, graph)

    async def list(self, *, limit: int = 50, after: Graph | int | None = None) -> GraphList:
        """Graphs, newest first, without layers. Reads all their nodes.

        :param after: the last graph of the previous page, or its id.
        """
        return await run(self._sync.list, limit=limit, after=after)

    async def nodes(
        self, graph: int, *, state: NodeState | str | None = None, limit: int = 1000, after: Node | int | None = None
    ) -> NodeList:
        """The nodes of a graph in the order of their ids, with the ids of their parents.

        :param state: only nodes in this state.
        :param after: the last node of the previous page, or its id.
        :raises GraphNotFoundError: there is no such graph, or it has expired.
        """
        return await run(self._sync.nodes, graph, state=state, limit=limit, after=after)

    async def cancel(self, graph: int, *, node: str | int | None = None) -> int:
        """Cancel the nodes that are to be done: they leave their queues. Return how many nodes were cancelled.

        :param node: cancel only this node, by name or id, and what is cancelled with it by its ``if_failed``.
        :raises GraphNotFoundError: there is no such graph, or it has expired.
        :raises ArgumentError: the graph has no such node.
        """
        return await run(self._sync.cancel, graph, node=node)

    async def retry(self, graph: int, *, node: str | int | None = None) -> int:
        """Redrive the dead nodes, and bring back the cancelled ones, which wait for their parents again. Return how many.

        A node that was cancelled by itself stays cancelled: its job is gone.

        :param node: only this node, by name or id, and those below it.
        :raises GraphNotFoundError: there is no such graph, or it has expired.
        :raises ArgumentError: the graph has no such node.
        :raises DuplicateJobError: a live job has the unique key of a cancelled node; nothing was changed.
        """
        return await run(self._sync.retry, graph, node=node)


class AsyncJobGraph(Twin[JobGraph]):
    """The graph of a claimed job that is a node; from :attr:`LeasedJob.graph`."""

    @property
    def id(self) -> int:
        """The id of the graph, for ``db.graphs``."""
        return self._sync.id

    async def parents(self) -> dict[str, Node]:
        """The parents of this node by name, in the order of their ids, each with its state and result. Reads the database."""
        return await run(self._sync.parents)

    async def results(self) -> dict[str, Any]:
        """What the handlers of the completed parents returned, by the name of the parent. Reads the database."""
        return await run(self._sync.results)

    def adding(self) -> NewGraph:
        """A block that adds nodes to this graph. The nodes that wait for this one wait for the new ones too.

        Give nodes a name, or add the same ones in each attempt: nodes with a name that is there already are not added again. The
        default names are the id of this job, a dot, and a number.

        :raises LeaseLostError: at the end of the block: the lease was lost; nothing was added.
        """
        return self._sync.adding()

    async def add(
        self,
        queue: str,
        kind: str,
        payload: Any = None,
        *,
        after: Parents = (),
        if_failed: IfFailed = "cancel",
        name: str | None = None,
        **options: Unpack[NodeOptions],
    ) -> int:
        """Add one node, as in :meth:`adding`, and return the id of its job. It does not wait for this node.

        :param after: names of nodes of this graph for which it waits.
        :raises LeaseLostError: the lease was lost; nothing was added.
        """
        return await run(self._sync.add, queue, kind, payload, after=after, if_failed=if_failed, name=name, **options)
