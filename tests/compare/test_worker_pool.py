"""Workers that start together and stop when all jobs are done, threads and processes alike."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from queue_db.compare.contestant import Target, WorkerContext
from queue_db.compare.history import History
from queue_db.compare.results import Run
from queue_db.compare.worker_pool import Assignment, WorkerPool, WorkerPoolError
from tests.compare.stand_ins import NOWHERE, Announced, Cloning, Dealt, Failing, Scribbling, Vanishing

#: Seconds: far more than any run here takes, so that one that does not end by itself is seen.
LONG = 500.0

HANDS = ((0, 1, 2), (3, 4))


@pytest.fixture(scope="module", params=["threads", "processes"])
def pool(request: pytest.FixtureRequest) -> Iterator[WorkerPool]:
    """Two workers, for all tests of this module: whatever happened to them in one test, they are there for the next."""
    with WorkerPool(2, request.param) as two:
        yield two


def run(pool: WorkerPool, row: Dealt, jobs: int, limit: float = LONG, **more: object) -> History:
    clone = float(more.pop("clone", 0.0))  # type: ignore[arg-type]
    work_seconds = float(more.pop("work_seconds", 0.0))  # type: ignore[arg-type]
    assignment = Assignment(row, NOWHERE, work_seconds=work_seconds, clone=clone, verify=False)
    return pool.run(assignment, jobs, limit=limit, **more)  # type: ignore[arg-type]


def works_well(pool: WorkerPool) -> bool:
    history = run(pool, Dealt(HANDS), 5)
    return sorted(history.order()) == [0, 1, 2, 3, 4]


# --- the start --------------------------------------------------------------------------------------------------------


def test_all_workers_are_ready_before_the_start_and_none_starts_earlier(pool: WorkerPool, tmp_path: Path) -> None:
    seen: list[list[str]] = []
    history = run(
        pool, Announced(HANDS, folder=tmp_path), 5, before=lambda: seen.append(sorted(p.name for p in tmp_path.iterdir()))
    )
    assert seen == [["ready 0", "ready 1"]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["off 0", "off 1", "ready 0", "ready 1"]
    assert all(when >= history.began for note in history.notes for when in note.times)
    assert history.first is not None
    assert history.first >= 0


def test_notes_taken_before_the_start_are_discarded(pool: WorkerPool, tmp_path: Path) -> None:
    assert run(pool, Announced(HANDS, folder=tmp_path), 5).total("statements") == 0


# --- the end --------------------------------------------------------------------------------------------------------


def test_the_end_is_known_by_count(pool: WorkerPool) -> None:
    history = run(pool, Dealt(HANDS), 5)
    assert [note.jobs for note in history.notes] == [[0, 1, 2], [3, 4]]
    assert [note.worker for note in history.notes] == [0, 1]
    assert run_of(history).finished


def test_a_worker_without_jobs_stops_when_the_others_are_done(pool: WorkerPool) -> None:
    history = run(pool, Dealt(((), (0, 1, 2))), 3)
    assert [note.left for note in history.notes] == [0, 3]
    assert run_of(history).finished


def test_work_takes_its_time(pool: WorkerPool) -> None:
    history = run(pool, Dealt(((0, 1), (2,))), 3, work_seconds=0.002)
    first = next(note for note in history.notes if note.worker == 0)
    assert first.times[1] - first.times[0] >= 0.002
    assert run_of(history).finished


def test_jobs_that_were_added_are_waited_for(pool: WorkerPool) -> None:
    history = run(pool, Cloning(tuple((*hand, *range(10, 60)) for hand in HANDS)), 105, clone=0.5)
    added = history.total("added")
    assert added > 0
    assert history.total("left") == 105 + added
    assert sum(note.jobs.count(-1) for note in history.notes) == added
    assert run_of(history).finished


def test_a_run_that_does_not_end_is_stopped_at_its_limit_and_is_unfinished(pool: WorkerPool) -> None:
    history = run(pool, Dealt(HANDS), 6, limit=0.05)
    result = run_of(history)
    assert (result.finished, result.left, result.executions) == (False, 5, 5)
    assert works_well(pool)


def test_progress_is_reported_until_all_jobs_have_left(pool: WorkerPool) -> None:
    seen: list[int] = []
    run(pool, Dealt(HANDS), 5, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 5


# --- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prepared", [False, True], ids=["in preparation", "at work"])
@pytest.mark.parametrize(
    ("known", "message"),
    [(True, r"^ArgumentError: the deck is incomplete$"), (False, r"(?s)Traceback.*RuntimeError: a card fell under the table")],
    ids=["one of ours", "any other"],
)
def test_a_worker_that_fails_is_an_error_and_the_others_stop(pool: WorkerPool, prepared: bool, known: bool, message: str) -> None:
    # The job that it does not do would keep the other waiting for ever.
    with pytest.raises(WorkerPoolError, match=message):
        run(pool, Failing(HANDS, prepared=prepared, known=known), 5)
    assert works_well(pool)


def test_a_worker_process_that_dies_is_an_error() -> None:
    with WorkerPool(1, "processes") as one, pytest.raises(WorkerPoolError, match="a worker process died"):
        run(one, Vanishing(), 1, limit=5)


_FREE = threading.Event()


@dataclass(frozen=True)
class Stubborn(Dealt):
    """Waits until the test lets it go on, before it is ready or after the end."""

    prepared: bool = False

    def work(self, target: Target, context: WorkerContext) -> None:
        if self.prepared:
            context.wait_for_start()
        _FREE.wait(LONG)
        if not self.prepared:
            context.wait_for_start()


@pytest.mark.parametrize(("prepared", "option"), [(False, "--start-limit"), (True, "--stop-limit")])
def test_a_worker_that_takes_too_long_is_an_error_that_names_the_option(prepared: bool, option: str) -> None:
    _FREE.clear()
    # No worker comes in time, and how long the others are waited for afterwards is the same limit.
    with WorkerPool(1, "threads", start_limit=LONG if prepared else 0.1, stop_limit=0.1) as own:
        try:
            with pytest.raises(WorkerPoolError, match=option):
                run(own, Stubborn(prepared=prepared), 1, limit=0.1)
        finally:
            _FREE.set()


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_an_audience_that_leaves_stops_the_workers(kind: Literal["threads", "processes"]) -> None:
    def leave(left: int) -> None:
        raise KeyboardInterrupt

    with WorkerPool(2, kind) as own:
        with pytest.raises(KeyboardInterrupt):
            run(own, Dealt(HANDS), 6, progress=leave)
        members = own._members
    assert not any(member.is_alive() for member in members)


# --- what comes back ------------------------------------------------------------------------------------------------


def test_notes_come_back_as_they_were_written(pool: WorkerPool) -> None:
    history = run(pool, Scribbling(), 2)
    for number, note in enumerate(history.notes):
        assert (note.worker, note.rounds, note.candidates, note.won, note.empty) == (number, 11 + number, 12, 13, 14)
        assert (note.lost, note.statements, note.faults, note.window) == (15, 16, Counter({"deadlock": 3}), 17.5)
        assert (note.jobs, note.times, note.last) == ([3, 1, -1], [4.0, 5.0, 6.0], 7.0)
        assert note.latencies == [0.5, 0.25]
        assert note.cpu >= 0
        assert note.peak_memory > 1_000_000
    assert (history.jobs, history.protocol) == (2, None)


def test_notes_of_one_run_are_not_those_of_the_next(pool: WorkerPool) -> None:
    run(pool, Scribbling(), 2)
    assert run(pool, Dealt(HANDS), 5).total("rounds") == 0


def run_of(history: History) -> Run:
    return Run.of(history, client_cpu=None, server_cpu=None)
