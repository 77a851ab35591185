"""A strategy object from outside: the whole suite on one database, the claim on all of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queue_db import QueueDB
from queue_db.testing.suite import *  # noqa: F403
from queue_db.testing.suite import OpenDB, Statements
from tests.conformance import grid
from tests.conformance.combinations import Combination
from tests.conformance.third_party import Lottery
from tests.databases import KINDS

#: The database of the whole suite.
KIND = "postgresql"
CELLS = [Combination(kind, "lottery", "delete") for kind in KINDS]


def on_its_axes(axes: grid.Axes, cell: Combination) -> bool:
    """The whole suite on one database, the classes about the claim on the others."""
    return cell.kind == KIND or grid.claims(axes)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    grid.parametrize(metafunc, CELLS, on_its_axes)


@pytest.fixture
def open_db(combination: Combination, pooled: Callable[..., QueueDB]) -> OpenDB:
    return lambda **options: pooled(combination, {"strategy": Lottery()} | options)


@pytest.fixture
def most_statements(combination: Combination, open_db: OpenDB) -> Statements:
    return combination.costs(open_db())


@pytest.fixture
def displacement() -> int:
    return 19


def test_it_observes_every_claim(open_db: OpenDB) -> None:
    strategy = Lottery()
    queue = open_db(strategy=strategy).queue("nothing-in-here")
    assert queue.claim() == []
    assert strategy.seen == 1
