"""Findings of a comparison: the default's way, the original's deadlocks, the effect of the window, the model, faster peers."""

from __future__ import annotations

from collections.abc import Iterator

from queue_db.compare.report.advice import (
    AT_MOST_ONCE,
    DEFAULT,
    Advice,
    exactly_once,
    faults,
    join,
    measured,
    median,
    recommendable,
)
from queue_db.compare.report.arrival_figures import finding as arrival_finding
from queue_db.compare.report.choices import findings as choice_findings
from queue_db.compare.report.published import HOSTS, kind_of, published, published_ratio
from queue_db.compare.report.ratios import Ratio, between, find_row
from queue_db.compare.report.sweep import findings as sweep_findings
from queue_db.compare.report.wording import (
    errors,
    indicative,
    label,
    number,
    occasion,
    percent,
    repeats,
    several,
    short_name,
    unfinished,
)
from queue_db.compare.results import Bench, Row

ORIGINAL = "DBP-0-1-1"

#: The article's repairs: five tries of the deletion, or a delete mark.
REPAIRED = ("DBP-0-1-5", "DBP-0-0-5", "DBP-1-0-1", "DBP-1-0-5")

#: Relative deviation of measured misses that still agrees with the model.
TOLERANCE = 0.15


def findings(bench: Bench) -> list[str]:
    """Return the findings as sentences, the most important first."""
    waits = [text for text in [arrival_finding(bench)] if text]
    found = [
        *_default(bench),
        *choice_findings(bench),
        *sweep_findings(bench),
        *waits,
        *_original(bench),
        *_repaired(bench),
        *_optimistic(bench),
        *_window(bench),
        *_peers(bench),
    ]
    return [*found, *_model(bench), *_at_most_once(bench), *_broken(bench), *_refused(bench)]


def predicted_miss(row: Row) -> float | None:
    """Return the predicted share of misses, mean of the runs that have one."""
    predicted = [run.predicted_miss for run in row.runs if run.predicted_miss is not None]
    return sum(predicted) / len(predicted) if predicted else None


def _ran(bench: Bench, family: str) -> list[Row]:
    return [row for row in bench.rows if row.family == family and row.refused is None and row.runs]


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


def _original(bench: Bench) -> Iterator[str]:
    row = find_row(bench, ORIGINAL)
    if row is None or not row.runs:
        return
    deadlocks, twice = row.faults.get("deadlock", 0), sum(sum(run.duplicates.values()) for run in row.runs)
    executions = f"{row.total('executions'):,} executions of {several(row.total('jobs'), 'job')} in {several(len(row.runs), 'run')}"
    theirs = [
        f"{host} {number(one.executions)}"
        for host in HOSTS
        if (one := published(kind_of(bench.title), host, ORIGINAL)) and one.executions
    ]
    beside = f" (the article, for 10,000 jobs: {', '.join(theirs)})" if theirs else ""
    if deadlocks or twice:
        yield (
            f"The original ({row.name}) had {several(deadlocks, 'deadlock')} and executed {several(twice, 'job')} more than once: "
            f"{executions}{beside}."
        )
    else:
        yield f"The original ({row.name}) had no deadlock and executed no job twice: {executions}{beside}." + (
            " This server no longer deadlocks." if kind_of(bench.title) == "mysql" and not indicative(row) else ""
        )


def _repaired(bench: Bench) -> Iterator[str]:
    rows = [row for name in REPAIRED if (row := find_row(bench, name)) and row.runs]
    if not rows:
        return
    good, bad = [row for row in rows if exactly_once(row)], [row for row in rows if not exactly_once(row)]
    if good:
        yield (
            "These repairs of the original, which retry the deletion or set a delete mark, executed every job exactly once: "
            f"{join([f'{row.name} ({errors(row)})' for row in good])}."
        )
    if bad:
        failed = [f"{row.name} ({repeats(row)}{'' if row.finished else ', did not finish'})" for row in bad]
        yield f"The repair was not sufficient (five tries failed, or a reservation expired) for {join(failed)}."


def _optimistic(bench: Bench) -> Iterator[str]:
    rows = [row for row in _ran(bench, "article") if short_name(row).startswith("DBO-")]
    if not rows:
        return
    bad = [row for row in rows if not exactly_once(row)]
    if bad:
        yield f"These optimistic rows did not execute every job exactly once: {join([row.name for row in bad])}."
    else:
        yield f"Each of the {several(len(rows), 'optimistic row')} of the article executed every job exactly once."


def _window(bench: Bench) -> Iterator[str]:
    ratio = between(find_row(bench, "DBO-1"), find_row(bench, "DBO-0"))
    if ratio is None:
        return
    theirs = [
        f"{one.value:.2f} × on {host}" for host in HOSTS if (one := published_ratio(kind_of(bench.title), host, "DBO-1", "DBO-0"))
    ]
    beside = f"; in the article: {', '.join(theirs)}" if theirs else ""
    yield (
        f"With a window of N jobs instead of one, the article's optimistic strategy has {ratio} the jobs/s "
        f"(DBO-1 over DBO-0){beside}."
    )


def _peers(bench: Bench) -> Iterator[str]:
    ours, peers = [row for row in bench.rows if recommendable(row)], [row for row in _ran(bench, "peer") if row.rate]
    beaten = []
    for peer in sorted(peers, key=median, reverse=True):
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


def _model(bench: Bench) -> Iterator[str]:
    pairs = [(row, model) for row in bench.rows if (model := predicted_miss(row)) and "geometric" not in row.claim]
    if not pairs:
        return
    far = [
        f"{row.name} {percent(row.miss_ratio)} measured, {percent(model)} predicted"
        for row, model in pairs
        if abs(row.miss_ratio / model - 1) > TOLERANCE
    ]
    rest = f"; outside: {join(far)}." if far else "."
    yield (
        f"Measured misses lie within {TOLERANCE * 100:.0f} % of the asynchronous model in {len(pairs) - len(far)} of "
        f"{several(len(pairs), 'row')} with uniform picks{rest}"
    )


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
        elif row.repeats and short_name(row) not in (ORIGINAL, *REPAIRED):  # reported above
            yield f"{label(row)} executed jobs more than once: {several(row.repeats, 'repeated execution')}, {errors(row)}."
    failing = [f"{label(row)}: {errors(row)}" for row in _ran(bench, "product") if faults(row)]
    if failing:
        yield f"Errors in the product's rows: {join(failing)}."


def _refused(bench: Bench) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for row in bench.rows:
        if row.refused is not None:
            reasons.setdefault(row.refused, []).append(label(row))
    for reason, names in reasons.items():
        yield f"Not supported on this database: {join(names)} ({reason})."
