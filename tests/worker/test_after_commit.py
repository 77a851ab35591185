"""What follows a transaction follows its commit: once, and only that of the run that was committed."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from queue_db import Queue, QueueDB, TransientStorageError
from queue_db.store import Transaction


@pytest.fixture
def followed(db: QueueDB) -> list[str]:
    """The queues whose waiting workers were woken in this process, and the other calls that followed."""
    calls: list[str] = []
    db.notifications.add(calls.append)
    return calls


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

    assert db.core.write(work) == 7
    assert len(runs) == 2
    assert followed == [name, f"{name} 2", "run 2"]


def test_a_transaction_that_fails_is_followed_by_nothing(db: QueueDB, name: str, followed: list[str]) -> None:
    def work(tx: Transaction) -> None:
        tx.wake(name)
        tx.connection.execute(text("SELECT * FROM nowhere"))

    with pytest.raises(Exception, match="nowhere"):
        db.core.write(work)
    assert followed == []


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
