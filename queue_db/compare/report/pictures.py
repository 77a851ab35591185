"""All pictures of a bench: as files, and as elements of the page at the width of a desk and of a phone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup
from matplotlib.figure import Figure

from queue_db.compare.report import drawing
from queue_db.compare.report.card import CARD as CARD_WIDTH
from queue_db.compare.report.card import Origin, card, description
from queue_db.compare.report.plots import PLOTS
from queue_db.compare.results import Bench

#: Name of the card in files.
CARD = "card"


@dataclass(frozen=True)
class Picture:
    """A picture: its files, and its elements in the page."""

    name: str
    description: str  #: for readers who do not see it
    png: bytes
    svg: str
    wide: Markup
    narrow: Markup
    phone: str  #: the card as a file for a phone; empty for a plot


def pictures(bench: Bench, origin: Origin, slug: str) -> list[Picture]:
    """Return the card and the plots that have data. ``slug`` prefixes the ids."""
    found = [_picture(CARD, description(bench), lambda width: card(bench, origin, width), slug, CARD_WIDTH)]
    for name, (draw, words) in PLOTS.items():
        found.append(_picture(name, words, lambda width, draw=draw: draw(bench, width), slug))  # type: ignore[misc]
    return [one for one in found if one is not None]


def _picture(
    name: str, words: str, draw: Callable[[float], Figure | None], slug: str, width: float = drawing.WIDE
) -> Picture | None:
    wide, narrow = draw(width), draw(drawing.NARROW)
    if wide is None or narrow is None:
        return None
    element = drawing.svg(wide, f"{slug}-{name}")
    return Picture(
        name,
        words,
        png=drawing.png(wide),
        # The card is pasted elsewhere: it must look the same without the fonts of this machine.
        svg=drawing.alone(wide, words) if name == CARD else element,
        phone=drawing.alone(narrow, words) if name == CARD else "",
        # Matplotlib escapes all texts in an element.
        wide=Markup(element),  # noqa: S704
        narrow=Markup(drawing.svg(narrow, f"{slug}-{name}-narrow")),  # noqa: S704
    )
