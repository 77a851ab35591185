"""The conformance suite on every database: each class with the strategies and removals that its row of the grid names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queue_db import QueueDB
from queue_db.testing.suite import *  # noqa: F403
from queue_db.testing.suite import OpenDB, Statements
from tests.conformance import grid
from tests.conformance.combinations import SERVED, Combination


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    grid.parametrize(metafunc, SERVED)


@pytest.fixture
def open_db(combination: Combination, pooled: Callable[..., QueueDB]) -> OpenDB:
    return lambda **options: pooled(combination, options)


@pytest.fixture
def most_statements(combination: Combination, open_db: OpenDB) -> Statements:
    return combination.costs(open_db())


@pytest.fixture
def displacement(combination: Combination) -> int:
    return combination.displacement
