"""Describes a graph, and enqueues it when the block ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias, TypedDict, Unpack, overload

from queue_db import arguments
from queue_db.core import Core
from queue_db.database.transaction import Run
from queue_db.dialects.borrowed import Using
from queue_db.dialects.transactions import savepoint
from queue_db.errors import ArgumentError, ConfigurationError, DuplicateJobError
from queue_db.graphs import order
from queue_db.graphs.model import IF_FAILED, IfFailed
from queue_db.graphs.store import enqueue
from queue_db.graphs.store.enqueue import Joining, Planned
from queue_db.graphs.tables import NAME_LENGTH
from queue_db.model import NewJob
from queue_db.store import Transaction
from queue_db.store.schema import QUEUE_LENGTH
from queue_db.verbs.new_jobs import OPTIONS, JobBuilder

_ENQUEUE = Run("enqueue_graph")
_JOIN = Run("join_graph")


class NodeOptions(TypedDict, total=False):
    """The options of a node's job, as those of ``enqueue``."""

    delay: float
    run_at: datetime | None
    priority: int
    unique_key: str | None
    unique_for: float | None
    group: str | None
    max_attempts: int
    headers: Mapping[str, Any] | None


class TypedCall(Protocol):
    """A call of a typed task: what ``welcome.call(user=7)`` returns."""

    @property
    def queue(self) -> str:
        """The queue of its job."""

    @property
    def item(self) -> tuple[str, Any, Mapping[str, Any]]:
        """Kind, payload and options of its job."""


@dataclass(eq=False, slots=True)
class NewNode:
    """A node of a graph that is being described: what ``add`` returns, for ``after=``."""

    name: str
    job: NewJob
    if_failed: IfFailed
    after: dict[NewNode, None] = field(default_factory=dict)
    #: Names of parents that are in the graph already.
    others: Sequence[str] = ()
    #: The id of its job; None: the block has not ended yet.
    id: int | None = None

    def __repr__(self) -> str:
        return f"<NewNode {self.name!r}: {self.job.kind!r} in {self.job.queue!r}>"


Parents: TypeAlias = NewNode | str | Iterable[NewNode | str]
"""One node or several, each by its handle or its name."""

_ONE = (NewNode, str)

Send = Callable[[Sequence[Planned], Sequence[Sequence[str]]], tuple[int, Sequence[int]]]
"""Inserts the nodes, and returns the id of the graph and the ids of the nodes."""


