"""Claims by REST obey the concurrency and the rate of their queue, together with workers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from sqlalchemy import func, select

from queue_db import ArgumentError, LeasedJob, Queue, QueueDB, StorageError
from queue_db.limits import claims, store
from queue_db.limits.limiter import RateLimiter
from queue_db.limits.tables import limits_tables
from queue_db.testing import SettableClock

OpenDB = Callable[..., QueueDB]
here = pytest.mark.parametrize("kind", ["sqlite"], scope="session")


def share(queue: Queue, worker: str, wanted: int) -> int | None:
    """What a worker gets of the concurrency."""
    return queue.core.write("limits.take_share", store.take_share, queue.name, worker, wanted, 60_000_000)


def running(queue: Queue) -> int:
    """How many jobs run, as the database says in one statement."""
    jobs = queue.core.store.tables.jobs
    query = select(func.count()).where(jobs.c.queue == queue.name, jobs.c.claim_token.is_not(None))
    with queue.core.database.engine.connect() as connection:
        return int(connection.execute(query).scalar_one())


def settled(client: httpx2.Client, name: str, jobs: list[dict[str, object]]) -> None:
    done = [{"lease": job["lease"], "verb": "complete"} for job in jobs]
    answer = client.post(f"/api/v1/queues/{name}/settlements", json={"settlements": done})
    assert answer.status_code == 200, answer.text


def test_clients_and_workers_share_the_concurrency(db: QueueDB, name: str, client: httpx2.Client) -> None:
    queue, url = db.queue(name), f"/api/v1/queues/{name}/claims"
    queue.limit(concurrency=5)
    queue.enqueue_many([("k", number) for number in range(20)])
    assert share(queue, "worker", 2) == 2
    jobs = client.post(url, json={"limit": 10}).json()["jobs"]
    assert len(jobs) == 3
    assert client.post(url, json={"limit": 10}).json()["jobs"] == []
    assert share(queue, "worker", 10) == 2
    settled(client, name, jobs[:2])
    assert share(queue, "worker", 3) == 3
    assert len(client.post(url, json={"limit": 10}).json()["jobs"]) == 1


def test_clients_obey_the_rate_and_what_they_do_not_use_is_given_back(db: QueueDB, name: str, client: httpx2.Client) -> None:
    queue, url = db.queue(name), f"/api/v1/queues/{name}/claims"
    queue.limit(rate=5, per=3600.0)
    queue.enqueue_many([("k", number) for number in range(2)])
    assert len(client.post(url, json={"limit": 10}).json()["jobs"]) == 2
    queue.enqueue_many([("k", number) for number in range(10)])
    assert len(client.post(url, json={"limit": 10}).json()["jobs"]) == 3
    assert client.post(url, json={"limit": 10}).json()["jobs"] == []


@here
def test_a_client_that_waits_gets_the_place_that_becomes_free(db: QueueDB, name: str, waiting_client: httpx2.Client) -> None:
    queue, url = db.queue(name), f"/api/v1/queues/{name}/claims"
    queue.limit(concurrency=1)
    queue.enqueue_many([("k", number) for number in range(2)])
    first = waiting_client.post(url, json={"wait": 5}).json()["jobs"]
    answers: list[list[object]] = []
    waiter = threading.Thread(target=lambda: answers.append(waiting_client.post(url, json={"wait": 20}).json()["jobs"]))
    waiter.start()
    while not waiting_client.app.state.claims.waiting(name):  # type: ignore[attr-defined]
        threading.Event().wait(0.01)
    settled(waiting_client, name, first)
    waiter.join()
    assert len(answers[0]) == 1


@here
def test_a_lease_counts_while_it_lasts(open_db: OpenDB, name: str, clock: SettableClock) -> None:
    queue = open_db(clock=clock).queue(name)
    queue.limit(concurrency=2)
    queue.enqueue_many([("k", number) for number in range(2)])
    first = {job.id: job for job in claims.claim(queue, 5, 10.0)[0]}
    clock.advance(9)
    kept, lost = first.values()
    assert kept.extend(100)
    clock.advance(9)
    (again,) = claims.claim(queue, 5, 10.0)[0]
    assert again.id == lost.id, "the job whose lease has ended"
    queue.db.prune()
    queue.enqueue("k")
    assert claims.claim(queue, 5, 10.0)[0] == ()


@here
def test_a_place_is_free_again_if_its_process_has_ended_before_it_said_so(
    open_db: OpenDB, name: str, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = open_db(clock=clock).queue(name)
    queue.limit(concurrency=1)
    queue.enqueue_many([("k", number) for number in range(5)])
    with monkeypatch.context() as killed:
        killed.setattr(claims, "_keep", lambda *_: 1)
        assert len(claims.claim(queue, 5, 2_592_000.0)[0]) == 1
    clock.advance(claims.SHARE - 1)
    assert claims.claim(queue, 5, 10.0)[0] == ()
    clock.advance(2)
    assert len(claims.claim(queue, 5, 10.0)[0]) == 1
    shares = limits_tables(queue.core.store.tables).shares
    queue.core.write("drop", store.drop_shares, "nobody")
    with queue.core.database.engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(shares)).scalar_one() == 0


@here
def test_a_claim_that_an_error_ends_leaves_its_place_to_others(open_db: OpenDB, name: str) -> None:
    queue = open_db().queue(name)
    queue.limit(concurrency=1)
    queue.enqueue("k")
    with pytest.raises(ArgumentError):
        claims.claim(queue, 1, 10.0, "x" * 5000)
    assert len(claims.claim(queue, 1, 10.0)[0]) == 1


@here
def test_a_claim_whose_share_has_expired_runs_only_what_still_has_places(
    open_db: OpenDB, name: str, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = open_db(clock=clock).queue(name)
    queue.limit(concurrency=3)
    ids = queue.enqueue_many([("k", number) for number in range(5)])
    others: list[LeasedJob] = []
    take = Queue.claim

    def slow(self: Queue, *of: Any, **more: Any) -> list[LeasedJob]:
        jobs = take(self, *of, **more)
        clock.advance(claims.SHARE + 1)
        monkeypatch.undo()
        others.extend(claims.claim(queue, 2, 600.0)[0])
        return jobs

    monkeypatch.setattr(Queue, "claim", slow)
    jobs, wait = claims.claim(queue, 3, 600.0)
    assert [job.id for job in [*jobs, *others]] == [ids[0], ids[3], ids[4]]
    assert running(queue) == 3
    assert wait > 0
    assert claims.claim(queue, 5, 600.0)[0] == ()


@here
def test_jobs_without_permits_are_not_handed_out(open_db: OpenDB, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = open_db().queue(name)
    queue.limit(concurrency=1)
    queue.enqueue("k")

    def refused(*_: object) -> int:
        raise StorageError("the server has gone")

    monkeypatch.setattr(store, "keep", refused)
    with pytest.raises(StorageError):
        claims.claim(queue, 1, 600.0)
    assert running(queue) == 0


@here
def test_permits_that_are_stored_twice_after_a_lost_answer_count_once(open_db: OpenDB, name: str) -> None:
    queue = open_db().queue(name)
    queue.limit(concurrency=2)
    queue.enqueue_many([("k", number) for number in range(3)])
    found = queue.core.write("reserve", store.reserve, name, "claim A", 2, 60_000_000)
    jobs = queue.claim(2, 60.0)
    assert [claims._keep(queue, "claim A", found, jobs, 60.0) for _ in range(2)] == [2, 2]
    assert claims.claim(queue, 1, 60.0)[0] == ()


@here
def test_a_late_claim_leaves_the_permit_of_the_next_claim_of_its_job(open_db: OpenDB, name: str, clock: SettableClock) -> None:
    queue = open_db(clock=clock).queue(name)
    queue.limit(concurrency=2)
    first = queue.enqueue("k")
    found = queue.core.write("reserve", store.reserve, name, "claim A", 1, 60_000_000)
    late = queue.claim(1, 1.0)
    clock.advance(2)
    assert [job.id for job in claims.claim(queue, 1, 600.0)[0]] == [first]
    claims._keep(queue, "claim A", found, late, 1.0)
    queue.enqueue_many([("k", number) for number in range(3)])
    assert len(claims.claim(queue, 5, 600.0)[0]) == 1


def test_claims_delete_the_permits_of_jobs_that_have_ended(open_db: OpenDB, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = open_db().queue(name)
    queue.limit(concurrency=10)
    queue.enqueue_many([("k", number) for number in range(24)])
    monkeypatch.setattr(store, "_OLD_PERMITS", 1)
    (runs,) = claims.claim(queue, 1, 600.0)[0]
    for _ in range(4):
        queue.complete_many([*claims.claim(queue, 5, 600.0)[0]])
    (last,) = claims.claim(queue, 1, 600.0)[0]
    permits = limits_tables(queue.core.store.tables).permits
    with queue.core.database.engine.connect() as connection:
        held = set(connection.execute(select(permits.c.job_id).where(permits.c.queue == name)).scalars())
    assert {runs.id, last.id} <= held
    assert len(held) <= 2 + 5, "the permits of the last claim that is over may still be there"


def _race(number: int, work: Callable[[int], None]) -> None:
    errors: list[BaseException] = []
    start = threading.Barrier(number)

    def run(place: int) -> None:
        try:
            start.wait()
            work(place)
        except BaseException as error:  # noqa: BLE001 - raised in the thread of the test
            errors.append(error)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def test_racing_clients_and_workers_never_run_more_than_the_limit_allows(open_db: OpenDB, name: str) -> None:
    queues = [open_db().queue(name) for _ in range(4)]
    queues[0].limit(concurrency=3)
    queues[0].enqueue_many([("k", number) for number in range(200)])
    seen: list[int] = []

    def work(place: int) -> None:
        queue, in_hand = queues[place], 0
        limiter = RateLimiter(queue.db, [name], 60.0, lambda _: 5, lambda _: in_hand)
        limiter.refresh()
        for _ in range(10):
            if place % 2:
                allowed = limiter.take(name, 2)
                jobs = queue.claim(allowed) if allowed else []
            else:
                jobs = [*claims.claim(queue, 2, 60.0)[0]]
            in_hand = len(jobs)
            seen.append(running(queue))
            queue.complete_many(jobs)
            in_hand = 0
        limiter.return_all()

    _race(4, work)
    assert max(seen) <= 3
    assert sum(seen) > 0


@here
def test_without_a_share_before_the_claim_they_run_more(open_db: OpenDB, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: both reserve before either has its permits."""
    queues = [open_db().queue(name) for _ in range(2)]
    queues[0].limit(concurrency=1)
    queues[0].enqueue_many([("k", number) for number in range(5)])
    both, reserve = threading.Barrier(2, timeout=20), store.reserve

    def without(tx: object, queue: str, holder: str, wanted: int, lasts: int) -> store.Reserved:
        found = reserve(tx, queue, holder, wanted, 0)  # type: ignore[arg-type]
        return found._replace(shared=True)

    def keep(*of: object) -> int:
        both.wait()
        return 1

    monkeypatch.setattr(store, "reserve", without)
    monkeypatch.setattr(claims, "_keep", keep)
    _race(2, lambda place: claims.claim(queues[place], 1, 60.0))
    assert running(queues[0]) == 2
