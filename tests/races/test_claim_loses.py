"""A claim that comes too late gets nothing, changes nothing, and says that it missed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from queue_db import LeasedJob, Optimistic, Queue, QueueDB
from queue_db.model import Capability, ClaimResult
from queue_db.strategies import known_strategies, strategy_for
from queue_db.testing import SettableClock
from queue_db.verbs.claim_round import Unanswered
from tests.races.interleaving import Loser, at_once, between, open_transaction
from tests.races.winners import ROLLED_BACK, WINNERS

STRATEGIES = tuple(known_strategies())

OpenDB = Callable[..., QueueDB]


def expired(queue: Queue, clock: SettableClock) -> LeasedJob:
    """A lease that has run out and that nobody has taken over."""
    queue.enqueue("mail", unique_key="k")
    (job,) = queue.claim(lease=1)
    clock.advance(2)
    return job


def state(queue: Queue, job: LeasedJob) -> object:
    """Everything that is stored about the job's lease, seen past the verbs."""
    jobs, dead = queue.db.store.tables.jobs, queue.db.store.tables.dead
    with queue.db.database.engine.connect() as connection:
        live = connection.execute(jobs.select().where(jobs.c.id == job.id)).all()
        return live, connection.execute(dead.select().where(dead.c.id == job.id)).all()


def steps_over_locks(strategy: str) -> bool:
    """Whether its claims use SKIP LOCKED."""
    return Capability.SKIP_LOCKED in strategy_for(strategy).needs


def waits(kind: str, strategy: str) -> bool:
    """Whether a claim waits for a row that another transaction has changed, or steps over it."""
    steps_over = steps_over_locks(strategy) or (kind == "postgresql" and strategy != "pessimistic")
    return not steps_over


@pytest.fixture(params=STRATEGIES)
def strategy(request: pytest.FixtureRequest, differs: Callable[[str], None]) -> str:
    if steps_over_locks(request.param):
        differs("no SKIP LOCKED")
    return str(request.param)


@pytest.mark.parametrize("winner", WINNERS)
def test_claim_loses_to_what_commits_while_it_waits(
    kind: str, open_db: OpenDB, clock: SettableClock, name: str, strategy: str, winner: str, ours: Queue
) -> None:
    job = expired(ours, clock)
    late = open_db(strategy=strategy, clock=clock, worker="late").queue(name)
    with open_transaction(ours.db) as connection:
        WINNERS[winner](connection, ours, job)
        loser = Loser(kind, late.db, late.claim)
        assert loser.until_it_waits() is waits(kind, strategy)
        connection.commit()
        after = state(ours, job)
        assert loser.result() == []
    assert state(ours, job) == after
    counters = late.db.counters
    assert (counters.claimed, counters.contended + counters.empty) == (0, 1)
    assert counters.candidates == counters.missed


def test_claim_that_waited_in_vain_takes_what_became_due_meanwhile(
    kind: str, open_db: OpenDB, clock: SettableClock, name: str, strategy: str, ours: Queue
) -> None:
    job = expired(ours, clock)
    late = open_db(strategy=strategy, clock=clock, worker="late").queue(name)
    with open_transaction(ours.db) as connection:
        WINNERS["complete"](connection, ours, job)
        ours.enqueue("new", using=connection)
        loser = Loser(kind, late.db, late.claim)
        assert loser.until_it_waits() is waits(kind, strategy)
        connection.commit()
        assert [won.kind for won in loser.result()] == (["new"] if waits(kind, strategy) else [])
    if waits(kind, strategy):
        # One that locks the newest rows instead of those of its snapshot has the new one in its first round.
        newest = kind == "sqlite" or (kind != "postgresql" and strategy == "pessimistic")
        assert late.db.counters.missed == (not newest)


@pytest.mark.parametrize("winner", ROLLED_BACK)
def test_claim_wins_over_what_rolls_back(
    kind: str, open_db: OpenDB, clock: SettableClock, name: str, strategy: str, winner: str, ours: Queue
) -> None:
    job = expired(ours, clock)
    late = open_db(strategy=strategy, clock=clock, worker="late").queue(name)
    with open_transaction(ours.db) as connection:
        WINNERS[winner](connection, ours, job)
        claim = Loser(kind, late.db, late.claim)
        assert claim.until_it_waits() is waits(kind, strategy)
        connection.rollback()
        # One that waited goes on with the job as it was; one that stepped over it takes it the next time.
        (won,) = claim.result() if waits(kind, strategy) else late.claim()
    assert (won.id, won.version, won.attempts) == (job.id, job.version + 1, 2)


