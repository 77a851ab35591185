"""A conflict with a transaction of another node: at a claim a miss, at a completion tried again, at a unique key a duplicate."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest
from sqlalchemy import text

from queue_db import Capability, DuplicateJobError, LeasedJob, Optimistic, PermanentStorageError, QueueDB, TransientStorageError
from queue_db.model import ClaimRequest, ClaimResult
from queue_db.store import Transaction, settle
from queue_db.testing import SettableClock
from tests.clusters.conftest import catch_up, run
from tests.races.interleaving import at_once, between


@dataclass
class Conflicting(Optimistic):
    """Between its claim and the COMMIT, another node changes the first row, in so many runs."""

    touch: Callable[[int], None] = print
    conflicts: int = 1
    observed: list[ClaimResult] = field(default_factory=list)

    def claim(self, tx: Transaction, request: ClaimRequest) -> ClaimResult:
        tx.begin()
        result = super().claim(tx, request)
        if result.rows and self.conflicts:
            self.conflicts -= 1
            self.touch(result.rows[0].id)
        return result

    def observe(self, result: ClaimResult) -> None:
        self.observed.append(result)
        super().observe(result)


def test_a_conflict_at_a_claim_is_a_miss_that_the_strategy_hears_of(
    urls: list[str], name: str, touch: Callable[[int], None]
) -> None:
    strategy = Conflicting(window=1, touch=touch, conflicts=2)
    with QueueDB(urls[0], strategy=strategy) as db:
        job = db.queue(name).enqueue("mail", 1)
        claimed = db.queue(name).claim(lease=600)
        assert [one.id for one in claimed] == [job]
        assert (db.counters.missed, db.counters.claimed) == (2, 1)
        assert sum(result.missed for result in strategy.observed) == 2
        assert claimed[0].complete()


def test_a_claim_that_conflicts_each_time_wins_nothing_and_leaks_nothing(
    urls: list[str], name: str, touch: Callable[[int], None]
) -> None:
    strategy = Conflicting(window=1, touch=touch, conflicts=1000)
    with QueueDB(urls[0], strategy=strategy) as db:
        db.queue(name).enqueue("mail", 1)
        assert db.queue(name).claim(lease=600) == []
        counters = db.counters
        lost = counters.deadlocks + counters.serialization_failures
        assert (counters.contended, counters.missed, lost) == (1, 1, 1000 - strategy.conflicts)
        assert sum(result.missed for result in strategy.observed) == 1
        assert db.queue(name).stats().available == 1


def test_jobs_without_unique_keys_never_conflict(nodes: list[QueueDB], urls: list[str], name: str) -> None:
    """Each node adds jobs and completes its own, while the others do: no two transactions change one row."""
    leased = []
    for db, url in zip(nodes, urls, strict=True):
        catch_up(url)
        db.queue(name).enqueue_many([("mail", number) for number in range(50)])
        leased.append(db.queue(name).claim(50, lease=600))

    def work(db: QueueDB, jobs: list[LeasedJob]) -> None:
        for job in jobs:
            db.queue(name).enqueue("mail", 1)
            assert job.complete()

    done = at_once(*(partial(work, db, jobs) for db, jobs in zip(nodes, leased, strict=True)))
    assert done == [None] * len(nodes)
    assert [db.counters.deadlocks for db in nodes] == [0] * len(nodes)


@dataclass
class ConflictingDelete:
    """Between its DELETE and the COMMIT, another node changes the row, in so many runs."""

    touch: Callable[[int], None]
    conflicts: int
    name: str = "conflicting"
    needs: frozenset[Capability] = frozenset()
    retries: int = 5
    marks: bool = False

    def remove(self, tx: Transaction, pairs: Sequence[tuple[int, int]]) -> set[int]:
        tx.begin()
        done = settle.delete(tx, pairs)
        if self.conflicts:
            self.conflicts -= 1
            self.touch(pairs[0][0])
        return done


def test_a_conflict_at_a_completion_is_tried_again_as_long_as_the_lease_holds(
    urls: list[str], name: str, touch: Callable[[int], None]
) -> None:
    removal = ConflictingDelete(touch=touch, conflicts=25)
    with QueueDB(urls[0], removal=removal) as db:
        db.queue(name).enqueue("mail", 1)
        (job,) = db.queue(name).claim(lease=600)
        assert job.complete()
        assert (removal.conflicts, db.counters.applied) == (0, 1)


def test_a_conflict_after_the_end_of_the_lease_is_an_error(urls: list[str], name: str, touch: Callable[[int], None]) -> None:
    clock = SettableClock()
    removal = ConflictingDelete(touch=touch, conflicts=1000)
    with QueueDB(urls[0], removal=removal, clock=clock) as db:
        db.queue(name).enqueue("mail", 1)
        (job,) = db.queue(name).claim(lease=10)
        clock.advance(11)
        with pytest.raises(TransientStorageError) as caught:
            job.complete()
        assert db.database.dialect.errors.is_collision(caught.value)
        assert not caught.value.outcome_unknown
        assert removal.conflicts > 900


def test_a_conflict_that_a_savepoint_meets_first_is_what_the_caller_sees(
    urls: list[str], name: str, touch: Callable[[int], None]
) -> None:
    """Who took it for a duplicate key alone would go on, and commit the second half of a transaction."""
    with QueueDB(urls[0]) as db:
        queue = db.queue(name)
        job = queue.enqueue("mail", 1, unique_key="k")
        with db.database.engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
            connection.execute(text("UPDATE jobs SET progress = 0.5 WHERE id = :id"), {"id": job})
            with (
                between(db.database.engine, "ROLLBACK TO", lambda: touch(job)) as touched,
                pytest.raises(TransientStorageError) as caught,
            ):
                queue.enqueue_many([("mail", 2, {"unique_key": "k"})], using=connection)
            connection.rollback()
        assert touched
        assert db.database.dialect.errors.is_collision(caught.value)


@pytest.mark.parametrize("cluster", ["galera"], indirect=True, scope="session")
def test_a_transaction_that_is_too_large_for_the_cluster_is_refused_for_good(urls: list[str], name: str) -> None:
    with QueueDB(urls[0]) as db:
        try:
            run(urls[0], "SET GLOBAL wsrep_max_ws_rows = 20")
            with pytest.raises(PermanentStorageError, match="wsrep_max_ws_rows exceeded") as caught:
                db.queue(name).enqueue_many([("mail", number) for number in range(100)])
        finally:
            run(urls[0], "SET GLOBAL wsrep_max_ws_rows = 0")
        assert not caught.value.outcome_unknown
        assert db.counters.retried == 0
        assert db.queue(name).stats().available == 0


def test_of_equal_unique_keys_on_three_nodes_one_wins(nodes: list[QueueDB], name: str) -> None:
    for number in range(20):
        found = at_once(*(lambda db=db, key=f"k{number}": db.queue(name).enqueue("mail", 1, unique_key=key) for db in nodes))
        assert sorted(type(one).__name__ for one in found) == ["DuplicateJobError", "DuplicateJobError", "int"], found
        (won,) = [one for one in found if isinstance(one, int)]
        assert {one.existing_id for one in found if isinstance(one, DuplicateJobError)} == {won}


@pytest.mark.parametrize("cluster", ["galera"], indirect=True)
def test_of_two_completions_on_two_nodes_one_is_lost(open_nodes: Callable[..., list[QueueDB]], urls: list[str], name: str) -> None:
    here = open_nodes()[0].queue(name)
    with QueueDB(urls[1], clock=lambda: round((time.time() + 4) * 1e6)) as other:
        there = other.queue(name)  # where leases have ended

        def take_over() -> list[int]:
            jobs = there.claim(4, lease=60)
            return [job.id for job, verdict in zip(jobs, there.complete_many(jobs), strict=True) if verdict]

        for _ in range(300):
            here.enqueue_many([("mail", number) for number in range(4)])
            held = here.claim(4, lease=2)
            verdicts, taken = at_once(lambda: here.complete_many(held), take_over)  # noqa: B023 - it is called at once
            assert not isinstance(verdicts, Exception)
            assert not isinstance(taken, Exception)
            assert not {job.id for job, verdict in zip(held, verdicts, strict=True) if verdict} & {*taken}
