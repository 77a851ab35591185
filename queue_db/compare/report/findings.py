"""What a comparison found besides the recommendation, in sentences, and computed from the rows."""

from __future__ import annotations

from collections.abc import Iterator

from queue_db.compare.measures import ENOUGH
from queue_db.compare.report.advice import AT_MOST_ONCE, DEFAULT, Advice, faults, join, measured, median, recommendable
from queue_db.compare.report.ratios import Ratio, between
from queue_db.compare.report.wording import errors, label, no_waits, occasion, percent, several, unfinished, wait
from queue_db.compare.results import ArrivalRow, Bench, Row


def findings(bench: Bench) -> list[str]:
    """Return the findings as sentences, the most important first."""
    return [
        *_default(bench),
        *_adaptive(bench),
        *_waits(bench),
        *_peers(bench),
        *_at_most_once(bench),
        *_broken(bench),
        *_refused(bench),
    ]


def _default(bench: Bench) -> Iterator[str]:
    """Yield where the default strategy is beaten, and by which strategy."""
    rows = [row for row in bench.rows if row.family == "product" and row.name == DEFAULT and row.runs]
    beaten, best, weak = [], [], []
    for row in rows:
        if not recommendable(row):
            continue  # reported by _broken
        rivals = [other for other in bench.rows if recommendable(other) and other.batch == row.batch and other is not row]
        ratios = {other.name: ratio for other in sorted(rivals, key=median, reverse=True) if (ratio := between(other, row))}
        faster = [f"{name} ({ratio} its jobs/s)" for name, ratio in ratios.items() if ratio.faster]
        weak += [row, *rivals] if any(ratio.indicative for ratio in ratios.values()) else []
        if faster:
            beaten.append((row.batch, join(faster)))
        elif rivals:
            best.append(f"{row.batch}")
    if beaten and weak:
        slower = join([f"than {names} at {batch} per claim" for batch, names in beaten])
        yield f"Indicative: {occasion(weak)} the default, {DEFAULT}, was slower {slower}."
    elif beaten:
        by = join([f"at {batch} per claim by {names}" for batch, names in beaten])
        yield f"The default, {DEFAULT}, is beaten beyond the noise {by}."
    if best and weak:
        default = f"the default, {DEFAULT}, at {join(best)} per claim"
        yield f"Indicative: {occasion(weak)} no other strategy was clearly faster than {default}."
    elif best:
        yield f"The default, {DEFAULT}, is beaten by no other strategy beyond the noise at {join(best)} per claim."


def _adaptive(bench: Bench) -> Iterator[str]:
    """Yield which way an adaptive strategy claims."""
    for row in bench.rows:
        if row.family != "product" or row.skip_locked is None:
            continue
        if row.skip_locked:
            yield f"With {row.batch} per claim, {row.name} claims with SKIP LOCKED here, which was measured to be faster."
        else:
            missed = percent(row.miss_ratio)
            yield f"With {row.batch} per claim, {row.name} claims from windows here; {missed} of the candidates were missed."


def _waits(bench: Bench) -> Iterator[str]:
    """Yield the shortest waits."""
    rows = sorted((row for row in bench.arrivals if no_waits(row) is None and row.kept_up), key=_p99)
    if not rows:
        return
    # The one that may lose jobs is not named first, however short its waits.
    first = min(rows, key=lambda row: row.name == AT_MOST_ONCE)
    claim = f"{several(first.consumers, 'worker')} {'claims' if first.consumers == 1 else 'claim'}"
    when = "Indicative: when" if first.quick or len(first.turns) < ENOUGH else "When"
    others = ", ".join(f"{row.name} {wait(row, 'p99')}" for row in rows if row is not first)
    beside = f" ({others})" if others else ""
    yield (
        f"{when} {first.arrivals:,.0f} jobs/s arrive and {claim}, 99 % of the jobs wait at most {wait(first, 'p99')} ms "
        f"with {first.name}{beside}."
    )


def _p99(row: ArrivalRow) -> float:
    found = row.pickup("p99")
    return found.median if found else float("inf")


def _peers(bench: Bench) -> Iterator[str]:
    ours = [row for row in bench.rows if recommendable(row)]
    beaten = []
    for peer in sorted((row for row in bench.rows if row.family == "peer" and row.rate), key=median, reverse=True):
        rivals = [row for row in ours if row.batch == peer.batch]
        if not rivals:
            yield f"{label(peer)} has no queue_db row of the same batch size to compare with: {measured(peer)}."
            continue
        best = max(rivals, key=median)
        ratio = between(peer, best)
        if ratio is None:
            continue
        ours_best = f"queue_db's fastest row, {label(best)}"
        if ratio.faster:
            how = "wins" if ratio.wins else f"was faster {occasion([peer, best])}"
            yield f"The peer {label(peer)} {how}: {ratio} the jobs/s of {ours_best} ({measured(peer)})."
        elif ratio.tie:
            yield f"The peer {label(peer)} ties with {ours_best}: {ratio} its jobs/s ({measured(peer)})."
        else:
            beaten.append((peer, ratio, best))
    if beaten:
        yield f"Slower than queue_db's fastest row with the same batch size: {join([_behind(*one) for one in beaten])}."


def _behind(peer: Row, ratio: Ratio, best: Row) -> str:
    return f"{label(peer)} ({ratio} {best.name}'s jobs/s, {errors(peer)})"


def _at_most_once(bench: Bench) -> Iterator[str]:
    best = {choice.row.batch: choice.row for choice in Advice.of(bench).choices}
    rows = [row for row in bench.rows if row.name == AT_MOST_ONCE and row.family == "product" and row.rate and row.batch in best]
    ratios = [f"{between(row, best[row.batch])} {best[row.batch].name}'s jobs/s with batches of {row.batch}" for row in rows]
    if ratios:
        yield f"At most once (jobs of a worker that dies are lost, so it is never recommended): {join(ratios)}."


def _broken(bench: Bench) -> Iterator[str]:
    for row in bench.rows:
        if (missing := unfinished(row)) and (row.runs or row.failed is not None):
            yield f"{label(row)} {missing}."
        elif row.repeats:
            yield f"{label(row)} executed jobs more than once: {several(row.repeats, 'repeated execution')}, {errors(row)}."
    failing = [f"{label(row)}: {errors(row)}" for row in bench.rows if row.family == "product" and row.runs and faults(row)]
    if failing:
        yield f"Errors in the product's rows: {join(failing)}."


def _refused(bench: Bench) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for row in bench.rows:
        if row.refused is not None:
            reasons.setdefault(row.refused, []).append(label(row))
    for reason, names in reasons.items():
        yield f"Not supported on this database: {join(names)} ({reason})."
