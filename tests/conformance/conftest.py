"""One pool of connections per database for the whole suite, and what opens the combination under test on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from queue_db import QueueDB
from tests.conformance.combinations import Combination


@pytest.fixture(scope="session")
def pooled(shared_urls: Callable[[str], str]) -> Iterator[Callable[..., QueueDB]]:
    """Open a combination; all of one database share their connections."""
    pools: dict[str, QueueDB] = {}

    def open_it(combination: Combination, options: dict[str, object]) -> QueueDB:
        if combination.kind not in pools:
            pools[combination.kind] = QueueDB(shared_urls(combination.kind))
        given = {"strategy": combination.new_strategy(), "removal": combination.removal} | options
        pool = pools[combination.kind].database
        db = QueueDB(pool.engine, **given)  # type: ignore[arg-type]
        # It is one that we made, and so are its connections: not a caller's.
        db.database.engine, db.database.made_here, db.database.connections = pool.engine, True, pool.connections
        return db

    yield open_it
    for pool in pools.values():
        pool.close()
