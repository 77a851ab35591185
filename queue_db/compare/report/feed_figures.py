"""The figures of the orderings of feeds as text, the same in the page, the plot and the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from queue_db.compare.measures import ENOUGH
from queue_db.compare.report.wording import NOTHING, milliseconds, number, several
from queue_db.compare.results import Bench, FeedRow


@dataclass(frozen=True)
class Published:
    """The article's figures of one way to number messages in Redis: 20 requests at a time. Times in ms."""

    name: str
    rate: int
    mean: float
    sd: float
    p99: float
    max: float


#: Kurt Griffiths, Redis Lua Scripting for Performance, 2014.
ARTICLE = (
    Published("WATCH, the article's compare-and-set", 5223, 3.5, 7.7, 42.1, 186.5),
    Published("Lua, one script on the server", 8246, 2.4, 1.7, 10.7, 54.6),
)


@dataclass(frozen=True)
class FeedLine:
    """A line of the table."""

    row: FeedRow
    cells: list[str]
    problem: str | None  #: why there are no figures
    wrong: bool


def problems(row: FeedRow) -> str:
    """Errors, gaps and duplicates in words."""
    found = [several(count, "other error" if kind == "other" else kind) for kind, count in row.errors.items() if count]
    for name, what in (("gaps", "gap"), ("duplicates", "duplicate")):
        count = row.total(name)
        if count:
            found.append(several(count, what))
        elif count is None:
            return ", ".join([*found, "not read"] if found else ["no errors", "not read"])
    return ", ".join(found) or "no errors, gaps or duplicates"


def wrong(row: FeedRow) -> bool:
    """Whether a reader missed messages or got some twice."""
    return bool(row.total("gaps") or row.total("duplicates"))


def lines(bench: Bench) -> list[FeedLine]:
    """The table."""
    bare = next((row.rate.median for row in bench.feeds if row.name == "bare_insert" and row.rate), None)
    return [
        FeedLine(
            row,
            [cell(row) for _, cell in columns(bare)],
            f"failed: {row.failed}" if row.failed else None,
            wrong(row),
        )
        for row in bench.feeds
    ]


_Column = tuple[str, Callable[[FeedRow], str]]


def columns(bare: float | None = None) -> Sequence[_Column]:
    """Headings and cells. ``bare``: messages/s of the insert alone."""
    return (
        ("messages/s", lambda row: number(row.rate.median) if row.rate else NOTHING),
        ("× bare", lambda row: number(row.rate.median / bare) if row.rate and bare else NOTHING),
        *((f"publish: {which}", _time("post", which)) for which in ("mean", "sd", "p99", "max")),
        *((f"visible: {which}", _time("visible", which)) for which in ("p50", "p99")),
        ("errors", lambda row: number(sum(row.errors.values()))),
        ("gaps", lambda row: number(row.total("gaps"))),
        ("duplicates", lambda row: number(row.total("duplicates"))),
    )


def _time(of: str, which: str) -> Callable[[FeedRow], str]:
    return lambda row: milliseconds(row.median(of, which))


def finding(bench: Bench) -> str | None:
    """The step from compare-and-set to the product's best ordering, beside the article's."""
    rates = {row.name: row.rate.median for row in bench.feeds if row.rate}
    control = rates.get("compare_and_set")
    own = {name: rate for name, rate in rates.items() if name not in {"compare_and_set", "bare_insert"}}
    if not control or not own:
        return None
    best = max(own, key=lambda name: own[name])
    row = next(row for row in bench.feeds if row.name == best)
    before, after = ARTICLE
    rate, step = number(own[best]), number(own[best] / control)
    weak = len(row.turns) < ENOUGH or any(one.quick for one in bench.rows)
    begin = "Indicative, feeds" if weak else "Feeds"
    return (
        f"{begin}: {best} publishes {rate} messages/s ({problems(row)}), {step} × compare-and-set; "
        f"the article's step from WATCH to Lua was {before.rate} → {after.rate} requests/s, {after.rate / before.rate:.2f} ×."
    )
