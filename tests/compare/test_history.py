"""What is read from the workers' notes, on notes made by hand."""

from __future__ import annotations

from collections import Counter

from queue_db.compare.history import History, Notes
from queue_db.compare.results import Row, Run


def history(*notes: Notes, jobs: int = 0, **more: object) -> History:
    return History(jobs=jobs, began=100.0, notes=notes, **more)  # type: ignore[arg-type]


def run_of(past: History) -> Run:
    return Run.of(past, client_cpu=None, server_cpu=None)


# --- order ----------------------------------------------------------------------------------------------------------


def test_the_order_is_by_time_over_all_workers() -> None:
    past = history(Notes(0, jobs=[0, 3, 2], times=[100.1, 100.4, 100.5]), Notes(1, jobs=[1, 4], times=[100.2, 100.3]))
    assert past.order() == [0, 1, 4, 3, 2]


def test_repeats_stay_in_the_order() -> None:
    assert history(Notes(0, jobs=[0, 1], times=[1.0, 3.0]), Notes(1, jobs=[0], times=[2.0])).order() == [0, 0, 1]


def test_jobs_that_were_added_later_have_no_place_in_the_order() -> None:
    past = history(Notes(0, jobs=[0, -1, 1, -1, 2], times=[1.0, 2.0, 3.0, 4.0, 5.0]), jobs=3)
    assert past.order() == [0, 1, 2]
    run = run_of(past)
    assert (run.executions, run.unique, run.displacement) == (3, 3, {0: 3})
    assert run.per_worker == [5]


def test_jobs_of_one_batch_keep_its_order_where_their_times_are_equal() -> None:
    past = history(Notes(0, jobs=[4, 5, 6], times=[1.0] * 3), Notes(1, jobs=[1, 2, 3], times=[1.0] * 3))
    assert past.order() == [4, 5, 6, 1, 2, 3]


def test_a_batch_that_was_won_out_of_order_is_recorded_in_its_order() -> None:
    # Our own claims hand a batch out in order; a peer's need not.
    assert history(Notes(0, jobs=[8, 9, 0, 1], times=[1.0] * 4)).order() == [8, 9, 0, 1]


def test_the_protocol_counts_where_there_is_one() -> None:
    past = history(
        Notes(0, jobs=[0, 1], times=[1.0, 2.0]), Notes(1, jobs=[2], times=[3.0]), protocol=((2, 1), (0, 0), (-1, 0), (1, 0), (2, 1))
    )
    assert past.order() == [2, 0, 1, 2]


# --- sums -----------------------------------------------------------------------------------------------------------


def test_numbers_add_up_over_the_workers() -> None:
    past = history(
        Notes(0, left=3, candidates=5, won=3, statements=20, faults=Counter({"deadlock": 2, "other": 1}), latencies=[0.3, 0.1]),
        Notes(1, left=2, candidates=3, won=2, statements=10, faults=Counter({"deadlock": 1}), latencies=[0.2]),
        jobs=5,
    )
    assert [past.total(name) for name in ("left", "candidates", "won", "statements", "empty")] == [5, 8, 5, 30, 0]
    assert past.faults == Counter({"deadlock": 3, "other": 1})
    assert past.latencies == [0.1, 0.2, 0.3]
    run = run_of(past)
    assert (run.left, run.finished, run.miss_ratio, run.faults) == (5, True, 3 / 8, {"deadlock": 3, "other": 1})


def test_a_run_lasts_from_the_gun_until_the_last_job_has_left() -> None:
    past = history(
        Notes(0, jobs=[0], times=[100.25], left=1, last=102.0),
        Notes(1, jobs=[1], times=[100.5], left=1, last=104.0),
        Notes(2),
        jobs=2,
    )
    assert (past.first, past.seconds) == (0.25, 4.0)
    assert run_of(past).rate == 0.5


def test_a_run_in_which_nothing_happened() -> None:
    past = history(Notes(0), Notes(1), jobs=3)
    run = run_of(past)
    assert (past.first, past.seconds, past.latencies, past.order()) == (None, 0.0, [], [])
    assert (run.finished, run.rate, run.latency, run.miss_ratio) == (False, 0.0, None, 0.0)


def test_fairness_is_the_jobs_of_each_worker() -> None:
    run = run_of(
        history(Notes(0, jobs=[0, 1, 2], times=[1.0, 2.0, 3.0]), Notes(1), Notes(2, jobs=[3, 0], times=[4.0, 5.0]), jobs=4),
    )
    assert run.per_worker == [3, 0, 2]
    assert (min(run.per_worker), max(run.per_worker)) == (0, 3)
    assert (run.executions, run.unique, run.duplicates) == (5, 4, {2: 1})


def test_a_run_with_clones_is_finished_when_they_have_left_too() -> None:
    assert not run_of(history(Notes(0, left=4, added=2), jobs=3)).finished
    assert run_of(history(Notes(0, left=3, added=2), Notes(1, left=2), jobs=3)).finished


def test_the_window_at_the_end_is_the_mean_of_those_that_have_one() -> None:
    assert run_of(history(Notes(0, window=10.0), Notes(1), Notes(2, window=20.0))).window == 15.0
    assert run_of(history(Notes(0))).window is None


def row_of(*runs: Run) -> Row:
    return Row(name="x", family="article", batch=1, claim="", removal="", index="", workers=2, runs=list(runs))


def test_a_row_weighs_its_runs_by_what_they_did() -> None:
    few = run_of(history(Notes(0, jobs=[0], times=[101.0], left=1, last=101.0, candidates=2, won=1, statements=5), jobs=1))
    many = run_of(
        history(
            Notes(0, jobs=[1, 0, 2], times=[101.0, 102.0, 103.0], left=3, last=103.0, candidates=3, won=3, statements=9), jobs=3
        )
    )
    row = row_of(few, many)
    assert (row.miss_ratio, row.statements_per_job) == (1 / 5, 14 / 4)
    assert row.diff.histogram == {0: 2, 1: 2}
    assert (row.finished, row.repeats) == (True, 0)
    assert row.rate is not None
    assert (row.rate.mean, row.rate.min, row.rate.max) == (1.0, 1.0, 1.0)


def test_statements_that_are_not_counted_are_unknown() -> None:
    assert row_of(run_of(history(Notes(0, left=2), jobs=2))).statements_per_job is None


def test_an_unfinished_run_has_no_part_in_the_rate() -> None:
    cut = run_of(history(Notes(0, jobs=[0], times=[101.0], left=1, last=150.0), jobs=2))
    whole = run_of(history(Notes(0, jobs=[0, 1], times=[100.5, 101.0], left=2, last=101.0), jobs=2))
    row = row_of(cut, whole)
    assert not row.finished
    assert row.rate is not None
    assert (row.rate.mean, row.rate.sd) == (2.0, None)
    assert row_of(cut).rate is None
    assert not row_of().finished
