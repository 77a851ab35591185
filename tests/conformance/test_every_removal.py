"""What hangs on jobs beside their claims, groups, batches and keys, on every database with each removal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queue_db import QueueDB
from queue_db.testing.suite import (  # noqa: F401
    OpenDB,
    TestBatches,
    TestDebounce,
    TestGroups,
    TestGroupsAndKeys,
    TestUniqueFor,
    clock,
    db,
    name,
    queue,
)
from tests.conformance.combinations import SHOWN_IN_FULL, Combination

REMOVALS = [each for each in SHOWN_IN_FULL if each.strategy == "adaptive"]


@pytest.fixture(scope="session", params=REMOVALS, ids=str)
def combination(request: pytest.FixtureRequest) -> Combination:
    return request.param


@pytest.fixture
def open_db(combination: Combination, pooled: Callable[..., QueueDB]) -> OpenDB:
    return lambda **options: pooled(combination, options)
