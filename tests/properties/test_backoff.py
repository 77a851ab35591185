"""Backoff: pure, bounded, and never shorter for a later attempt before the jitter."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_db import ArgumentError
from queue_db.backoff import arithmetic, constant, exponential, geometric, linear, listed, quartic

attempts = st.integers(-5, 10**6)


@given(attempts, st.floats(0, 1e6), st.floats(1, 1e3), st.floats(0, 1e9), st.floats(0, 1), st.floats(0, 1))
def test_the_wait_is_finite_and_within_the_jitter_of_the_ceiling(
    attempt: int, first: float, factor: float, ceiling: float, jitter: float, chance: float
) -> None:
    wait = exponential(first, factor, ceiling, jitter, lambda: chance)(attempt)
    assert math.isfinite(wait)
    assert 0 <= wait <= ceiling * (1 + jitter)
    assert wait >= min(first, ceiling) * (1 - jitter) * (1 - 1e-9)


@given(st.integers(1, 200))
def test_without_jitter_a_later_attempt_never_waits_less(attempt: int) -> None:
    seconds = exponential(jitter=0)
    assert seconds(attempt) <= seconds(attempt + 1) <= 3600


def test_the_defaults_are_those_that_the_documentation_tells() -> None:
    seconds = exponential(rng=lambda: 0.5)  # the middle of the jitter
    assert [seconds(attempt) for attempt in (1, 2, 3, 4)] == [5, 10, 20, 40]
    assert seconds(10) < 3600 == seconds(11) == seconds(25)
    assert 15 < sum(seconds(attempt) for attempt in range(1, 25)) / 3600 < 17


@given(attempts, st.floats(0, 1e6))
def test_constant_is_constant(attempt: int, seconds: float) -> None:
    assert constant(seconds)(attempt) == seconds


def test_the_named_policies_wait_as_they_say():
    numbers = range(1, 6)
    assert [linear()(number) for number in numbers] == [5, 10, 15, 20, 25]
    assert [arithmetic()(number) for number in numbers] == [5, 10, 20, 35, 55]
    assert [geometric(3, 3)(number) for number in numbers] == [3, 9, 27, 81, 243]
    assert [listed([1, 5, 30])(number) for number in numbers] == [1, 5, 30, 30, 30]
    assert [quartic(rng=lambda: 0.0)(number) for number in numbers] == [16, 31, 96, 271, 640]
    assert [quartic(rng=lambda: 1.0)(number) for number in (1, 2)] == [36, 61]
    assert exponential(base=15, max=3600, jitter=0)(9) == 3600
    with pytest.raises(ArgumentError):
        listed([])


@given(attempts)
def test_every_policy_is_finite_and_bounded(attempt: int) -> None:
    for policy in (linear(), arithmetic(), geometric(), exponential(), quartic(), listed([1]), constant(1)):
        assert 0 <= policy(attempt) <= 30 * 86_400
