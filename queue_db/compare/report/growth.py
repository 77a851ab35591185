"""What a cluster brings: from how many nodes on locks are no longer faster than optimistic claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from queue_db.compare.report.advice import DEFAULT, join, median, recommendable
from queue_db.compare.report.ratios import between
from queue_db.compare.report.wording import several
from queue_db.compare.results import Bench, Row

#: Strategies that rely on row locks, which other nodes do not see, and those that rely on versions.
LOCKS, VERSIONS = ("skip_locked", "pessimistic"), (DEFAULT, "optimistic")


def clusters(benches: Sequence[Bench]) -> Iterator[list[Bench]]:
    """Yield the databases that are one cluster on one node, on two and so on, if there are at least two."""
    together: list[Bench] = []
    for at, bench in enumerate(benches, 1):
        together = [*together, bench] if bench.nodes > 1 else [bench]
        if len(together) > 1 and (at == len(benches) or benches[at].nodes != bench.nodes + 1):
            yield together


def batches(benches: Sequence[Bench]) -> list[int]:
    """Return the batch sizes of the product's rows that have a finished run."""
    return sorted({row.batch for bench in benches for row in bench.rows if row.family == "product" and row.rate})


def turn(benches: Sequence[Bench], batch: int) -> int | None:
    """Return from how many nodes on the fastest row with locks is not faster than the fastest without.

    One more than all: it always is. None: on some number of nodes, no row of one of the two kinds is sound.
    """
    found = benches[-1].nodes + 1
    for bench in reversed(benches):
        locks, versions = (_fastest(bench, batch, names) for names in (LOCKS, VERSIONS))
        if (ratio := between(locks, versions)) is None:
            return None
        if ratio.faster:
            break
        found = bench.nodes
    return found


def words(benches: Sequence[Bench]) -> str:
    """Return in sentences where locks stop to pay, and the ratio of the default strategy to SKIP LOCKED on each number of nodes."""
    return " ".join(filter(None, (_words(benches, batch) for batch in batches(benches)))) or "No strategies to compare."


def _words(benches: Sequence[Bench], batch: int) -> str:
    parts = []
    if (first := turn(benches, batch)) is not None:
        locks = f"locks are faster on up to {several(first - 1, 'node')}" if first > 1 else ""
        versions = f"optimistic claims are as fast or faster from {several(first, 'node')} on" if first <= benches[-1].nodes else ""
        parts.append(", ".join(filter(None, (locks, versions))))
    both = ((_fastest(bench, batch, [name]) for name in (DEFAULT, "skip_locked")) for bench in benches)
    ratios = {bench.nodes: ratio for bench, rows in zip(benches, both, strict=True) if (ratio := between(*rows)) is not None}
    if ratios:
        parts.append(f"{DEFAULT} ÷ skip_locked: {join([f'{ratio} on {nodes}' for nodes, ratio in ratios.items()])} nodes")
    weak = "indicative: " if any(ratio.indicative for ratio in ratios.values()) else ""
    return f"At {batch} per claim, {weak}{'; '.join(parts)}." if parts else ""


def _fastest(bench: Bench, batch: int, names: Sequence[str]) -> Row | None:
    return max(
        (row for row in bench.rows if recommendable(row) and row.name in names and row.batch == batch), key=median, default=None
    )
