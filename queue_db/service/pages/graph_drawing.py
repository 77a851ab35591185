"""A graph as SVG: layers from left to right, a box for each node, or for each layer of a large graph. Colours are classes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from queue_db.graphs import Graph, Layer, Node, NodeState
from queue_db.graphs.order import layered

#: Most nodes, and most edges, that are drawn one by one.
MOST_NODES, MOST_EDGES = 80, 300

# Pixels: a box, and the room between two of them.
_WIDE, _HIGH, _APART, _GAP, _EDGE = 148, 36, 62, 12, 8

# Most characters of the name in a box, and of the line below it.
_NAME, _BELOW = 16, 22

# A group and no image, which has no links for those who do not see it.
_SVG = Markup(
    '<svg class="graph" role="group" aria-label="{text}" width="{width}" height="{height}" '
    'viewBox="0 0 {width} {height}">{shapes}</svg>'
)
_PATH = Markup('<path class="edge {kind}" d="M{x} {y}C{a} {y} {b} {v} {u} {v}"/>')
_NODE = Markup(
    '<a href="{href}"><g class="node {state}"><title>{title}</title><rect x="{x}" y="{y}" width="{wide}" height="{high}" rx="6"/>'
    '<circle cx="{cx}" cy="{cy}" r="4"/><text x="{tx}" y="{ty}">{name}</text><text class="of" x="{tx}" y="{oy}">{of}</text></g></a>'
)
_LAYER = Markup(
    '<g class="node {state}"><title>{title}</title><rect x="{x}" y="{y}" width="{wide}" height="{high}" rx="6"/>{bars}'
    '<text x="{tx}" y="{ty}">{name}</text><text class="of" x="{tx}" y="{oy}">{of}</text></g>'
)
#: The states that a box of several nodes shows, the first one that it has.
_WORST = (NodeState.DEAD, NodeState.CANCELLED, NodeState.QUEUED, NodeState.WAITING)

#: The states of a layer from left to right.
_ALONG = (NodeState.COMPLETED, NodeState.DEAD, NodeState.CANCELLED, NodeState.QUEUED, NodeState.WAITING)

_BAR = Markup('<rect class="bar {state}" x="{x}" y="{y}" width="{wide}" height="5"/>')


@dataclass(frozen=True, slots=True)
class Box:
    """The place of a node: its left upper corner."""

    x: int
    y: int


def places(nodes: Sequence[Node]) -> dict[int, Box]:
    """The place of each node: a column for each layer, each column in the middle, near the parents of its nodes."""
    known = {node.id for node in nodes}
    parents = {node.id: [parent for parent in node.parents if parent in known] for node in nodes}
    columns: list[list[int]] = []
    for node, layer in layered([node.id for node in nodes], parents).items():
        if layer == len(columns):
            columns.append([])
        columns[layer].append(node)
    longest = max(map(len, columns), default=0)
    found: dict[int, Box] = {}
    for number, column in enumerate(columns):
        if number:
            column.sort(key=lambda node: sum(found[parent].y for parent in parents[node]) / max(1, len(parents[node])))
        top = _EDGE + (longest - len(column)) * (_HIGH + _GAP) // 2
        for place, node in enumerate(column):
            found[node] = Box(_EDGE + number * (_WIDE + _APART), top + place * (_HIGH + _GAP))
    return found


def drawn(graph: Graph, nodes: Sequence[Node], link: Callable[[int], str]) -> Markup:
    """All nodes, each a link to its job, with lines from parents to children."""
    at = places(nodes)
    names = {node.id: node.name for node in nodes}
    states = {node.id: node.state for node in nodes}
    lines = [
        _line(at[parent], at[node.id], "done" if states[parent] is NodeState.COMPLETED else "open")
        for node in nodes
        for parent in node.parents
        if parent in at
    ]
    boxes = [_box(node, at[node.id], names, link) for node in nodes]
    return _whole(graph, lines, boxes, at.values())


def summarized(graph: Graph) -> Markup:
    """A box for each layer, with the shares of the states."""
    boxes = {layer.number: Box(_EDGE + place * (_WIDE + _APART), _EDGE) for place, layer in enumerate(graph.layers)}
    lines = [_line(boxes[one.number], boxes[after.number], "open") for one, after in pairwise(graph.layers)]
    return _whole(graph, lines, [_layer(layer, boxes[layer.number]) for layer in graph.layers], boxes.values())


def _whole(graph: Graph, lines: Sequence[Markup], boxes: Sequence[Markup], at: Collection[Box]) -> Markup:
    width = max((box.x for box in at), default=0) + _WIDE + _EDGE
    height = max((box.y for box in at), default=0) + _HIGH + _EDGE
    return _SVG.format(text=told(graph), width=width, height=height, shapes=Markup("").join([*lines, *boxes]))


def told(graph: Graph) -> str:
    """What the drawing shows, for those who do not see it."""
    return f"Graph {graph.id}, {len(graph.layers)} layers: {counted(graph.counts)}"


def counted(counts: Mapping[NodeState, int]) -> str:
    """The numbers of nodes as words."""
    return ", ".join(f"{counts[state]:,} {state}" for state in NodeState if counts.get(state)) or "no nodes"


def _line(start: Box, end: Box, kind: str) -> Markup:
    x, y, u, v = start.x + _WIDE, start.y + _HIGH // 2, end.x, end.y + _HIGH // 2
    middle = (x + u) // 2
    return _PATH.format(kind=kind, x=x, y=y, a=middle, b=middle, u=u, v=v)


def _box(node: Node, at: Box, names: Mapping[int, str], link: Callable[[int], str]) -> Markup:
    waits = f", waits for {node.pending}" if node.state is NodeState.WAITING else ""
    after = ", ".join(names.get(parent, str(parent)) for parent in node.parents[:10])
    title = f"{node.name}: {node.state}{waits}; {node.kind} in {node.queue}" + (f"; after {after}" if after else "")
    return _NODE.format(
        href=link(node.id),
        state=node.state,
        title=title,
        name=_cut(node.name, _NAME),
        of=_cut(f"{node.kind} · {node.state}", _BELOW),
        **_inside(at),
    )


def _layer(layer: Layer, at: Box) -> Markup:
    bars, x = [], float(at.x)
    for state in _ALONG:
        wide = _WIDE * layer.counts.get(state, 0) / max(1, layer.nodes)
        if wide:
            bars.append(_BAR.format(state=state, x=f"{x:.1f}", y=at.y + _HIGH - 5, wide=f"{wide:.1f}"))
            x += wide
    worst = next((one for one in _WORST if layer.counts.get(one)), NodeState.COMPLETED)
    done = layer.counts.get(NodeState.COMPLETED, 0)
    return _LAYER.format(
        state=worst,
        title=f"layer {layer.number}: {counted(layer.counts)}",
        name=f"layer {layer.number}",
        of=f"{done:,} of {layer.nodes:,} done",
        bars=Markup("").join(bars),
        **{name: value for name, value in _inside(at).items() if name not in {"cx", "cy"}},
    )


def _inside(at: Box) -> dict[str, int]:
    """The numbers of a box."""
    return {
        "x": at.x,
        "y": at.y,
        "wide": _WIDE,
        "high": _HIGH,
        "cx": at.x + _WIDE - 11,
        "cy": at.y + 11,
        "tx": at.x + 10,
        "ty": at.y + 15,
        "oy": at.y + 28,
    }


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
