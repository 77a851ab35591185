"""The exported conformance suite on clusters, by a URL with the addresses of all nodes, as a user points it at one.

Where several nodes take changes, the sessions of a test are on different nodes.
"""

from __future__ import annotations

import itertools

import pytest
from sqlalchemy import make_url

from queue_db import QueueDB
from queue_db.database import addresses
from queue_db.testing.suite import *  # noqa: F403
from queue_db.testing.suite import Notes
from tests.servers.cluster import Cluster
from tests.servers.postgresql_ha import PostgreSQLCluster

# Not on a group with several primaries, which loses parts of transactions.
pytestmark = pytest.mark.parametrize(
    "cluster", ["galera", "group-replication-single", "postgresql-ha"], indirect=True, scope="session"
)


@pytest.fixture(scope="session")
def url(cluster: Cluster | PostgreSQLCluster) -> str:
    """A migrated database. Nodes that take no changes come first: each connection must find one that does."""
    writers = cluster.writers()
    urls = [make_url(one) for one in cluster.create_database()]
    nodes = [urls[number] for number in sorted(range(len(urls)), key=writers.__contains__)]
    of_none = urls[0]._replace(host=None, port=None).update_query_dict({"nodes": "all"} if len(writers) > 1 else {})
    of_all = addresses.placed(of_none, [addresses.Address(str(node.host), str(node.port)) for node in nodes])
    found = of_all.render_as_string(hide_password=False)
    with QueueDB(found) as db:
        db.migrate()
    return found


@pytest.fixture(autouse=True)
def sessions_in_turn(cluster: Cluster | PostgreSQLCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first node of an engine is not chosen by chance: each engine of a test begins at the next node."""
    turn = itertools.count()
    monkeypatch.setattr(addresses.random, "randrange", lambda number: next(turn) % number)


def test_the_sessions_of_a_test_are_on_all_nodes_that_take_changes(
    cluster: Cluster | PostgreSQLCluster,
    db: QueueDB,
    rival: QueueDB,
    notes: Notes,
) -> None:
    ask = "SELECT inet_server_port()" if db.database.engine.dialect.name == "postgresql" else "SELECT @@port"
    ports = set()
    for engine in (db.database.engine, rival.database.engine, notes.engine):
        with engine.connect() as connection:
            ports.add(connection.exec_driver_sql(ask).scalar_one())
    assert len(ports) == len(cluster.writers())
