"""Claims and settlements that come while one runs share the next statement, and each client gets what is its own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import text

from queue_db import Queue, QueueDB, State
from queue_db.errors import StorageError
from queue_db.leased_job import LeasedJob
from queue_db.service.live import together
from tests.patience import PATIENCE
from tests.service.grouping import Group, done, jobs_of, pending, verdicts_of
from tests.service.test_api_claims import open_requests, server_noticed, until

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], scope="session")


@pytest.fixture(autouse=True)
def no_statement_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what waits would begin beside it, on a slow machine."""
    monkeypatch.setattr(together, "_LONG", 10 * PATIENCE)


def test_clients_get_their_own_jobs_in_the_order_in_which_they_came(db: QueueDB, name: str, group: Group) -> None:
    first = group.hold_claims()
    answers = [group.claim(limit=2), group.claim(limit=1, worker="a"), group.claim(limit=3, worker="b"), group.claim(limit=1)]
    # A longer lease is another statement, which waits for none.
    other = group.client.post(f"/api/v1/queues/{name}/claims", json={"lease": 7200})
    assert other.json() == {"jobs": []}
    ids = [str(one) for one in db.queue(name).enqueue_many(("mail", n) for n in range(7))]
    group.released.set()
    got = [[job["id"] for job in jobs_of(answer)] for answer in (first, *answers)]
    assert got == [ids[:1], ids[1:3], ids[3:4], ids[4:7], []]
    assert group.calls == [1, 1, 7]
    shown = [db.get(int(one)).worker for one in ids]
    assert shown == [db.worker] * 3 + ["a"] + ["b"] * 3


def test_a_client_cannot_settle_what_another_got_of_the_same_statement(db: QueueDB, name: str, group: Group) -> None:
    first = group.hold_claims()
    one, two = group.claim(), group.claim()
    db.queue(name).enqueue_many(("mail", n) for n in range(3))
    group.released.set()
    jobs_of(first)
    (mine,), (theirs,) = jobs_of(one), jobs_of(two)
    assert mine["lease"]["token"] != theirs["lease"]["token"]
    lease = {**theirs["lease"], "token": mine["lease"]["token"]}
    for again in range(2):  # as remembered, and as read
        answer = group.client.post(
            f"/api/v1/queues/{name}/settlements", json={"settlements": [{"lease": lease, "verb": "complete"}]}
        )
        assert answer.json()["verdicts"][0]["verdict"] == "lost", again
        group.client.app.state.service.leases._handed.clear()  # type: ignore[attr-defined]
    own = {"settlements": [{"lease": theirs["lease"], "verb": "complete"}]}
    assert group.client.post(f"/api/v1/queues/{name}/settlements", json=own).json()["verdicts"][0]["verdict"] == "applied"


