"""Negative controls of steps: without a guarantee the check for it must fail."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from queue_db import Queue, QueueDB
from queue_db.steps import store
from queue_db.steps.store import Phase, Record
from queue_db.store import Transaction, settle
from queue_db.testing import SettableClock
from queue_db.testing.suite.steps import TestState as States
from queue_db.testing.suite.steps import TestSteps as Steps
from queue_db.testing.suite.steps import TestStepsOfLeftJobs as Left
from queue_db.testing.suite.suspending import TestSleeps as Sleeps
from tests.handles import Handles
from tests.races.test_signal_loses import a_wait_loses_to_a_signal_that_it_has_not_read as signal_before_wait

Check = Callable[[Queue, Queue], object]

NOTICED = (AssertionError, pytest.fail.Exception)


@pytest.fixture
def noticed(handles: Handles, url: str, clock: SettableClock) -> Callable[[Check, Callable[[], object]], None]:
    """Run a check on the library as it is, and again on a broken one, each on a new queue."""
    ours, theirs = (handles.get(url, worker, settable=True) for worker in ("ours", "theirs"))

    def run(check: Check, take_away: Callable[[], object]) -> None:
        def queues(name: str) -> tuple[Queue, Queue]:
            unique = f"{name}-{uuid.uuid4().hex[:12]}"
            return ours.queue(unique), theirs.queue(unique)

        check(*queues("whole"))
        take_away()
        with pytest.raises(NOTICED):
            check(*queues("broken"))

    return run


def without_the_fence(tx: Transaction, pair: tuple[int, int], change: Callable[[Transaction], None]) -> bool:
    change(tx)
    return True


@pytest.mark.parametrize("check", [Steps().test_a_stale_worker_stores_no_step, States().test_a_stale_worker_overwrites_no_state])
def test_records_without_a_fence_are_noticed(
    noticed: Any, clock: SettableClock, monkeypatch: pytest.MonkeyPatch, check: Callable[..., object]
) -> None:
    noticed(
        lambda ours, theirs: check(ours, theirs, clock),
        lambda: monkeypatch.setattr(store, "fenced", without_the_fence),
    )


def test_a_wait_that_does_not_look_for_its_signal_is_noticed(noticed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(tx: Transaction, pairs: Any, job: Any, wait: Any) -> set[int]:
        if not settle.lock(tx, pairs):
            return set()
        store.put(tx, job, wait.key, Record(Phase.BEGUN))
        return settle.requeue(tx, pairs, delays={job.id: store.LONGEST}, attempted=False)

    noticed(
        lambda ours, theirs: signal_before_wait(ours, theirs, monkeypatch),
        lambda: monkeypatch.setattr(store, "suspend", blind),
    )


def test_a_sleep_that_begins_again_in_each_run_is_noticed(
    noticed: Any, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    noticed(
        lambda ours, _: Sleeps().test_a_job_that_runs_early_sleeps_on_until_the_same_time(ours, clock),
        lambda: monkeypatch.setattr(store, "find", lambda *_: None),
    )


def test_steps_that_stay_with_a_replaced_job_are_noticed(
    noticed: Any, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_any_job(tx: Transaction, job: store.Job) -> dict[Any, Any]:
        table = store._table(tx)
        found = tx.connection.execute(table.select().where(table.c.job_id == job.id))
        return {store.Key(store.What(row.what), row.name): (store._record(row), row.changed_at) for row in found}

    noticed(
        lambda ours, _: Steps().test_a_replaced_job_begins_anew(ours, clock),
        lambda: monkeypatch.setattr(store, "rows", of_any_job),
    )


def test_steps_that_are_deleted_with_a_dead_job_are_noticed(
    noticed: Any, handles: Handles, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_dead_jobs_too(tx: Transaction, limit: int) -> int:
        table, jobs = store._table(tx), tx.tables.jobs
        gone = table.delete().where(~jobs.select().where(jobs.c.id == table.c.job_id).exists())
        return tx.connection.execute(gone).rowcount

    def check(ours: Queue, _: Queue) -> None:
        Left().test_a_dead_job_keeps_its_steps_until_it_has_left(ours)

    def take_away() -> None:
        prune = QueueDB.prune
        monkeypatch.setattr(QueueDB, "prune", lambda self: self.core.write("steps.prune", of_dead_jobs_too, 1000) + prune(self))

    noticed(check, take_away)
