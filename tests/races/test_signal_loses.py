"""A signal and the wait for it meet: whoever comes second finds what the first has done, and the job runs."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from queue_db import LeasedJob, Queue, State, Suspended
from queue_db.steps import store
from queue_db.steps.records import StoredRecords
from queue_db.store import Transaction
from tests.races.interleaving import Loser, at_once, open_transaction


def waiting(job: LeasedJob) -> object:
    """The payload of the signal; None: the run has ended."""
    try:
        return job.wait_for("approved")
    except Suspended:
        return None


def leased(queue: Queue) -> LeasedJob:
    queue.enqueue("order")
    (job,) = queue.claim(lease=60)
    return job


def runs_with_the_signal(queue: Queue) -> None:
    jobs = queue.claim()
    assert [job.attempts for job in jobs] == [1]
    (again,) = jobs
    assert waiting(again) == "yes"
    assert again.complete()


def a_wait_loses_to_a_signal_that_it_has_not_read(ours: Queue, theirs: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    job = leased(ours)
    suspend = StoredRecords.suspend

    def after_the_signal(self: StoredRecords, wait: Any) -> bool:
        assert theirs.db.steps.send(job.id, "approved", "yes")
        return suspend(self, wait)

    with monkeypatch.context() as patch:
        patch.setattr(StoredRecords, "suspend", after_the_signal)
        assert waiting(job) is None
    runs_with_the_signal(ours)


def test_a_wait_loses_to_a_signal_that_it_has_not_read(ours: Queue, theirs: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    a_wait_loses_to_a_signal_that_it_has_not_read(ours, theirs, monkeypatch)


def test_a_wait_loses_to_a_signal_whose_transaction_is_open(kind: str, ours: Queue, theirs: Queue) -> None:
    job = leased(ours)
    if kind != "sqlite":  # there the read of the wait would see the commit
        with open_transaction(theirs.db) as connection:
            assert theirs.db.steps.send(job.id, "approved", "yes", using=connection)
            loser = Loser(kind, ours.db, partial(waiting, job))
            assert loser.until_it_waits()
            connection.commit()
        assert loser.result() is None
        runs_with_the_signal(ours)


def test_a_signal_loses_to_a_wait_whose_transaction_is_open(
    kind: str, ours: Queue, theirs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = leased(ours)
    losers: list[Loser] = []
    suspend = store.suspend

    def before_the_commit(tx: Transaction, *given: Any) -> set[int]:
        done = suspend(tx, *given)
        losers.append(Loser(kind, theirs.db, lambda: theirs.db.steps.send(job.id, "approved", "yes")))
        assert losers[0].until_it_waits()
        return done

    with monkeypatch.context() as patch:
        patch.setattr(store, "suspend", before_the_commit)
        assert waiting(job) is None
    assert losers[0].result() is True
    runs_with_the_signal(ours)


def test_a_signal_and_a_wait_at_once_miss_each_other_never(ours: Queue, theirs: Queue) -> None:
    for _ in range(10):
        job = leased(ours)
        found, sent = at_once(partial(waiting, job), partial(theirs.db.steps.send, job.id, "approved", "yes"))
        assert sent is True
        if found is None:
            assert ours.get(job.id).state is State.AVAILABLE
            runs_with_the_signal(ours)
        else:
            assert found == "yes"
            assert job.complete()


def test_two_senders_at_once_send_one_signal(ours: Queue, theirs: Queue) -> None:
    for _ in range(5):
        job = leased(ours)
        senders = [partial(queue.db.steps.send, job.id, "approved", queue.db.worker) for queue in (ours, theirs)]
        sent = at_once(*senders)
        assert sorted(sent, key=str) == [False, True], sent
        assert job.wait_for("approved") == ("ours" if sent[0] else "theirs")
        assert job.complete()


def test_a_step_does_not_lose_to_the_heartbeat(ours: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    job = leased(ours)
    fenced = store.fenced
    calls: list[int] = []

    def after_a_beat(tx: Transaction, **given: Any) -> bool:
        calls.append(job.version)
        return fenced(tx, **given)

    write = StoredRecords._fenced

    def beaten(self: StoredRecords, name: str, change: Any, using: Any = None) -> bool:
        version = job.version
        assert ours.extend_unlocked([job], 60)
        job.version = version  # the beat has not noted it yet
        running = [True]

        def noted(*_: object) -> Any:
            job.version = version + 1
            return {job.id: (version, job.token)} if running.pop() else {}

        with monkeypatch.context() as patch:
            patch.setattr("queue_db.steps.records.leases_in_motion", noted)
            return write(self, name, change, using)

    with monkeypatch.context() as patch:
        patch.setattr(store, "fenced", after_a_beat)
        patch.setattr(StoredRecords, "_fenced", beaten)
        assert job.step("charge", lambda: "paid") == "paid"
    assert len(calls) == 2
    assert job.complete()
