"""What is stuck, and why."""

import json

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import insert, update

from queue_db import QueueDB
from queue_db.instrumentation import prometheus
from queue_db.monitoring.insights import findings
from queue_db.store import Transaction, worker_registry


def stuck(db):
    """What is stuck or slow, as sentences."""
    return [finding.sentence for finding in findings(db)]


@pytest.fixture
def ours(own_url, clock):
    with QueueDB(own_url, clock=clock) as db:
        yield db


def worker(db, name="w", *, state="working", in_hand=0, slots=4, hanging=0):
    values = {
        "host": "here",
        "pid": 1,
        "queues": json.dumps({"mail": slots}),
        "state": state,
        "in_hand": in_hand,
        "stuck": hanging,
        "counters": "{}",
    }
    with db.queue("mail").transaction() as connection:
        worker_registry.heartbeat(Transaction(connection, db.store), name, values)


def test_nothing_is_stuck_where_nothing_waits_for_long(ours, clock):
    mail = ours.queue("mail")
    mail.enqueue("n")
    mail.enqueue("n", delay=3600)
    clock.advance(59)
    assert stuck(ours) == []
    (job,) = mail.claim(lease=3600)
    clock.advance(600)
    assert stuck(ours) == [], "a running job is not stuck"
    assert job.complete()


def test_a_group_that_was_inserted_past_enqueue_is_named(ours):
    mail = ours.queue("mail")
    mail.enqueue_many(("n", None, {"group": group}) for group in ("tidy", "crowded") for _ in range(2))
    jobs = ours.store.tables.jobs
    with mail.transaction() as connection:  # as a JDBC append does
        connection.execute(insert(jobs), [{"queue": "mail", "payload": "1", "group_key": "crowded"}] * 2)
    (found,) = stuck(ours)
    assert found.startswith("group 'crowded' of queue 'mail': 3 of its jobs may be claimed at once, and 1 should be: ")
    mail.limit(per_group=3)
    assert stuck(ours) == []


def test_each_reason_is_named(ours, clock):
    mail = ours.queue("mail")
    mail.enqueue_many([("n", None)] * 3)
    clock.advance(100)
    (found,) = stuck(ours)
    assert found.startswith(
        "queue 'mail': 3 jobs have been due for more than a minute, the oldest for 100 s: no registered worker serves it"
    )
    worker(ours)
    assert "its 1 worker does not keep up" in stuck(ours)[0]
    worker(ours, in_hand=4)
    assert "no free slot: more" in stuck(ours)[0]
    assert not any(finding.stuck for finding in findings(ours))
    worker(ours, in_hand=1, hanging=3)
    assert "no free slot, 3 of them stuck: more" in stuck(ours)[0]
    assert [finding.stuck for finding in findings(ours)] == [False, True]
    worker(ours, hanging=4)
    assert [finding.stuck for finding in findings(ours)] == [True, True]
    assert "worker 'w' has 4 stuck slots" in stuck(ours)[1]
    worker(ours, state="quiet")
    assert "quiet or stopping" in stuck(ours)[0]
    worker(ours)
    mail.limit(concurrency=2, rate=5)
    assert "its 1 worker is held to 2 at once and 5 in 1 s (queue-db queues limit mail --none removes that)" in stuck(ours)[0]
    mail.pause()
    assert "it is paused (queue-db queues resume mail)" in stuck(ours)[0]


def test_a_silent_worker_and_a_late_schedule(ours, clock):
    worker(ours, in_hand=2)
    ours.schedules.set("often", "mail", "n", every=10)
    clock.advance(200)
    silent, late = stuck(ours)
    assert silent == "worker 'w' has sent no heartbeat for 3 min: what it has in hand (2) comes back with the leases"
    assert late.startswith("schedule 'often' is 3 min late: no worker carries schedules out")
    ours.schedules.pause("often")
    assert len(stuck(ours)) == 1


def test_what_is_stuck_is_in_the_metrics(ours, clock):
    """Read once by the process that counts, and not by each scrape."""
    mail, paused = ours.queue("mail"), ours.queue("paused")
    mail.enqueue_many([("n", None)] * 3)
    paused.enqueue("n")
    paused.pause()
    with mail.transaction() as connection:
        connection.execute(update(ours.store.tables.jobs).where(ours.store.tables.jobs.c.queue == "mail").values(unknown_since=1))
    worker(ours, "gone", hanging=2)
    ours.schedules.set("often", "mail", "n", every=10)
    feed = ours.feed("news")
    with feed.cursor("mine"):
        pass
    for _ in range(4):
        feed.publish("n")
    clock.advance(200)
    worker(ours, hanging=1)
    worker(ours, "other", state="quiet")
    assert ours.metrics.take()
    registry = CollectorRegistry()
    for one in prometheus.collectors(ours, ["mail", "paused"], lambda name: True):
        registry.register(one)

    def value(name, **labels):
        return registry.get_sample_value(f"queue_db_{name}", labels)

    for _ in range(2):
        assert [value(name, queue="mail") for name in ("workers", "paused", "unknown_kinds")] == [1, 0, 3]
        assert [value(name, queue="paused") for name in ("workers", "paused", "unknown_kinds")] == [0, 1, 0]
        assert [value(name) for name in ("silent_workers", "stuck_slots", "late_schedules")] == [1, 3, 1]
        assert value("schedule_late_seconds") == 190
        assert value("cursor_behind", feed="news", cursor="mine") == 4
        ours.schedules.pause("often")  # noticed by the next count
    assert [(one.queue, one.workers, one.paused, one.unknown) for one in ours.metrics.latest()][:2] == [
        ("mail", 1, False, 3),
        ("paused", 0, True, 0),
    ]
    clock.advance(86_400)
    assert ours.metrics.take()
    assert value("late_schedules") == 0
