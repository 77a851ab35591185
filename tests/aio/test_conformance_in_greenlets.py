"""The whole conformance suite on the drivers for asyncio: its synchronous tests run in greenlets on an event loop.

What :mod:`queue_db.aio` adds to that are verbs of one line each; ``test_verbs.py`` goes through them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from queue_db import QueueDB
from queue_db.aio.opening import InGreenlets
from queue_db.feeds import Feed
from queue_db.testing.suite import *  # noqa: F403
from queue_db.testing.suite import Group, Notes, OpenDB, Statements, fixtures
from queue_db.testing.suite import feeds as fixtures_of_feeds
from queue_db.testing.suite import mailboxes as fixtures_of_mailboxes
from queue_db.testing.suite import message_claims as fixtures_of_claims
from queue_db.testing.suite import routes as fixtures_of_routes
from tests.aio.loop import for_asyncio, spawned
from tests.conformance import grid
from tests.conformance.combinations import Combination
from tests.conformance.pool import on_pool
from tests.databases import KINDS

pytestmark = [
    pytest.mark.greenlet,
    pytest.mark.rest("the verbs of queue_db.aio have one line each, and test_verbs.py calls them all on two drivers"),
]

#: The whole suite on each database, and the classes about the claim with other strategies and removals.
IN_FULL = [Combination(kind, "adaptive", "delete") for kind in KINDS]
CELLS = [
    *IN_FULL,
    Combination("postgresql", "skip_locked", "lock_then_delete"),
    Combination("mysql", "optimistic_slice", "delete_mark"),
    Combination("mariadb", "skip_locked", "lock_then_delete"),
    Combination("sqlite", "pessimistic", "delete_mark"),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    grid.parametrize(metafunc, CELLS, lambda axes, cell: cell in IN_FULL or grid.claims(axes))


@pytest.fixture(scope="session")
def pools(shared_urls: Callable[[str], str]) -> Iterator[Callable[[str], QueueDB]]:
    """One pool of connections for each database."""
    opened: dict[str, QueueDB] = {}

    def pool_of(kind: str) -> QueueDB:
        if kind not in opened:
            with QueueDB(shared_urls(kind)):  # MySQL lets a password in without TLS only once it has seen it with TLS
                opened[kind] = spawned(lambda: InGreenlets(for_asyncio(shared_urls(kind))))
        return opened[kind]

    yield pool_of
    for db in opened.values():
        spawned(db.close)


@pytest.fixture
def open_db(combination: Combination, pools: Callable[[str], QueueDB]) -> OpenDB:
    pool = pools(combination.kind)

    def open_it(**options: Any) -> QueueDB:
        given = {"strategy": combination.new_strategy(), "removal": combination.removal} | options
        return on_pool(spawned(lambda: InGreenlets(pool.database.engine, **given)), pool)

    return open_it


@pytest.fixture
def name(db: QueueDB) -> Iterator[str]:
    within = fixtures.name.__wrapped__(db)
    yield next(within)
    spawned(lambda: next(within, None))


@pytest.fixture
def feed(db: QueueDB, name: str, ordering: str) -> Iterator[Feed]:
    within = fixtures_of_feeds.feed.__wrapped__(db, name, ordering)
    yield spawned(lambda: next(within))
    spawned(lambda: next(within, None))


@pytest.fixture
def routed(db: QueueDB, name: str) -> Iterator[str]:
    within = fixtures_of_routes.routed.__wrapped__(db, name)
    yield spawned(lambda: next(within))
    spawned(lambda: next(within, None))


@pytest.fixture
def claimable(db: QueueDB, name: str, ordering: str) -> Iterator[Feed]:
    within = fixtures_of_claims.claimable.__wrapped__(db, name, ordering)
    yield spawned(lambda: next(within))
    spawned(lambda: next(within, None))


@pytest.fixture
def group(db: QueueDB, name: str, ordering: str) -> Iterator[Group]:
    within = fixtures_of_mailboxes.group.__wrapped__(db, name, ordering)
    yield spawned(lambda: next(within))
    spawned(lambda: next(within, None))


@pytest.fixture
def several_groups(db: QueueDB, name: str, ordering: str) -> Iterator[list[Group]]:
    within = fixtures_of_mailboxes.several_groups.__wrapped__(db, name, ordering)
    yield spawned(lambda: next(within))
    spawned(lambda: next(within, None))


@pytest.fixture
def notes(db: QueueDB, name: str) -> Iterator[Notes]:
    found = spawned(lambda: Notes(db, name))
    yield found
    spawned(found.close)


@pytest.fixture
def most_statements(combination: Combination, open_db: OpenDB) -> Statements:
    return combination.costs(open_db())


@pytest.fixture
def displacement(combination: Combination) -> int:
    return combination.displacement
