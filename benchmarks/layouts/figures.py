"""The figures of a layout, and the lines of its table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.layouts.processes import Done

#: The columns of :func:`lines`.
HEAD = (
    *("layout", "jobs/s", "CPU µs", "clean µs", "÷ first", "log B", "clean B", "÷ first", "client µs"),
    *("dead", "HOT %", "short %", "wrong", "errors"),
)


@dataclass
class Run:
    """Figures of one layout, for each job unless said otherwise; one entry per turn."""

    rate: list[float] = field(default_factory=list)  #: jobs per second
    cpu: list[float] = field(default_factory=list)  #: server, microseconds
    clean_cpu: list[float] = field(default_factory=list)
    client: list[float] = field(default_factory=list)
    log: list[float] = field(default_factory=list)  #: bytes
    clean_log: list[float] = field(default_factory=list)
    dead: list[float] = field(default_factory=list)
    hot: list[float] = field(default_factory=list)  #: of the updates, percent
    short: list[float] = field(default_factory=list)  #: of the claims, percent
    wrong: int = 0  #: jobs that were completed twice, not at all, or whose lease was lost
    faults: int = 0  #: deadlocks and other errors, repeated

    def add(self, seconds: float, done: Done, spent: tuple[float, int], expected: int | None) -> None:
        """Add a turn. ``expected``: how many jobs there were."""
        jobs = max(1, len(done.ids))
        self.rate.append(jobs / seconds)
        self.cpu.append(1e6 * spent[0] / jobs)
        self.client.append(1e6 * done.cpu / jobs)
        self.log.append(spent[1] / jobs)
        self.short.append(100 * done.short / max(1, done.claims))
        unique = len(set(done.ids))
        self.wrong += len(done.ids) - unique + done.lost + (abs(expected - unique) if expected is not None else 0)
        self.faults += done.faults


def lines(runs: Mapping[str, Run]) -> list[tuple[object, ...]]:
    """A line for each layout, compared with the first: medians, and the range of what varies most."""
    base = next(iter(runs.values()))
    cost, log = _cost(base.cpu, base.clean_cpu), _cost(base.log, base.clean_log)
    return [
        (
            name,
            _ranged(one.rate, "{:,.0f}"),
            _ranged(one.cpu, "{:.1f}"),
            _figure(one.clean_cpu),
            f"{cost / max(0.01, _cost(one.cpu, one.clean_cpu)):.2f}",
            _figure(one.log, "{:,.0f}"),
            _figure(one.clean_log, "{:,.0f}"),
            f"{log / max(1.0, _cost(one.log, one.clean_log)):.2f}",
            _figure(one.client),
            _figure(one.dead),
            _figure(one.hot, "{:.0f}"),
            _figure(one.short, "{:.0f}"),
            one.wrong,
            one.faults,
        )
        for name, one in runs.items()
    ]


def middle(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values) if values else float("nan")


def _cost(used: Sequence[float], cleaned: Sequence[float]) -> float:
    return middle(used) + (middle(cleaned) if cleaned else 0.0)


def _figure(values: Sequence[float], form: str = "{:.1f}") -> str:
    return form.format(middle(values)) if values else ""


def _ranged(values: Sequence[float], form: str) -> str:
    return f"{form} ({form}–{form})".format(middle(values), min(values), max(values))
