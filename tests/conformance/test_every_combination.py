"""The whole conformance suite on every database with each strategy and with each removal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queue_db import QueueDB
from queue_db.testing.suite import *  # noqa: F403
from queue_db.testing.suite import OpenDB, Statements
from tests.conformance.combinations import SHOWN_IN_FULL, Combination

# These are in test_every_removal.py: no strategy has anything to do with them.
del TestBatches, TestDebounce, TestGroups, TestGroupsAndKeys, TestUniqueFor  # noqa: F821


@pytest.fixture(scope="session", params=SHOWN_IN_FULL, ids=str)
def combination(request: pytest.FixtureRequest) -> Combination:
    return request.param


@pytest.fixture
def open_db(combination: Combination, pooled: Callable[..., QueueDB]) -> OpenDB:
    return lambda **options: pooled(combination, options)


@pytest.fixture
def most_statements(combination: Combination, open_db: OpenDB) -> Statements:
    return combination.costs(open_db())


@pytest.fixture
def displacement(combination: Combination) -> int:
    return combination.displacement
