"""A signal handler that enqueues and works, at any line of a verb: it waits for nothing that the verb holds in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from sqlalchemy import func, select

from queue_db import JobNotFoundError, LeasedJob, PermanentStorageError, Queue, QueueDBError, StorageError, TransientStorageError
from queue_db.concurrency.batching import _Entry
from queue_db.model import NewJob
from queue_db.store import LowWaterMarks
from queue_db.store.enqueue import OnDuplicate
from queue_db.store.low_water_marks import SLACK
from queue_db.verbs.claim import ClaimLoop
from tests.interrupting import called_within, interrupted, places_of
from tests.patience import PATIENCE

VERBS: dict[str, Callable[[Queue], object]] = {
    "enqueue": lambda queue: queue.enqueue("k"),
    "claim": lambda queue: queue.claim(),
    "complete": lambda queue: queue.complete_many(queue.claim()),
}


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")  # where one writes while another does
@pytest.mark.parametrize("verb", VERBS)
def test_a_signal_handler_that_enqueues_and_works_waits_for_nobody(queue: Queue, verb: str) -> None:
    queue.enqueue_many([("k", None)] * 1000)
    for _ in range(3):
        VERBS[verb](queue)
    enqueued: list[int | None] = []
    ended: list[None] = []

    # Of another queue: a job that the verb has in its transaction is locked in the database until that ends.
    other = queue.db.queue(f"{queue.name}-other")

    def handler() -> None:
        enqueued.append(queue.enqueue("of a signal handler"))
        other.enqueue("k")
        other.complete_many(other.claim())

    for called, (place, call) in enumerate(called_within(lambda: VERBS[verb](queue), handler), 1):

        def run(call: Callable[[], None] = call) -> None:
            call()
            ended.append(None)

        thread = threading.Thread(target=run, daemon=True)  # one that waits for ever must not keep the suite from ending
        thread.start()
        thread.join(PATIENCE)
        assert len(ended) == called, place
    assert len(set(enqueued)) == len(enqueued) > 100  # a few places are passed now and then only


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_a_signal_handler_that_uses_a_feed_waits_for_nobody(queue: Queue) -> None:
    feed = queue.db.feed(queue.name)
    feed.publish("k")
    row = feed.existing()
    assert row is not None
    for place, call in called_within(lambda: feed._remember(row), feed.existing):
        feed._row_until = 0.0
        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(PATIENCE)
        assert not thread.is_alive(), place


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_what_a_signal_handler_does_to_low_water_marks_stays(kind: str) -> None:
    marks = LowWaterMarks()

    def changed() -> None:
        nonlocal marks
        marks = LowWaterMarks()
        marks.add(1)
        marks.nothing_due(marks.ranges(), 10 * SLACK)
        marks.ranges()

    def claims() -> None:
        marks.ranges()

    for handler in (lambda: marks.add(2), claims):
        for place, call in called_within(changed, handler):
            call()
            assert dict(marks.ranges()) == marks._floors, place


class TransientOfAnotherError(TransientStorageError):
    """A signal handler used the queue, and lets out what that raised."""

    def __init__(self) -> None:
        super().__init__("the handler's own transaction was refused")


class PermanentOfAnotherError(PermanentStorageError):
    """The same, where trying again does not help."""

    def __init__(self) -> None:
        super().__init__("the handler's own statement was refused")


class NotFoundOfAnotherError(JobNotFoundError):
    """The same, where the database has refused nothing."""

    def __init__(self) -> None:
        super().__init__(1, "a queue")


ERRORS = [TransientOfAnotherError, PermanentOfAnotherError, NotFoundOfAnotherError]


def made(queue: Queue) -> dict[str, int]:
    """How many jobs of each kind are committed."""
    jobs = queue.db.core.store.tables.jobs
    with queue.db.core.database.begin() as connection:
        query = select(jobs.c.kind, func.count()).where(jobs.c.queue == queue.name).group_by(jobs.c.kind)
        return dict(connection.execute(query).all())


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"], scope="session")
@pytest.mark.parametrize("error", ERRORS)
def test_an_enqueue_loses_to_an_error_of_a_signal_handler_and_is_not_made_twice(queue: Queue, error: type[QueueDBError]) -> None:
    """The error may ask to run again, but not this transaction, which may have been committed."""
    unknown: dict[str, bool] = {}
    places: dict[str, str] = {}

    def enqueue(kind: str) -> None:
        try:
            queue.enqueue(kind)
        except StorageError as told:
            unknown[kind] = told.outcome_unknown
            raise

    for _ in range(3):
        queue.enqueue("warm")
    raised = {}
    for number, place in enumerate(places_of(lambda: queue.enqueue("warm"))):
        kind = f"cut {number}"
        raised[kind] = interrupted(lambda kind=kind: enqueue(kind), place, error)  # type: ignore[misc]
        places[kind] = str(place)
    there = made(queue)
    silent = [places[kind] for kind, told in unknown.items() if kind in there and not told]
    # Between two lines at the end of a transaction nothing catches it.
    assert [place for place in silent if "OwnTransaction.__exit__" not in place] == [], "the job is there, and nobody says so"
    assert len(raised) > 30
    assert {kind: there.get(kind, 0) for kind in raised if there.get(kind, 0) > 1} == {}
    assert [kind for kind, told in raised.items() if not told and there.get(kind) != 1] == [], "it returned, and there is no job"


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"], scope="session")
@pytest.mark.parametrize("by", ["the driver's cursor", "SQLAlchemy"])
def test_a_pop_loses_to_an_error_of_a_signal_handler_and_takes_no_second_job(
    queue: Queue, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pop is one statement that commits by itself; some drivers get it from SQLAlchemy, such as asyncpg."""
    queue.enqueue_many([("k", None)] * 600)
    if by == "SQLAlchemy":
        monkeypatch.setattr(queue.db.database.dialect, "uses_raw_cursor", False)
    for _ in range(3):
        queue.pop()
    taken = {}
    for place in places_of(queue.pop):
        before = made(queue)["k"]
        interrupted(queue.pop, place, TransientOfAnotherError)
        taken[str(place)] = before - made(queue)["k"]
    assert len(taken) > 30
    assert {place: number for place, number in taken.items() if number > 1} == {}


