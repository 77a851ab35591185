"""A URL with the addresses of all nodes: a node that is dead or without its cluster is left for the next one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import create_engine, make_url

from queue_db import LeasedJob, QueueDB, TransientStorageError
from queue_db.aio import AsyncQueueDB
from queue_db.database.addresses import Address, parsed, placed
from queue_db.worker import Worker
from tests.aio.loop import for_asyncio, on_the_loop
from tests.clusters.conftest import catch_up, run
from tests.patience import PATIENCE
from tests.servers.galera import Galera

pytestmark = pytest.mark.parametrize("cluster", ["galera"], indirect=True, scope="session")


@pytest.fixture
def all_nodes(urls: list[str]) -> str:
    parts = [make_url(url) for url in urls]
    url = placed(parsed(urls[0])._replace(host=None, port=None), [Address(str(one.host), str(one.port)) for one in parts])
    return url.render_as_string(hide_password=False)


@contextmanager
def alone(cluster: Galera, urls: list[str]) -> Iterator[None]:
    """The first node has no cluster; the others go on without it."""
    engine = create_engine(urls[0], isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:  # a node without its cluster refuses what SQLAlchemy asks at the start of a new one
        before = connection.exec_driver_sql("SELECT @@wsrep_cluster_address").scalar_one()
        connection.exec_driver_sql("SET GLOBAL wsrep_cluster_address = ''")
        try:
            cluster.wait(0, size=0)
            cluster.wait(1, 2, size=2)
            yield
        finally:
            connection.exec_driver_sql(f"SET GLOBAL wsrep_cluster_address = '{before}'")
            cluster.wait()
    engine.dispose()


def test_a_node_without_quorum_is_left_for_the_next(cluster: Galera, urls: list[str], all_nodes: str, name: str) -> None:
    with QueueDB(all_nodes) as db:
        queue = db.queue(name)
        queue.enqueue("job", "before")
        (held,) = queue.claim(lease=600)
        with alone(cluster, urls):
            queue.enqueue("job", "during")
            assert held.complete()
            # What opens now does not begin with the node that is alone.
            with QueueDB(all_nodes) as late:
                late.queue(name).enqueue("job", "late")
                assert late.counters.failovers == 0
            assert db.counters.failovers == 1
            nowhere = placed(parsed(all_nodes), [Address("127.0.0.1", "1"), Address("127.0.0.1", str(make_url(urls[0]).port))])
            with pytest.raises(TransientStorageError, match="it is not ready: it has no majority"):
                QueueDB(nowhere)
        catch_up(urls[1])
        with QueueDB(urls[1]) as other:
            assert sorted(str(job.payload) for job in other.queue(name).claim(10)) == ["during", "late"]


def test_a_lease_holds_on_the_next_node_although_that_one_is_a_moment_behind(all_nodes: str, name: str) -> None:
    with QueueDB(f"{all_nodes}&nodes=all") as db:
        queue = db.queue(name)
        queue.enqueue_many([("job", number) for number in range(200)])
        for _ in range(200):
            (job,) = queue.claim(lease=600)
            with db.database.begin():  # it has the connection of the claim
                assert job.complete()


def test_a_node_without_quorum_that_answers_reads_is_left_too(cluster: Galera, urls: list[str], all_nodes: str, name: str) -> None:
    run(urls[0], "SET GLOBAL wsrep_dirty_reads = 1")
    try:
        with QueueDB(all_nodes) as db:
            queue = db.queue(name)
            queue.enqueue("job", "before")
            with alone(cluster, urls):
                queue.enqueue("job", "during")
                assert len(queue.claim(10)) == 2
    finally:
        run(urls[0], "SET GLOBAL wsrep_dirty_reads = 0")


def test_tasks_leave_a_node_without_quorum(cluster: Galera, urls: list[str], all_nodes: str, name: str) -> None:
    async def work() -> int:
        async with AsyncQueueDB(for_asyncio(all_nodes)) as db:
            queue = db.queue(name)
            await queue.enqueue("job", "before")
            with alone(cluster, urls):
                await queue.enqueue("job", "during")
                assert len(await queue.claim(10)) == 2
            return db.counters.failovers

    assert on_the_loop(work()) == 1


@pytest.mark.parametrize("options", ["", "&nodes=all"])
def test_a_worker_survives_the_death_of_its_node(cluster: Galera, urls: list[str], all_nodes: str, name: str, options: str) -> None:
    done: dict[object, threading.Event] = {kind: threading.Event() for kind in ("before", "after")}
    try:
        with QueueDB(all_nodes + options) as db, QueueDB(urls[1]) as other:
            worker = Worker(db, name)

            @worker.handles(None)
            def work(job: LeasedJob) -> None:
                done[job.kind].set()

            with worker:
                other.queue(name).enqueue("before")
                assert done["before"].wait(PATIENCE)
                cluster.nodes[0].kill()
                cluster.wait(1, 2, size=2)
                other.queue(name).enqueue("after")
                assert done["after"].wait(PATIENCE)
            catch_up(urls[1])
            assert other.queue(name).stats().running == 0
    finally:
        cluster.nodes[0].start()
        cluster.wait()
