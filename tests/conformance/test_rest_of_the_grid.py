"""Where strategy and removal meet, claim and completion, in the cells of the grid that the whole suite leaves out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queue_db import QueueDB
from queue_db.testing.suite import (  # noqa: F401
    OpenDB,
    Statements,
    TestClaim,
    TestCompleteUsing,
    TestFence,
    TestLease,
    TestSettleMany,
    TestStatements,
    TestVersions,
    clock,
    db,
    name,
    notes,
    queue,
    rival,
    rival_queue,
)
from tests.conformance.combinations import OTHERS, Combination


@pytest.fixture(scope="session", params=OTHERS, ids=str)
def combination(request: pytest.FixtureRequest) -> Combination:
    return request.param


@pytest.fixture
def open_db(combination: Combination, pooled: Callable[..., QueueDB]) -> OpenDB:
    return lambda **options: pooled(combination, options)


@pytest.fixture
def most_statements(combination: Combination, open_db: OpenDB) -> Statements:
    return combination.costs(open_db())
