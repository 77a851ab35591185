"""The marks of a queue in one process: no due job that came in time lies below one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from queue_db.model import ClaimResult
from queue_db.store import LowWaterMarks, low_water_marks

SECOND = 1_000_000

steps = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.one_of(st.integers(0, 5 * SECOND), st.just(round(low_water_marks.REMEMBERED * SECOND) + 1))),
        # (priority, due after, committed so long after the due time was written)
        st.tuples(
            st.just("enqueue"),
            st.tuples(
                st.sampled_from([-1, 0, 0, 3]),
                st.sampled_from([0, 0, SECOND, 4 * SECOND]),
                st.integers(0, 3 * low_water_marks.SLACK),
            ),
        ),
        st.tuples(st.just("claim"), st.integers(1, 3)),
    ),
    max_size=60,
)


@dataclass
class Job:
    """A row of the table: visible to others from ``seen_at`` on."""

    priority: int
    due: int
    seen_at: int
    written_at: int

    @property
    def in_time(self) -> bool:
        """Whether its producer's transaction was shorter than the slack."""
        return self.seen_at - self.written_at <= low_water_marks.SLACK


class Process:
    """One process that claims by its marks from a table that others fill."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.marks = LowWaterMarks(lambda: self.seconds)
        self.now = 10**15
        self.jobs: list[Job] = []

    def visible(self) -> list[Job]:
        return [job for job in self.jobs if job.seen_at <= self.now]

    def claim(self, limit: int) -> list[Job]:
        rescan = self.marks.rescan_due()
        taken: list[Job] = []
        for _ in range(10):
            ranges = dict(self.marks.ranges(rescan))
            unseen = sorted({job.priority for job in self.visible()} - set(ranges))
            due = [job for job in self.visible() if job.due <= self.now and ranges.get(job.priority, self.now + 1) <= job.due]
            due = [job for job in due if not unseen or job.priority < unseen[0]]
            batch = sorted(due, key=lambda job: (job.priority, job.due))[: limit - len(taken)]
            heads: dict[int, int] = {}
            for job in batch:
                heads[job.priority] = min(job.due, heads.get(job.priority, job.due))
            rows: Any = batch
            claim = ClaimResult("q", limit, tuple(rows), min_due=heads, new_priorities=tuple(unseen))
            self.marks.learn(claim, now=self.now if batch else None, rescanned=rescan, seconds=0.001)
            for job in batch:
                self.jobs.remove(job)
                taken.append(job)
            if not unseen or len(taken) == limit:
                break
        return taken

    def below(self) -> list[Job]:
        """Due jobs that the next claim would not see."""
        floors = dict(self.marks.ranges())
        return [job for job in self.visible() if job.due <= self.now and job.priority in floors and job.due < floors[job.priority]]


def live_through(taken: list[tuple[str, Any]], after_each: Callable[[Process], None] = lambda _: None) -> Process:
    """Do all the steps and return the process as it is then."""
    process = Process()
    for what, value in taken:
        if what == "wait":
            process.now += value
            process.seconds += value / SECOND
        elif what == "enqueue":
            priority, after, late = value
            process.jobs.append(Job(priority, process.now + after, process.now + late, process.now))
        else:
            process.claim(value)
        after_each(process)
    return process


def nothing_in_time_is_below(process: Process) -> None:
    assert [job for job in process.below() if job.in_time] == []


@settings(max_examples=300)
@given(steps)
def test_no_job_that_came_in_time_lies_below_its_mark(taken: list[tuple[str, Any]]) -> None:
    live_through(taken, nothing_in_time_is_below)


@settings(max_examples=300)
@given(steps)
def test_a_job_that_came_late_is_found_by_the_next_sweep(taken: list[tuple[str, Any]]) -> None:
    process = live_through(taken)
    waiting = [job for job in process.visible() if job.due <= process.now]
    process.seconds += low_water_marks.LONGEST_RESCAN_INTERVAL
    assert len(process.claim(1000)) == len(waiting)


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=200))
def test_beyond_the_most_ranges_one_plain_range_is_read(priorities: list[int]) -> None:
    found = LowWaterMarks()
    for priority in priorities:
        found.add(priority)
    known = {0, *priorities}
    ranges = [priority for priority, _ in found.ranges()]
    assert ranges == (sorted(known) if len(known) <= low_water_marks.MOST_RANGES else [])


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=2, max_size=300, unique=True))
def test_priorities_that_come_and_go_are_forgotten(priorities: list[int]) -> None:
    process = Process()
    for priority in priorities:
        process.jobs += [Job(priority, process.now, process.now, process.now) for _ in range(2)]
        assert len(process.claim(2)) == 2
        process.seconds += 1.0
        process.now += SECOND
    known = {priority for priority, _ in process.marks.ranges()}
    assert known  # none at all is one plain range
    assert known <= {0, *priorities[-round(low_water_marks.REMEMBERED) - 2 :]}


def test_the_last_priority_is_not_forgotten() -> None:
    process = Process()
    process.seconds += 1.0
    process.jobs.append(Job(7, process.now, process.now, process.now))
    process.claim(1)
    for _ in range(3):
        process.seconds += 10 * low_water_marks.REMEMBERED
        process.claim(1)
        assert [priority for priority, _ in process.marks.ranges()] == [7]


def test_more_priorities_than_are_kept_are_read_in_ranges_again_when_they_have_gone() -> None:
    process = Process()
    process.marks.add(*range(2 * low_water_marks.MOST_RANGES))
    assert process.marks.ranges() == ()
    process.seconds += low_water_marks.REMEMBERED + 1
    process.jobs.append(Job(3, process.now, process.now, process.now))
    process.marks.rescanned(0.001)
    assert len(process.marks.ranges()) == 1
    assert [job.priority for job in process.claim(1)] == [3]
