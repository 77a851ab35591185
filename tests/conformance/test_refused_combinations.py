"""A strategy that a database cannot serve is refused at open, with the name of the missing capability."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queue_db import Adaptive, ArgumentError, Optimistic, QueueDB, UnsupportedError
from queue_db.removal import removal_for
from queue_db.strategies import known_strategies
from tests.conformance.combinations import DISPLACEMENT, GRID, LACKING, REFUSED, REMOVALS, SERVED, STRATEGIES, Combination
from tests.databases import KINDS


def test_every_cell_of_the_grid_is_served_or_refused() -> None:
    assert len(GRID) == len(KINDS) * len(STRATEGIES) * len(REMOVALS)
    assert sorted(map(str, [*SERVED, *REFUSED])) == sorted(map(str, GRID))
    assert [str(each) for each in REFUSED] == [f"{kind}-{strategy}-{removal}" for kind, strategy in LACKING for removal in REMOVALS]


def test_every_strategy_is_in_the_grid() -> None:
    tested = {STRATEGIES[name]().name for name in STRATEGIES}
    missing = set(known_strategies()) - tested
    assert not missing, f"add them to STRATEGIES in tests/conformance/combinations.py: {', '.join(sorted(missing))}"
    assert set(DISPLACEMENT) <= set(STRATEGIES)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_a_database_lacks_for_a_strategy_is_listed(kind: str, strategy: str, shared_urls: Callable[[str], str]) -> None:
    """The list is written by hand, and not from what the strategy and the dialect say of themselves."""
    with QueueDB(shared_urls(kind)) as db:
        lacks = STRATEGIES[strategy]().needs - db.database.capabilities
    listed = LACKING.get((kind, strategy))
    hint = f"LACKING in tests/conformance/combinations.py says {listed} for {(kind, strategy)}"
    assert ([str(one) for one in lacks] or [None]) == [listed], hint


@pytest.mark.parametrize("combination", REFUSED, ids=str)
def test_refused_at_open(combination: Combination, shared_urls: Callable[[str], str]) -> None:
    with pytest.raises(UnsupportedError, match=str(combination.lacks)) as caught:
        QueueDB(shared_urls(combination.kind), strategy=combination.new_strategy(), removal=combination.removal)
    assert (caught.value.capability, caught.value.dialect) == (combination.lacks, combination.kind)


@pytest.mark.parametrize("removal", REMOVALS)
def test_the_bounds_of_retries(removal: str) -> None:
    made = type(removal_for(removal))
    for retries in (0, 100):
        assert made(retries=retries).retries == retries  # type: ignore[call-arg]
    for retries in (-1, 101, 1.5, True):
        with pytest.raises(ArgumentError, match="retries"):
            made(retries=retries)  # type: ignore[call-arg]


def test_the_bounds_of_windows() -> None:
    for window in (1, 10_000):
        assert Optimistic(window=window).window == Adaptive(max_window=window).max_window == window
    for window in (0, 10_001):
        with pytest.raises(ArgumentError, match="window"):
            Optimistic(window=window)
        with pytest.raises(ArgumentError, match="max_window"):
            Adaptive(max_window=window)
