"""Which strategy to use on a database, and why: computed from the rows, said in one or two sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from queue_db.compare.report.ratios import MARGIN, between
from queue_db.compare.report.wording import caveats, errors, label, number, percent, repeats
from queue_db.compare.results import Bench, Row

#: The simpler first, which are also those that keep the order better; a tie goes to the earlier one. Adaptive comes before
#: optimistic because nobody has to tell it how many workers there are.
SIMPLEST = ("pessimistic", "skip_locked", "adaptive", "optimistic")

#: It keeps another promise (a job vanishes with its worker), so no throughput makes up for it.
OTHER_PROMISE = "at_most_once"

#: The strategy that ``QueueDB(url)`` has.
DEFAULT = "adaptive"

#: Which rows are compared: the others are in the chart, too.
OURS = "of our strategies that lose no job"

TIE = f"differences under {MARGIN:.0%} or within the spread are ties".replace("%", " %")


@dataclass(frozen=True)
class Choice:
    """The row to use among those with the same batch."""

    row: Row
    tied: tuple[Row, ...]  #: others that are as fast as the fastest, which may be this one
    next: Row | None  #: the fastest of those that are slower beyond the noise

    @property
    def reason(self) -> str:
        """Why, with the figures."""
        return f"{measured(self.row)}. {self._against()}"

    def _against(self) -> str:
        if self.tied:
            others = join([f"{one.name} ({between(self.row, one)} its jobs/s)" for one in self.tied])
            if once(self.row):
                return f"Less than {MARGIN:.0%} apart: {others}; it is named because {self._preferred()}.".replace("%", " %")
            return f"A tie with {others}, as {TIE}; preferred because {self._preferred()}."
        if self.next is not None:
            ratio = between(self.row, self.next)
            beside = f"{ratio} the jobs/s of {self.next.name}, the next fastest {OURS}"
            return f"It wins beyond the noise: {beside}." if ratio is None or ratio.wins else f"{beside}."
        return "No other row with this batch can be recommended, so there is nothing to compare it with."

    def _preferred(self) -> str:
        if (failed := [one for one in self.tied if faults(one)]) and not faults(self.row):
            return f"it met no errors ({join([f'{one.name}: {errors(one)}' for one in failed])})"
        if all(self.row.diff.mean < one.diff.mean for one in self.tied):
            farther = join([f"{number(one.diff.mean)} with {one.name}" for one in self.tied])
            return f"it keeps the order best (mean displacement {number(self.row.diff.mean)} against {farther}) and is simpler"
        return "it is the simplest of them"


@dataclass(frozen=True)
class Advice:
    """What to do on one database."""

    sentence: str  #: the recommendation, for people
    choice: Choice | None  #: what it names; None when nothing can be recommended
    choices: tuple[Choice, ...] = ()  #: for each batch, in rising order
    caveats: tuple[str, ...] = ()  #: what makes it less certain: to be told beside it

    @classmethod
    def of(cls, bench: Bench, machine: Mapping[str, str] | None = None) -> Advice:
        """From the product's rows of a database; those that repeated a job or did not finish are never recommended.

        :param machine: the machine's facts, as a :class:`Comparison` has them: its load.
        """
        sound = [row for row in bench.rows if recommendable(row)]
        choices = tuple(choose([row for row in sound if row.batch == batch]) for batch in sorted({row.batch for row in sound}))
        if not choices:
            return cls(sentence=_nothing(bench), choice=None)
        best = _smallest_batch(choices)
        sentence = f"{_named(best.row, sound)}: {best.reason}"
        if best.row.batch > 1 and choices[0].row.batch == 1:
            single, ratio = choices[0], between(best.row, choices[0].row)
            use = "it was" if once(single.row) else "use"
            sentence += (
                f" Where a worker should hold one job at a time, {use} {single.row.name}: {measured(single.row)};"
                f" the batches bring {ratio} of that."
            )
        return cls(sentence=sentence, choice=best, choices=choices, caveats=tuple(caveats(sound, machine or {})))


def _named(row: Row, sound: list[Row]) -> str:
    """What to do; after one run, in which chance decides, only what was seen."""
    if not once(row):
        return f"Use {label(row)}"
    place = "the fastest" if median(row) == max(map(median, sound)) else "among the fastest"
    return f"{label(row)} was {place} in one run, {OURS}"


def once(row: Row) -> bool:
    """Whether it has no spread."""
    return row.rate is not None and row.rate.sd is None


def exactly_once(row: Row) -> bool:
    """Whether every run came to its end and executed every job, and none twice."""
    return row.finished and row.total("executions") == row.total("unique") == row.total("jobs")


def recommendable(row: Row) -> bool:
    """Whether it is a strategy of the product, for jobs that must not vanish, and did its work."""
    return (
        row.family == "product" and row.name != OTHER_PROMISE and row.refused is None and exactly_once(row) and row.rate is not None
    )


def faults(row: Row) -> int:
    """Errors of the driver, all runs and kinds together."""
    return sum(row.faults.values())


def median(row: Row) -> float:
    """Jobs/s; 0 for a row that never finished."""
    return row.rate.median if row.rate else 0.0


def choose(rows: list[Row]) -> Choice:
    """The row to use among some that can all be recommended; at least one."""
    fastest = max(rows, key=median)
    near = [row for row in rows if row is fastest or ((ratio := between(row, fastest)) and ratio.tie)]
    best = min(near, key=lambda row: (faults(row) > 0, _place(row)))
    slower = [row for row in rows if row not in near]
    return Choice(best, tuple(row for row in near if row is not best), max(slower, key=median, default=None))


def measured(row: Row) -> str:
    """A throughput with everything that must be told beside it."""
    rate = row.rate
    spread = "one run" if rate is None or rate.sd is None else f"median, sd {number(rate.sd)}"
    speed = "no run finished" if rate is None else f"{number(rate.median)} jobs/s ({spread})"
    missed = f"{percent(row.miss_ratio)} misses"
    moved = f"displacement {number(row.diff.mean)} on average and {number(row.diff.max)} at most"
    return f"{speed}, {missed}, {moved}, {errors(row)}, {repeats(row)}"


def join(parts: list[str]) -> str:
    """``a, b and c``."""
    return " and ".join(part for part in (", ".join(parts[:-1]), parts[-1]) if part) if parts else ""


def _smallest_batch(choices: tuple[Choice, ...]) -> Choice:
    # What a worker holds is lost for a lease's time when it dies: no larger batch than the throughput is worth.
    fastest = max(choices, key=lambda one: median(one.row))
    return next(one for one in choices if one is fastest or ((ratio := between(one.row, fastest.row)) and ratio.tie))


def _place(row: Row) -> int:
    return SIMPLEST.index(row.name) if row.name in SIMPLEST else len(SIMPLEST)


def _nothing(bench: Bench) -> str:
    if not any(row.family == "product" and row.refused is None for row in bench.rows):
        return "No recommendation: none of the product's strategies ran here."
    return "No recommendation: none of the product's rows executed every job exactly once and came to its end."
