"""The recommendation: which strategy to use on a database and why, computed from the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from queue_db.compare.report.ratios import MARGIN, between
from queue_db.compare.report.wording import between_runs, caveats, errors, indicative, label, number, occasion, percent, repeats
from queue_db.compare.results import Bench, Row

#: From simple to complex, which is also from more to less ordered; a tie goes to the earlier one. Adaptive comes before optimistic
#: because it does not need to know the number of workers.
SIMPLEST = ("pessimistic", "skip_locked", "adaptive", "optimistic")

#: It is never recommended: jobs of a worker that dies are lost.
AT_MOST_ONCE = "at_most_once"

#: No strategy: another way to call the default one.
COMPLETE_AND_CLAIM = "complete_and_claim"

#: The strategy of ``QueueDB(url)``.
DEFAULT = "adaptive"

#: The rows that are compared; the plots show all rows.
OURS = "of queue_db's at-least-once strategies"

TIE = f"differences under {MARGIN:.0%} or within the interval count as ties".replace("%", " %")


@dataclass(frozen=True)
class Choice:
    """The row to use among those with the same batch size."""

    row: Row
    tied: tuple[Row, ...]  #: other rows that tie with the fastest row
    next: Row | None  #: the fastest row that does not tie

    @property
    def title(self) -> str:
        """The batch size and the row's name."""
        return f"{self.row.batch} per claim: {self.row.name}" + (", indicative" if indicative(self.row) else "")

    @property
    def reason(self) -> str:
        """The reason, with the figures."""
        return f"{measured(self.row)}. {self._against()}"

    def _against(self) -> str:
        if self.tied:
            others = join([f"{one.name} ({between(self.row, one)} its jobs/s)" for one in self.tied])
            if indicative(self.row):
                near = all(max(one, 1 / one) < 1 + MARGIN for one in (median(self.row) / median(tied) for tied in self.tied))
                how = "" if near else " or the interval"
                return f"Within {MARGIN:.0%}{how} of {others}; named because {self._preferred()}.".replace("%", " %")
            return f"It ties with {others}: {TIE}. It is preferred because {self._preferred()}.{self._keep()}"
        if self.next is not None:
            ratio = between(self.row, self.next)
            comparison = f"{ratio} the jobs/s of {self.next.name}, the next fastest {OURS}"
            return f"It wins beyond the noise: {comparison}." if ratio is None or ratio.wins else f"It has {comparison}."
        return "No other row with this batch size qualifies for a comparison."

    @property
    def ties_with_default(self) -> bool:
        """Whether the default strategy is another row, without errors and no slower beyond the noise."""
        return any(one.name == DEFAULT and not faults(one) for one in self.tied) and not indicative(self.row)

    def _keep(self) -> str:
        return f" You may keep {DEFAULT}, the default: it is no slower beyond the noise." if self.ties_with_default else ""

    def _preferred(self) -> str:
        if (failed := [one for one in self.tied if faults(one)]) and not faults(self.row):
            return f"it had no errors ({join([f'{one.name}: {errors(one)}' for one in failed])})"
        if all(self.row.diff.mean < one.diff.mean for one in self.tied):
            farther = join([f"{number(one.diff.mean)} with {one.name}" for one in self.tied])
            mean = number(self.row.diff.mean)
            return f"it keeps jobs closest to their order (mean displacement {mean} against {farther}) and is simpler"
        return "it is the simplest of them"