@pytest.mark.parametrize("winner", ["claim", "extend", "complete", "fail", "replace"])
def test_claim_loses_between_its_look_and_its_update(
    kind: str, differs: Callable[[str], None], clock: SettableClock, ours: Queue, theirs: Queue, winner: str
) -> None:
    differs("one statement claims")
    job = expired(ours, clock)
    actions: dict[str, Callable[[], object]] = {
        "claim": lambda: ours.claim(lease=1000),
        "extend": lambda: job.extend(1000),
        "complete": job.complete,
        "fail": lambda: job.fail("again", retry_in=1000),
        "replace": lambda: ours.enqueue("new", unique_key="k", on_duplicate="replace", delay=1000),
    }
    with between(theirs.db.database.engine, "UPDATE", actions[winner]) as done:
        assert theirs.claim() == []
    assert done[0], "the winner did not win"
    counters = theirs.db.counters
    assert (counters.missed, counters.contended, counters.empty) == (1, 1, 0)


def test_one_of_two_claims_of_one_job_loses(open_db: OpenDB, name: str, strategy: str) -> None:
    first, second = (open_db(strategy=strategy, worker=worker).queue(name) for worker in ("first", "second"))
    for _ in range(25):
        first.enqueue("mail")
        got = at_once(first.claim, second.claim)
        (winner,) = [jobs for jobs in got if jobs]
        assert sorted(map(str, got)) == sorted(["[]", str(winner)])
        assert winner[0].complete()
    assert first.db.counters.claimed + second.db.counters.claimed == 25


def test_claims_of_overlapping_batches_lose_what_the_others_took(open_db: OpenDB, name: str, strategy: str) -> None:
    queues = [open_db(strategy=strategy, worker=f"worker-{number}").queue(name) for number in range(4)]
    for _ in range(10):
        ids = queues[0].enqueue_many([("mail", number) for number in range(60)])
        claimed: list[LeasedJob] = []
        while len(claimed) < len(ids):
            for batch in at_once(*(partial(queue.claim, limit=20) for queue in queues)):
                assert not isinstance(batch, Exception), batch
                claimed.extend(batch)
        assert sorted(job.id for job in claimed) == ids
        for queue in queues:
            assert all(queue.complete_many([job for job in claimed if job.source is queue]))
    assert sum(queue.db.counters.claimed for queue in queues) == 600


def test_slice_claims_lose_single_jobs_and_not_the_batch(
    differs: Callable[[str], None], open_db: OpenDB, clock: SettableClock, name: str, ours: Queue
) -> None:
    differs("one statement claims")
    ids = ours.enqueue_many([("mail", number) for number in range(10)])
    theirs = open_db(strategy=Optimistic(pick="head"), clock=clock).queue(name)
    taken: list[int] = []

    def take_three() -> bool:
        taken.extend(job.id for job in ours.claim(limit=3))
        return True

    with between(theirs.db.database.engine, "UPDATE", take_three):
        won = theirs.claim(limit=10)
    assert sorted([*taken, *(job.id for job in won)]) == ids
    assert (theirs.db.counters.missed, theirs.db.counters.claimed) == (3, 7)


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_a_claim_that_loses_every_candidate_pauses_before_each_further_round(
    db: QueueDB, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(db.strategy, "claim", lambda tx, request: ClaimResult(request.queue, request.limit, missed=1))
    monkeypatch.setattr(db.database, "pause", pauses.append)
    assert queue.claim() == []
    assert len(pauses) == 4
    assert all(0 <= seconds <= 0.002 * 2**round_ for round_, seconds in enumerate(pauses, 1))
    assert (db.counters.attempts, db.counters.contended) == (5, 1)


class Emptied(list[Unanswered]):
    """A list from which another thread takes the last entry after every look."""

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_a_claim_loses_to_another_thread_that_gives_back_what_was_unanswered(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = queue.enqueue("mail")
    monkeypatch.setattr(queue._claims, "unanswered", Emptied())
    assert [job.id for job in queue.claim()] == [job_id]
