"""A strategy object from outside, on every database."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queue_db import QueueDB
from queue_db.testing.suite import *  # noqa: F403
from queue_db.testing.suite import OpenDB, Statements
from tests.conformance.combinations import Combination
from tests.conformance.third_party import Lottery


@pytest.fixture(scope="session")
def combination(kind: str) -> Combination:
    return Combination(kind, "adaptive", "delete")


@pytest.fixture
def open_db(combination: Combination, pooled: Callable[..., QueueDB]) -> OpenDB:
    return lambda **options: pooled(combination, {"strategy": Lottery()} | options)


@pytest.fixture
def most_statements(combination: Combination, open_db: OpenDB) -> Statements:
    return combination.costs(open_db())


@pytest.fixture
def displacement() -> int:
    return 19


def test_it_hears_of_every_claim(open_db: OpenDB) -> None:
    strategy = Lottery()
    queue = open_db(strategy=strategy).queue("nothing-in-here")
    assert queue.claim() == []
    assert strategy.seen == 1