def leased(queue: Queue, jobs: Sequence[LeasedJob]) -> int:
    """How many of these jobs are there."""
    table = queue.db.core.store.tables.jobs
    with queue.db.core.database.begin() as connection:
        rows = connection.execute(select(table.c.id).where(table.c.id.in_([job.id for job in jobs])))
        return len(rows.all())


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"], scope="session")
@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.rest("test_interrupts_at_every_line.py interrupts completions")
def test_a_completion_loses_to_an_error_of_a_signal_handler_and_tells_no_wrong_verdict(queue: Queue, number: int) -> None:
    """The error comes before or after the COMMIT of the transaction that completes jobs and claims others."""

    def claimed() -> list[LeasedJob]:
        queue.purge()
        queue.enqueue_many([("k", None)] * (2 * number))
        return queue.claim(number, lease=3600.0)

    for _ in range(3):
        queue.complete_and_claim(claimed(), number)
    jobs = claimed()
    places = places_of(lambda: queue.complete_and_claim(jobs, number))
    wrong = []
    for place in places:
        jobs, told = claimed(), []
        interrupted(
            lambda jobs=jobs, told=told: told.append(queue.complete_and_claim(jobs, number)),  # type: ignore[misc]
            place,
            TransientOfAnotherError,
        )
        if told and bool(told[0][0][0]) != (leased(queue, jobs) == 0):
            wrong.append(str(place))
    assert len(places) > 30
    assert wrong == []


