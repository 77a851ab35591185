"""A job that appears below the remembered position is found within the stated bound, and not much is paid for that."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from queue_db import Queue, QueueDB
from queue_db.model import ClaimResult
from queue_db.store import LowWaterMarks
from queue_db.store.low_water_marks import LONGEST_RESCAN_INTERVAL, SHORTEST_RESCAN_INTERVAL, SLACK
from tests.marks import begin_anew
from tests.plans.filling import fill
from tests.races.interleaving import open_transaction


class Clock:
    """A monotonic clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def marked(queue: Queue, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """A queue of three jobs, due half a minute ago, of which this process has claimed the first."""
    # A claim that takes long on a busy machine does not put the next rescan off.
    monkeypatch.setattr("queue_db.store.low_water_marks._DUTY", 0)
    begin_anew(queue.core, queue.name, clock)
    fill(queue.db, queue.name, 3, due_in=-30)
    assert len(queue.claim(1)) == 1
    return queue


def arrive_late(queue: Queue) -> int:
    """A job by hand, due an hour ago."""
    fill(queue.db, queue.name, 1, due_in=-3600)
    query = text(f"SELECT max(id) FROM jobs WHERE queue = '{queue.name}'")
    with queue.db.database.engine.connect() as connection:
        return int(connection.execute(query).scalar_one())


def test_a_busy_worker_finds_it_within_a_second(marked: Queue, clock: Clock, kind: str) -> None:
    late = arrive_late(marked)
    clock.seconds = 0.99 * SHORTEST_RESCAN_INTERVAL
    if kind != "sqlite":  # where claims start at the beginning always
        assert [job.id for job in marked.claim(1)] != [late]
        clock.seconds = SHORTEST_RESCAN_INTERVAL
    assert [job.id for job in marked.claim(1)] == [late]


def test_an_idle_worker_finds_it_within_a_second(marked: Queue, clock: Clock, kind: str) -> None:
    assert len(marked.claim(10)) == 2
    late = arrive_late(marked)
    if kind != "sqlite":
        assert marked.claim(10) == []
        clock.seconds = SHORTEST_RESCAN_INTERVAL
    assert [job.id for job in marked.claim(10)] == [late]


def test_a_new_process_finds_it_at_once(marked: Queue, open_db: object) -> None:
    late = arrive_late(marked)
    assert [job.id for job in open_db().queue(marked.name).claim(1)] == [late]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("took", "interval"),
    [
        (0.0, SHORTEST_RESCAN_INTERVAL),
        (0.01, SHORTEST_RESCAN_INTERVAL),
        (0.1, 5.0),
        (0.334, 16.7),
        (10.0, LONGEST_RESCAN_INTERVAL),
    ],
)
def test_a_slow_rescan_is_made_less_often_but_every_half_minute_at_least(took: float, interval: float, clock: Clock) -> None:
    marks = LowWaterMarks(clock=clock)
    clock.seconds = 100.0
    assert marks.rescan_due()
    marks.learn(ClaimResult(queue="q", limit=1), now=None, rescanned=True, seconds=took)
    clock.seconds = 100.0 + 0.999 * interval
    assert not marks.rescan_due()
    clock.seconds = 100.0 + interval
    assert marks.rescan_due()


def test_a_producer_that_commits_within_the_slack_is_never_passed_over(
    open_db: object, name: str, clock: Clock, differs: object
) -> None:
    differs("one writer")  # type: ignore[operator]
    start = 1_800_000_000_000_000
    moment = start
    db: QueueDB = open_db(clock=lambda: moment)  # type: ignore[operator]
    queue = db.queue(name)
    begin_anew(queue.core, queue.name, clock)
    with open_transaction(db) as producer:
        slow = queue.enqueue("slow", using=producer)
        moment = start + SLACK - 1
        quick = queue.enqueue("quick")
        # The mark goes up, but not past what a transaction of less than the slack may still bring.
        assert [job.id for job in queue.claim(10)] == [quick]
        producer.commit()
    assert [job.id for job in queue.claim(10)] == [slow]


def test_a_claim_after_a_full_one_finds_a_priority_that_it_did_not_know(queue, open_db):
    """The cheap statement that follows a full claim knows of one priority; what it leaves short must be looked for."""
    others = open_db().queue(queue.name)
    for _ in range(2):
        others.enqueue("n")
        (job,) = queue.claim()
        assert job.complete()
    others.enqueue("n")
    others.enqueue("n", priority=5)
    assert [job.priority for job in queue.claim(limit=2)] == [0, 5]
