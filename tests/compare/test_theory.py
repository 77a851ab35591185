"""The model's formulas against a table computed elsewhere, against each other, and against urns."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queue_db.compare import theory
from queue_db.compare.measures import displacement

# --- lock-step ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "workers", "attempts"),
    [
        # N = W: the article's E[X], with the exponent that its formula should have.
        (2, 2, 1.333),
        (3, 3, 1.421),
        (5, 5, 1.487),
        (10, 10, 1.535),
        (50, 50, 1.573),
        (100, 100, 1.577),
        # N = 10, other windows.
        (1, 10, 10.0),
        (5, 10, 2.24),
        (20, 10, 1.246),
        (30, 10, 1.159),
        (50, 10, 1.093),
        (100, 10, 1.046),
        # N = 100.
        (1, 100, 100.0),
        (50, 100, 2.31),
        (200, 100, 1.268),
        (300, 100, 1.174),
        (500, 100, 1.102),
        (1000, 100, 1.050),
    ],
)
def test_attempts_in_lock_step(window: int, workers: int, attempts: float) -> None:
    digits = len(str(attempts).partition(".")[2])
    assert theory.lock_step_attempts(window, workers) == pytest.approx(attempts, abs=0.5001 * 10**-digits)


@pytest.mark.parametrize(("window", "share"), [(1, 0.90), (5, 0.55), (10, 0.35), (20, 0.20), (30, 0.14), (50, 0.085), (100, 0.044)])
def test_share_of_attempts_lost_in_lock_step_by_ten(window: int, share: float) -> None:
    assert theory.lock_step_miss(window, 10) == pytest.approx(share, abs=0.006)


def test_with_many_workers_the_window_n_costs_e_over_e_minus_one() -> None:
    assert (
        theory.lock_step_attempts(10**6, 10**6) == pytest.approx(1 / (1 - 1 / math.e), rel=1e-6) == pytest.approx(1.582, abs=5e-4)
    )


def test_whoever_is_alone_loses_nothing() -> None:
    for window in (1, 2, 10, 1000):
        assert theory.lock_step_attempts(window, 1) == pytest.approx(1.0)
        assert theory.lock_step_miss(window, 1) == pytest.approx(0.0)


@settings(deadline=None)
@given(st.integers(1, 1000), st.integers(1, 200))
def test_a_wider_window_never_loses_more(window: int, workers: int) -> None:
    wider, narrower = theory.lock_step_attempts(window + 1, workers), theory.lock_step_attempts(window, workers)
    assert 1.0 - 1e-9 <= wider <= narrower + 1e-9
    assert narrower <= workers + 1e-9


def test_the_lock_step_formula_is_what_urns_do() -> None:
    """10 workers draw from 20 places at once: the distinct places drawn are the claims. Within 4 standard errors."""
    rng = random.Random(11)
    claims = [len({rng.randrange(20) for _ in range(10)}) for _ in range(4000)]
    error = statistics.stdev(claims) / math.sqrt(len(claims))
    assert 10 / theory.lock_step_attempts(20, 10) == pytest.approx(statistics.fmean(claims), abs=4 * error)


# --- asynchronous ---------------------------------------------------------------------------------------------------


def test_nobody_in_between_takes_nothing() -> None:
    assert theory.miss(0.0, 10) == 0.0
    assert theory.racing(0.0, 10) == 0.0


def test_as_many_rivals_as_places_leave_one_in_e() -> None:
    assert theory.miss(10, 10) == pytest.approx(1 - 1 / math.e)
    assert theory.miss(1, 2) == pytest.approx(0.3935, abs=1e-4)


@settings(deadline=None)
@given(st.floats(0.0, 0.999), st.floats(1.0, 1e6))
def test_the_rivals_computed_from_a_share_of_misses_explain_it(ratio: float, window: float) -> None:
    assert theory.miss(theory.racing(ratio, window), window) == pytest.approx(ratio, abs=1e-9)


def test_a_share_of_one_is_many_rivals_and_no_error() -> None:
    assert theory.racing(1.0, 10) > 100
    assert theory.miss(theory.racing(1.0, 10), 10) == pytest.approx(1.0)


# --- displacement ---------------------------------------------------------------------------------------------------


def urn(window: int, jobs: int, rng: random.Random) -> list[int]:
    """One worker after the other takes one of the first ``window`` jobs that are left, each with the same chance."""
    waiting, coming, order = list(range(window)), iter(range(window, jobs)), []
    while waiting:
        order.append(waiting.pop(rng.randrange(len(waiting))))
        waiting.extend(job for job in [next(coming, None)] if job is not None)
    return order


@pytest.fixture(scope="module")
def urns() -> list[list[int]]:
    """40 runs of 10,000 jobs with the article's window of 10."""
    rng = random.Random(2018)
    return [urn(10, 10_000, rng) for _ in range(40)]


def test_mean_displacement_is_what_urns_do(urns: list[list[int]]) -> None:
    """2W/e is the limit of 2W(1 − 1/W)^W for wide windows, which it exceeds by about 1/e of a place at any width.

    The tolerance is that, and 4 standard errors of the urns' mean.
    """
    means = [displacement(order).mean for order in urns]
    error = statistics.stdev(means) / math.sqrt(len(means))
    # 0.01: the last ten jobs, whose window shrinks.
    assert statistics.fmean(means) == pytest.approx(20 * (1 - 1 / 10) ** 10, abs=4 * error + 0.01)
    assert theory.mean_displacement(10) == pytest.approx(statistics.fmean(means), abs=4 * error)
    assert theory.mean_displacement(10) == pytest.approx(6.97, abs=0.005)
    assert theory.mean_displacement(10_000) == pytest.approx(0.736 * 10_000, rel=1e-3)


def test_largest_displacement_is_what_urns_do(urns: list[list[int]]) -> None:
    """Within 4 standard errors of the urns' mean of the largest."""
    largest = [displacement(order).max for order in urns]
    error = statistics.stdev(largest) / math.sqrt(len(largest))
    assert theory.largest_displacement(10, 10_000) == pytest.approx(statistics.fmean(largest), abs=4 * error)


def test_displacement_grows_with_the_window_and_the_largest_with_the_run() -> None:
    assert theory.mean_displacement(1) == 0.0
    assert theory.mean_displacement(20) > 2 * theory.mean_displacement(10)
    assert theory.largest_displacement(10, 10_000) == pytest.approx(88, abs=0.5)
    assert theory.largest_displacement(10, 1_000_000) == pytest.approx(134, abs=0.5)
    assert theory.largest_displacement(10, 0) == 0.0
