"""Clients that wait for the end of a job by REST."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from queue_db import LeasedJob, Queue, QueueDB
from queue_db.model import StoredResult
from queue_db.monitoring.inspection import Inspection
from queue_db.service.live import waits
from queue_db.service.live.arrivals import Waiter
from queue_db.service.live.ends import Ends
from tests.patience import PATIENCE
from tests.service.test_api_claims import until

here = pytest.mark.parametrize("kind", ["sqlite"], scope="session")
notifying = pytest.mark.parametrize("kind", ["postgresql"], scope="session")

Wait = Callable[..., "Future[httpx2.Response]"]

#: More clients than the service has threads.
MANY = 60


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(MANY) as pool:
        yield pool


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The ids of each look for jobs that have left."""
    made: list[list[int]] = []
    live = Inspection.live

    def looked(inspection: Inspection, ids: list[int]) -> set[int]:
        found = live(inspection, ids)
        made.append(ids)
        return found

    monkeypatch.setattr(Inspection, "live", looked)
    return made


@pytest.fixture
def wait_for(waiting_client: httpx2.Client, threads: ThreadPoolExecutor, looks: list[list[int]]) -> Wait:
    """Send a request that waits, and go on when the service has seen that the job is not at its end."""

    def wait(job_id: int, seconds: float = 50) -> Future[httpx2.Response]:
        before = len(looks)
        sent = threads.submit(waiting_client.get, f"/api/v1/jobs/{job_id}", params={"wait": seconds})
        until(lambda: any(job_id in look for look in looks[before:]))
        return sent

    return wait


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is not told waits for long: there is no second look, and its time is not over either."""
    wait = Waiter.wait
    monkeypatch.setattr(waits, "_LEFT", 1000.0)
    monkeypatch.setattr(Waiter, "wait", lambda waiter, _: wait(waiter, 1000.0))


def enqueued(queue: Queue, **options: Any) -> int:
    job_id = queue.enqueue("mail", {"to": "ada", "password": "p"}, **options)
    assert job_id is not None
    return job_id


def kept(queue: Queue, jobs: list[LeasedJob]) -> None:
    queue.complete_many(jobs, results=[StoredResult('{"sum":5}', 10**9)] * len(jobs))


@pytest.mark.usefixtures("told")
@here
def test_a_completion_here_is_answered_at_once(db: QueueDB, name: str, waiting_client: httpx2.Client, wait_for: Wait) -> None:
    job_id = enqueued(db.queue(name))
    (job,) = waiting_client.post(f"/api/v1/queues/{name}/claims", json={}).json()["jobs"]
    answer = wait_for(job_id)
    done = {"lease": job["lease"], "verb": "complete", "result": {"sum": 5}, "result_ttl": 60}
    assert waiting_client.post(f"/api/v1/queues/{name}/settlements", json={"settlements": [done]}).is_success
    ended = answer.result(PATIENCE).json()
    assert (ended["state"], ended["result"], ended["payload"]) == ("completed", {"sum": 5}, {"to": "ada", "password": "***"})
    later = waiting_client.get(f"/api/v1/jobs/{job_id}", params={"wait": 50})
    assert (later.json(), waiting_client.get(f"/api/v1/jobs/{job_id}").json()) == (ended, ended)
    assert "etag" not in later.headers


@pytest.mark.usefixtures("told")
@here
@pytest.mark.parametrize("end", ["complete", "cancel", "bury", "fail"])
def test_each_end_here_is_told(db: QueueDB, name: str, wait_for: Wait, end: str) -> None:
    queue = db.queue(name)
    answer = wait_for(enqueued(queue, max_attempts=1))
    (job,) = queue.claim()
    getattr(job, end)(*(["no route"] if end in {"bury", "fail"} else []))
    ended = answer.result(PATIENCE)
    if end in {"bury", "fail"}:
        assert (ended.status_code, ended.json()["state"], ended.json()["last_error"]) == (200, "dead", "no route")
        assert ended.headers["etag"] == f'"{ended.json()["id"]}:{ended.json()["version"]}"'
    else:
        assert (ended.status_code, ended.json()["code"]) == (404, "job_not_found")


@pytest.mark.usefixtures("told")
@here
def test_a_completion_with_the_next_claim_is_told(db: QueueDB, name: str, wait_for: Wait) -> None:
    queue = db.queue(name)
    answer = wait_for(enqueued(queue))
    jobs = queue.claim()
    queue.complete_and_claim(jobs)
    assert answer.result(PATIENCE).status_code == 404


@pytest.mark.usefixtures("told")
@notifying
def test_a_running_job_that_is_cancelled_elsewhere_is_told(db: QueueDB, name: str, wait_for: Wait) -> None:
    job_id = enqueued(db.queue(name))
    db.queue(name).claim()
    answer = wait_for(job_id)
    with QueueDB(db.database.engine.url) as other:
        assert other.queue(name).cancel(job_id)
    assert answer.result(PATIENCE).status_code == 404


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"], scope="session")
def test_a_completion_elsewhere_is_noticed(db: QueueDB, name: str, wait_for: Wait) -> None:
    answer = wait_for(enqueued(db.queue(name)))
    with QueueDB(db.database.engine.url) as other:
        kept(other.queue(name), other.queue(name).claim())
    assert answer.result(PATIENCE).json()["result"] == {"sum": 5}


@here
def test_an_attempt_that_fails_is_no_end(db: QueueDB, name: str, wait_for: Wait, waiting_client: httpx2.Client) -> None:
    queue = db.queue(name)
    job_id = enqueued(queue)
    answer = wait_for(job_id)
    queue.claim()[0].fail("no route", retry_in=0)
    wait_for(job_id, 0.3).result(PATIENCE)
    ends: Ends = waiting_client.app.state.ends  # type: ignore[attr-defined]
    assert ends.waiting(job_id) == 1
    kept(queue, queue.claim())
    assert (answer.result(PATIENCE).json()["state"], answer.result().json()["attempts"]) == ("completed", 2)
    until(lambda: ends.waiting(job_id) == 0)


@here
def test_when_the_time_is_over_the_job_is_as_it_is(db: QueueDB, name: str, wait_for: Wait, waiting_client: httpx2.Client) -> None:
    queue = db.queue(name)
    job_id = enqueued(queue)
    answer = wait_for(job_id, 0.5)
    queue.claim()
    assert answer.result(PATIENCE).json()["state"] == "running"
    dead = enqueued(queue)
    queue.claim()[0].bury("no route")
    assert waiting_client.get(f"/api/v1/jobs/{dead}", params={"wait": 50}).json()["state"] == "dead"
    for wait in (-1, 50.1, "nan", "soon"):
        assert waiting_client.get(f"/api/v1/jobs/{dead}", params={"wait": wait}).status_code == 422


@here
def test_many_clients_wait_with_one_statement_and_no_threads(
    db: QueueDB, name: str, waiting_client: httpx2.Client, threads: ThreadPoolExecutor, looks: list[list[int]]
) -> None:
    queue = db.queue(name)
    ids = [enqueued(queue) for _ in range(MANY)]
    answers = [threads.submit(waiting_client.get, f"/api/v1/jobs/{job_id}", params={"wait": 50}) for job_id in ids]
    until(lambda: any(set(look) == set(ids) for look in looks))
    assert waiting_client.get(f"/api/v1/queues/{name}").is_success
    kept(queue, queue.claim(MANY))
    assert [answer.result(PATIENCE).json()["id"] for answer in answers] == [str(job_id) for job_id in ids]


@here
def test_a_server_that_ends_answers_with_the_job_as_it_is(
    db: QueueDB, name: str, wait_for: Wait, waiting_client: httpx2.Client
) -> None:
    answer = wait_for(enqueued(db.queue(name)))
    waiting_client.app.state.service.ending.set()  # type: ignore[attr-defined]
    assert answer.result(PATIENCE).json()["state"] == "available"
