"""A node that refuses statements, as while it gets its data: all connections to it are dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine, create_engine

from queue_db import QueueDB, TransientStorageError
from tests.clusters.conftest import catch_up
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.parametrize("cluster", ["galera"], indirect=True, scope="session")

IDLE = 15


@pytest.fixture
def proxy(urls: list[str]) -> Iterator[Proxy]:
    """An address that leads to the first node."""
    with Proxy.before(urls[0]) as between:
        yield between


@pytest.fixture
def refuse(urls: list[str]) -> Iterator[Callable[[], object]]:
    """Let the first node refuse all statements on tables, and ROLLBACK, until the test ends."""
    engine = create_engine(urls[0], isolation_level="AUTOCOMMIT", pool_reset_on_return=None)
    with engine.connect() as control:
        yield lambda: control.exec_driver_sql("SET GLOBAL wsrep_reject_queries = ALL")
        control.exec_driver_sql("SET GLOBAL wsrep_reject_queries = NONE")
    engine.dispose()


def hold_idle(engine: Engine) -> None:
    """Let the pool of the engine hold many idle connections."""
    held = [engine.connect() for _ in range(IDLE)]
    for connection in held:
        connection.close()


@pytest.mark.parametrize("given", [True, False], ids=["an engine of the application", "a URL"])
@pytest.mark.parametrize("lent", [True, False], ids=["transaction", "verb"])
def test_one_refusal_drops_all_connections_to_the_node(
    urls: list[str], proxy: Proxy, refuse: Callable[[], object], name: str, given: bool, lent: bool
) -> None:
    url = proxy.url(urls[0])
    engine = create_engine(url, pool_size=IDLE)
    with QueueDB(engine if given else url, pool_size=IDLE) as db, QueueDB(urls[1]) as there:
        queue = db.queue(name)
        queue.enqueue("mail", 0)
        catch_up(urls[1])
        hold_idle(db.database.engine)
        refuse()
        proxy.lead_to(urls[1])
        if lent:
            with pytest.raises(TransientStorageError, match="WSREP"), queue.transaction() as connection:
                queue.enqueue("mail", 1, using=connection)
            with queue.transaction() as connection:
                queue.enqueue("mail", 1, using=connection)
        else:
            queue.enqueue("mail", 1)
            assert db.counters.retried == 1
        assert there.queue(name).stats().available == 2
    engine.dispose()