def test_the_share_of_a_client_that_goes_is_for_others(
    db: QueueDB, name: str, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of it returns to the queue, and does not count as an attempt."""
    claimed, gone, plain = threading.Event(), threading.Event(), Queue.claim

    def slowly(queue: Queue, limit: int, *args: Any, **options: Any) -> list[LeasedJob]:
        jobs = plain(queue, limit, *args, **options)
        if limit == 3:
            claimed.set()
            assert gone.wait(PATIENCE)
        return jobs

    monkeypatch.setattr(Queue, "claim", slowly)
    first = group.hold_claims()
    shared = group.client.app.state.claims._together  # type: ignore[attr-defined]
    ids = db.queue(name).enqueue_many(("mail", n) for n in range(4))
    with open_requests(group.client, f"/api/v1/queues/{name}/claims", {"limit": 2}, 1):
        until(lambda: pending(shared) == 1)
        stays = group.claim(limit=1)
        group.released.set()
        assert claimed.wait(PATIENCE)
    server_noticed(group.client)
    gone.set()
    assert [job["id"] for job in (*jobs_of(first), *jobs_of(stays))] == [str(one) for one in ids[:2]]
    until(lambda: db.queue(name).stats().available == 2)
    assert [one.attempts for one in db.queue(name).claim(2)] == [1, 1]


def test_nothing_is_claimed_for_a_client_that_has_gone(db: QueueDB, name: str, group: Group) -> None:
    first = group.hold_claims()
    shared = group.client.app.state.claims._together  # type: ignore[attr-defined]
    with open_requests(group.client, f"/api/v1/queues/{name}/claims", {"limit": 2}, 1):
        until(lambda: pending(shared) == 1)
    server_noticed(group.client)
    stays = group.claim(limit=1)
    db.queue(name).enqueue_many(("mail", n) for n in range(4))
    group.released.set()
    assert len(jobs_of(first)) == len(jobs_of(stays)) == 1
    assert group.calls == [1, 1]


def test_an_answer_that_cannot_be_written_is_the_error_of_its_client_alone(
    db: QueueDB, name: str, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    from queue_db.service.api import answers

    plain = answers.claimed

    def fails(jobs: Sequence[tuple[LeasedJob, Any]], codec: object) -> bytes:
        if len(jobs) == 2:
            raise OverflowError
        return plain(jobs, codec)

    monkeypatch.setattr(answers, "claimed", fails)
    first = group.hold_claims()
    one, two, three = group.claim(limit=1), group.claim(limit=2), group.claim(limit=1)
    db.queue(name).enqueue_many(("mail", n) for n in range(5))
    group.released.set()
    assert [len(jobs_of(answer)) for answer in (first, one, three)] == [1, 1, 1]
    assert two.result(PATIENCE).status_code == 500
    until(lambda: db.queue(name).stats().available == 2)


def test_all_learn_that_their_statement_failed(db: QueueDB, name: str, group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    first = group.hold_claims()
    answers = [group.claim(limit=1) for _ in range(3)]
    plain = Queue.claim
    db.queue(name).enqueue("mail")
    failed = threading.Event()

    def fails(queue: Queue, limit: int, *args: Any, **options: Any) -> list[LeasedJob]:
        if not failed.is_set():
            failed.set()
            raise StorageError("the disk is full")
        return plain(queue, limit, *args, **options)

    monkeypatch.setattr(Queue, "claim", fails)
    group.released.set()
    assert len(jobs_of(first)) == 1
    assert [answer.result(PATIENCE).status_code for answer in answers] == [503] * 3
    assert group.client.post(f"/api/v1/queues/{name}/claims", json={}).json() == {"jobs": []}


def test_a_wrong_lease_is_lost_for_its_client_alone(db: QueueDB, group: Group) -> None:
    """Also where two settle the same job: the first one does, the second one has lost it."""
    leases = group.leases(5)
    busy = group.settle_first(leases[0])
    right = group.settle(done(leases[1]), done(leases[2]))
    wrong = group.settle(done({**leases[3], "token": "guessed"}))
    twice = group.settle(done(leases[1]), {"lease": leases[4], "verb": "snooze", "seconds": 60})
    group.released.set()
    assert verdicts_of(busy) == ["applied"]
    assert verdicts_of(right) == ["applied", "applied"]
    assert verdicts_of(wrong) == ["lost"]
    assert verdicts_of(twice) == ["lost", "applied"]
    assert db.get(int(leases[3]["id"])).state is State.RUNNING
    assert db.get(int(leases[4]["id"])).state is State.SCHEDULED
    # The first, those that shared one, and the second one that wanted the job that was settled before.
    assert [len(jobs) for jobs in group.calls] in ([1, 2], [1, 2, 1])


def test_what_the_database_refuses_is_the_error_of_its_client_alone(db: QueueDB, group: Group) -> None:
    leases = group.leases(4)
    busy = group.settle_first(leases[0])
    error = {"error": {"message": "no"}}
    dead, refused = db.store.tables.dead.name, leases[1]["id"]
    with db.database.begin("test") as connection:
        trigger = f"CREATE TRIGGER one BEFORE INSERT ON {dead} WHEN NEW.id = {refused} BEGIN SELECT RAISE(ABORT, 'no'); END"
        connection.execute(text(trigger))
    try:
        one = group.settle({"lease": leases[1], "verb": "bury", **error})
        two = group.settle({"lease": leases[2], "verb": "bury", **error}, done(leases[3]))
        group.released.set()
        assert verdicts_of(busy) == ["applied"]
        assert one.result(PATIENCE).status_code == 503
        assert verdicts_of(two) == ["applied", "applied"]
    finally:
        group.released.set()
        with db.database.begin("test") as connection:
            connection.execute(text("DROP TRIGGER one"))
    assert db.get(int(refused)).state is State.RUNNING


def test_many_clients_never_get_the_same_job(db: QueueDB, name: str, group: Group) -> None:
    """Each claims and completes as fast as it can, all at the same time."""
    ids = db.queue(name).enqueue_many(("mail", n) for n in range(600))
    start = threading.Barrier(12)

    def work(number: int) -> list[int]:
        got: list[int] = []
        start.wait(PATIENCE)
        while True:
            body = {"limit": 1 + number % 3, "wait": 0.01 * (number % 2)}
            leases = [job["lease"] for job in group.client.post(f"/api/v1/queues/{name}/claims", json=body).json()["jobs"]]
            if not leases:
                return got
            body = {"settlements": [done(lease) for lease in leases]}
            verdicts = group.client.post(f"/api/v1/queues/{name}/settlements", json=body).json()["verdicts"]
            assert {one["verdict"] for one in verdicts} == {"applied"}
            got += [int(lease["id"]) for lease in leases]

    found = [one for some in group.threads.map(work, range(12)) for one in some]
    assert sorted(found) == ids
