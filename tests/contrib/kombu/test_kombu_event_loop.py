"""Deliveries on an event loop of Kombu, as in a worker of Celery."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import kombu
import pytest
from kombu import Queue
from kombu.asynchronous import Hub

from queue_db import StorageError
from queue_db.contrib.kombu import channel, event_loop, transport
from tests.contrib.kombu.receiving import consuming, publish
from tests.patience import HOURS, PATIENCE


@pytest.fixture(autouse=True)
def _only_woken(monkeypatch):
    monkeypatch.setattr(event_loop, "_WAIT", HOURS)
    monkeypatch.setattr(event_loop, "_RETRY", 0.01)


@pytest.fixture
def hub() -> Iterator[Hub]:
    made = Hub()
    made.call_repeatedly(0.05, lambda: None)  # the loop turns
    yield made
    made.close()


def turn(hub: Hub, until: Callable[[], object]) -> None:
    """Run the loop until something is true."""
    ends = time.monotonic() + PATIENCE
    while not until() and time.monotonic() < ends:
        hub.run_once()
    assert until()


def test_an_error_of_any_class_leaves_the_event_loop_its_messages(connect, name, hub, monkeypatch):
    here, failed = connect(), threading.Event()
    publish(here, "a", Queue(name))
    there = here.transport
    wait = there.wait

    def fail_once(*given):
        if not failed.is_set():
            failed.set()
            raise RuntimeError("a fault")
        return wait(*given)

    monkeypatch.setattr(there, "wait", fail_once)
    with consuming(here, Queue(name)) as received:
        there.register_with_event_loop(here.connection, hub)
        turn(hub, lambda: received)
        assert failed.is_set()
        assert [message.payload for message in received] == ["a"]


def test_an_error_of_the_database_reaches_who_runs_the_loop(connect, name, hub, monkeypatch):
    here = connect()
    take = channel.Channel.take

    def away(*_):
        raise StorageError("the database is away")

    monkeypatch.setattr(channel.Channel, "take", away)
    with consuming(here, Queue(name)) as received:
        here.transport.register_with_event_loop(here.connection, hub)
        publish(here, "a", Queue(name))
        with pytest.raises(here.connection_errors, match="away"):
            turn(hub, lambda: received)
        monkeypatch.setattr(channel.Channel, "take", take)
        turn(hub, lambda: received)


@pytest.mark.parametrize("change", ["acknowledged", "prefetch count"])
def test_the_loop_delivers_when_a_consumer_may_take_more(connect, name, hub, change):
    here = connect(polling_interval=HOURS)
    for number in range(2):
        publish(here, number, Queue(name))
    with here.channel() as on:
        received = []
        consumer = kombu.Consumer(on, [Queue(name)], on_message=received.append, prefetch_count=1)
        consumer.consume()
        here.transport.register_with_event_loop(here.connection, hub)
        turn(hub, lambda: received)
        for _ in range(3):
            hub.run_once()
        assert len(received) == 1
        if change == "acknowledged":
            threading.Thread(target=received[0].ack).start()
        else:
            consumer.qos(prefetch_count=2)
        turn(hub, lambda: len(received) == 2)


def test_others_of_the_loop_come_between_two_deliveries(connect, name, hub):
    here, turns = connect(), []
    for number in range(channel.MOST_WITHOUT_PREFETCH + 5):
        publish(here, number, Queue(name))
    with consuming(here, Queue(name)) as received:
        here.transport.register_with_event_loop(here.connection, hub)
        hub.on_tick.add(lambda: turns.append(len(received)))
        turn(hub, lambda: len(received) == channel.MOST_WITHOUT_PREFETCH + 5)
        hub.run_once()
    assert set(turns) == {0, channel.MOST_WITHOUT_PREFETCH, channel.MOST_WITHOUT_PREFETCH + 5}


def test_another_queue_gets_its_turn_while_one_is_busy(connect, name, hub, monkeypatch):
    here, most, now = connect(), channel.MOST_WITHOUT_PREFETCH, [0.0]
    monkeypatch.setattr(transport, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for number in range(3 * most):
        publish(here, number, Queue(name))
    with consuming(here, Queue(name), Queue(f"{name}-b")) as received:
        here.transport.register_with_event_loop(here.connection, hub)
        turn(hub, lambda: received)
        publish(here, "b", Queue(f"{name}-b"))
        hub.on_tick.add(lambda: now.append(now.pop() + 1.0))
        turn(hub, lambda: len(received) == 3 * most + 1)
    assert [message.payload for message in received].index("b") == most


def test_events_are_drained_beside_a_loop(connect, name, hub):
    here = connect()
    with consuming(here, Queue(name)) as received:
        here.transport.register_with_event_loop(here.connection, hub)
        with pytest.raises(TimeoutError):
            here.drain_events(timeout=0.01)
        publish(here, "a", Queue(name))
        assert received.until(1) == ["a"]


def test_messages_that_cannot_be_claimed_are_asked_for_after_pauses(connect, name, monkeypatch):
    here, asked = connect(), []
    publish(here, "a", Queue(name))
    arrivals = here.transport.arrivals
    claim, wait = channel.Channel._claim, arrivals.wait
    monkeypatch.setattr(channel.Channel, "_claim", lambda *_, **__: [])  # as if their rows were locked

    def record(queues, seconds):
        asked.append(list(queues))
        if len(asked) == 6:
            monkeypatch.setattr(channel.Channel, "_claim", claim)
        return wait(queues, seconds)

    monkeypatch.setattr(arrivals, "wait", record)
    with consuming(here, Queue(name)) as received:
        assert received.until(1) == ["a"]
    assert asked[:6] == [[name], []] * 3 or asked[1:7] == [[name], []] * 3  # the first one ends where consuming has woken it
