"""Pauses and rates of a queue hold for its streams too."""

from __future__ import annotations

from queue_db import QueueDB
from queue_db.testing import SettableClock
from tests.spark.streams.conftest import enqueue, open_stream, snapshot


def test_nothing_is_claimed_while_the_queue_is_paused(db: QueueDB, name: str) -> None:
    enqueue(db, name, 3)
    reader = open_stream(db, name)
    start = reader.initial()
    db.queue(name).pause()
    assert reader.allocate(start) == start
    assert not snapshot(db, name).held
    db.queue(name).resume()
    assert len(reader.ids(start, reader.allocate(start))) == 3


def test_a_batch_that_is_claimed_is_read_and_completed_in_a_pause(db: QueueDB, name: str) -> None:
    enqueue(db, name, 3)
    reader = open_stream(db, name)
    start = reader.initial()
    end = reader.allocate(start)
    db.queue(name).pause()
    assert reader.allocate(start) == end, "the same claim again"
    assert len(reader.ids(start, end)) == 3
    assert reader.allocate(end) == end
    assert snapshot(db, name).places == []


def test_a_rate_limits_claims(ours: QueueDB, clock: SettableClock, name: str) -> None:
    queue = ours.queue(name)
    enqueue(ours, name, 20)
    queue.limit(rate=6, per=60.0)
    reader = open_stream(ours, name)
    start = reader.initial()
    first = reader.allocate(start, limit=4)
    assert len(reader.ids(start, first)) == 4
    second = reader.allocate(first, limit=100)
    assert len(reader.ids(first, second)) == 2
    assert reader.allocate(second) == second
    clock.advance(30)
    third = reader.allocate(second)
    assert len(reader.ids(second, third)) == 3


def test_an_unused_part_of_a_rate_is_refunded(ours: QueueDB, clock: SettableClock, name: str) -> None:
    queue = ours.queue(name)
    enqueue(ours, name, 1)
    queue.limit(rate=6, per=60.0)
    reader = open_stream(ours, name)
    start = reader.initial()
    first = reader.allocate(start)
    enqueue(ours, name, 9)
    assert len(reader.ids(first, reader.allocate(first))) == 5
