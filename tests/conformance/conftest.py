"""One pool of connections per database for all conformance tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from queue_db import QueueDB
from tests.conformance.combinations import Combination
from tests.conformance.pool import on_pool


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
        pool = pools[combination.kind]
        return on_pool(QueueDB(pool.database.engine, **given), pool)  # type: ignore[arg-type]

    yield open_it
    for pool in pools.values():
        pool.close()
