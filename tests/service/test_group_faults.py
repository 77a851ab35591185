"""Claims and settlements that share a statement: what is wrong with one client, or with the statement, costs no other one a job."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from queue_db import Queue, QueueDB
from queue_db.errors import TransientStorageError
from queue_db.leased_job import LeasedJob
from queue_db.service.live import together
from queue_db.service.live.claims import Claims
from queue_db.store import settle as store_settle
from tests.patience import PATIENCE
from tests.service.grouping import Held, Send, claimed, claiming, done, hold, jobs_of, settle_first, settling, verdicts_of
from tests.service.test_api_claims import open_requests, server_noticed, until

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], scope="session")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no run be late: what comes meanwhile shares the next one."""
    monkeypatch.setattr(together, "_LATE", 10 * PATIENCE)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(20) as pool:
        yield pool


@pytest.fixture
def claim(waiting_client: httpx2.Client, name: str, threads: ThreadPoolExecutor) -> Send:
    """Send a claim that waits for the next statement."""
    return claiming(waiting_client, name, threads)


@pytest.fixture
def settle(waiting_client: httpx2.Client, name: str, threads: ThreadPoolExecutor) -> Send:
    """Send settlements that wait for the next statement."""
    return settling(waiting_client, name, threads)


@pytest.mark.parametrize("worker", ["a\x00b", " a ", "a\x7f"])
def test_the_name_of_a_worker_is_checked_before_it_shares_a_claim(
    db: QueueDB,
    name: str,
    waiting_client: httpx2.Client,
    claim: Send,
    threads: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    worker: str,
) -> None:
    held = Held(monkeypatch, "claim")
    first = hold(waiting_client, name, threads, held, "claims")
    good = claim(worker="good")
    wrong = threads.submit(waiting_client.post, f"/api/v1/queues/{name}/claims", json={"worker": worker})
    try:
        assert wrong.result(PATIENCE).status_code == 422
    finally:
        held.released.set()
    assert jobs_of(first) == jobs_of(good) == []


