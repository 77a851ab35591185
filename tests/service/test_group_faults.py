"""Claims and settlements that share a statement: what is wrong with one client, or with the statement, costs no other one a job."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from queue_db import Queue, QueueDB
from queue_db.errors import TransientStorageError
from queue_db.leased_job import LeasedJob
from queue_db.model import Controls
from queue_db.service.live import together
from queue_db.service.live.claims import Claims
from queue_db.store import settle as store_settle
from tests.patience import PATIENCE
from tests.service.grouping import Group, done, jobs_of, verdicts_of
from tests.service.test_api_claims import open_requests, server_noticed, until

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], scope="session")


@pytest.mark.parametrize("worker", ["a\x00b", " a ", "a\x7f"])
def test_the_name_of_a_worker_is_checked_before_it_shares_a_claim(name: str, worker: str, group: Group) -> None:
    first = group.hold_claims()
    good = group.claim(worker="good")
    wrong = group.threads.submit(group.client.post, f"/api/v1/queues/{name}/claims", json={"worker": worker})
    try:
        assert wrong.result(PATIENCE).status_code == 422
    finally:
        group.released.set()
    assert jobs_of(first) == jobs_of(good) == []


def test_names_that_cannot_be_shown_cost_nobody_a_job(
    db: QueueDB, name: str, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise ValueError("a text that the driver refuses")

    monkeypatch.setattr(store_settle, "set_workers", fails)
    first = group.hold_claims()
    answers = [group.claim(worker="a"), group.claim(worker="b")]
    db.queue(name).enqueue_many(("mail", n) for n in range(3))
    group.released.set()
    assert [len(jobs_of(answer)) for answer in (first, *answers)] == [1, 1, 1]


def test_jobs_of_a_claim_that_fails_at_its_end_return_to_the_queue(
    db: QueueDB, name: str, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise ValueError("after each client has its share")

    monkeypatch.setattr(Claims, "_name", fails)
    first = group.hold_claims()
    answers = [group.claim(worker="a"), group.claim(worker="b")]
    db.queue(name).enqueue_many(("mail", n) for n in range(3))
    group.released.set()
    assert len(jobs_of(first)) == 1
    assert [answer.result(PATIENCE).status_code for answer in answers] == [500, 500]
    until(lambda: db.queue(name).stats().available == 2)


def test_nothing_is_claimed_for_who_goes_while_the_controls_are_read(
    name: str, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go_on, claims, plain = threading.Event(), threading.Event(), [], Queue.claim
    controls = Claims._controls_of

    def read(claims: Claims, queue: str) -> Controls:
        entered.set()
        assert go_on.wait(PATIENCE)
        return controls(claims, queue)

    def counted(queue: Queue, *args: Any, **options: Any) -> list[LeasedJob]:
        claims.append(args)
        return plain(queue, *args, **options)

    monkeypatch.setattr(Claims, "_controls_of", read)
    monkeypatch.setattr(Queue, "claim", counted)
    try:
        with open_requests(group.client, f"/api/v1/queues/{name}/claims", {}, 1):
            assert entered.wait(PATIENCE)
        server_noticed(group.client)
    finally:
        go_on.set()
    shared = group.client.app.state.claims._together  # type: ignore[attr-defined]
    until(lambda: not shared._pending)
    assert claims == []


def test_a_statement_that_waits_for_a_lock_delays_no_other_settlement(
    name: str, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "_LATE", 0.01)
    leases = group.leases(3)
    stuck = group.settle_first(leases[0])
    url = f"/api/v1/queues/{name}/settlements"
    others = [group.threads.submit(group.client.post, url, json={"settlements": [done(lease)]}) for lease in leases[1:]]
    try:
        assert [verdicts_of(other) for other in others] == [["applied"], ["applied"]]
        assert not stuck.done()
    finally:
        group.released.set()
    assert verdicts_of(stuck) == ["applied"]


def test_what_was_tried_in_vain_is_not_tried_again_for_each_client(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    leases = group.leases(4)

    def locked(*_: Any, **__: Any) -> None:
        raise TransientStorageError("the database is locked")

    monkeypatch.setattr(Queue, "complete_many", locked)
    answers = [group.settle_first(leases[0]), *(group.settle(done(lease)) for lease in leases[1:])]
    group.released.set()
    assert [answer.result(PATIENCE).status_code for answer in answers] == [503] * 4
    assert [len(jobs) for jobs in group.calls] == [1, 3]


def test_a_lease_that_no_job_can_have_is_lost_for_its_client_alone(group: Group) -> None:
    leases = group.leases(2)
    busy = group.settle_first(leases[0])
    right, wrong = group.settle(done(leases[1])), group.settle(done({**leases[1], "id": "9" * 19}))
    group.released.set()
    assert [verdicts_of(answer) for answer in (busy, right, wrong)] == [["applied"], ["applied"], ["lost"]]


def test_a_lease_that_cannot_be_looked_up_is_the_error_of_its_client_alone(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    leases = group.leases(3)
    plain = Queue.leases_from_tokens

    def fails(queue: Queue, given: Sequence[tuple[int, int, str]]) -> list[LeasedJob | None]:
        if "refused" in {token for _, _, token in given}:
            raise ValueError("a text that the driver refuses")
        return plain(queue, given)

    monkeypatch.setattr(Queue, "leases_from_tokens", fails)
    busy = group.settle_first(leases[0])
    right, wrong = group.settle(done(leases[1])), group.settle(done({**leases[2], "token": "refused"}))
    group.released.set()
    assert [verdicts_of(answer) for answer in (busy, right)] == [["applied"], ["applied"]]
    assert wrong.result(PATIENCE).status_code == 500


def test_two_spellings_of_an_id_are_one_job(group: Group) -> None:
    leases = group.leases(2)
    busy = group.settle_first(leases[0])
    spelled = {**leases[1], "id": f"0{leases[1]['id']}"}
    answers = [group.settle(done(leases[1])), group.settle(done(spelled))]
    group.released.set()
    assert verdicts_of(busy) == ["applied"]
    assert [verdicts_of(answer) for answer in answers] == [["applied"], ["lost"]]


def test_statements_that_take_long_delay_no_other_queue(name: str, group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, entered = Queue.claim, threading.Semaphore(0)
    (lease,) = group.leases(1)

    def slowly(queue: Queue, *args: Any, **options: Any) -> list[LeasedJob]:
        entered.release()
        assert group.released.wait(PATIENCE)
        return plain(queue, *args, **options)

    monkeypatch.setattr(Queue, "claim", slowly)
    limit = group.client.app.state.service.working  # type: ignore[attr-defined]
    before = limit.total_tokens
    try:
        claims = [f"/api/v1/queues/{name}{n}/claims" for n in range(before)]
        late = [group.threads.submit(group.client.post, url, json={}) for url in claims]
        for _ in late:
            assert entered.acquire(timeout=PATIENCE)
        url = f"/api/v1/queues/{name}/settlements"
        other = group.threads.submit(group.client.post, url, json={"settlements": [done(lease)]})
        assert verdicts_of(other) == ["applied"]
    finally:
        group.released.set()
    assert {one.result(PATIENCE).status_code for one in late} == {200}
    assert limit.total_tokens == before


def test_settlements_that_wait_for_long_stop_no_other_one_of_their_queue(
    name: str, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "_LATE", 0.0)
    *locked, free = group.leases(together._AT_ONCE + 1)
    plain, entered = Queue.complete_many, threading.Semaphore(0)

    def slowly(queue: Queue, jobs: Sequence[LeasedJob], **options: Any) -> Any:
        if [str(job.id) for job in jobs] != [free["id"]]:
            entered.release()
            assert group.released.wait(PATIENCE)
        return plain(queue, jobs, **options)

    monkeypatch.setattr(Queue, "complete_many", slowly)
    url = f"/api/v1/queues/{name}/settlements"
    late = []
    try:
        for lease in locked:
            late.append(group.threads.submit(group.client.post, url, json={"settlements": [done(lease)]}))
            assert entered.acquire(timeout=PATIENCE)
        other = group.threads.submit(group.client.post, url, json={"settlements": [done(free)]})
        assert verdicts_of(other) == ["applied"]
    finally:
        group.released.set()
    assert [verdicts_of(one) for one in late] == [["applied"]] * len(locked)


def test_a_job_that_comes_twice_in_a_request_is_settled_once(db: QueueDB, name: str, group: Group) -> None:
    (lease,) = group.leases(1)
    deaths: list[object] = []
    db.deaths.add(deaths.append)
    one = {"lease": lease, "verb": "bury", "error": {"message": "no"}}
    given = {"settlements": [one, one, done(lease)]}
    answer = group.client.post(f"/api/v1/queues/{name}/settlements", json=given)
    assert [one["verdict"] for one in answer.json()["verdicts"]] == ["applied", "lost", "lost"]
    assert len(deaths) == 1
