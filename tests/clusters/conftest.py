"""Clusters of three nodes. Where every node takes changes, a session on one node cannot see the locks of another's.

Two transactions that change one row meet when they commit: the first wins, the other gets a conflict. A test that has nothing to do
with conflicts is parametrised with all of CLUSTERS, also those with one primary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import create_engine, make_url, text

from queue_db import QueueDB
from tests.chaos import nodes as chaos
from tests.servers.cluster import Cluster
from tests.servers.clusters import CLUSTERS

# The statement after which a session reads all that other nodes have committed.
_READ_ALL = {"mariadb": "SET SESSION wsrep_sync_wait = 1", "mysql": "SET SESSION group_replication_consistency = 'BEFORE'"}


@pytest.fixture(scope="session", params=["galera", "group-replication"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    started = {**CLUSTERS, **chaos.CLUSTERS}[request.param]()
    yield started
    started.remove()


@pytest.fixture(scope="session")
def urls(cluster: Cluster) -> list[str]:
    """One migrated database, by its URL on each node."""
    found = cluster.create_database()
    with QueueDB(found[cluster.writers()[0]]) as db:
        db.migrate()
    for url in found:
        catch_up(url)
    return found


@pytest.fixture
def open_nodes(urls: list[str]) -> Iterator[Callable[..., list[QueueDB]]]:
    """Open the database on each node: ``open_nodes(strategy=Optimistic)``; closed after the test."""
    opened: list[QueueDB] = []

    def open_them(strategy: Callable[[], object] | None = None, **options: object) -> list[QueueDB]:
        made = [QueueDB(url, **options, **({"strategy": strategy()} if strategy else {})) for url in urls]  # type: ignore[arg-type]
        opened.extend(made)
        return made

    yield open_them
    for db in opened:
        db.close()


@pytest.fixture
def nodes(open_nodes: Callable[..., list[QueueDB]]) -> list[QueueDB]:
    return open_nodes()


def catch_up(url: str) -> None:
    """Return when the node has applied all that other nodes have committed."""
    run(url, _READ_ALL[make_url(url).get_backend_name()], "SELECT 1 FROM jobs LIMIT 1")


def run(url: str, *statements: str, **values: object) -> None:
    """Run statements in one transaction on a node."""
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement), values)
    engine.dispose()


@pytest.fixture
def touch(urls: list[str]) -> Callable[[int], None]:
    """Change a job's row on the second node, and wait until the first has it: a transaction there that has changed it conflicts."""

    def change(job_id: int) -> None:
        run(urls[1], "UPDATE jobs SET progress = COALESCE(progress, 0) + 0.001 WHERE id = :id", id=job_id)
        catch_up(urls[0])

    return change
