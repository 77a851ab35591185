"""What stands open must not keep others out: claims under way, empty claims, producers that commit late."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import pytest
from sqlalchemy import Connection

from queue_db import Queue, QueueDB
from queue_db.model import ClaimRequest
from queue_db.store import LowWaterMarks, Transaction, lease, low_water_marks
from queue_db.strategies.optimistic import HEAD_EVERY
from queue_db.testing import SettableClock
from tests.marks import begin_anew
from tests.races.interleaving import open_transaction

WINDOWS = {
    "optimistic": lease.CandidateWindow(lock=lease.Lock.NONE),
    "skip_locked": lease.CandidateWindow(lock=lease.Lock.SKIP),
    "pessimistic": lease.CandidateWindow(lock=lease.Lock.WAIT),
}


def claim_on(connection: Connection, queue: Queue, window: lease.CandidateWindow) -> list[int]:
    """A claim whose transaction stays open."""
    store = queue.db.store
    ranges, now = queue.core.marks[queue.name].ranges(), store.clock and store.clock()
    request = ClaimRequest(queue.name, 1, 60_000_000, "open", secrets.token_hex(16), ranges, now)
    return [row.id for row in lease.claim(Transaction(connection, store), request, window).rows]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("jobs", [0, 1, 3])
def test_producer_does_not_wait_for_an_open_claim(
    differs: Callable[[str], None], ours: Queue, theirs: Queue, window: str, jobs: int
) -> None:
    differs("one writer")
    ours.enqueue_many([("mail", number) for number in range(jobs)])
    with open_transaction(ours.db) as connection:
        assert len(claim_on(connection, ours, WINDOWS[window])) == min(jobs, 1)
        # On a server that locks the gap this ends in a lock timeout.
        assert theirs.enqueue("new", priority=0) is not None
        assert theirs.enqueue("new", priority=-1, unique_key="k") is not None
        assert None not in theirs.enqueue_many([("new", number) for number in range(3)])
        connection.commit()
    assert theirs.db.counters.retried == 0
    assert len(theirs.claim(limit=100)) == jobs + 5 - min(jobs, 1)


@pytest.mark.parametrize("window", WINDOWS)
def test_skip_locked_claim_does_not_wait_for_an_open_claim(
    differs: Callable[[str], None], open_db: Callable[..., QueueDB], clock: SettableClock, ours: Queue, name: str, window: str
) -> None:
    differs("no SKIP LOCKED")
    first, second, third = ours.enqueue_many([("mail", number) for number in range(3)])
    theirs = open_db(strategy="skip_locked", clock=clock).queue(name)
    with open_transaction(ours.db) as connection:
        assert claim_on(connection, ours, WINDOWS[window]) == [first]
        assert [job.id for job in theirs.claim()] == [second]
        assert [job.id for job in theirs.claim(limit=10)] == [third]
        assert theirs.claim() == []
        connection.rollback()
    assert [job.id for job in theirs.claim()] == [first]
    assert theirs.db.counters.missed == 0


def test_settle_does_not_wait_for_an_open_claim(differs: Callable[[str], None], ours: Queue, theirs: Queue) -> None:
    differs("one writer")
    theirs.enqueue_many([("mail", number) for number in range(6)])
    jobs = theirs.claim(limit=5)
    for window in WINDOWS.values():
        with open_transaction(ours.db) as connection:
            assert len(claim_on(connection, ours, window)) == 1
            assert jobs.pop().complete()
            connection.rollback()
    assert theirs.db.counters.retried == 0


class Monotonic:
    """The process's own clock, which decides when a claim looks from the beginning."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.mark.parametrize("priority", [0, 4])
def test_claim_finds_a_job_whose_producer_committed_late(
    kind: str, differs: Callable[[str], None], clock: SettableClock, ours: Queue, theirs: Queue, priority: int
) -> None:
    differs("one writer")
    monotonic = Monotonic()
    begin_anew(ours.core, ours.name, monotonic)
    with open_transaction(theirs.db) as connection:
        late = theirs.enqueue("late", priority=priority, using=connection)
        # Meanwhile the consumer moves on, well past the time at which the late job became due. Only claims of the head are sure to
        # learn where that is.
        for _ in range(HEAD_EVERY):
            clock.advance(60)
            ours.enqueue("mail", priority=priority)
            assert ours.claim()[0].complete()
        connection.commit()
    assert theirs.get(late).available_at < clock.now()  # type: ignore[arg-type]
    ranges = ours.core.marks[ours.name].ranges()
    assert any(floor > clock() - 120_000_000 for _, floor in ranges), "the mark did not pass the late job"
    monotonic.seconds += low_water_marks.SHORTEST_RESCAN_INTERVAL
    assert [job.id for job in ours.claim()] == [late]


def test_claim_finds_a_job_at_once_whose_producer_was_quicker_than_the_slack(
    differs: Callable[[str], None], clock: SettableClock, ours: Queue, theirs: Queue
) -> None:
    differs("one writer")
    begin_anew(ours.core, ours.name, Monotonic())
    with open_transaction(theirs.db) as connection:
        late = theirs.enqueue("late", using=connection)
        for _ in range(3):
            clock.advance(low_water_marks.SLACK / 4_000_000)
            ours.enqueue("mail")
            assert ours.claim()[0].complete()
        connection.commit()
    assert [job.id for job in ours.claim()] == [late]


def test_rescan_comes_no_later_than_its_longest_interval() -> None:
    monotonic = Monotonic()
    found = LowWaterMarks(monotonic)
    found.learn(_nothing(), now=None, rescanned=True, seconds=1e6)
    monotonic.seconds += low_water_marks.LONGEST_RESCAN_INTERVAL - 0.001
    assert not found.rescan_due()
    monotonic.seconds += 0.001
    assert found.rescan_due()


def _nothing() -> lease.ClaimResult:
    return lease.ClaimResult(queue="any", limit=1)