#: They take turns from line to line.
IN_TURN: tuple[type[BaseException], ...] = (KeyboardInterrupt, TransientOfAnotherError)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a generator that is closed by an interrupt says so
@pytest.mark.parametrize(
    "kind, verb",  # noqa: PT006 - the fixtures look for the name
    [
        ("postgresql", "complete"),
        ("sqlite", "complete"),
        pytest.param("sqlite", "fail", marks=pytest.mark.rest("a completion goes the same way, with fewer statements")),
    ],
    scope="session",
)
def test_a_verb_that_is_run_again_after_an_interrupt_tells_what_became_of_it(queue: Queue, verb: str) -> None:
    """Also after an interrupt between the COMMIT and the end of the verb, which tells nothing itself."""

    def settle(job: LeasedJob) -> bool:
        return bool(job.complete() if verb == "complete" else job.fail("why", retry_in=3600.0))

    def claimed() -> LeasedJob:
        queue.purge()
        queue.enqueue("k")
        (job,) = queue.claim(lease=3600.0)
        return job

    def holds(job: LeasedJob) -> bool:
        table = queue.db.core.store.tables.jobs
        with queue.db.core.database.begin() as connection:
            there = select(table.c.id).where(table.c.id == job.id, table.c.claim_token.is_not(None))
            return connection.execute(there).first() is not None

    for _ in range(3):
        settle(claimed())
    job = claimed()
    places = places_of(lambda: settle(job), whole=True)
    wrong = []
    told = {True: 0, False: 0}
    for number, place in enumerate(places):
        job = claimed()
        if not interrupted(lambda job=job: settle(job), place, IN_TURN[number % 2]):  # type: ignore[misc]
            assert not holds(job)
            continue
        left = holds(job)
        told[left] += 1
        if settle(job) is not left or holds(job):
            wrong.append(str(place))
    assert min(told.values()) > 30
    assert wrong == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "kind", [pytest.param("postgresql", marks=pytest.mark.rest("on SQLite it passes the same lines")), "sqlite"], scope="session"
)
def test_the_jobs_of_an_interrupted_claim_are_released_by_the_next(queue: Queue) -> None:
    """Up to the moment at which they are in hand; after it they come back when their leases end."""

    def enqueued() -> int | None:
        queue.purge()
        return queue.enqueue("k")

    for _ in range(3):
        enqueued()
        (job,) = queue.claim()
        job.complete()
    enqueued()
    places = places_of(queue.claim, whole=True)
    taken_in = [at for at, place in enumerate(places) if place.code is ClaimLoop._take_in.__code__]
    lost = []
    for number, place in enumerate(places[: taken_in[-1] + 1]):
        job_id = enqueued()
        jobs: list[LeasedJob] = []
        interrupted(lambda jobs=jobs: jobs.extend(queue.claim(lease=3600.0)), place, IN_TURN[number % 2])  # type: ignore[misc]
        for _ in range(2):  # the first one releases it after its own claim
            jobs += queue.claim(lease=3600.0)
        if [job.id for job in jobs] != [job_id]:
            lost.append(str(place))
        for job in jobs:
            job.complete()
    assert len(taken_in) > 10
    assert lost == []


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"], scope="session")
@pytest.mark.parametrize("error", ERRORS)
def test_a_shared_insert_loses_to_an_error_of_a_signal_handler_and_is_not_made_twice(
    queue: Queue, error: type[QueueDBError]
) -> None:
    def shared(kind: str) -> None:
        """Two callers, which insert their jobs alone if the shared insert did not happen."""
        batch: list[_Entry[NewJob, Any]] = [_Entry(queue._builder.job(kind, None)) for _ in range(2)]
        queue._enqueue._batcher._settle(batch)
        for entry in batch:
            if entry.error is not None:
                raise entry.error
            if not isinstance(entry.result, int):
                queue._enqueue._alone(entry.item, OnDuplicate.RAISE)

    for _ in range(3):
        shared("warm")
    raised = {}
    for number, place in enumerate(places_of(lambda: shared("warm"))):
        kind = f"cut {number}"
        raised[kind] = interrupted(lambda kind=kind: shared(kind), place, error)  # type: ignore[misc]
    there = made(queue)
    assert len(raised) > 30
    assert {kind: there.get(kind, 0) for kind in raised if there.get(kind, 0) > 2} == {}
    assert [kind for kind, told in raised.items() if not told and there.get(kind) != 2] == [], "it returned, and a job is missing"
