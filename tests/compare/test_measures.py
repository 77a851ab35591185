"""Each measure on lists made by hand, whose figures can be counted on paper."""

from __future__ import annotations

import math
import statistics
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queue_db.compare.measures import (
    Latency,
    Spread,
    displacement,
    duplicates,
    median_interval,
    miss_ratio,
    quantile,
    ratio_interval,
)

#: The article's example: ids 1 2 4 7 3 6 5 at the positions 1 … 7. We count from 0, which changes no distance.
ARTICLES_EXAMPLE = [job_id - 1 for job_id in (1, 2, 4, 7, 3, 6, 5)]


# --- Diff -----------------------------------------------------------------------------------------------------------


def test_the_articles_example_has_the_articles_diffs() -> None:
    diffs = [displacement([*range(place), job]).max for place, job in enumerate(ARTICLES_EXAMPLE)]
    assert diffs == [0, 0, 1, 3, 2, 0, 2]
    measured = displacement(ARTICLES_EXAMPLE)
    assert measured.histogram == {0: 3, 1: 1, 2: 2, 3: 1}
    assert (measured.mean, measured.max) == (8 / 7, 3)


def test_a_run_in_order_has_no_displacement() -> None:
    measured = displacement(range(100))
    assert (measured.histogram, measured.mean, measured.max) == ({0: 100}, 0.0, 0)


def test_a_second_execution_has_a_diff_of_its_own_and_moves_what_follows() -> None:
    assert displacement([0, 1, 0, 2]).histogram == {0: 2, 1: 1, 2: 1}


def test_a_run_without_executions_has_no_distances() -> None:
    measured = displacement([])
    assert (measured.histogram, measured.mean, measured.max) == ({}, 0.0, 0)


@settings(deadline=None)
@given(st.permutations(range(20)))
def test_distances_of_a_permutation_add_up_to_an_even_number(order: list[int]) -> None:
    # As many places are gained as are lost.
    measured = displacement(order)
    assert sum(measured.histogram.values()) == 20
    assert sum(distance * count for distance, count in measured.histogram.items()) % 2 == 0
    assert measured.max <= 19


# --- duplicates -----------------------------------------------------------------------------------------------------


def test_duplicates_are_counted_by_number_of_executions() -> None:
    order = [0, 1, 1, 2, 3, 2, 2, 4, 5, 5]
    assert duplicates(order) == {2: 2, 3: 1}
    # What ran beyond the first time, counted the other way round.
    assert sum((times - 1) * jobs for times, jobs in duplicates(order).items()) == len(order) - len(set(order))


def test_once_each_is_no_duplicate() -> None:
    assert duplicates([3, 1, 2, 0]) == {}
    assert duplicates([]) == {}


# --- quantiles, latency, spread -------------------------------------------------------------------------------------


def test_quantiles_are_by_nearest_rank() -> None:
    ordered = [15.0, 20.0, 35.0, 40.0, 50.0]
    assert [quantile(ordered, q) for q in (0.0, 0.05, 0.2, 0.21, 0.3, 0.4, 0.5, 1.0)] == [15, 15, 15, 20, 20, 20, 35, 50]
    assert quantile([7.0], 0.99) == 7.0
    assert quantile([], 0.5) is None


@pytest.mark.parametrize("percent", [50, 99])
def test_the_rank_is_exact_for_every_length(percent: int) -> None:
    for length in range(1, 3000):
        rank = math.ceil(Fraction(percent, 100) * length)
        assert quantile(range(1, length + 1), percent / 100) == rank


def test_latency_shows_the_middle_the_tail_and_the_worst() -> None:
    measured = Latency.of([number / 1000 for number in range(1, 201)])
    assert measured == Latency(count=200, p50=0.1, p99=0.198, max=0.2)
    assert Latency.of([]) is None


def test_the_spread_is_of_a_sample() -> None:
    rates = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]
    spread = Spread.of(rates)
    assert spread is not None
    assert (spread.mean, spread.min, spread.median, spread.max) == (5.0, 2.0, 4.5, 9.0)
    assert spread.sd == pytest.approx(math.sqrt(32 / 7)) == pytest.approx(statistics.stdev(rates))


def test_an_interval_is_known_from_three_values_on() -> None:
    assert [median_interval(values) for values in ((1.0,), (1.0, 2.0), (1.0, 4.0, 2.0))] == [None, None, (1.0, 4.0)]
    many = tuple(float(number) for number in range(101))
    low, high = median_interval(many) or (0.0, 0.0)
    assert 30 < low < 50 < high < 70
    assert median_interval(many) == (low, high), "the same for the same values"


def test_the_interval_of_a_ratio_contains_1_if_neither_side_is_ahead() -> None:
    assert ratio_interval((1.0, 2.0), (1.0, 2.0, 3.0)) is None
    assert ratio_interval((1.0, 2.0, 3.0), (0.0, 1.0, 1.0)) is None
    low, high = ratio_interval((10.0, 11.0, 12.0), (10.0, 11.0, 13.0)) or (0.0, 0.0)
    assert low < 1 < high
    low, high = ratio_interval((20.0, 21.0, 22.0, 23.0), (10.0, 10.5, 11.0)) or (0.0, 0.0)
    assert 1.8 < low < 2 < high < 2.4


def test_a_single_run_has_no_deviation_and_none_has_no_spread() -> None:
    assert Spread.of([3.0]) == Spread(mean=3.0, sd=None, min=3.0, median=3.0, max=3.0)
    assert Spread.of([]) is None


# --- misses ---------------------------------------------------------------------------------------------------------


def test_misses_are_a_share_of_what_was_tried() -> None:
    assert miss_ratio(candidates=10, won=10) == 0.0
    assert miss_ratio(candidates=40, won=10) == 0.75
    assert miss_ratio(candidates=5, won=0) == 1.0
    assert miss_ratio(candidates=0, won=0) == 0.0
