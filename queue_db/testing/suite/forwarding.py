"""From feeds to queues: each message becomes one job."""

from __future__ import annotations

from typing import Any

import pytest

from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, CursorHeldError, LeaseLostError
from queue_db.feeds import Feed
from queue_db.feeds.forwarding import JobTemplate, forward
from queue_db.queue import Queue
from queue_db.store import Transaction

__all__ = ["TestForward"]


class TestForward:
    """``feed.forward``: the jobs and the position of the cursor are one transaction."""

    def test_each_message_becomes_one_job(self, feed: Feed, queue: Queue) -> None:
        feed.publish("paid", {"order": 7}, headers={"trace": "00-1"})
        feed.publish_many([("shipped", {"order": number}) for number in range(4)])
        assert feed.forward("billing", queue.name, limit=2) == 5
        assert feed.forward("billing", queue.name) == 0
        feed.publish("late")
        assert feed.forward("billing", queue.name, kind="message") == 1
        jobs = queue.claim(limit=10)
        assert [job.kind for job in jobs] == ["paid", *["shipped"] * 4, "message"]
        assert [job.payload for job in jobs] == [{"order": 7}, *({"order": number} for number in range(4)), None]
        assert jobs[0].headers == {"trace": "00-1"}
        assert feed.cursors()[0].behind == 0

    def test_two_cursors_are_apart(self, feed: Feed, queue: Queue) -> None:
        feed.publish_many([("n", number) for number in range(3)])
        assert feed.forward("first", queue.name) == 3
        assert feed.forward("second", queue.name, start="end") == 0
        assert queue.stats().available == 3

    def test_jobs_of_one_key_run_in_the_order_of_the_feed(self, feed: Feed, queue: Queue) -> None:
        feed.publish_many([("n", number, {"key": f"order-{number % 2}"}) for number in range(6)])
        feed.publish("n", "alone")
        feed.forward("billing", queue.name, group=True, limit=4)
        seen: list[object] = []
        while jobs := queue.claim(limit=10):
            assert len({job.group for job in jobs}) == len(jobs), "two jobs of a group at a time"
            seen += [job.payload for job in jobs]
            for job in jobs:
                job.complete()
        assert [one for one in seen if one in {0, 2, 4}] == [0, 2, 4]
        assert [one for one in seen if one in {1, 3, 5}] == [1, 3, 5]
        feed.publish_many([("n", 7), ("n", 8)])
        feed.forward("billing", queue.name, group="one at a time")
        assert [job.group for job in queue.claim(limit=10)] == ["one at a time"]

    def test_who_has_lost_the_cursor_enqueues_nothing(self, feed: Feed, queue: Queue, rival: QueueDB) -> None:
        feed.publish_many([("n", number) for number in range(3)])
        with feed.cursor("billing") as cursor:
            messages = cursor.read()
            with pytest.raises(CursorHeldError):
                rival.feed(feed.name).forward("billing", queue.name)
            assert rival.feed(feed.name).forward("billing", queue.name, take_over=True) == 3
            with pytest.raises(LeaseLostError):
                forward(feed.core, cursor, messages, JobTemplate(queue.name))
        assert queue.stats().available == 3

    def test_jobs_and_position_are_one_transaction(self, feed: Feed, queue: Queue) -> None:
        feed.publish("n")

        def fail(tx: Transaction) -> None:
            queue.enqueue("n", using=tx.connection)
            raise ZeroDivisionError

        with feed.cursor("billing") as cursor, pytest.raises(ZeroDivisionError):
            cursor.transfer(cursor.read(), fail)
        assert (queue.stats().available, feed.cursors()[0].behind) == (0, 1)
        assert feed.forward("billing", queue.name) == 1

    def test_impossible_arguments_are_refused(self, feed: Feed) -> None:
        refused: list[dict[str, Any]] = [{"queue": ""}, {"group": 7}, {"limit": 0}, {"cursor": ""}, {"kind": ""}, {"idle": -1}]
        for bad in refused:
            with pytest.raises(ArgumentError):
                feed.forward(**{"cursor": "c", "queue": "q", **bad})
