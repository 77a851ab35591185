"""The order of nodes: parents before children."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import TypeVar

from queue_db.errors import ArgumentError

_T = TypeVar("_T", bound=Hashable)


def layered(nodes: Iterable[_T], parents: Mapping[_T, Collection[_T]]) -> dict[_T, int]:
    """The layer of each node, in an order in which parents come first; of nodes of one layer in the given order.

    :param parents: the parents of each node; nodes without parents may be missing.
    :raises CycleError: the nodes wait for each other.
    """
    everything = list(nodes)
    children: dict[_T, list[_T]] = {}
    waits = {node: len(parents.get(node, ())) for node in everything}
    for node in everything:
        for parent in parents.get(node, ()):
            children.setdefault(parent, []).append(node)
    layers: dict[_T, int] = {}
    present = [node for node in everything if not waits[node]]
    number = 0
    while present:
        after: list[_T] = []
        for node in present:
            layers[node] = number
            for child in children.get(node, ()):
                waits[child] -= 1
                if not waits[child]:
                    after.append(child)
        present, number = after, number + 1
    if len(layers) < len(everything):
        raise CycleError(_cycle({node: parents.get(node, ()) for node in everything if node not in layers}))
    return layers


class CycleError(Exception):
    """Nodes wait for each other: ``nodes``, each after the one before it; the first is the last one too."""

    def __init__(self, nodes: Collection[Hashable]) -> None:
        super().__init__(nodes)
        self.nodes = nodes


def refused(error: CycleError, names: Iterable[str]) -> ArgumentError:
    """The error for the caller."""
    return ArgumentError(f"the nodes wait for each other, so none of them would ever start: {' → '.join(names)}")


def _cycle(stuck: Mapping[_T, Collection[_T]]) -> list[_T]:
    """A cycle among nodes each of which has a parent among them."""
    path: dict[_T, None] = {}
    node = next(iter(stuck))
    while node not in path:
        path[node] = None
        node = next(parent for parent in stuck[node] if parent in stuck)
    walked = list(path)
    cycle = walked[walked.index(node) :]
    return [node, *reversed(cycle)]
