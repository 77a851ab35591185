"""Controls and settings that two clients change at the same time: none of them is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any

import httpx2
import pytest

from queue_db import Controls, QueueDB
from queue_db.errors import ArgumentError
from tests.patience import PATIENCE

# Where one read all controls and wrote all of them, one of two changes was lost in three rounds of four.
ROUNDS = 20


@pytest.fixture
def at_once() -> Iterator[Callable[..., list[Any]]]:
    """Call functions at the same time, each in a thread of its own; what they return."""
    with ThreadPoolExecutor(4) as pool:

        def call(*functions: Callable[[], Any]) -> list[Any]:
            barrier = threading.Barrier(len(functions))

            def begin(function: Callable[[], Any]) -> Any:
                barrier.wait(PATIENCE)
                return function()

            return [one.result(PATIENCE) for one in [pool.submit(begin, function) for function in functions]]

        yield call


def test_no_limit_is_lost_to_a_change_of_another(
    client: httpx2.Client, db: QueueDB, name: str, at_once: Callable[..., list[httpx2.Response]]
) -> None:
    def change(queue: str, **body: Any) -> Callable[[], httpx2.Response]:
        return lambda: (
            client.patch(f"/api/v1/queues/{queue}/limits", json=body) if body else client.post(f"/api/v1/queues/{queue}/pause")
        )

    for number in range(ROUNDS):
        queue = f"{name}-{number}"
        changes = [{"concurrency": 7}, {"rate": 5, "per": 60}, {"per_group": 3}, {}]
        answers = at_once(*(change(queue, **body) for body in changes))
        assert [one.status_code for one in answers] == [200] * 4, [one.text for one in answers]
        assert db.queue(queue).controls() == Controls(paused=True, concurrency=7, rate=5, per=60.0, per_group=3), number


def test_two_changes_of_a_feed_do_not_let_its_messages_expire_before_their_delay(
    db: QueueDB, name: str, at_once: Callable[..., list[bool]]
) -> None:
    """Each fits what was there before, and both together do not."""

    def change(feed: str, **settings: float) -> Callable[[], bool]:
        def run() -> bool:
            try:
                db.feeds.set(feed, **settings)  # type: ignore[arg-type]
            except ArgumentError:
                return False
            return True

        return run

    for number in range(ROUNDS):
        feed = f"{name}-{number}"
        db.feeds.set(feed, claims=True, delay=1, expires_in=100)
        assert sorted(at_once(change(feed, delay=50), change(feed, expires_in=10))) == [False, True], number
        db.feeds.delete(feed)


def test_a_schedule_that_is_set_twice_at_once_has_the_occurrence_of_its_own_rule(
    db: QueueDB, name: str, at_once: Callable[..., list[bool]]
) -> None:
    """One keeps the rule, and so the occurrence; the other changes both."""
    soon, late = 3_600.0, 360_000.0
    for _ in range(ROUNDS):
        db.schedules.set(name, queue=name, kind="mail", every=soon)
        at_once(*(partial(db.schedules.set, name, queue=name, kind="mail", every=every) for every in (soon, late)))
        (found,) = [one for one in db.schedules.list() if one.name == name]
        ahead = (found.next_at - datetime.now(UTC)).total_seconds()
        assert (found.rule, ahead > 2 * soon) in {(f"every {soon:g}", False), (f"every {late:g}", True)}, (found.rule, ahead)
    db.schedules.remove(name)


def test_some_of_the_limits_are_changed_or_all_of_them_set(client: httpx2.Client, db: QueueDB, name: str) -> None:
    url, queue = f"/api/v1/queues/{name}/limits", db.queue(name)
    alone = client.patch(url, json={"per": 60})
    assert (alone.status_code, queue.controls()) == (422, Controls())
    assert "rate" in alone.json()["detail"]
    client.patch(url, json={"rate": 5})
    assert (queue.controls().rate, queue.controls().per) == (5, 1.0)
    client.patch(url, json={"per": 60})
    client.patch(url, json={"rate": 6, "concurrency": 2})
    assert queue.controls() == Controls(concurrency=2, rate=6, per=60.0)
    client.patch(url, json={"per": None})
    assert queue.controls().per == 1.0
    client.patch(url, json={"rate": None, "per_group": 4})
    assert queue.controls() == Controls(concurrency=2, per_group=4)
    assert client.patch(url, json={"rate": None, "per": 3}).status_code == 422
    client.patch(url, json={"concurrency": None, "per_group": None})
    assert queue.controls() == Controls()
    for refused in ({"paused": True}, {}):
        assert client.patch(url, json=refused).status_code == 422
    queue.pause()
    assert client.put(url, json={"rate": 5, "concurrency": 2, "per_group": 3}).json()["controls"]["per"] == 1.0
    client.put(url, json={"concurrency": 4})
    assert queue.controls() == Controls(paused=True, concurrency=4)
    assert client.put(url, json={"per": 3}).status_code == 422
    assert client.put(url, json={}).json()["controls"]["paused"] is True
    assert queue.controls() == Controls(paused=True)
