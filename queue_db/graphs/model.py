"""Graphs and their nodes, as they were when they were read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, NamedTuple, get_args

IfFailed = Literal["cancel", "run", "wait"]
"""What a node does if a parent is dead or cancelled."""

IF_FAILED: tuple[IfFailed, ...] = get_args(IfFailed)


class NodeState(StrEnum):
    """The state of a node."""

    WAITING = "waiting"  #: a parent has not left yet
    QUEUED = "queued"  #: its job is in the queue: scheduled, available or running
    COMPLETED = "completed"
    DEAD = "dead"  #: its job is in the dead table
    CANCELLED = "cancelled"

    @property
    def open(self) -> bool:
        """Whether the node is still to be done."""
        return self in (NodeState.WAITING, NodeState.QUEUED)


class GraphState(StrEnum):
    """The state of a graph, by the states of its nodes."""

    OPEN = "open"  #: a node is waiting or queued
    COMPLETED = "completed"  #: all nodes are completed
    FAILED = "failed"  #: no node is left to be done, and at least one is dead
    CANCELLED = "cancelled"  #: no node is left to be done, none is dead, and at least one is cancelled


class Layer(NamedTuple):
    """The nodes of one layer of a graph."""

    number: int
    counts: Mapping[NodeState, int]  #: how many nodes are in each state; states without nodes are missing

    @property
    def nodes(self) -> int:
        """How many nodes the layer has."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph of jobs."""

    id: int
    name: str | None
    state: GraphState
    counts: Mapping[NodeState, int]  #: how many nodes are in each state; states without nodes are missing
    created_at: datetime
    finished_at: datetime | None  #: when the last node has left; None: the graph is open
    queues: Sequence[str] = ()  #: the queues of its nodes, by name
    layers: Sequence[Layer] = ()  #: only of :meth:`Graphs.get`

    @property
    def nodes(self) -> int:
        """How many nodes the graph has."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a graph."""

    id: int  #: the id of its job
    graph: int
    name: str
    queue: str
    kind: str
    layer: int
    if_failed: IfFailed
    state: NodeState
    pending: int  #: for how many parents it still waits
    finished_at: datetime | None
    parents: Sequence[int] = ()  #: ids, ascending
    result: Any = None  #: what its handler returned; only of :meth:`LeasedJob.parents`


def state_of(counts: Mapping[NodeState, int]) -> GraphState:
    """The state of a graph with these numbers of nodes."""
    if any(counts.get(state) for state in NodeState if state.open):
        return GraphState.OPEN
    if counts.get(NodeState.DEAD):
        return GraphState.FAILED
    return GraphState.CANCELLED if counts.get(NodeState.CANCELLED) else GraphState.COMPLETED
