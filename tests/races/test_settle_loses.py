"""A verdict that comes too late is LOST, and what the winner wrote stays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pytest

from queue_db import JobNotFoundError, LeasedJob, Queue, QueueDB, TransientStorageError, Verdict
from queue_db.store import Transaction, settle
from queue_db.testing import SettableClock
from tests.races.interleaving import Loser, at_once, open_transaction, other_handle
from tests.races.test_claim_loses import expired, state
from tests.races.winners import ROLLED_BACK, WINNERS

LOSERS: dict[str, Callable[[LeasedJob], Verdict]] = {
    "complete": lambda job: job.complete(),
    "fail": lambda job: job.fail("late", retry_in=0),
    "bury": lambda job: job.bury("late"),
    "snooze": lambda job: job.snooze(0),
    "release": lambda job: job.release(),
    "extend": lambda job: job.extend(5),
    "cancel": lambda job: job.cancel(),
}

MANY: dict[str, Callable[[Queue, list[LeasedJob]], list[Verdict]]] = {
    "complete": lambda queue, jobs: queue.complete_many(jobs),
    "fail": lambda queue, jobs: queue.fail_many(jobs, "failed", retry_in=1000),
    "bury": lambda queue, jobs: queue.bury_many(jobs, "hopeless"),
    "snooze": lambda queue, jobs: queue.snooze_many(jobs, 1000),
    "extend": lambda queue, jobs: queue.extend_many(jobs, 1000),
}

#: The pairs without an order. A verb that does not sort its list meets itself with the opposite order.
PAIRS = [
    pytest.param(first, second, marks=[pytest.mark.rest("the same pair in the other order")] if first > second else [])
    for first, second in product(MANY, repeat=2)
]


@pytest.fixture(params=["delete", "lock_then_delete", "delete_mark"])
def removal(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("winner", WINNERS)
@pytest.mark.parametrize("loser", LOSERS)
def test_settle_loses_to_what_commits_while_it_waits(
    kind: str, clock: SettableClock, ours: Queue, theirs: Queue, loser: str, winner: str
) -> None:
    job = expired(ours, clock)
    late = other_handle(job, theirs)
    with open_transaction(ours.db) as connection:
        WINNERS[winner](connection, ours, job)
        verb = Loser(kind, theirs.db, lambda: LOSERS[loser](late))
        assert verb.until_it_waits(), "nothing was in its way"
        connection.commit()
        after = state(ours, job)
        assert verb.result() is Verdict.LOST
    assert state(ours, job) == after
    assert late.version == job.version


@pytest.mark.parametrize("winner", WINNERS)
def test_complete_loses_under_every_removal(
    kind: str, open_db: Callable[..., QueueDB], clock: SettableClock, name: str, ours: Queue, winner: str, removal: str
) -> None:
    job = expired(ours, clock)
    theirs = open_db(removal=removal, clock=clock).queue(name)
    with open_transaction(ours.db) as connection:
        WINNERS[winner](connection, ours, job)
        verb = Loser(kind, theirs.db, other_handle(job, theirs).complete)
        assert verb.until_it_waits(), "nothing was in its way"
        connection.commit()
        after = state(ours, job)
        assert verb.result() is Verdict.LOST
    assert state(ours, job) == after


@pytest.mark.parametrize("winner", ROLLED_BACK)
@pytest.mark.parametrize("loser", LOSERS)
def test_settle_wins_over_what_rolls_back(
    kind: str, clock: SettableClock, ours: Queue, theirs: Queue, loser: str, winner: str
) -> None:
    job = expired(ours, clock)
    with open_transaction(ours.db) as connection:
        WINNERS[winner](connection, ours, job)
        verb = Loser(kind, theirs.db, lambda: LOSERS[loser](other_handle(job, theirs)))
        assert verb.until_it_waits(), "nothing was in its way"
        connection.rollback()
        assert verb.result() is Verdict.APPLIED


def test_cancel_by_id_loses_to_complete(kind: str, clock: SettableClock, ours: Queue, theirs: Queue) -> None:
    job = expired(ours, clock)
    with open_transaction(ours.db) as connection:
        WINNERS["complete"](connection, ours, job)
        cancel = Loser(kind, theirs.db, lambda: theirs.cancel(job.id))
        assert cancel.until_it_waits()
        connection.commit()
        with pytest.raises(JobNotFoundError):
            cancel.result()


@pytest.mark.parametrize("winner", ["claim", "extend", "fail", "snooze", "replace"])
def test_cancel_by_id_looks_again_when_the_job_changed(
    kind: str, clock: SettableClock, ours: Queue, theirs: Queue, winner: str
) -> None:
    job = expired(ours, clock)
    with open_transaction(ours.db) as connection:
        WINNERS[winner](connection, ours, job)
        cancel = Loser(kind, theirs.db, lambda: theirs.cancel(job.id))
        assert cancel.until_it_waits()
        connection.commit()
        assert cancel.result() is Verdict.APPLIED
    with pytest.raises(JobNotFoundError):
        ours.get(job.id)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_settles_of_overlapping_lists_in_opposite_order_lose_and_do_not_deadlock(
    clock: SettableClock, ours: Queue, theirs: Queue, first: str, second: str
) -> None:
    for _ in range(3):
        ours.enqueue_many([("mail", number) for number in range(40)])
        jobs = ours.claim(limit=40)
        handles = [other_handle(job, theirs) for job in jobs][::-1]
        mine, others = at_once(partial(MANY[first], ours, jobs), partial(MANY[second], theirs, handles))
        assert not isinstance(mine, Exception), mine
        assert not isinstance(others, Exception), others
        assert [{one, other} for one, other in zip(mine, others[::-1], strict=True)] == [{Verdict.APPLIED, Verdict.LOST}] * 40
        ours.purge()
        clock.advance(2000)
        ours.purge()
        ours.db.dead.purge(ours.name)
    assert (ours.db.counters.retried, theirs.db.counters.retried) == (0, 0)


@pytest.mark.parametrize("verb", MANY)
def test_settles_of_different_jobs_of_a_small_table_do_not_wait_for_each_other(
    kind: str, differs: Callable[[str], None], fresh_url: str, verb: str
) -> None:
    # A planner that would rather read a small table from end to end than look its ids up waits for everybody's rows.
    differs("one writer")
    with QueueDB(fresh_url) as ours, QueueDB(fresh_url) as theirs:
        ours.migrate()
        ours.queue("small").enqueue_many([("mail", number) for number in range(60)])
        mine, others = ours.queue("small").claim(limit=30), theirs.queue("small").claim(limit=30)
        with ours.database.engine.connect() as connection:
            analyze = "ANALYZE jobs" if kind == "postgresql" else "ANALYZE TABLE jobs"
            connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql(analyze)
        with open_transaction(ours) as connection:
            assert all(ours.queue("small").complete_many(mine, using=connection))
            late = Loser(kind, theirs, partial(MANY[verb], theirs.queue("small"), others))
            assert not late.until_it_waits()
            assert all(late.result())


def test_one_of_two_settles_of_one_lease_loses(clock: SettableClock, ours: Queue, theirs: Queue) -> None:
    for _ in range(15):
        ours.enqueue("mail")
        (job,) = ours.claim()
        late = other_handle(job, theirs)
        verdicts = at_once(job.complete, partial(late.fail, "late", retry_in=1000))
        assert {str(verdict) for verdict in verdicts} == {"Verdict.APPLIED", "Verdict.LOST"}
        assert (ours.stats().scheduled == 0) is (verdicts[0] is Verdict.APPLIED)
        ours.purge()


def test_late_complete_loses_to_a_takeover_at_the_same_moment(clock: SettableClock, ours: Queue, theirs: Queue) -> None:
    for _ in range(15):
        job = expired(ours, clock)
        verdict, claimed = at_once(job.complete, theirs.claim)
        # Either the job was completed and nobody else got it, or it was taken over and the late verdict was lost.
        assert (verdict, bool(claimed)) in [(Verdict.APPLIED, False), (Verdict.LOST, True)]
        if claimed:
            assert claimed[0].complete()


def test_extend_loses_although_its_first_run_matched(
    clock: SettableClock, ours: Queue, theirs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = expired(ours, clock)
    extend = settle.extend
    stolen: list[LeasedJob] = []

    def matched_but_refused(tx: Transaction, pairs: Any, lease: int) -> dict[int, int]:
        ends = extend(tx, pairs, lease)
        if not stolen:
            assert set(ends) == {job.id}
            raise TransientStorageError("the database asks to try again")
        return ends

    monkeypatch.setattr(settle, "extend", matched_but_refused)
    # Between the two runs: the first one has been rolled back.
    monkeypatch.setattr(ours.db.database, "pause", lambda _: stolen.extend(theirs.claim(lease=1000)))
    version, ends = job.version, job.lease_expires
    assert job.extend(60) is Verdict.LOST
    assert (job.version, job.lease_expires) == (version, ends)
    assert ours.db.counters.retried == 1
    assert stolen[0].complete() is Verdict.APPLIED
