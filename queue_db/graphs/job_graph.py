"""The graph of a job that runs: the results of its parents, and nodes that it adds."""

from __future__ import annotations

from typing import Any, Unpack

from queue_db.codecs import decoded_or_text
from queue_db.core import Core
from queue_db.graphs.building import NewGraph, NodeOptions, Parents, joining
from queue_db.graphs.model import IfFailed, Node
from queue_db.graphs.registry import node_of
from queue_db.graphs.store import reading
from queue_db.graphs.store.enqueue import Joining
from queue_db.leased_job import LeasedJob


class JobGraph:
    """The graph of a claimed job that is a node; from :attr:`LeasedJob.graph`."""

    def __init__(self, core: Core, job: LeasedJob, graph: int) -> None:
        self._core = core
        self._job = job
        #: The id of the graph, for ``db.graphs``.
        self.id: int = graph
        self._added = 0

    def parents(self) -> dict[str, Node]:
        """The parents of this node by name, in the order of their ids, each with its state and result. Reads the database."""
        codec = self._core.codec
        found = self._core.read("graphs.parents_with_results", reading.parents_with_results, self._job.id)
        return {row.name: node_of(row, result=None if row.result is None else decoded_or_text(codec, row.result)) for row in found}

    def results(self) -> dict[str, Any]:
        """What the handlers of the completed parents returned, by the name of the parent. Reads the database."""
        return {name: node.result for name, node in self.parents().items() if node.state == "completed"}

    def adding(self) -> NewGraph:
        """A block that adds nodes to this graph. The nodes that wait for this one wait for the new ones too.

        Give nodes a name, or add the same ones in each attempt: nodes with a name that is there already are not added again. The
        default names are the id of this job, a dot, and a number.

        :raises LeaseLostError: at the end of the block: the lease was lost; nothing was added.
        """
        self._added += 1
        part = "" if self._added == 1 else f"{self._added}."
        return joining(self._core, lambda: Joining(self.id, self._job.id, self._job.version), f"{self._job.id}.{part}")

    def add(
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
        with self.adding() as block:
            node = block.add(queue, kind, payload, after=after, if_failed=if_failed, name=name, **options)
        assert node.id is not None  # noqa: S101 - the block has ended
        return node.id
