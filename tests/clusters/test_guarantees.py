"""What holds although no node sees the locks of another, and although each has a clock of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from sqlalchemy import func, select

from queue_db import QueueDB
from queue_db.limits import store as limits
from queue_db.routes.tables import route_tables
from queue_db.store import Transaction
from queue_db.testing import SettableClock
from tests.clusters.conftest import catch_up
from tests.patience import PATIENCE
from tests.races.interleaving import at_once, between


def test_workers_on_two_nodes_never_share_more_than_the_concurrency(nodes: list[QueueDB], urls: list[str], name: str) -> None:
    nodes[0].queue(name).limit(concurrency=4)
    for url in urls:
        catch_up(url)
    both = threading.Barrier(2)

    def take(db: QueueDB, worker: str) -> int | None:
        def change(tx: Transaction) -> int | None:
            share = limits.take_share(tx, name, worker, 4, 60_000_000)
            with suppress(threading.BrokenBarrierError):
                both.wait(PATIENCE)  # the first run of each has not committed yet
            both.abort()
            return share

        return db.core.write("take_share", change)

    shares = at_once(lambda: take(nodes[0], "a"), lambda: take(nodes[1], "b"))
    assert sorted(shares) == [0, 4], shares  # type: ignore[type-var]


def test_jobs_of_a_group_run_one_at_a_time(nodes: list[QueueDB], urls: list[str], name: str) -> None:
    groups, jobs = ("a", "b"), 15
    for number in range(jobs):
        for group in groups:
            nodes[number % 3].queue(name).enqueue("mail", [group, number], group=group)
    for url in urls:
        catch_up(url)
    guard, running, order, overlaps = threading.Lock(), set[str](), dict[str, list[int]](a=[], b=[]), list[object]()

    def work(db: QueueDB) -> None:
        queue = db.queue(name)
        while sum(map(len, order.values())) < jobs * len(groups):
            for job in queue.claim(limit=2, lease=600):
                group, number = job.payload
                with guard:
                    overlaps.extend([job] if group in running else [])
                    running.add(group)
                    order[group].append(number)
                with guard:
                    running.discard(group)
                assert job.complete()

    answers = at_once(*(lambda db=db: work(db) for db in nodes))
    assert answers == [None] * 3
    assert not overlaps
    assert all(len(set(numbers)) == jobs for numbers in order.values())


def test_each_job_of_a_batch_has_the_id_that_was_returned(nodes: list[QueueDB], urls: list[str], name: str) -> None:
    def add(node: int) -> dict[int, list[int]]:
        found = {}
        for first in range(0, 50, 5):
            ids = nodes[node].queue(name).enqueue_many([("mail", [node, number]) for number in range(first, first + 5)])
            found |= {job: [node, number] for job, number in zip(ids, range(first, first + 5), strict=True)}
        return found

    answers = at_once(*(lambda n=n: add(n) for n in range(3)))
    assert not [one for one in answers if isinstance(one, Exception)], answers
    expected = {job: payload for answer in answers for job, payload in answer.items()}  # type: ignore[union-attr]
    for url in urls:
        catch_up(url)
    assert {job.id: job.payload for job in nodes[0].queue(name).peek(limit=1000)} == expected
    assert len(expected) == 150


def test_an_occurrence_of_a_schedule_is_enqueued_once(
    open_nodes: Callable[..., list[QueueDB]], urls: list[str], name: str, clock: SettableClock
) -> None:
    nodes = open_nodes(clock=clock)
    nodes[0].schedules.set(name, name, "tick", every=60)
    for url in urls:
        catch_up(url)
    for _ in range(5):
        clock.advance(60)
        ticks = at_once(*(db.schedules.tick for db in nodes))
        assert [one[0] for one in ticks if not isinstance(one, Exception)].count(1) == 1, ticks
        for url in urls:
            catch_up(url)
    assert nodes[2].queue(name).stats().available == 5
    nodes[0].schedules.remove(name)


def test_no_subscription_outlives_its_route(nodes: list[QueueDB], urls: list[str], name: str) -> None:
    nodes[0].routes.set(name, count=name)
    catch_up(urls[1])

    def subscribe() -> bool:
        added = nodes[0].routes.subscribe("a.*", name)
        catch_up(urls[1])
        return added

    with between(nodes[1].database.engine, "DELETE FROM JOBS_ROUTES", subscribe) as subscribed:
        assert nodes[1].routes.remove(name)
    assert subscribed == [True]
    left = select(func.count()).where(route_tables(nodes[1].core.store.tables).subscriptions.c.route == name)
    assert nodes[1].core.read("left", lambda tx: tx.connection.execute(left).scalar()) == 0


@pytest.mark.parametrize("skew", [-2.0, 2.0])
def test_a_lease_lasts_on_a_node_whose_clock_differs_by_two_seconds(
    open_nodes: Callable[..., list[QueueDB]], urls: list[str], name: str, skew: float
) -> None:
    here = open_nodes()[0]
    there = QueueDB(urls[1], clock=lambda: round((time.time() + skew) * 1e6))
    with there:
        here.queue(name).enqueue("mail", 1)
        catch_up(urls[1])
        (job,) = here.queue(name).claim(lease=30)
        catch_up(urls[1])
        assert there.queue(name).claim() == []
        assert job.complete()
