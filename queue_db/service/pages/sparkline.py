"""Small charts as SVG elements, made here: a line with the area below it."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

_SVG = Markup(
    '<svg class="spark {kind}" viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img" aria-label="{text}">'
    "{shapes}</svg>"
)
_SHAPE = Markup('<path class="area" d="M{line}V{height}H{first}Z"/><path class="line" d="M{line}"/>')


def _points(values: Sequence[float | None], width: int, height: int, top: float) -> list[list[tuple[float, float]]]:
    """Coordinates, cut into pieces where a value is missing."""
    step = width / max(1, len(values) - 1)
    pieces: list[list[tuple[float, float]]] = [[]]
    for place, value in enumerate(values):
        if value is None:
            if pieces[-1]:
                pieces.append([])
            continue
        pieces[-1].append((place * step, height - 1 - value / top * (height - 3)))
    return [piece for piece in pieces if piece]


def sparkline(
    values: Sequence[float | None], text: str, *, width: int = 120, height: int = 26, kind: str = "", top: float | None = None
) -> Markup:
    """A chart of values at equal distances; None: nothing is known. Colours come from the style sheet.

    :param text: what it shows, for those who do not see it.
    :param kind: a class of the element.
    :param top: the value at the upper edge; default: the largest.
    """
    known = [value for value in values if value is not None]
    top = max([top or 0.0, *known, 1e-9])
    shapes = Markup("").join(_shape(piece, width, height) for piece in _points(values, width, height, top))
    return _SVG.format(kind=kind, width=width, height=height, text=text, shapes=shapes)


def _shape(piece: list[tuple[float, float]], width: int, height: int) -> Markup:
    if len(piece) == 1:
        ((x, y),) = piece
        piece = [(max(0.0, x - 2), y), (x, y)]
    line = "L".join(f"{x:.0f} {y:.3g}" for x, y in piece)
    return _SHAPE.format(line=line, height=height, first=f"{piece[0][0]:.0f}")