class NewGraph:
    """Describes a graph, in a ``with`` block, or in an ``async with`` block of a coroutine. Its end enqueues the jobs.

    An exception in the block enqueues nothing.
    """

    def __init__(self, core: Core, send: Send, prefix: str = "", *, joins: bool = False) -> None:
        self._core = core
        self._send = send
        self._prefix = prefix
        self._joins = joins
        self._nodes: dict[str, NewNode] = {}
        self._builders: dict[str, JobBuilder] = {}
        self._open = True
        #: Whether all parents were added before their children.
        self._sorted = True
        #: The id of the graph, for ``db.graphs``; None: the block has not ended yet.
        self.id: int | None = None

    @overload
    def add(
        self, call: TypedCall, /, *, after: Parents = (), if_failed: IfFailed = "cancel", name: str | None = None
    ) -> NewNode: ...

    @overload
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
    ) -> NewNode: ...

    def add(
        self,
        queue: str | TypedCall,
        kind: str = "",
        payload: Any = None,
        *,
        after: Parents = (),
        if_failed: IfFailed = "cancel",
        name: str | None = None,
        **options: Unpack[NodeOptions],
    ) -> NewNode:
        """Add a node: a job that is enqueued with the graph, and starts when all its parents have left their queues.

        In place of queue, kind, payload and options it takes a call of a typed task: ``graph.add(welcome.call(user=7))``.

        :param after: its parents. A name may be that of a node that comes later.
        :param if_failed: what becomes of the node if a parent is dead or cancelled. ``cancel``: it is cancelled, and so on down.
            ``run``: it runs anyway. ``wait``: it waits until the dead parent is redriven and completed; it is cancelled if the
            parent is cancelled or purged.
        :param name: a name that no other node of the graph has; default: its number.
        :param options: the options of ``enqueue_many``. A delay counts from now. A node with parents has no group.
        :raises ArgumentError: an argument is wrong; the message names it.
        :raises PayloadError: the payload cannot be stored.
        """
        self._check_open()
        given: Mapping[str, Any] = options
        if not isinstance(queue, str):
            if kind or payload is not None or options:
                raise ArgumentError(f"{queue!r} has queue, kind, payload and options: give them to using(…).call(…)")
            (kind, payload, given), queue = queue.item, queue.queue
        if options and (unknown := options.keys() - OPTIONS):
            raise ArgumentError(f"unknown options {', '.join(sorted(unknown))}; known: {', '.join(sorted(OPTIONS))}")
        if if_failed not in IF_FAILED:
            raise arguments.wrong("if_failed", if_failed, f": must be one of {', '.join(IF_FAILED)}")
        name = f"{self._prefix}{len(self._nodes) + 1}" if name is None else arguments.name("name", name, NAME_LENGTH)
        if name in self._nodes:
            raise arguments.wrong("name", name, ": the graph has a node with this name")
        if self._core.header_provider is not None:
            given = self._with_headers(given)
        node = NewNode(name, self._builder(queue).job(kind, payload, **given), if_failed)
        self._nodes[name] = node
        # Most graphs are described from the top to the bottom, and need no sorting.
        if after and not self._wait(node, after):
            self._sorted = False
        return node

    def after(self, node: NewNode | str, parents: Parents) -> None:
        """Let ``node`` also wait for ``parents``."""
        self._check_open()
        child = self._named(node)
        if not isinstance(child, NewNode):
            raise ArgumentError(f"the block has no node {child!r} that could wait")
        self._wait(child, parents)
        self._sorted = False

    def _wait(self, child: NewNode, parents: Parents) -> bool:
        """Let ``child`` wait for ``parents``; return whether all of them were added to the block before."""
        nodes, before = self._nodes, True
        for parent in (parents,) if isinstance(parents, _ONE) else parents:
            # Nearly always a node of this block: the fastest test comes first.
            found = parent if type(parent) is NewNode and nodes.get(parent.name) is parent else self._named(parent)
            if isinstance(found, str):
                child.others = [*child.others, found]  # it may be added later: see _planned
                before = False
            else:
                child.after[found] = None
                before = before and found is not child
        return before

    def _named(self, node: NewNode | str) -> NewNode | str:
        if isinstance(node, str):
            return self._nodes.get(node, node)
        if not isinstance(node, NewNode) or self._nodes.get(node.name) is not node:
            raise ArgumentError(
                f"{arguments.shown(node)} is no node of this graph: give what add() of this block returned, or a name"
            )
        return node

    def _builder(self, queue: str) -> JobBuilder:
        if queue not in self._builders:
            name, core = arguments.name("queue", queue, QUEUE_LENGTH), self._core
            self._builders[name] = JobBuilder(name, core.codec, core.max_payload, core.schemas)
        return self._builders[queue]

    def _with_headers(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        provided = self._core.headers()
        return {**options, "headers": {**provided, **(options.get("headers") or {})}} if provided else options

    def _planned(self) -> tuple[list[NewNode], list[Planned], list[Sequence[str]]]:
        """The nodes in an order in which parents come first, what to insert, and the names of parents outside of the block."""
        every = self._nodes.values()
        for node in every:
            if node.others:
                node.after |= {self._nodes[name]: None for name in node.others if name in self._nodes}
                node.others = [name for name in dict.fromkeys(node.others) if name not in self._nodes]
                if node.others and not self._joins:
                    raise ArgumentError(f"after={node.others[0]!r}: the graph has no node with this name")
            if node.job.group_key is not None and (node.after or node.others):
                raise ArgumentError(
                    f"node {node.name!r}: a node with parents has no group, since it does not wait for a group's jobs"
                )
        layers: dict[NewNode, int] = {}
        try:
            if self._sorted:
                for node in every:
                    layers[node] = 1 + max([layers[parent] for parent in node.after]) if node.after else 0
            else:
                layers = order.layered(every, {node: node.after for node in every})
        except order.CycleError as error:
            raise order.refused(error, [node.name for node in error.nodes if isinstance(node, NewNode)]) from None
        places = {node: place for place, node in enumerate(layers)}
        planned = [
            Planned(node.name, node.job, layer, node.if_failed, [places[parent] for parent in node.after])
            for node, layer in layers.items()
        ]
        return list(layers), planned, [node.others for node in layers]

    def _enqueue(self) -> None:
        nodes, planned, others = self._planned()
        if not nodes:
            raise ArgumentError("the graph has no node: add one, or leave the block by an exception")
        self.id, ids = self._send(planned, others)
        for node, job_id in zip(nodes, ids, strict=True):
            node.id = job_id

    def _check_open(self) -> None:
        if not self._open:
            raise ConfigurationError("the block of this graph has ended, so nothing can be added to it")

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open = False
        if kind is None:
            self._enqueue()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        from queue_db.concurrency.greenlets import run

        await run(self.__exit__, kind, error, trace)


def new_graph(core: Core, name: str | None, keep: float, using: Using | None) -> NewGraph:
    """The block of a new graph."""
    name = None if name is None else arguments.name("name", name, NAME_LENGTH)
    lasts = arguments.seconds("keep", keep)

    def insert(tx: Transaction, planned: Sequence[Planned]) -> tuple[int, list[int]]:
        graph = enqueue.make(tx, name, lasts)
        return graph, enqueue.add(tx, graph, planned)

    return NewGraph(core, lambda planned, _: _in_transaction(core, _ENQUEUE, using, partial(insert, planned=planned), planned))


def joining(core: Core, at: Callable[[], Joining], prefix: str) -> NewGraph:
    """The block in which a node that runs adds nodes to its graph."""

    def insert(tx: Transaction, planned: Sequence[Planned], others: Sequence[Sequence[str]]) -> tuple[int, list[int]]:
        node = at()  # anew in each run: the heartbeat may have extended the lease meanwhile
        return node.graph, enqueue.join(tx, node, planned, others)

    return NewGraph(
        core,
        lambda planned, others: _in_transaction(core, _JOIN, None, partial(insert, planned=planned, others=others), planned),
        prefix,
        joins=True,
    )


def _in_transaction(
    core: Core,
    how: Run,
    using: Using | None,
    insert: Callable[[Transaction], tuple[int, Sequence[int]]],
    planned: Sequence[Planned],
) -> tuple[int, Sequence[int]]:
    try:
        if using is None:
            return core.run(how, insert)
        with core.joined(using, how.name) as tx, savepoint(tx.connection):
            return insert(tx)
    except DuplicateJobError as error:
        name = planned[error.position or 0].name
        raise DuplicateJobError(unique_key=error.unique_key, existing_id=error.existing_id, node=name) from None
