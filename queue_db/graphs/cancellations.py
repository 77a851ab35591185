"""Reports nodes that were cancelled because a parent failed: writes a log record, counts the nodes, and calls each listener."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from queue_db import arguments
from queue_db.database.database import Database

log = logging.getLogger("queue_db.graphs")


@dataclass(frozen=True, slots=True)
class NodesCancelled:
    """Nodes of one graph that were cancelled since a parent is dead or cancelled."""

    graph: int
    jobs: Sequence[int]  #: the ids of the nodes, ascending


Listener = Callable[[NodesCancelled], None]
"""Called after the commit, in the thread that made the parent fail. Its exceptions are logged and have no effect."""


class Cancellations:
    """Reports the nodes that were cancelled through one :class:`QueueDB`, with their parents.

    In a caller's transaction they are reported at once, as deaths are: the library does not see the commit.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._listeners: tuple[Listener, ...] = ()

    def add(self, listener: Listener) -> None:
        """Call ``listener`` with the cancelled nodes from now on.

        :raises ArgumentError: ``listener`` is an ``async def``.
        """
        arguments.plain("listener", listener)
        self._listeners = (*self._listeners, listener)

    def remove(self, listener: Listener) -> None:
        """Do not call ``listener`` any more."""
        self._listeners = tuple(known for known in self._listeners if known != listener)

    def record(self, cancelled: NodesCancelled) -> None:
        """Log and count the nodes, and call the listeners."""
        graph, number = cancelled.graph, len(cancelled.jobs)
        with self._database.counting:
            self._database.counters.nodes_cancelled += number
        log.warning(
            "graph %d: nodes cancelled since a parent is dead or cancelled: %d; db.graphs.retry(%d) brings them back",
            graph,
            number,
            graph,
            extra={"graph": graph, "nodes": number},
        )
        for listener in self._listeners:
            try:
                arguments.done("the listener", listener(cancelled))
            except (Exception, SystemExit):  # the thread goes on
                log.exception("the listener %r failed at the cancelled nodes of graph %d", listener, graph)
