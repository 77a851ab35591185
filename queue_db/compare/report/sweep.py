"""The curves over the number of workers: which rows they have, where they cross, and what follows in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from queue_db.compare.report.advice import DEFAULT, exactly_once, join, recommendable
from queue_db.compare.report.ratios import between
from queue_db.compare.results import Bench, Row

#: What the default is compared with: the first of them that ran.
_RIVALS = ("skip_locked", "pessimistic")


@dataclass(frozen=True)
class Curve:
    """One row with every number of workers, in ascending order."""

    name: str
    family: str
    batch: int
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Crossing:
    """Where the curves of the default and of its rival cross."""

    workers: float
    jobs: float  #: jobs/s there
    before: str  #: the faster one with fewer workers
    after: str


def curves(bench: Bench, batch: int) -> list[Curve]:
    """Return the rows of a batch size that ran with at least two numbers of workers and executed every job exactly once."""
    rows = sorted((row for row in [*bench.sweep, *bench.rows] if row.batch == batch and row.rate), key=lambda row: row.workers)
    found = []
    for name, family in dict.fromkeys((row.name, row.family) for row in bench.rows):
        some = tuple(row for row in rows if (row.name, row.family) == (name, family) and exactly_once(row))
        if len(some) > 1:
            found.append(Curve(name, family, batch, some))
    return found


def batches(bench: Bench) -> list[int]:
    """Return the batch sizes with curves."""
    return [batch for batch in sorted({row.batch for row in bench.rows}) if bench.sweep and curves(bench, batch)]


def pair(bench: Bench, batch: int) -> tuple[Curve, Curve] | None:
    """Return the curves of the default and of its rival, at the numbers of workers that both have."""
    known = {curve.name: curve for curve in curves(bench, batch) if all(recommendable(row) for row in curve.rows)}
    rival = next((known[name] for name in _RIVALS if name in known), None)
    if rival is None or DEFAULT not in known:
        return None
    common = {row.workers for row in known[DEFAULT].rows} & {row.workers for row in rival.rows}
    ours, theirs = (
        Curve(one.name, one.family, batch, tuple(row for row in one.rows if row.workers in common))
        for one in (known[DEFAULT], rival)
    )
    return (ours, theirs) if len(common) > 1 else None


def crossings(bench: Bench, batch: int) -> list[Crossing]:
    """Return where the default and its rival change places: beyond a tie on both sides, interpolated in between."""
    both = pair(bench, batch)
    if both is None:
        return []
    found, last = [], None
    ahead = _ahead(both)
    for at, sign in enumerate(ahead):
        if sign == 0:
            continue
        if last is not None and ahead[last] != sign:
            found.append(_between(both, last, at))
        last = at
    return found


def findings(bench: Bench) -> list[str]:
    """Return one sentence for each batch size."""
    return [text for batch in batches(bench) if (text := _finding(bench, batch))]


def _finding(bench: Bench, batch: int) -> str | None:
    both = pair(bench, batch)
    if both is None:
        return None
    ours, theirs = both
    ahead = _ahead(both)
    words = {1: f"{ours.name} is faster", -1: f"{theirs.name} is faster", 0: f"{ours.name} and {theirs.name} tie"}
    counts = {wanted: [row.workers for row, sign in zip(ours.rows, ahead, strict=True) if sign == wanted] for wanted in words}
    parts = [f"{words[wanted]} at {join([f'{count}' for count in some])}" for wanted, some in counts.items() if some]
    # The first part names the unit.
    parts[0] += " worker" if next(some for some in counts.values() if some) == [1] else " workers"
    crossed = crossings(bench, batch)
    where = " and ".join(f"about {one.workers:.1f} workers" for one in crossed)
    rest = f"; the curves cross at {where}" if crossed else ""
    weak = any((ratio := between(*rows)) is None or ratio.indicative for rows in zip(ours.rows, theirs.rows, strict=True))
    return f"{'Indicative: with' if weak else 'With'} {batch} per claim, {'; '.join(parts)}{rest}."


def _ahead(both: tuple[Curve, Curve]) -> list[int]:
    """Return for each number of workers 1 if the first curve is faster, −1 if the second is, 0 for a tie."""
    return [_sign(first, second) for first, second in zip(both[0].rows, both[1].rows, strict=True)]


def _sign(first: Row, second: Row) -> int:
    ratio = between(first, second)
    return 0 if ratio is None or ratio.tie else 1 if ratio.value > 1 else -1


def _between(both: tuple[Curve, Curve], first: int, last: int) -> Crossing:
    """Interpolate on logarithmic axes between two numbers of workers; in between the faster one has changed."""
    steps = [
        (math.log2(one.workers), math.log(one.rate.median / other.rate.median), math.log(one.rate.median))
        for one, other in _measured(both, first, last)
        if one.rate and other.rate
    ]
    names = [curve.name for curve in both]
    before, after = names if steps[0][1] > 0 else names[::-1]
    for (x, gap, height), (right, other_gap, other_height) in pairwise(steps):
        if (gap > 0) != (other_gap > 0):
            share = gap / (gap - other_gap)
            return Crossing(2 ** (x + share * (right - x)), math.exp(height + share * (other_height - height)), before, after)
    return Crossing(2 ** steps[-1][0], math.exp(steps[-1][2]), before, after)


def _measured(both: tuple[Curve, Curve], first: int, last: int) -> Sequence[tuple[Row, Row]]:
    return list(zip(both[0].rows, both[1].rows, strict=True))[first : last + 1]
