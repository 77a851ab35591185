"""The network breaks while a database is opened: that passes, whatever was being sent."""

from __future__ import annotations

import pytest

from queue_db import QueueDB, TransientStorageError
from tests.servers.proxy import Proxy

#: Statements of the driver, SQLAlchemy and this package at the first connection.
FIRST = {"postgresql": "SELECT current_setting", "mysql": "SET SESSION", "mariadb": "SET SESSION"}


@pytest.mark.parametrize("kind", FIRST)
def test_a_cut_at_the_first_connection_is_transient(kind: str, url: str) -> None:
    with Proxy.before(url) as proxy:
        proxy.swallow(FIRST[kind])
        with pytest.raises(TransientStorageError, match="cannot open") as cut:
            QueueDB(proxy.url(url))
        assert proxy.wait_swallowed()
        assert cut.value.server_away
        assert not cut.value.outcome_unknown
        QueueDB(proxy.url(url)).close()


@pytest.mark.parametrize("kind", FIRST)
def test_a_cut_in_the_check_of_the_tables_is_a_read_that_runs_again(kind: str, url: str) -> None:
    with Proxy.before(url) as proxy:
        proxy.swallow("COMMIT")
        with QueueDB(proxy.url(url)) as db:
            assert proxy.wait_swallowed()
            assert db.counters.retried == 1
