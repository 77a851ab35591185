"""A strategy that a database cannot serve is refused at open, with the name of the missing capability."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queue_db import QueueDB, UnsupportedError
from tests.conformance.combinations import GRID, KINDS, REFUSED, REMOVALS, SERVED, STRATEGIES, Combination


def test_every_cell_of_the_grid_is_served_or_refused() -> None:
    assert len(GRID) == len(KINDS) * len(STRATEGIES) * len(REMOVALS)
    assert sorted(map(str, [*SERVED, *REFUSED])) == sorted(map(str, GRID))
    assert [str(each) for each in REFUSED] == [f"sqlite-skip_locked-{removal}" for removal in REMOVALS]


@pytest.mark.parametrize("combination", REFUSED, ids=str)
def test_refused_at_open(combination: Combination, shared_urls: Callable[[str], str]) -> None:
    with pytest.raises(UnsupportedError, match=str(combination.lacks)) as caught:
        QueueDB(shared_urls(combination.kind), strategy=combination.new_strategy(), removal=combination.removal)
    assert (caught.value.capability, caught.value.dialect) == (combination.lacks, combination.kind)