@dataclass(frozen=True)
class Advice:
    """The recommendation for one database."""

    sentence: str  #: the recommendation in words
    choice: Choice | None  #: the recommended row; None if none qualifies
    choices: tuple[Choice, ...] = ()  #: for each batch size, in ascending order
    caveats: tuple[str, ...] = ()  #: warnings to print with it

    @classmethod
    def of(cls, bench: Bench, machine: Mapping[str, str] | None = None) -> Advice:
        """Compute it from the product's rows; rows with repeated executions and unfinished rows are never recommended.

        :param machine: facts about the machine, as in :class:`queue_db.compare.results.Comparison`.
        """
        sound = [row for row in bench.rows if recommendable(row)]
        choices = tuple(choose([row for row in sound if row.batch == batch]) for batch in sorted({row.batch for row in sound}))
        if not choices:
            return cls(sentence=_nothing(bench), choice=None)
        best = _smallest_batch(choices)
        sentence = f"{_named(best.row, sound)}: {best.reason}"
        if best.row.batch > 1 and choices[0].row.batch == 1:
            single, ratio = choices[0], between(best.row, choices[0].row)
            use = "the fastest was" if indicative(single.row) else "use"
            sentence += (
                f" For workers that hold one job at a time, {use} {single.row.name}: {measured(single.row)};"
                f" batches bring {ratio} that throughput."
            )
        found = caveats(sound, machine or {})
        if "nodes" in bench.facts:
            found.append(f"The nodes {bench.facts['nodes']}: more of them bring no more processors.")
        return cls(sentence=sentence, choice=best, choices=choices, caveats=tuple(found))


def _named(row: Row, sound: list[Row]) -> str:
    """Return the recommendation; after few or short runs, which may be chance, only the observation."""
    if not indicative(row):
        return f"Use {label(row)}"
    rank = "the fastest" if median(row) == max(map(median, sound)) else "among the fastest"
    what = label(row) if row.batch == 1 else f"{label(row)},"
    return f"Indicative: {what} was {rank} {OURS} {occasion([row])}"


def exactly_once(row: Row) -> bool:
    """Return whether every run finished and executed every job exactly once."""
    return row.finished and row.total("executions") == row.total("unique") == row.total("jobs")


def recommendable(row: Row) -> bool:
    """Return whether the row is an at-least-once strategy of the product and executed every job exactly once."""
    return (
        row.family == "product"
        and row.name not in (AT_MOST_ONCE, COMPLETE_AND_CLAIM)
        and row.refused is None
        and exactly_once(row)
        and row.rate is not None
    )


def faults(row: Row) -> int:
    """Return the number of driver errors in all runs."""
    return sum(row.faults.values())


def median(row: Row) -> float:
    """Return the median of the jobs/s; 0 for a row without a finished run."""
    return row.rate.median if row.rate else 0.0


def choose(rows: list[Row]) -> Choice:
    """Choose among recommendable rows, at least one."""
    fastest = max(rows, key=median)
    near = [row for row in rows if row is fastest or ((ratio := between(row, fastest)) and ratio.tie)]
    best = min(near, key=lambda row: (faults(row) > 0, _complexity(row)))
    slower = [row for row in rows if row not in near]
    return Choice(best, tuple(row for row in near if row is not best), max(slower, key=median, default=None))


def measured(row: Row) -> str:
    """Return a throughput with its spread, misses, displacement, errors and repeated executions."""
    rate = row.rate
    speed = "no run finished" if rate is None else f"{number(rate.median)} jobs/s ({between_runs(rate, len(row.rates))})"
    missed = f"{percent(row.miss_ratio)} misses"
    moved = f"displacement {number(row.diff.mean)} on average, {number(row.diff.max)} at most"
    return f"{speed}, {missed}, {moved}, {errors(row)}, {repeats(row)}"


def join(parts: list[str]) -> str:
    """Return ``a, b and c``."""
    return " and ".join(part for part in (", ".join(parts[:-1]), parts[-1]) if part) if parts else ""


def _smallest_batch(choices: tuple[Choice, ...]) -> Choice:
    # The jobs of a worker that dies wait until their leases expire, so a larger batch must bring throughput.
    fastest = max(choices, key=lambda one: median(one.row))
    return next(one for one in choices if one is fastest or ((ratio := between(one.row, fastest.row)) and ratio.tie))


def _complexity(row: Row) -> int:
    return SIMPLEST.index(row.name) if row.name in SIMPLEST else len(SIMPLEST)


def _nothing(bench: Bench) -> str:
    if not any(row.family == "product" and row.refused is None for row in bench.rows):
        return "No recommendation: none of the product's strategies ran here."
    return "No recommendation: none of the product's rows executed every job exactly once and finished."
