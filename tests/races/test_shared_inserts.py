"""Enqueues of one process that come while enough inserts are under way go together in the next one; each has its own outcome."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import create_engine

from queue_db import ConfigurationError, DuplicateJobError, PermanentStorageError, Queue, QueueDB, State, TransientStorageError
from queue_db.model import NewJob
from queue_db.store import Transaction, enqueue
from queue_db.verbs.enqueue import _INSERTS, _SHARED
from tests.patience import PATIENCE
from tests.races.interleaving import patient

OpenDB = Callable[..., QueueDB]


class Gate:
    """Holds the first inserts of a queue up before they begin, and lists how many jobs each has."""

    def __init__(self, queue: Queue, at_once: int | None = 1) -> None:
        self.queue = queue
        self.batches: list[int] = []
        self.batcher = queue._enqueue._batcher
        self._run = self.batcher._run
        if at_once is not None:
            self.batcher._at_once = at_once
        self._open = threading.Event()
        self._pool = ThreadPoolExecutor(40)
        self.batcher._run = self._gated

    def _gated(self, jobs: list[NewJob]) -> Sequence[Any]:
        self.batches.append(len(jobs))
        if len(self.batches) <= self.batcher._at_once:
            assert self._open.wait(PATIENCE)
        return self._run(jobs)

    def enqueue(self, *options: dict[str, Any]) -> list[Future[int | None]]:
        """A thread for each job, one after the other: the first insert, the others wait in this order."""
        futures: list[Future[int | None]] = []
        for number, each in enumerate(options):
            futures.append(self._pool.submit(self.queue.enqueue, "mail", **{"payload": number, **each}))
            running = min(number + 1, self.batcher._at_once)
            while len(self.batches) < running or len(self.batcher._queue) < number + 1 - running:
                assert not futures[-1].done()
        return futures

    def open(self) -> None:
        self._open.set()

    def outcomes(self, *options: dict[str, Any]) -> list[Any]:
        futures = self.enqueue(*options)
        self.open()
        return [future.exception(PATIENCE) or future.result() for future in futures]


def each_gets_its_own(queue: Queue) -> None:
    """Twelve callers, each with other options; eleven of them share an insert."""
    options: list[dict[str, Any]] = [
        {
            "priority": number % 3,
            "delay": 60.0 * (number % 2),
            "max_attempts": 1 + number,
            "headers": {"n": number} if number % 4 else None,
        }
        for number in range(12)
    ]
    gate = Gate(queue)
    ids = gate.outcomes(*options)
    assert gate.batches == [1, 11]
    for number, (job_id, wanted) in enumerate(zip(ids, options, strict=True)):
        job = queue.get(job_id)
        assert (job.payload, job.priority, job.max_attempts) == (number, wanted["priority"], wanted["max_attempts"])
        assert job.headers == (wanted["headers"] or {})
        assert job.state is (State.SCHEDULED if wanted["delay"] else State.AVAILABLE)
    assert (queue.stats().available, queue.stats().scheduled) == (6, 6)


def test_enqueues_that_wait_go_together_and_each_gets_the_id_of_its_own_job(queue: Queue) -> None:
    each_gets_its_own(queue)


def test_of_several_threads_so_many_insert_at_once_and_only_the_others_wait(queue: Queue) -> None:
    at_once = queue._enqueue._batcher._at_once
    assert at_once == (_INSERTS if queue.core.store.dialect.served else 1)
    gate = Gate(queue, at_once=None)
    futures = gate.enqueue(*[{}] * (at_once + 3))
    gate.open()
    assert len({future.result(PATIENCE) for future in futures}) == at_once + 3
    assert gate.batches[:at_once] == [1] * at_once
    assert sum(gate.batches[at_once:]) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"unique_key": "k"},
        {"unique_key": "k", "on_duplicate": "skip"},
        {"unique_key": "k", "unique_for": 60.0},
        {"group": "g"},
        {"payload": "x" * _SHARED},
    ],
    ids=["key", "key to skip", "window", "group", "large"],
)
def test_what_may_wait_for_others_or_take_long_waits_for_no_insert_and_holds_none_up(queue: Queue, options: dict[str, Any]) -> None:
    gate = Gate(queue)
    held = gate.enqueue({})
    assert queue.enqueue("mail", **options)
    assert not held[0].done()
    gate.open()
    assert held[0].result(PATIENCE)
    assert gate.batches == [1]


def test_an_enqueue_in_a_transaction_of_the_caller_stays_in_it(queue: Queue) -> None:
    gate = Gate(queue)
    futures = gate.enqueue({})
    with contextlib.suppress(ZeroDivisionError), queue.db.database.begin() as connection:
        queue.enqueue("mail", "mine", using=connection)
        raise ZeroDivisionError
    gate.open()
    job_id = futures[0].result(PATIENCE)
    assert gate.batches == [1]
    assert [job.id for job in queue.peek(limit=10)] == [job_id]


def test_on_an_engine_of_the_application_no_thread_inserts_for_another(url: str, db: QueueDB, name: str) -> None:
    """Its listeners may set something of the current thread for the transaction."""
    engine = create_engine(url)
    try:
        with QueueDB(engine, schema=db.store.tables.jobs.schema) as own:
            gate = Gate(own.queue(name))
            gate.open()
            assert own.queue(name).enqueue("mail")
            assert gate.batches == []
    finally:
        engine.dispose()
    gate = Gate(db.queue(name))
    gate.open()
    assert db.queue(name).enqueue("mail")
    assert gate.batches == [1]


# On MySQL and MariaDB an insert that waits for a key keeps inserts beside it waiting, whoever makes them.
@pytest.mark.parametrize("kind", ["postgresql"], scope="session")
def test_an_enqueue_that_loses_the_wait_for_a_key_keeps_no_other_waiting(url: str, name: str) -> None:
    """The caller whose transaction has the key enqueues too: if it waited for the loser, both would wait for each other."""
    with QueueDB(patient(url)) as db, ThreadPoolExecutor(1) as pool:
        queue = db.queue(name)
        with queue.db.database.begin() as connection:
            taken = queue.enqueue("mail", "first", unique_key="k", using=connection)
            sent = threading.Event()
            loser = pool.submit(_sent_enqueue, queue, sent)
            assert sent.wait(PATIENCE)
            others = [queue.enqueue("mail", number) for number in range(3)]
            assert not loser.done()
        error = loser.exception(PATIENCE)
    assert isinstance(error, DuplicateJobError)
    assert error.existing_id == taken
    assert len({taken, *others}) == 4


def _sent_enqueue(queue: Queue, sent: threading.Event) -> int | None:
    real = queue._enqueue._alone

    def alone(*arguments: Any) -> int | None:
        sent.set()
        return real(*arguments)

    queue._enqueue._alone = alone  # type: ignore[method-assign]
    return queue.enqueue("mail", "second", unique_key="k")


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Sequence[NewJob]], BaseException | None]], list[int]]:
    """Make inserts fail with the error that a function of their jobs returns; how many jobs each has.

    Shared ones fail after they are done. A single one may be committed by then, so it fails before.
    """
    real, inserts = enqueue.insert_jobs, []

    def fail_with(error_of: Callable[[Sequence[NewJob]], BaseException | None]) -> list[int]:
        def insert_jobs(tx: Transaction, jobs: Sequence[NewJob], *arguments: Any, **more: Any) -> list[int | None]:
            inserts.append(len(jobs))
            error = error_of(jobs)
            if error and len(jobs) == 1:
                raise error
            ids = real(tx, jobs, *arguments, **more)
            if error:
                raise error
            return ids

        monkeypatch.setattr(enqueue, "insert_jobs", insert_jobs)
        return inserts

    return fail_with


def refuse(jobs: Sequence[NewJob]) -> Exception | None:
    return PermanentStorageError("a trigger refuses it") if any(job.payload == '"bad"' for job in jobs) else None


def one_is_refused(queue: Queue, inserts: list[int]) -> None:
    outcomes = Gate(queue).outcomes({}, {}, {"payload": "bad"}, {})
    assert isinstance(outcomes.pop(2), PermanentStorageError)
    assert sorted(job.id for job in queue.peek(limit=10)) == sorted(outcomes)
    assert inserts == [1, 3, 1, 1, 1]


def test_a_job_that_is_refused_harms_no_other_and_its_caller_gets_the_error(queue: Queue, fails: Callable[..., list[int]]) -> None:
    one_is_refused(queue, fails(refuse))


def test_a_shared_insert_that_loses_against_another_transaction_is_made_by_each_alone(
    queue: Queue, fails: Callable[..., list[int]]
) -> None:
    inserts = fails(lambda jobs: TransientStorageError("a deadlock") if len(jobs) > 1 else None)
    ids = Gate(queue).outcomes({}, {}, {}, {})
    assert sorted(job.id for job in queue.peek(limit=10)) == sorted(ids)
    assert inserts == [1, 3, 1, 1, 1]


def test_an_error_of_the_application_during_a_shared_insert_goes_to_the_caller_whose_job_it_is_about(
    queue: Queue, fails: Callable[..., list[int]]
) -> None:
    """As of a listener on the engine."""
    inserts = fails(lambda jobs: ZeroDivisionError() if any(job.payload == '"bad"' for job in jobs) else None)
    outcomes = Gate(queue).outcomes({}, {}, {"payload": "bad"}, {})
    assert isinstance(outcomes.pop(2), ZeroDivisionError)
    assert sorted(job.id for job in queue.peek(limit=10)) == sorted(outcomes)
    assert inserts == [1, 3, 1, 1, 1]


def test_an_outcome_that_is_unknown_goes_to_all_that_share_the_insert(queue: Queue, fails: Callable[..., list[int]]) -> None:
    inserts = fails(lambda jobs: TransientStorageError("the reply is lost", outcome_unknown=True) if len(jobs) > 1 else None)
    first, *others = Gate(queue).outcomes({}, {}, {}, {})
    assert [job.id for job in queue.peek(limit=10)] == [first]
    assert [(type(error), error.outcome_unknown) for error in others] == [(TransientStorageError, True)] * 3
    assert inserts == [1, 3]


def test_a_caller_that_is_interrupted_while_it_inserts_for_others_leaves_them_their_jobs(
    queue: Queue, fails: Callable[..., list[int]]
) -> None:
    inserts = fails(lambda jobs: KeyboardInterrupt() if len(jobs) > 1 else None)
    first, interrupted, *others = Gate(queue).outcomes({}, {}, {}, {})
    assert isinstance(interrupted, KeyboardInterrupt)
    assert sorted(job.id for job in queue.peek(limit=10)) == sorted([first, *others])
    assert inserts == [1, 3, 1, 1]


def test_a_caller_that_is_interrupted_while_it_commits_leaves_others_in_doubt(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = queue.core.commit

    def commit(how: Any, work: Any, *arguments: Any) -> Any:
        answer, tx = real(how, work, *arguments)
        if isinstance(answer, list) and len(answer) > 1:
            raise KeyboardInterrupt
        return answer, tx

    with monkeypatch.context() as patched:
        patched.setattr(queue.core, "commit", commit)
        first, interrupted, *others = Gate(queue).outcomes({}, {}, {}, {})
    assert isinstance(interrupted, KeyboardInterrupt)
    assert [(type(error), error.outcome_unknown) for error in others] == [(TransientStorageError, True)] * 2
    assert [job.id for job in queue.peek(limit=10)] == [first, first + 1, first + 2, first + 3]


def test_enqueues_that_wait_while_the_database_is_closed_are_refused(open_db: OpenDB, name: str) -> None:
    queue = open_db().queue(name)
    gate = Gate(queue)
    futures = gate.enqueue({}, {}, {})
    queue.db.close()
    gate.open()
    assert [type(future.exception(PATIENCE)) for future in futures] == [ConfigurationError] * 3


# --- what comes with each job -----------------------------------------------------------------------------------------


def test_each_job_that_is_due_wakes_the_workers_of_this_process(queue: Queue) -> None:
    woken: list[str] = []
    queue.db.notifications.add(woken.append)
    Gate(queue).outcomes({}, {"delay": 60}, {}, {"delay": 60}, {})
    assert woken == [queue.name] * 3


def test_each_job_has_the_headers_of_its_own_caller(queue: Queue) -> None:
    queue.db.header_provider = lambda: {"thread": threading.get_ident()}
    gate = Gate(queue)
    threads = {}

    def enqueue_it(payload: object) -> tuple[int | None, int]:
        return queue.enqueue("mail", payload), threading.get_ident()

    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(enqueue_it, number) for number in range(8)]
        while len(gate.batcher._queue) < 7:
            assert not any(future.done() for future in futures)
        gate.open()
        for future in futures:
            job_id, thread = future.result(PATIENCE)
            threads[job_id] = thread
    assert gate.batches == [1, 7]
    assert {job.id: job.headers["thread"] for job in queue.peek(limit=10)} == threads
    assert len(set(threads.values())) == 8


def test_many_threads_at_once_lose_nothing_and_mix_nothing_up(queue: Queue) -> None:
    threads, times = 16, 12
    begin = threading.Barrier(threads)

    def caller(thread: int) -> dict[int | None, list[int]]:
        begin.wait(PATIENCE)
        mine: dict[int | None, list[int]] = {}
        for turn in range(times):
            options: dict[str, Any] = {"unique_key": f"turn-{turn}", "on_duplicate": "skip"} if turn % 4 == 0 else {}
            mine.setdefault(queue.enqueue("mail", [thread, turn], **options), []).extend([thread, turn])
        return mine

    with ThreadPoolExecutor(threads) as pool:
        got = [future.result(PATIENCE) for future in [pool.submit(caller, thread) for thread in range(threads)]]
    known = {job_id: payload for mine in got for job_id, payload in mine.items() if job_id is not None}
    assert {job.id: job.payload for job in queue.peek(limit=1000)} == known
    assert len(known) == threads * times * 3 // 4 + times // 4


# --- negative controls ------------------------------------------------------------------------------------------------


def test_the_check_notices_ids_that_go_to_the_wrong_callers(queue: Queue) -> None:
    real = queue._enqueue._together
    queue._enqueue._batcher._run = lambda jobs: real(jobs)[::-1]
    with pytest.raises(AssertionError):
        each_gets_its_own(queue)


def test_the_check_notices_a_failed_insert_that_is_not_undone(queue: Queue, fails: Callable[..., list[int]]) -> None:
    real = queue.core.commit

    def keep(how: Any, work: Any, *arguments: Any) -> Any:
        def kept(tx: Transaction) -> Any:
            try:
                return work(tx, *arguments)
            except PermanentStorageError as error:
                return error

        answer, tx = real(how, kept)
        if isinstance(answer, Exception):
            raise answer
        return answer, tx

    queue.core.commit = keep  # type: ignore[method-assign]
    inserts = fails(refuse)
    with pytest.raises(AssertionError):
        one_is_refused(queue, inserts)
