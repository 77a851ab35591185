"""The door: what is let in is what the tables can hold, and what is refused is refused as ArgumentError and nothing else."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_db import ArgumentError, arguments
from queue_db.model import from_micros, to_micros

anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.integers()), st.datetimes()
)


@given(st.text(max_size=30))
def test_a_name_is_let_in_as_it_is_or_refused(value: str) -> None:
    try:
        assert arguments.name("kind", value, 20) == value
    except ArgumentError:
        assert not (value.isalnum() and len(value) <= 20)
    else:
        assert 1 <= len(value) <= 20
        assert value == value.strip()
        assert value.isprintable() or not any(ord(character) < 32 for character in value)
        value.encode()


@given(anything)
def test_nothing_else_than_an_argument_error_comes_from_the_door(value: Any) -> None:
    for check in (
        lambda: arguments.name("x", value, 10),
        lambda: arguments.seconds("x", value),
        lambda: arguments.moment("x", value),
        lambda: arguments.whole("x", value, 0),
        lambda: arguments.headers(value),
    ):
        try:
            check()
        except ArgumentError as error:
            assert isinstance(error, ValueError)  # noqa: PT017 - both ways are right, and this belongs to one


@given(st.floats(0, arguments.LONGEST))
def test_seconds_become_the_nearest_microseconds(value: float) -> None:
    micros = arguments.seconds("delay", value)
    assert abs(micros - value * 1e6) <= 0.5 + abs(value * 1e6) * 1e-15
    assert arguments.seconds("lease", max(value, 1e-9), zero=False) >= 1


@given(st.one_of(st.floats(max_value=-1e-9), st.just(math.nan), st.floats(min_value=arguments.LONGEST * 1.001)))
def test_seconds_that_no_one_can_mean_are_refused(value: float) -> None:
    with pytest.raises(ArgumentError, match="delay"):
        arguments.seconds("delay", value)


@given(st.timedeltas(timedelta(0), timedelta(days=36_500)))
def test_a_timedelta_is_seconds(value: timedelta) -> None:
    assert abs(arguments.seconds("delay", value) - value // timedelta(microseconds=1)) <= 1


@given(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.timezones()))  # noqa: DTZ001 - the zone is drawn
def test_a_moment_comes_back_to_the_microsecond(value: datetime) -> None:
    micros = arguments.moment("run_at", value)
    assert micros is not None
    assert from_micros(micros) == value.astimezone(UTC)


@given(st.integers(-(2**62), 2**53))
def test_micros_and_datetimes_are_the_same_thing(micros: int) -> None:
    low, high = to_micros(datetime(1, 1, 2, tzinfo=UTC)), to_micros(datetime(9999, 12, 30, tzinfo=UTC))
    bounded = min(max(micros, low), high)
    assert to_micros(from_micros(bounded)) == bounded


@given(st.integers(), st.integers(-100, 100), st.integers(-100, 100))
def test_a_whole_number_is_let_in_within_its_bounds(value: int, one: int, other: int) -> None:
    low, high = sorted((one, other))
    if low <= value <= high:
        assert arguments.whole("limit", value, low, high) == value
    else:
        with pytest.raises(ArgumentError, match="limit"):
            arguments.whole("limit", value, low, high)
