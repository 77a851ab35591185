"""Several workers complete and claim few jobs at once: no deadlock, and no job is lost or done twice."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Executable, event, select, text

from queue_db import Adaptive, Capability, LeasedJob, Optimistic, Queue, QueueDB, SkipLocked, Verdict
from queue_db.dialects import postgresql_sql
from queue_db.dialects.claim_sql import COLUMNS, ClaimText
from queue_db.dialects.statements import kept
from queue_db.strategies import Strategy
from queue_db.testing import SettableClock
from tests.races.interleaving import Loser, at_once, open_transaction, other_handle, patient
from tests.races.winners import WINNERS

TwoQueues = Callable[[str], list[Queue]]

WORKERS = 6
ROUNDS = 1000
JOBS = 12

#: Options of the jobs: however often their leases end, none is buried.
LASTING = {"max_attempts": 10_000}

STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "adaptive": Adaptive,
    "optimistic_head": lambda: Optimistic(pick="head"),
    "skip_locked": SkipLocked,
}


def storm(dbs: list[QueueDB], name: str, rounds: int = ROUNDS) -> tuple[Counter[int], list[tuple[int, int]]]:
    """That many calls in a queue of a few jobs whose leases are over at once: what one worker completes, others try to claim.
    Return how often each job was completed, and the leases.
    """
    done: Counter[int] = Counter()
    leases: list[tuple[int, int]] = []
    lock = threading.Lock()
    turns = iter(range(rounds))

    def work(db: QueueDB, seed: int) -> None:
        rng, queue, jobs = random.Random(seed), db.queue(name), list[LeasedJob]()
        while True:
            with lock:
                if next(turns, None) is None:
                    return
            if rng.random() < 0.5:
                queue.enqueue_many([("k", number, LASTING) for number in range(rng.randint(1, 4))])
            rng.shuffle(jobs)
            verdicts, won = queue.complete_and_claim(jobs, rng.randint(1, JOBS), rng.choice([0.001, 0.002, 0.02]))
            with lock:
                done.update(job.id for job, verdict in zip(jobs, verdicts, strict=True) if verdict)
                leases.extend((job.id, job.version) for job in won)
            jobs = won

    dbs[0].queue(name).enqueue_many([("k", number, LASTING) for number in range(JOBS)])
    errors = [one for one in at_once(*(lambda db=db, seed=seed: work(db, seed) for seed, db in enumerate(dbs))) if one is not None]
    assert errors == []
    return done, leases


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.rest("the pairs above meet on purpose; this one looks for what nobody thought of")
def test_a_thousand_calls_and_no_deadlock(
    open_db: Callable[..., QueueDB], name: str, strategy: str, differs: Callable[[str], None]
) -> None:
    if Capability.SKIP_LOCKED in STRATEGIES[strategy]().needs:
        differs("no SKIP LOCKED")
    dbs = [open_db(strategy=STRATEGIES[strategy](), worker=f"worker-{number}", pool_size=1) for number in range(WORKERS)]
    done, leases = storm(dbs, name)
    assert sum(db.counters.deadlocks for db in dbs) == 0
    assert set(done.values()) <= {1}
    assert len(set(leases)) == len(leases), "one (id, version) was given to two workers"
    assert sum(done.values()) == sum(db.counters.applied for db in dbs)
    jobs = dbs[0].store.tables.jobs
    with dbs[0].database.engine.connect() as connection:
        left = set(connection.execute(select(jobs.c.id).where(jobs.c.queue == name)).scalars())
    assert not left & set(done), "a completed job is still there"
    assert {job_id for job_id, _ in leases} - left <= set(done), "a job left that was not completed"


def claims_first(claim: ClaimText, *, one: bool, completes_one: bool) -> Executable:
    """``postgresql_sql.complete_and_claim`` in the other order."""
    won = f"{postgresql_sql._fast_candidates(claim)}, won AS ({postgresql_sql._fast_change(claim, one=one)})"
    after = " AND (SELECT count(*) FROM won) >= 0"
    completed = f"DELETE FROM {claim.table} WHERE {postgresql_sql.matching(one=completes_one)}{after} RETURNING id"
    columns = COLUMNS if one else (*COLUMNS, "tried")
    found = postgresql_sql._won_and_deleted(columns, completes_one=completes_one)
    return kept(f"WITH {won}, completed AS ({completed}) {found}", *columns, **postgresql_sql.LISTS)


@pytest.fixture
def two(fresh_url: str, clock: SettableClock, no_second_look: None) -> Iterator[TwoQueues]:
    """A queue in two processes' hands, whose next calls are one statement each, with a strategy of this name.

    In a database of its own: in a small table the server may lock the rows in the order in which they lie there. Here that is
    always the order of their claims; in a table that other tests have used it depends on free space and on the last ANALYZE.
    """
    opened: list[QueueDB] = []

    def open_them(strategy: str) -> list[Queue]:
        for worker in ("ours", "theirs"):
            opened.append(QueueDB(patient(fresh_url), strategy=STRATEGIES[strategy](), clock=clock, worker=worker))
            opened[-1].migrate()
            expecting(opened[-1].queue("mail"))
        return [db.queue("mail") for db in opened]

    yield open_them
    for db in opened:
        db.close()


def deadlocks_of(kind: str, locked: Sequence[int], *calls: tuple[Queue, list[LeasedJob], int]) -> int:
    """The deadlocks of calls that come, one after the other, upon a transaction that has locked these jobs."""
    first = calls[0][0]
    with open_transaction(first.db) as connection:
        for job_id in locked:
            connection.execute(text("UPDATE jobs SET priority = priority WHERE id = :id"), {"id": job_id})
        losers = []
        for queue, jobs, limit in calls:
            losers.append(Loser(kind, queue.db, partial(queue.complete_and_claim, jobs, limit)))
            losers[-1].until_it_waits()
        connection.rollback()
        answers = [loser.result() for loser in losers]
    assert any(verdict for verdicts, _ in answers for verdict in verdicts)
    return sum(queue.db.counters.deadlocks for queue, _, _ in calls)


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
@pytest.mark.parametrize("order", ["completes first", "claims first"])
def test_complete_and_claim_that_waits_for_a_job_to_complete_has_claimed_nothing(
    kind: str, two: TwoQueues, clock: SettableClock, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the other order, each steps over what the other has claimed and then waits for it."""
    if order == "claims first":
        monkeypatch.setattr(postgresql_sql, "complete_and_claim", claims_first)
    ours, theirs = two("skip_locked")
    ours.enqueue_many([("k", number) for number in range(4)])
    (our_locked,), (their_locked,) = ours.claim(lease=1), theirs.claim(lease=1)
    (their_late,), (our_late,) = theirs.claim(lease=1.5), ours.claim(lease=1.5)
    clock.advance(2)
    calls = (ours, [our_locked, our_late], 1), (theirs, [their_locked, their_late], 1)
    deadlocks = deadlocks_of(kind, [our_locked.id, their_locked.id], *calls)
    assert deadlocks == (order == "claims first")


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
@pytest.mark.parametrize("patience", ["short", "endless"])
def test_complete_and_claim_waits_for_a_job_to_claim_a_short_time_only(
    kind: str, two: TwoQueues, clock: SettableClock, patience: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the jobs that it has completed, and another complete_and_claim may want to claim them."""
    if patience == "endless":
        endless = postgresql_sql._PATIENCE.replace("50ms", "0")
        assert endless != postgresql_sql._PATIENCE
        monkeypatch.setattr(postgresql_sql, "_PATIENCE", endless)  # before the first claim of these objects
    ours, theirs = two("optimistic_head")
    locked = ours.enqueue("k", delay=0.5)
    ours.enqueue_many([("k", number) for number in range(2)])
    ours_late, theirs_late = ours.claim(lease=1), theirs.claim(lease=1)
    clock.advance(2)
    deadlocks = deadlocks_of(kind, [locked], (ours, ours_late, 3), (theirs, theirs_late, 3))
    assert deadlocks == (patience == "endless")


@pytest.mark.usefixtures("no_second_look")
@pytest.mark.parametrize("kind", ["mysql", "mariadb"], scope="session")
def test_a_claim_that_locked_fewer_jobs_than_it_wants_looks_again_in_a_transaction_of_its_own(
    kind: str, open_db: Callable[..., QueueDB], name: str
) -> None:
    """A second look in the first one's transaction begins before the jobs that this has locked. Who waits for them and holds others
    is then in a circle with it: for a moment, MariaDB takes also the attempt to step over a lock for a wait.
    """
    ours, theirs = (open_db(strategy="skip_locked", worker=worker).queue(name) for worker in ("ours", "theirs"))
    expecting(theirs)
    first, second = ours.enqueue_many([("k", number) for number in range(2)])
    sent: list[str] = []

    def saw(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        sent.append("look" if "SKIP LOCKED" in statement else statement.partition(" ")[0])

    event.listen(theirs.db.database.engine, "after_cursor_execute", saw)
    with open_transaction(ours.db) as connection:
        connection.execute(text("UPDATE jobs SET priority = priority WHERE id = :id"), {"id": first})
        assert [job.id for job in theirs.claim(2, lease=60)] == [second]
        connection.rollback()
    assert sent == ["BEGIN", "look", "UPDATE", "COMMIT", "BEGIN", "look", "COMMIT"]


def expecting(queue: Queue) -> None:
    """Let its last claim have won all that it wanted. Nothing else is due."""
    queue.enqueue("first")
    (job,) = queue.claim()
    assert job.complete()


@pytest.mark.parametrize("winner", WINNERS)
def test_complete_and_claim_loses_to_what_commits_while_it_waits_and_claims_nevertheless(
    kind: str, clock: SettableClock, ours: Queue, theirs: Queue, winner: str
) -> None:
    ours.enqueue("mail", unique_key="k")
    (job,) = ours.claim(lease=1)
    expecting(theirs)
    clock.advance(2)
    late = other_handle(job, theirs)
    with open_transaction(ours.db) as connection:
        WINNERS[winner](connection, ours, job)
        verb = Loser(kind, theirs.db, lambda: theirs.complete_and_claim([late], 5))
        assert verb.until_it_waits(), "nothing was in its way"
        connection.commit()
        verdicts, won = verb.result()
    assert verdicts == [Verdict.LOST]
    assert all((one.id, one.version) != (job.id, job.version) for one in won)


def test_a_due_job_that_a_transaction_has_locked_takes_no_verdict_away(kind: str, ours: Queue, theirs: Queue) -> None:
    if kind == "sqlite":
        return  # one writer at a time
    ours.enqueue("mail", 1)
    (job,) = ours.claim()
    expecting(theirs)
    first, second = ours.enqueue_many([("mail", 2), ("mail", 3)])
    mine = other_handle(job, theirs)
    with open_transaction(ours.db) as connection:
        connection.execute(text("UPDATE jobs SET priority = priority WHERE id = :id"), {"id": first})
        verb = Loser(kind, theirs.db, lambda: theirs.complete_and_claim([mine], 2))
        if verb.until_it_waits():
            connection.rollback()
        verdicts, won = verb.result()
    assert verdicts == [Verdict.APPLIED]
    assert {one.id for one in won} <= {first, second}
    assert second in {one.id for one in won}
