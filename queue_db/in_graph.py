"""The part of a claimed job that is about its graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from queue_db.model import ClaimedRow, graph_of
from queue_db.slices import load, type_hint

if TYPE_CHECKING:
    from queue_db.graphs.job_graph import JobGraph
    from queue_db.graphs.model import Node
else:
    JobGraph, Node = (type_hint("queue_db", name) for name in ("JobGraph", "Node"))


class InGraph:
    """The verbs of a job that is a node of a graph. A job outside graphs has them too: they send nothing."""

    __slots__ = ()

    _row: ClaimedRow
    _graph: JobGraph

    @property
    def graph(self) -> JobGraph | None:
        """The graph of which the job is a node, to add nodes to it; None: no graph."""
        graph = graph_of(self._row.callback_id)
        if graph is None:
            return None
        if not hasattr(self, "_graph"):  # it takes no time where a job is made
            job = cast("Any", self)
            job._graph = load("graphs.job_graph", "JobGraph")(job.source.core, job, graph)  # noqa: SLF001 - its slot
        return self._graph

    def parents(self) -> dict[str, Node]:
        """The parents of the job in its graph, by name, each with its state and result; empty without a graph.

        This reads the database. A coroutine takes an AsyncLeasedJob and awaits it.
        """
        return {} if self.graph is None else self.graph.parents()

    def results(self) -> dict[str, Any]:
        """What the handlers of the completed parents in the graph returned, by the name of the parent; as :meth:`parents`."""
        return {} if self.graph is None else self.graph.results()
