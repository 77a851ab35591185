"""The server becomes read-only and another one is promoted behind the same address: clients follow, without a restart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx2
import pytest
from sqlalchemy import create_engine

from queue_db import QueueDB, TransientStorageError
from queue_db.aio import AsyncQueueDB
from queue_db.service import Settings, service
from queue_db.service.live.incidents import IncidentType
from tests.aio.loop import for_asyncio, on_the_loop
from tests.faults.pair import DEMOTE, PROMOTE, Pair, paired
from tests.patience import PATIENCE, wait_for
from tests.servers.proxy import Proxy
from tests.service.conftest import serving_app
from tests.surviving_worker import works_before_and_after

pytestmark = pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="module")


@pytest.fixture(scope="module")
def pair(kind: str) -> Iterator[Pair]:
    with paired(kind) as started:
        yield started


@pytest.fixture
def proxy(pair: Pair) -> Iterator[Proxy]:
    pair.set_first(PROMOTE, read_only=False)
    with Proxy.before(pair.first.url()) as between:
        yield between


def test_a_client_follows_with_the_next_verb_also_with_connections_that_were_idle(pair: Pair, proxy: Proxy, name: str) -> None:
    with QueueDB(proxy.url(pair.url(pair.first))) as db, QueueDB(pair.url(pair.second)) as promoted:
        queue = db.queue(name)
        held = [db.database.connections.take() for _ in range(4)]
        for connection in held:
            db.database.connections.put_back(connection)
        queue.enqueue("before")
        pair.fail_over(proxy)
        for number in range(4):
            assert queue.enqueue("after", number) is not None
        assert [job.payload for job in promoted.queue(name).claim(10)] == [0, 1, 2, 3]


def test_a_claim_follows(pair: Pair, proxy: Proxy, name: str) -> None:
    with QueueDB(proxy.url(pair.url(pair.first))) as db, QueueDB(pair.url(pair.second)) as promoted:
        promoted.queue(name).enqueue("there", 1)
        db.queue(name).enqueue("here", 1)
        pair.fail_over(proxy)
        (there,) = db.queue(name).claim()
        assert there.kind == "there"
        assert there.complete()


def test_while_nobody_is_promoted_the_error_is_transient(pair: Pair, proxy: Proxy, name: str) -> None:
    with QueueDB(proxy.url(pair.url(pair.first))) as db:
        queue = db.queue(name)
        queue.enqueue("before")
        pair.set_first(DEMOTE, read_only=True)
        with pytest.raises(TransientStorageError, match="read.only") as refused:
            queue.enqueue("during")
        assert refused.value.sqlstate in ("25006", "1290", "1836")
        with pytest.raises(TransientStorageError), queue.transaction() as connection:
            queue.enqueue("during", using=connection)
        proxy.lead_to(pair.second.url())
        with queue.transaction() as connection:
            queue.enqueue("after", using=connection)
        assert [job.kind for job in queue.claim(10)] == ["after"]


def test_a_callers_engine_follows_too(pair: Pair, proxy: Proxy, name: str) -> None:
    engine = create_engine(proxy.url(pair.url(pair.first)), pool_size=5)
    connections = [engine.connect() for _ in range(5)]
    for connection in connections:
        connection.close()
    queue = QueueDB(engine).queue(name)
    queue.enqueue("before")
    pair.fail_over(proxy)
    queue.enqueue("after")
    assert [job.kind for job in queue.claim(10)] == ["after"]
    engine.dispose()


def test_asyncio_follows(pair: Pair, proxy: Proxy, name: str) -> None:
    async def follow() -> list[str]:
        async with AsyncQueueDB(for_asyncio(proxy.url(pair.url(pair.first)))) as db:
            queue = db.queue(name)
            await queue.enqueue("before")
            pair.fail_over(proxy)
            await queue.enqueue("after")
            return [job.kind for job in await queue.claim(10)]

    assert on_the_loop(follow()) == ["after"]


def test_a_worker_follows_without_a_restart(pair: Pair, proxy: Proxy, name: str) -> None:
    with QueueDB(proxy.url(pair.url(pair.first))) as db, QueueDB(pair.url(pair.second)) as promoted:
        works_before_and_after(db, name, lambda: pair.fail_over(proxy), promoted)


# --- the service ------------------------------------------------------------------------------------------------------

#: Types that say how the database is.
STATES = {IncidentType.DATABASE_READ_ONLY, IncidentType.DATABASE_AWAY, IncidentType.DATABASE_BACK}


@contextmanager
def visited(db: QueueDB, name: str) -> Iterator[tuple[Visitor, list[IncidentType]]]:
    """A client of a service of this database, and what the service has said of the database."""
    app = service(db, Settings(closed=False))
    found: list[IncidentType] = []
    app.state.service.incidents.add(lambda one: found.append(one.type) if one.type in STATES else None)
    app.state.service.outage.look()
    with serving_app(app) as url, httpx2.Client(base_url=url, timeout=PATIENCE) as client:
        yield Visitor(client, name), found


@dataclass
class Visitor:
    client: httpx2.Client
    name: str

    def enqueue(self) -> int:
        return self.client.post(f"/api/v1/queues/{self.name}/jobs", json={"kind": "k"}).status_code

    def sees_a_button(self) -> bool:
        return f"/queues/{self.name}/pause" in self.client.get(f"/queues/{self.name}").text

    def reads(self) -> bool:
        answer = self.client.get("/metrics")
        return self.client.get("/api/v1/queues").status_code == 200 and "queue_db_up 1.0" in answer.text


def test_a_service_is_back_only_when_changes_are_made_again(pair: Pair, proxy: Proxy, name: str) -> None:
    with QueueDB(proxy.url(pair.url(pair.first))) as db, visited(db, name) as (visitor, found):
        assert visitor.enqueue() == 201
        assert visitor.sees_a_button()
        pair.set_first(DEMOTE, read_only=True)
        # Each is tried for three seconds. Meanwhile the service asks whether what has failed works again.
        assert [visitor.enqueue() for _ in range(2)] == [503, 503]
        assert visitor.reads()
        assert not visitor.sees_a_button()
        assert found == [IncidentType.DATABASE_READ_ONLY]
        pair.set_first(PROMOTE, read_only=False)
        wait_for(lambda: len(found) > 1)
        assert visitor.enqueue() == 201
        assert visitor.sees_a_button()
    assert found == [IncidentType.DATABASE_READ_ONLY, IncidentType.DATABASE_BACK]


def test_a_service_that_starts_on_a_standby_follows_the_promotion(pair: Pair, proxy: Proxy, name: str) -> None:
    pair.set_first(DEMOTE, read_only=True)
    with QueueDB(proxy.url(pair.url(pair.first))) as db, visited(db, name) as (visitor, found):
        assert found == [IncidentType.DATABASE_READ_ONLY]
        assert not visitor.sees_a_button()
        assert visitor.enqueue() == 503
        proxy.lead_to(pair.second.url())
        wait_for(lambda: len(found) > 1)
        assert visitor.enqueue() == 201
        assert visitor.sees_a_button()
    assert found == [IncidentType.DATABASE_READ_ONLY, IncidentType.DATABASE_BACK]


def test_a_service_that_loses_its_server_and_finds_a_standby_is_not_back(pair: Pair, proxy: Proxy, name: str) -> None:
    with QueueDB(proxy.url(pair.url(pair.first))) as db, visited(db, name) as (visitor, found):
        assert visitor.enqueue() == 201
        pair.set_first(DEMOTE, read_only=True)
        proxy.refuse()
        proxy.cut()
        assert visitor.client.get("/api/v1/queues").status_code == 503
        assert found == [IncidentType.DATABASE_AWAY]
        proxy.forward()
        wait_for(lambda: len(found) > 1)
        assert visitor.reads()
        proxy.lead_to(pair.second.url())
        wait_for(lambda: len(found) > 2)
        assert visitor.enqueue() == 201
    assert found == [IncidentType.DATABASE_AWAY, IncidentType.DATABASE_READ_ONLY, IncidentType.DATABASE_BACK]
