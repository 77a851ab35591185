"""One pool of connections per database for all conformance tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from queue_db import QueueDB
from tests.conformance.combinations import Combination


@pytest.fixture(scope="session")
def pooled(shared_urls: Callable[[str], str]) -> Iterator[Callable[..., QueueDB]]:
    """Open a combination; all combinations on one database share its connections."""
    pools: dict[str, QueueDB] = {}

    def open_it(combination: Combination, options: dict[str, object]) -> QueueDB:
        if combination.kind not in pools:
            pools[combination.kind] = QueueDB(shared_urls(combination.kind))
        given = {"removal": combination.removal} | options
        if "strategy" not in given:
            given["strategy"] = combination.new_strategy()
        pool = pools[combination.kind].database
        db = QueueDB(pool.engine, **given)  # type: ignore[arg-type]
        # An engine that is passed in counts as the caller's. This one is ours, and so are its connections.
        db.database.engine, db.database.made_here, db.database.connections = pool.engine, True, pool.connections
        return db

    yield open_it
    for pool in pools.values():
        pool.close()
