"""What follows a transaction follows its commit: once, and only that of the run that was committed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import text

from queue_db import DuplicateJobError, Queue, QueueDB, StorageError, TransientStorageError, Verdict
from queue_db.database.transaction import OwnTransaction, Run
from queue_db.feeds.notifications import notifications_of
from queue_db.model import DeathReason
from queue_db.notifications.deaths import Death, UnleasedJob
from queue_db.store import Transaction, settle


@pytest.fixture
def followed(db: QueueDB) -> list[str]:
    """The queues whose waiting workers were woken in this process, and the other calls that followed."""
    calls: list[str] = []
    db.notifications.add(calls.append)
    return calls


@pytest.fixture
def broken(db: QueueDB) -> Iterator[TransientStorageError]:
    """What a listener of this process raises whenever it is called: an error like those of transactions."""
    error = TransientStorageError("of a listener")

    def fail(_queue: str) -> None:
        raise error

    db.notifications.add(fail)
    yield error
    db.notifications.remove(fail)


def test_a_run_that_was_rolled_back_is_followed_by_nothing(db: QueueDB, name: str, followed: list[str]) -> None:
    runs: list[Transaction] = []

    def work(tx: Transaction) -> int:
        runs.append(tx)
        tx.wake(name, f"{name} {len(runs)}", name)
        tx.after_commit(lambda: followed.append(f"run {len(runs)}"))
        assert followed == []
        if len(runs) == 1:
            raise TransientStorageError("again")
        return 7

    assert db.core.write("test", work) == 7
    assert len(runs) == 2
    assert followed == ["run 2", name, f"{name} 2"]


def test_a_transaction_that_fails_is_followed_by_nothing(db: QueueDB, name: str, followed: list[str]) -> None:
    def work(tx: Transaction) -> None:
        tx.wake(name)
        tx.connection.execute(text("SELECT * FROM nowhere"))

    with pytest.raises(Exception, match="nowhere"):
        db.core.write("test", work)
    assert followed == []


def test_what_raises_after_the_commit_does_not_run_it_again(db: QueueDB) -> None:
    runs: list[Transaction] = []

    def follow() -> None:
        raise TransientStorageError("not of the transaction")

    def work(tx: Transaction) -> None:
        runs.append(tx)
        tx.after_commit(follow)

    with pytest.raises(TransientStorageError, match="not of the transaction"):
        db.core.write("test", work)
    assert len(runs) == 1


def test_a_callers_transaction_is_followed_by_nothing_here(queue: Queue, followed: list[str]) -> None:
    with queue.transaction() as connection:
        queue.enqueue("mail", using=connection)
        queue.enqueue_many([("mail", 1)], using=connection)
    jobs = queue.claim(2)
    with queue.transaction() as connection:
        assert all(job.complete(using=connection) for job in jobs)
    assert followed == []
    queue.enqueue("mail")
    assert followed == [queue.name]


def test_who_waits_is_woken_by_each_way_to_a_due_job(queue: Queue, followed: list[str]) -> None:
    def grouped(number: int) -> None:
        queue.enqueue_many([("mail", one, {"group": f"g{number}"}) for one in range(2)])
        followed.clear()

    ways = {
        "completed": lambda: queue.complete_many(queue.claim()),
        "popped": queue.pop,
        "cancelled": lambda: queue.cancel(queue.peek()[0].id),
    }
    for number, (way, act) in enumerate(ways.items()):
        grouped(number)
        act()
        assert set(followed) == {queue.name}, way
        queue.purge()


def test_all_listeners_are_called_also_after_one_that_raises(queue: Queue, broken: Exception, followed: list[str]) -> None:
    with pytest.raises(TransientStorageError) as raised:
        queue.enqueue("mail")
    assert raised.value is broken
    assert followed == [queue.name]


def test_a_listener_that_raises_makes_no_caller_insert_again(queue: Queue, broken: Exception) -> None:
    together = Barrier(8)

    def enqueue() -> int:
        raised = 0
        together.wait()
        for _ in range(5):
            try:
                queue.enqueue("mail")
            except TransientStorageError as error:
                raised += error is broken
        return raised

    with ThreadPoolExecutor(8) as pool:
        callers = [pool.submit(enqueue) for _ in range(8)]
    assert sum(caller.result() for caller in callers) == 40
    assert queue.stats().available == 40


def test_a_duplicate_of_a_listener_is_not_taken_for_one_of_the_jobs(db: QueueDB, queue: Queue) -> None:
    error = DuplicateJobError(unique_key="theirs", existing_id=7, position=None)

    def fail(_queue: str) -> None:
        raise error

    db.notifications.add(fail)
    with pytest.raises(DuplicateJobError) as raised:
        queue.enqueue_many([("mail", 1), ("mail", 2, {"unique_key": "ours"})])
    assert raised.value is error
    assert queue.stats().available == 2


@pytest.mark.parametrize("verb", ["complete", "complete_and_claim"])
def test_a_job_is_settled_and_counted_before_its_followers_are_woken(db: QueueDB, queue: Queue, verb: str) -> None:
    queue.enqueue_many([("mail", number, {"group": "one after the other"}) for number in range(2)])
    (job,) = queue.claim()
    error, called = TransientStorageError("of a listener", outcome_unknown=True), []

    def fail(queue: str) -> None:
        called.append(queue)
        raise error

    db.notifications.add(fail)
    with pytest.raises(TransientStorageError) as raised:
        job.complete() if verb == "complete" else queue.complete_and_claim([job])
    assert raised.value is error
    assert called == [queue.name]
    assert (job.settled, job.settled_by, db.counters.applied, db.counters.lost) == (True, "complete", 1, 0)
    assert [one.payload for one in queue.claim(2)] == [1]


@pytest.mark.parametrize("kind", ["postgresql"])
def test_what_a_rolled_back_transaction_would_have_notified_is_due_again(
    kind: str, db: QueueDB, queue: Queue, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = db.core.notifications._notified_at
    monkeypatch.setattr(db.core.notifications, "_clock", lambda: 0.0)

    def fail(tx: Transaction) -> None:
        tx.wake(name)
        tx.connection.execute(text("SELECT * FROM nowhere"))

    with pytest.raises(StorageError, match="nowhere"):
        db.core.write("test", fail)
    assert name not in sent
    with pytest.raises(StorageError, match="nowhere"), queue.transaction() as connection, db.core.joined(connection, "fail") as tx:
        fail(tx)
    assert name not in sent
    queue.enqueue("mail")
    assert name in sent
    with pytest.raises(StorageError, match="nowhere"):
        db.core.write("test", fail)  # it notified nobody: that was just now
    assert name in sent


@pytest.mark.parametrize("unknown", [False, True])
def test_a_listener_that_raises_takes_no_popped_job(
    queue: Queue, broken: TransientStorageError, followed: list[str], caplog: pytest.LogCaptureFixture, unknown: bool
) -> None:
    with pytest.raises(TransientStorageError):
        queue.enqueue_many([("mail", number, {"group": "one after the other"}) for number in range(2)])
    broken.outcome_unknown = unknown
    followed.clear()
    assert [job.payload for job in queue.pop()] == [0]
    assert followed == [queue.name]
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == [
        f"jobs of {queue.name!r} are claimed, but not all who wait for others were woken"
    ]
    assert [job.payload for job in queue.claim()] == [1]


def test_a_death_is_reported_when_its_followers_are_woken_also_if_that_raises(db: QueueDB, queue: Queue) -> None:
    queue.enqueue_many([("mail", number, {"group": "one after the other", "max_attempts": 1}) for number in range(2)])
    (job,) = queue.claim()
    calls: list[str] = []
    error = ValueError("of a listener")

    def fail(_queue: str) -> None:
        calls.append("woken")
        raise error

    db.notifications.add(fail)
    db.core.deaths.add(lambda _death: calls.append("dead"))
    with pytest.raises(ValueError, match="of a listener"):
        job.fail("no use")
    assert calls == ["woken", "dead"]
    assert db.counters.dead == 1


def die(tx: Transaction, queue: str) -> None:
    assert tx.deaths is not None
    tx.deaths[7] = Death(UnleasedJob(7, queue, "mail", 1, 1), DeathReason.REJECTED, "no use")


def test_the_deaths_of_a_batch_are_reported_also_if_a_listener_raises(db: QueueDB, name: str, broken: Exception) -> None:
    died: list[int] = []
    db.core.deaths.add(lambda death: died.append(death.job.id))

    def work(tx: Transaction) -> None:
        die(tx, name)
        tx.wake(name)

    with pytest.raises(TransientStorageError) as raised:
        db.core.run_reporting_deaths(Run("complete"), work)
    assert raised.value is broken
    assert died == [7]


@pytest.fixture
def unanswered(db: QueueDB, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """When it is called, the next transaction is committed, and the answer to that is lost."""
    waiting: list[Exception] = []

    leave = OwnTransaction.leave

    def broken(tx: OwnTransaction) -> None:
        leave(tx)
        if waiting and tx._database is db.database:
            raise waiting.pop()

    monkeypatch.setattr(OwnTransaction, "leave", broken)
    return lambda: waiting.append(TransientStorageError("the reply is lost", outcome_unknown=True))


def test_the_deaths_of_a_batch_are_reported_also_if_its_commit_was_not_answered(
    db: QueueDB, name: str, unanswered: Callable[[], None]
) -> None:
    died: list[int] = []
    db.core.deaths.add(lambda death: died.append(death.job.id))
    runs: list[Transaction] = []

    def work(tx: Transaction) -> None:
        runs.append(tx)
        if len(runs) == 1:  # the second one finds the batch completed
            die(tx, name)

    unanswered()
    db.core.run_reporting_deaths(Run("complete", repeatable=True), work)
    assert len(runs) == 2
    assert died == [7]


def test_the_deaths_of_a_batch_that_was_rolled_back_are_not_reported(db: QueueDB, name: str) -> None:
    died: list[int] = []
    db.core.deaths.add(lambda death: died.append(death.job.id))
    runs: list[Transaction] = []

    def work(tx: Transaction) -> None:
        runs.append(tx)
        if len(runs) == 1:  # before the second one another process completes the batch
            die(tx, name)
            raise TransientStorageError("a deadlock")

    db.core.run_reporting_deaths(Run("complete"), work)
    assert len(runs) == 2
    assert died == []


REFUSED_AT_COMMIT = (
    "CREATE TEMP TABLE refused (id INT) ON COMMIT DROP",
    """CREATE FUNCTION pg_temp.refuse() RETURNS trigger LANGUAGE plpgsql
       AS $$ BEGIN RAISE EXCEPTION 'at COMMIT' USING ERRCODE = '40001'; END $$""",
    """CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON refused DEFERRABLE INITIALLY DEFERRED
       FOR EACH ROW EXECUTE FUNCTION pg_temp.refuse()""",
    "INSERT INTO refused VALUES (1)",
)


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
@pytest.mark.parametrize("repeatable", [False, True])
def test_the_deaths_of_a_batch_whose_commit_was_refused_are_not_reported(db: QueueDB, name: str, repeatable: bool) -> None:
    """As a cluster refuses it: the reply says that nothing was committed, so another process may complete the batch."""
    died: list[int] = []
    db.core.deaths.add(lambda death: died.append(death.job.id))
    runs: list[Transaction] = []

    def work(tx: Transaction) -> None:
        runs.append(tx)
        if len(runs) == 1:
            die(tx, name)
            for statement in REFUSED_AT_COMMIT:
                tx.connection.execute(text(statement))

    db.core.run_reporting_deaths(Run("complete", repeatable=repeatable), work)
    assert len(runs) == 2
    assert died == []


def test_who_waits_for_a_change_is_woken_also_if_it_is_proved_last(
    db: QueueDB, queue: Queue, followed: list[str], unanswered: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.enqueue_many([("mail", number, {"group": "one after the other"}) for number in range(2)])
    (job,) = queue.claim()
    followed.clear()
    look, looks = settle.look, []

    def too_early(tx: Transaction, leases: list[tuple[int, int, str]], change: settle.Change) -> dict[int, settle.Sight]:
        looks.append(leases)
        return {job.id: settle.Sight.UNCHANGED} if len(looks) == 1 else look(tx, leases, change)

    monkeypatch.setattr(settle, "look", too_early)
    unanswered()
    assert job.complete() is Verdict.APPLIED
    assert len(looks) == 2
    assert followed == [queue.name]


def test_who_waits_for_a_popped_job_is_woken_also_if_the_strategy_raises(
    db: QueueDB, queue: Queue, followed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.enqueue_many([("mail", number, {"group": "one after the other"}) for number in range(2)])
    followed.clear()

    def observe(_result: object) -> None:
        raise ValueError("of the strategy")

    monkeypatch.setattr(db.strategy, "observe", observe)
    with pytest.raises(ValueError, match="of the strategy"):
        queue.pop()
    assert followed == [queue.name]


def test_the_cut_of_a_route_is_counted_also_if_a_listener_raises(db: QueueDB, name: str, broken: Exception) -> None:
    db.routes.set(f"{name}-queue", enqueue=f"{name}-work")
    db.routes.set(f"{name}-back", forward=name)
    for route in (f"{name}-queue", f"{name}-back"):
        assert db.routes.subscribe(name, route, form="exact")
    with pytest.raises(TransientStorageError) as raised:
        db.topic(name).publish("mail")
    assert raised.value is broken
    assert db.counters.loops == 1


def test_a_route_wakes_workers_before_feeds_are_numbered(db: QueueDB, name: str) -> None:
    db.routes.set(f"{name}-queue", enqueue=f"{name}-work")
    db.routes.set(f"{name}-feed", feed=f"{name}-out")
    for route in (f"{name}-queue", f"{name}-feed"):
        assert db.routes.subscribe(name, route, form="exact")
    calls: list[str] = []
    db.notifications.add(calls.append)
    notifications_of(db.store).add(calls.append)
    assert db.topic(name).publish("mail") == 2
    assert calls == [f"{name}-work", f"{name}-out"]
