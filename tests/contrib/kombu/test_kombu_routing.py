"""Exchanges, queues and bindings are in the database: what one connection declares, another one uses."""

from __future__ import annotations

import pytest
from kombu import Exchange, Queue
from kombu.exceptions import ChannelError

from queue_db import ArgumentError, QueueDB
from queue_db.contrib.kombu import upkeep
from queue_db.contrib.kombu.topology import EXPIRY, Topology
from tests.contrib.kombu.receiving import consuming, publish
from tests.patience import wait_for


@pytest.mark.parametrize(
    ("type_", "bound", "reach", "miss"),
    [
        ("direct", "a.b", ["a.b"], ["a", "a.b.c", "a.*", ""]),
        ("topic", "a.*", ["a.b", "a.c"], ["a", "a.b.c", "b.a"]),
        ("topic", "a.#", ["a.b", "a.b.c"], ["b", "aa.b"]),
        ("topic", "#", ["a", "a.b"], []),
        ("fanout", "a", ["a", "b", ""], []),
    ],
)
def test_an_exchange_leads_messages_to_the_queues_of_others(connect, name, type_, bound, reach, miss):
    here, there = connect(), connect()
    queue = Queue(name, Exchange(f"x-{name}", type=type_), routing_key=bound)
    with consuming(there, queue, no_ack=True) as received:
        for key in [*miss, *reach]:
            publish(here, f"to {key}", exchange=f"x-{name}", routing_key=key)
        assert received.until(len(reach)) == [f"to {key}" for key in reach]
        assert received.no_more()


def test_another_exchange_is_not_meant(connect, name):
    here = connect()
    with consuming(here, Queue(name, Exchange(f"x-{name}", type="fanout")), no_ack=True) as received:
        publish(here, "lost", exchange=f"x-{name}.more", routing_key="a")
        publish(here, "mine", exchange=f"x-{name}", routing_key="a")
        assert received.until(1) == ["mine"]
        assert received.no_more()


def test_a_message_for_several_queues_is_one_transaction(connect, name, open_db):
    here = connect()
    exchange = Exchange(f"x-{name}", type="fanout")
    good, other = Queue(name, exchange), Queue(f"{name}-2", exchange)
    with here.channel() as channel:
        good(channel).declare()
        other(channel).declare()
    db = open_db()
    publish(here, "both", exchange=exchange)
    assert [db.queue(queue).stats().available for queue in (name, f"{name}-2")] == [1, 1]
    db.queue(f"{name}-2").purge()
    # The second enqueue fails: the first one is rolled back with it.
    topology = Topology(db)
    topology.bind(name, f"y-{name}", "", "fanout")
    with pytest.raises(ArgumentError):
        here.default_channel._publish([name, "x" * 200], {"properties": {}, "body": ""})
    assert db.queue(name).stats().available == 1


def test_an_unbound_queue_gets_nothing(connect, name):
    here = connect()
    queue = Queue(name, Exchange(f"x-{name}", type="direct"), routing_key="k")
    with consuming(here, queue, no_ack=True) as received, here.channel() as channel:
        queue(channel).unbind_from(queue.exchange, "k")
        publish(here, "lost", exchange=f"x-{name}", routing_key="k")
        assert received.no_more()


def test_a_passive_declaration_asks(connect, name):
    here, there = connect(), connect()
    with here.channel() as channel, there.channel() as other:
        with pytest.raises(ChannelError, match="NOT_FOUND"):
            channel.queue_declare(name, passive=True)
        other.queue_declare(name)
        publish(there, "one", exchange="", routing_key=name)
        assert channel.queue_declare(name, passive=True).message_count == 1
        with pytest.raises(ChannelError, match="NOT_FOUND"):
            channel.exchange_declare(f"x-{name}", passive=True)
        with pytest.raises(ChannelError, match="NOT_FOUND"):
            channel.queue_bind(name, f"x-{name}")


def test_a_deleted_queue_leaves_nothing(connect, name, open_db):
    here = connect()
    queue = Queue(name, Exchange(f"x-{name}", type="fanout"))
    publish(here, "gone", queue)
    with here.channel() as channel:
        queue(channel).delete()
    assert remains(open_db(), name) == []


def test_an_exclusive_queue_goes_with_its_consumer(connect, name, open_db):
    here = connect()
    with consuming(here, Queue(name, Exchange(f"x-{name}", type="fanout"), exclusive=True, auto_delete=True)):
        assert remains(open_db(), name)
    assert remains(open_db(), name) == []


def test_a_queue_that_nobody_uses_expires(connect, name, open_db):
    here, db = connect(), open_db()
    queue = Queue(name, Exchange(f"x-{name}", type="fanout"), expires=0.05)
    publish(here, "gone", queue)
    kept = Queue(f"{name}-kept", Exchange(f"x-{name}", type="fanout"))
    publish(here, "stays", kept)
    topology = Topology(db)
    while remains(db, name):
        topology.sweep()
    assert db.queue(f"{name}-kept").stats().available == 1


@pytest.fixture
def impatient(monkeypatch):
    """A queue is used again after a ten-thousandth of the time in which it expires."""
    monkeypatch.setattr(upkeep, "_SHARE", 1e-4)


def test_a_queue_with_a_consumer_does_not_expire(connect, name, open_db, impatient):
    here, db = connect(), open_db()
    with consuming(here, Queue(name, expires=300), no_ack=True):
        # Its job is delayed again and again: a later version of the same row.
        seen = set()
        while len(seen) < 4:
            seen.add(expiry_of(db, name).version)
        assert remains(db, name)


@pytest.mark.parametrize(("auto_delete", "level"), [(False, "WARNING"), (True, "INFO")])
def test_a_queue_that_expired_under_its_consumer_is_declared_again(connect, name, open_db, impatient, caplog, auto_delete, level):
    caplog.set_level("INFO", "queue_db.kombu")
    here, topology = connect(), Topology(open_db())
    queue = Queue(name, Exchange(f"x-{name}", type="fanout"), expires=300, auto_delete=auto_delete)
    with consuming(here, queue, no_ack=True) as received:
        topology.delete(name)
        wait_for(lambda: topology.queues_for(f"x-{name}", "") == [name])
        publish(here, "here", exchange=f"x-{name}")
        assert received.until(1) == ["here"]
    assert {one.levelname for one in caplog.records if name in one.getMessage()} == {level}


def test_a_name_that_is_too_long_is_named(connect):
    with connect().channel() as on:
        on.queue_declare("x" * 94, auto_delete=True, exclusive=True)
        with pytest.raises(ArgumentError, match=f"the queue '{'x' * 95}' has 95 characters; 94 is the limit"):
            on.queue_declare("x" * 95)


def test_a_queue_that_was_declared_again_to_stay_stays(connect, name, open_db):
    db = open_db()
    topology = Topology(db)
    topology.declare(name, 0.01)
    topology.delete(name)
    topology.declare(name, None)
    while expiry_of(db, name) is not None:
        topology.sweep()
    assert topology.exists(name)


def expiry_of(db: QueueDB, queue: str):
    found = [job for state in ("available", "scheduled", "running") for job in db.queue(EXPIRY).jobs(state, limit=1000).jobs]
    return next((job for job in found if job.payload["queue"] == queue), None)


def remains(db: QueueDB, queue: str) -> list[str]:
    """What the database has of a queue."""
    routes = [route.name for route in db.routes.list() if route.name.endswith(f":{queue}")]
    return routes + [f"job {job.id}" for job in db.queue(queue).jobs("available").jobs]