def test_names_that_cannot_be_shown_cost_nobody_a_job(
    db: QueueDB, name: str, waiting_client: httpx2.Client, claim: Send, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise ValueError("a text that the driver refuses")

    monkeypatch.setattr(store_settle, "set_workers", fails)
    held = Held(monkeypatch, "claim")
    first = hold(waiting_client, name, threads, held, "claims")
    answers = [claim(worker="a"), claim(worker="b")]
    db.queue(name).enqueue_many(("mail", n) for n in range(3))
    held.released.set()
    assert [len(jobs_of(answer)) for answer in (first, *answers)] == [1, 1, 1]


def test_jobs_of_a_claim_that_fails_at_its_end_return_to_the_queue(
    db: QueueDB, name: str, waiting_client: httpx2.Client, claim: Send, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise ValueError("after each client has its share")

    monkeypatch.setattr(Claims, "_name", fails)
    held = Held(monkeypatch, "claim")
    first = hold(waiting_client, name, threads, held, "claims")
    answers = [claim(worker="a"), claim(worker="b")]
    db.queue(name).enqueue_many(("mail", n) for n in range(3))
    held.released.set()
    assert len(jobs_of(first)) == 1
    assert [answer.result(PATIENCE).status_code for answer in answers] == [500, 500]
    until(lambda: db.queue(name).stats().available == 2)


def test_nothing_is_claimed_for_who_goes_while_the_controls_are_read(
    db: QueueDB, name: str, waiting_client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go_on, claims, plain = threading.Event(), threading.Event(), [], Queue.claim

    def paused(*_: Any) -> bool:
        entered.set()
        assert go_on.wait(PATIENCE)
        return False

    def counted(queue: Queue, *args: Any, **options: Any) -> list[LeasedJob]:
        claims.append(args)
        return plain(queue, *args, **options)

    monkeypatch.setattr(Claims, "_paused", paused)
    monkeypatch.setattr(Queue, "claim", counted)
    try:
        with open_requests(waiting_client, f"/api/v1/queues/{name}/claims", {}, 1):
            assert entered.wait(PATIENCE)
        server_noticed(waiting_client)
    finally:
        go_on.set()
    group = waiting_client.app.state.claims._together  # type: ignore[attr-defined]
    until(lambda: not group._pending)
    assert claims == []


def test_a_statement_that_waits_for_a_lock_delays_no_other_settlement(
    db: QueueDB, name: str, waiting_client: httpx2.Client, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "_LATE", 0.01)
    db.queue(name).enqueue_many(("mail", n) for n in range(3))
    leases = claimed(waiting_client, name, 3)
    held = Held(monkeypatch, "complete_many")
    stuck = settle_first(waiting_client, name, threads, held, leases[0])
    url = f"/api/v1/queues/{name}/settlements"
    others = [threads.submit(waiting_client.post, url, json={"settlements": [done(lease)]}) for lease in leases[1:]]
    try:
        assert [verdicts_of(other) for other in others] == [["applied"], ["applied"]]
        assert not stuck.done()
    finally:
        held.released.set()
    assert verdicts_of(stuck) == ["applied"]


def test_what_was_tried_in_vain_is_not_tried_again_for_each_client(
    db: QueueDB,
    name: str,
    waiting_client: httpx2.Client,
    settle: Send,
    threads: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    db.queue(name).enqueue_many(("mail", n) for n in range(4))
    leases = claimed(waiting_client, name, 4)

    def locked(*_: Any, **__: Any) -> None:
        raise TransientStorageError("the database is locked")

    monkeypatch.setattr(Queue, "complete_many", locked)
    held = Held(monkeypatch, "complete_many")
    answers = [settle_first(waiting_client, name, threads, held, leases[0]), *(settle(done(lease)) for lease in leases[1:])]
    held.released.set()
    assert [answer.result(PATIENCE).status_code for answer in answers] == [503] * 4
    assert [len(jobs) for jobs in held.calls] == [1, 3]


def test_a_lease_that_no_job_can_have_is_lost_for_its_client_alone(
    db: QueueDB,
    name: str,
    waiting_client: httpx2.Client,
    settle: Send,
    threads: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    db.queue(name).enqueue_many(("mail", n) for n in range(2))
    leases = claimed(waiting_client, name, 2)
    held = Held(monkeypatch, "complete_many")
    busy = settle_first(waiting_client, name, threads, held, leases[0])
    right, wrong = settle(done(leases[1])), settle(done({**leases[1], "id": "9" * 19}))
    held.released.set()
    assert [verdicts_of(answer) for answer in (busy, right, wrong)] == [["applied"], ["applied"], ["lost"]]


def test_a_lease_that_cannot_be_looked_up_is_the_error_of_its_client_alone(
    db: QueueDB,
    name: str,
    waiting_client: httpx2.Client,
    settle: Send,
    threads: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    db.queue(name).enqueue_many(("mail", n) for n in range(3))
    leases = claimed(waiting_client, name, 3)
    plain = Queue.leases_from_tokens

    def fails(queue: Queue, given: Sequence[tuple[int, int, str]]) -> list[LeasedJob | None]:
        if "refused" in {token for _, _, token in given}:
            raise ValueError("a text that the driver refuses")
        return plain(queue, given)

    monkeypatch.setattr(Queue, "leases_from_tokens", fails)
    held = Held(monkeypatch, "complete_many")
    busy = settle_first(waiting_client, name, threads, held, leases[0])
    right, wrong = settle(done(leases[1])), settle(done({**leases[2], "token": "refused"}))
    held.released.set()
    assert [verdicts_of(answer) for answer in (busy, right)] == [["applied"], ["applied"]]
    assert wrong.result(PATIENCE).status_code == 500


def test_two_spellings_of_an_id_are_one_job(
    db: QueueDB,
    name: str,
    waiting_client: httpx2.Client,
    settle: Send,
    threads: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    db.queue(name).enqueue_many(("mail", n) for n in range(2))
    leases = claimed(waiting_client, name, 2)
    held = Held(monkeypatch, "complete_many")
    busy = settle_first(waiting_client, name, threads, held, leases[0])
    spelled = {**leases[1], "id": f"0{leases[1]['id']}"}
    answers = [settle(done(leases[1])), settle(done(spelled))]
    held.released.set()
    assert verdicts_of(busy) == ["applied"]
    assert [verdicts_of(answer) for answer in answers] == [["applied"], ["lost"]]


def test_statements_that_take_long_delay_no_other_queue(
    db: QueueDB, name: str, waiting_client: httpx2.Client, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, released, entered = Queue.claim, threading.Event(), threading.Semaphore(0)

    def slowly(queue: Queue, *args: Any, **options: Any) -> list[LeasedJob]:
        if queue.name != name:
            entered.release()
            assert released.wait(PATIENCE)
        return plain(queue, *args, **options)

    monkeypatch.setattr(Queue, "claim", slowly)
    db.queue(name).enqueue("mail")
    limit = waiting_client.app.state.service.working  # type: ignore[attr-defined]
    before = limit.total_tokens
    try:
        late = [threads.submit(waiting_client.post, f"/api/v1/queues/{name}{n}/claims", json={}) for n in range(before)]
        for _ in late:
            assert entered.acquire(timeout=PATIENCE)
        assert len(claimed(waiting_client, name, 1)) == 1
    finally:
        released.set()
    assert {one.result(PATIENCE).status_code for one in late} == {200}
    assert limit.total_tokens == before


def test_a_job_that_comes_twice_in_a_request_is_settled_once(db: QueueDB, name: str, waiting_client: httpx2.Client) -> None:
    db.queue(name).enqueue("mail")
    (lease,) = claimed(waiting_client, name, 1)
    deaths: list[object] = []
    db.deaths.add(deaths.append)
    one = {"lease": lease, "verb": "bury", "error": {"message": "no"}}
    given = {"settlements": [one, one, done(lease)]}
    answer = waiting_client.post(f"/api/v1/queues/{name}/settlements", json=given)
    assert [one["verdict"] for one in answer.json()["verdicts"]] == ["applied", "lost", "lost"]
    assert len(deaths) == 1
