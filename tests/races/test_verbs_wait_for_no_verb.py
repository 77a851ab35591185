"""Two verbs on one job: neither waits for the other, since a transaction may hold what that one waits for, and both are right."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from queue_db import LeasedJob, Queue, QueueDB, Verdict
from queue_db.verbs.fenced_change import FencedChange
from queue_db.verbs.running import Verbs
from queue_db.worker.leases import Heartbeat, InFlight
from tests.patience import PATIENCE
from tests.races.interleaving import patient


@contextmanager
def statements_of_others(db: QueueDB) -> Iterator[threading.Event]:
    """Set as soon as another thread sends a statement that writes, or begins to."""
    sent, me = threading.Event(), threading.get_ident()

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if threading.get_ident() != me and statement.startswith(("BEGIN IMMEDIATE", "UPDATE", "SELECT", "WITH", "EXECUTE")):
            sent.set()

    event.listen(db.database.engine, "before_cursor_execute", note)
    yield sent
    event.remove(db.database.engine, "before_cursor_execute", note)


@pytest.fixture
def db(url: str) -> Iterator[QueueDB]:
    """A lock timeout shows here that two wait for each other, not that the machine is busy."""
    with QueueDB(patient(url)) as patient_one:
        yield patient_one


def claimed(queue: Queue) -> LeasedJob:
    queue.enqueue("k")
    (job,) = queue.claim(lease=60)
    return job


def test_a_transaction_waits_for_no_verb_that_waits_for_it(db: QueueDB, queue: Queue) -> None:
    """The other verb waits in the database for the job that this transaction has completed."""
    job = claimed(queue)
    with ThreadPoolExecutor(1) as pool, statements_of_others(db) as sent:
        with queue.transaction() as connection:
            assert job.complete(using=connection)
            late = pool.submit(job.fail, "too late")
            assert sent.wait(PATIENCE)
            assert job.complete(using=connection) is Verdict.LOST
            assert not late.done()
        assert late.result(PATIENCE) is Verdict.LOST
    assert db.counters.lock_timeouts == 0


def test_a_transaction_waits_for_no_heartbeat_that_waits_for_it(db: QueueDB, queue: Queue) -> None:
    """On SQLite the heartbeat waits for any transaction that writes."""
    job, lost = claimed(queue), list[LeasedJob]()
    in_flight = InFlight([queue.name])
    in_flight.add(queue.name, [job])
    heartbeat = Heartbeat(in_flight, 60, lost.append)
    with ThreadPoolExecutor(1) as pool, statements_of_others(db) as sent:
        with job.transaction():
            beat = pool.submit(heartbeat.beat)
            assert sent.wait(PATIENCE)
        beat.result(PATIENCE)
    assert lost == []
    assert job.settled
    assert db.counters.lock_timeouts == 0


@pytest.mark.parametrize("within", [False, True], ids=["alone", "in a transaction"])
def test_a_completion_finds_the_lease_that_an_extension_has_moved(
    db: QueueDB, queue: Queue, monkeypatch: pytest.MonkeyPatch, within: bool
) -> None:
    """The extension is committed, and its verb has not said so yet."""
    job = claimed(queue)
    committed, go = threading.Event(), threading.Event()
    raise_versions = FencedChange._raise_versions

    def late(*arguments: Any) -> None:
        committed.set()
        assert go.wait(PATIENCE)
        raise_versions(*arguments)

    monkeypatch.setattr(FencedChange, "_raise_versions", late)
    with ThreadPoolExecutor(1) as pool:
        extension = pool.submit(job.extend, 60)
        assert committed.wait(PATIENCE)
        if within:
            with queue.transaction() as connection:
                assert job.complete(using=connection) is Verdict.APPLIED
        else:
            assert job.complete() is Verdict.APPLIED
        go.set()
        assert extension.result(PATIENCE) is Verdict.APPLIED
    assert job.version == 2
    assert queue.stats().running == 0


def test_two_extensions_at_once_leave_the_later_version(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first sets its version last."""
    job = claimed(queue)
    committed, go = threading.Event(), threading.Event()
    raise_versions = FencedChange._raise_versions

    def late(*arguments: Any) -> None:
        if not committed.is_set():
            committed.set()
            assert go.wait(PATIENCE)
        raise_versions(*arguments)

    monkeypatch.setattr(FencedChange, "_raise_versions", late)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(job.extend, 60)
        assert committed.wait(PATIENCE)
        assert job.extend(120)
        ends = job.lease_ends
        go.set()
        assert first.result(PATIENCE)
    assert (job.version, job.lease_ends) == (3, ends)
    assert job.complete()


def test_a_lease_of_another_worker_is_not_followed(db: QueueDB, queue: Queue, open_db: Callable[..., QueueDB]) -> None:
    """Although another verb of the same object runs."""
    job = claimed(queue)
    db.rescue(db.worker)
    (theirs,) = open_db().queue(queue.name).claim()
    with Verbs([job]):
        assert job.complete() is Verdict.LOST
    assert theirs.complete()


def test_the_heartbeat_takes_no_job_for_lost_whose_verb_has_not_returned(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verb began after the heartbeat had chosen the jobs."""
    job, lost = claimed(queue), list[LeasedJob]()
    in_flight = InFlight([queue.name])
    in_flight.add(queue.name, [job])
    extend = queue.extend_unlocked
    verb = Verbs([job])

    def completed_before(jobs: list[LeasedJob], seconds: float) -> list[Verdict | None]:
        assert job.complete()
        job.settled = False  # as if complete() had not come so far
        verb.__enter__()
        return extend(jobs, seconds)

    monkeypatch.setattr(queue, "extend_unlocked", completed_before)
    assert Heartbeat(in_flight, 60, lost.append).beat() <= 10
    assert lost == []
    verb.__exit__()
    job.settled = True
