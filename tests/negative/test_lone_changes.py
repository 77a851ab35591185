"""The check of the whole suite that no transaction commits its changes one by one notices a missing ``tx.begin()``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from unittest import mock

import pytest
from sqlalchemy import Table, text

from queue_db import Queue, QueueDB, TransientStorageError
from queue_db.database.transaction import Run
from queue_db.dialects import Dialect
from queue_db.dialects.statements import Pairs
from queue_db.dialects.transactions import Sender
from queue_db.removal import Delete
from queue_db.store import Transaction, settle
from queue_db.testing.lone_changes import lone_changes

_LAZY = Run("lazy", lazy=True)

#: Databases with row locks.
SERVERS = pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"], scope="session")


@pytest.fixture(autouse=True)
def no_lone_changes() -> Iterator[list[str]]:
    """Here the changes that it finds are what the tests expect."""
    with lone_changes() as found:
        yield found


@dataclass(frozen=True)
class TwoStatements(Delete):
    """A removal in two statements that belong together."""

    begins: bool = False

    def remove(self, tx: Transaction, pairs: Pairs) -> set[int]:
        """Change the jobs, then delete them."""
        if self.begins:
            tx.begin()
        settle.adjust_attempts(tx, pairs, 1)
        return settle.delete(tx, [(job_id, version + 1) for job_id, version in pairs])


@pytest.mark.parametrize("begins", [False, True])
def test_a_removal_that_does_not_begin(
    open_db: Callable[..., QueueDB], name: str, no_lone_changes: list[str], begins: bool
) -> None:
    queue = open_db(removal=TwoStatements(begins=begins)).queue(name)
    for _ in range(2):
        queue.enqueue("work")
        (job,) = queue.claim()
        assert job.complete()
    assert len(no_lone_changes) == (0 if begins else 2)
    for found in no_lone_changes:
        update, delete = found.split(" | ")
        assert update.startswith("UPDATE ")
        assert delete.startswith("DELETE ")


@pytest.mark.parametrize("observed", [False, True], ids=["to the driver", "by SQLAlchemy"])
def test_statements_of_the_kernel_and_others(queue: Queue, no_lone_changes: list[str], observed: bool) -> None:
    jobs = queue.core.store.tables.jobs.name
    nothing = f"DELETE FROM {jobs} WHERE id < 0"

    def change(tx: Transaction, times: int) -> None:
        for _ in range(times):
            if observed:
                tx.connection.execute(text(nothing))
            else:
                tx.execute(nothing, ())

    queue.core.run(_LAZY, change, 1)
    queue.core.run(Run("eager"), change, 2)
    assert no_lone_changes == []
    queue.core.run(_LAZY, change, 3)
    assert no_lone_changes == [f"{nothing} | {nothing}"]


@SERVERS
def test_a_lock_that_ends_at_once(queue: Queue, no_lone_changes: list[str]) -> None:
    jobs = queue.core.store.tables.jobs.name
    locks = f"SELECT id FROM {jobs} WHERE id < 0 FOR UPDATE"
    queue.core.run(_LAZY, lambda tx: tx.fetch(locks, ()))
    assert no_lone_changes == [locks]


def test_a_transaction_that_runs_again_begins_anew(queue: Queue, no_lone_changes: list[str]) -> None:
    nothing, runs = f"DELETE FROM {queue.core.store.tables.jobs.name} WHERE id < 0", 0

    def change(tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        tx.execute(nothing, ())
        if runs == 1:
            raise TransientStorageError("again")

    queue.core.run(_LAZY._replace(repeatable=True), change)
    assert runs == 2
    assert no_lone_changes == []


@SERVERS
def test_a_dialect_whose_lock_does_not_begin(
    open_db: Callable[..., QueueDB], name: str, no_lone_changes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = open_db(removal="lock_then_delete").queue(name)
    dialect = type(queue.core.store.dialect)
    hold = dialect.hold

    def hold_alone(self: Dialect, tx: Sender, jobs: Table, pairs: Pairs, *, skip: bool = False) -> Pairs:
        with mock.patch.object(Sender, "begin"):
            return hold(self, tx, jobs, pairs, skip=skip)

    queue.enqueue_many([("work", number) for number in range(2)])
    for faults in (0, 1):
        (job,) = queue.claim()
        assert job.complete()
        assert len(no_lone_changes) == faults
        monkeypatch.setattr(dialect, "hold", hold_alone)
