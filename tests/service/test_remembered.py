"""What a service remembers for a while: tokens that it has found, and the leases that it has handed out."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from anyio import CapacityLimiter

from queue_db import Queue, QueueDB, State
from queue_db.leased_job import LeasedJob, own_token
from queue_db.operations.actor import Actor
from queue_db.service import Settings, service
from queue_db.service.auth import identity
from queue_db.service.auth.identity import FoundTokens
from queue_db.service.live.claims import Claims, Terms, Wanted
from queue_db.service.live.incidents import Incidents
from queue_db.service.live.kept import Clock
from queue_db.service.live.leases import Leases, handed
from queue_db.service.live.waits import Waits
from queue_db.tokens.tokens import Token
from tests.patience import PATIENCE, wait_for
from tests.service.conftest import serving_app
from tests.service.test_api_claims import until

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], scope="session")

# --- tokens -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def longer(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set for how many seconds tokens are remembered."""

    def change(seconds: float) -> None:
        monkeypatch.setattr(identity, "REMEMBERED_FOR", seconds)

    return change


def test_a_token_that_another_process_revokes_works_while_it_is_remembered(
    db: QueueDB, name: str, serve: Callable[[Settings], httpx2.Client], longer: Callable[[float], None]
) -> None:
    client = serve(Settings())
    client.headers["Authorization"] = f"Bearer {db.tokens.create(name, ['read'])}"
    longer(math.inf)
    assert client.get("/api/v1/queues").status_code == 200
    with QueueDB(db.database.engine.url) as other:
        other.tokens.revoke(name)
    assert client.get("/api/v1/queues").status_code == 200
    longer(0.0)
    assert client.get("/api/v1/queues").status_code == 401


def test_by_default_that_is_a_second(db: QueueDB, name: str) -> None:
    assert identity.REMEMBERED_FOR == 1.0
    secret = db.tokens.create(name, ["read"])
    found = FoundTokens(db.tokens, Clock(db))
    assert found.find(secret)
    until(lambda: found.recall(secret) is None)


def test_a_revocation_here_counts_at_once(db: QueueDB, name: str, longer: Callable[[float], None]) -> None:
    longer(math.inf)
    secret = db.tokens.create(name, ["read"])
    found = FoundTokens(db.tokens, Clock(db))
    assert found.find(secret)
    assert found.recall(secret)
    db.tokens.revoke(name)
    assert found.recall(secret) is None
    assert found.find(secret) is None


def test_also_one_that_comes_while_the_token_is_read(
    db: QueueDB, name: str, longer: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    longer(math.inf)
    secret = db.tokens.create(name, ["read"])
    found, find = FoundTokens(db.tokens, Clock(db)), db.tokens.find

    def read_then_revoke(given: str) -> Token | None:
        token = find(given)
        db.tokens.revoke(name)
        return token

    monkeypatch.setattr(db.tokens, "find", read_then_revoke)
    assert found.find(secret)
    assert found.recall(secret) is None


def test_a_remembered_token_expires(db: QueueDB, name: str, longer: Callable[[float], None]) -> None:
    longer(math.inf)
    secret = db.tokens.create(name, ["read"], expires_in=0.5)
    found = FoundTokens(db.tokens, Clock(db))
    found.find(secret)
    until(lambda: found.recall(secret) is None)
    until(lambda: found.find(secret) is None)


def test_requests_that_come_together_share_one_read_of_their_token(
    db: QueueDB, name: str, longer: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not count for a request that comes after a revocation."""
    longer(math.inf)
    secret = db.tokens.create(name, ["read"])
    app = service(db, Settings())
    reads, came, go_on, find = [], [], threading.Event(), db.tokens.find
    tokens: FoundTokens = app.state.service.tokens
    recall = tokens.recall

    def found_before_all_are_here(given: str) -> Token | None:
        token = find(given)
        reads.append(given)
        assert len(reads) > 1 or go_on.wait(PATIENCE)
        return token

    def counted(given: str, within: float | None = None) -> Actor | None:
        came.append(given)
        return recall(given, within)

    monkeypatch.setattr(db.tokens, "find", found_before_all_are_here)
    monkeypatch.setattr(tokens, "recall", counted)
    with serving_app(app) as url, ThreadPoolExecutor(20) as pool:

        def ask() -> int:
            return httpx2.get(f"{url}/api/v1/queues", headers={"Authorization": f"Bearer {secret}"}, timeout=PATIENCE).status_code

        answers = [pool.submit(ask) for _ in range(20)]
        try:
            until(lambda: len(came) > 20 and reads)  # once for each, and once in the thread that reads, before it reads
            assert len(reads) == 1
            db.tokens.revoke(name)
            assert ask() == 401
        finally:
            go_on.set()
        assert {one.result() for one in answers} == {200}
    assert len(reads) == 2


def test_few_tokens_are_remembered_and_no_unknown_one(
    db: QueueDB, name: str, longer: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    longer(math.inf)
    monkeypatch.setattr(identity, "MOST_REMEMBERED", 3)
    found = FoundTokens(db.tokens, Clock(db))
    for number in range(10):
        secret = db.tokens.create(f"{name}-{number}", ["read"])
        assert found.find(secret)
        assert found.recall(secret)
        assert found.find(f"{secret}x") is None
        assert len(found) <= 3


# --- leases -----------------------------------------------------------------------------------------------------------


def claimed(client: httpx2.Client, queue: str, limit: int = 1) -> list[dict[str, str]]:
    """The leases of a claim over HTTP."""
    answer = client.post(f"/api/v1/queues/{queue}/claims", json={"limit": limit})
    return [job["lease"] for job in answer.json()["jobs"]]


def settled(client: httpx2.Client, queue: str, lease: dict[str, str], verb: str = "complete", **more: Any) -> dict[str, Any]:
    given = {"lease": lease, "verb": verb, **more}
    answer = client.post(f"/api/v1/queues/{queue}/settlements", json={"settlements": [given]})
    (verdict,) = answer.json()["verdicts"]
    found: dict[str, Any] = verdict
    return found


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[tuple[int, int, str]]]:
    """Let no lease be found in the database; the leases that were looked for there."""
    wanted: list[Sequence[tuple[int, int, str]]] = []

    def handles(self: Queue, leases: Sequence[tuple[int, int, str]]) -> list[LeasedJob | None]:
        wanted.extend([leases] if leases else [])
        return [None] * len(leases)

    monkeypatch.setattr(Queue, "leases_from_tokens", handles)
    return wanted


def test_a_lease_that_was_handed_out_here_is_settled_without_a_read(
    db: QueueDB, name: str, client: httpx2.Client, unread: list[Any]
) -> None:
    ids = db.queue(name).enqueue_many([("mail", n) for n in range(4)])
    first, second, third, last = claimed(client, name, 4)
    assert settled(client, name, first)["verdict"] == "applied"
    assert settled(client, name, second, "release")["verdict"] == "applied"
    assert settled(client, name, third, "snooze", seconds=60)["verdict"] == "applied"
    extended = settled(client, name, last, "extend", seconds=600)
    assert settled(client, name, extended["lease"])["verdict"] == "applied"
    assert unread == []
    assert {db.get(one).state for one in ids[1:3] if one} == {State.AVAILABLE, State.SCHEDULED}


def test_a_lease_before_its_extension_is_lost(db: QueueDB, name: str, client: httpx2.Client) -> None:
    db.queue(name).enqueue("mail")
    (lease,) = claimed(client, name)
    extended = settled(client, name, lease, "extend", seconds=600)
    assert settled(client, name, lease)["verdict"] == "lost"
    assert settled(client, name, {**lease, "version": extended["lease"]["version"]})["verdict"] == "applied"


@pytest.mark.parametrize("token", ["0" * 32, "x", "é"])
def test_another_token_does_not_settle_it(db: QueueDB, name: str, client: httpx2.Client, token: str) -> None:
    job_id = db.queue(name).enqueue("mail")
    (lease,) = claimed(client, name)
    assert settled(client, name, {**lease, "token": token})["verdict"] == "lost"
    assert job_id
    assert db.get(job_id).state is State.RUNNING
    assert settled(client, name, lease)["verdict"] == "applied"


def test_a_lease_that_is_not_found_counts_as_lost_once(db: QueueDB, name: str, client: httpx2.Client) -> None:
    db.queue(name).enqueue_many([("mail", n) for n in range(3)])
    first, second, third = claimed(client, name, 3)
    before = db.counters.lost
    for verb, more in (("complete", {}), ("fail", {"error": {"message": "no"}})):
        assert settled(client, name, {**first, "token": "x"}, verb, **more)["verdict"] == "lost"
    url = f"/api/v1/jobs/{second['id']}/complete"
    assert client.post(url, headers={"If-Match": f'"{second["id"]}:9"', "Lease-Token": second["token"]}).status_code == 412
    # This one is found, and lost when it is settled.
    assert db.queue(name).cancel(int(third["id"]))
    assert settled(client, name, third)["verdict"] == "lost"
    assert db.counters.lost - before == 4
    # Of which queue it was is unknown here.
    gone = client.post(
        f"/api/v1/jobs/{third['id']}/complete",
        headers={"If-Match": f'"{third["id"]}:{third["version"]}"', "Lease-Token": third["token"]},
    )
    assert gone.status_code == 412
    assert db.counters.lost - before == 5
    db.metrics.take()
    wait_for(lambda: f'queue_db_last_minute{{event="lost",queue="{name}"}} 4.0' in client.get("/metrics").text)


def test_a_mistaken_queue_gets_no_numbers(db: QueueDB, name: str, client: httpx2.Client) -> None:
    db.queue(name).enqueue("mail")
    (lease,) = claimed(client, name)
    before = db.counters.lost
    for queue in (f"{name}-typo", name):
        assert settled(client, queue, {**lease, "version": "9"})["verdict"] == "lost"
    assert db.counters.lost - before == 2
    db.metrics.flush()
    wait_for(lambda: f'queue_db_last_minute{{event="lost",queue="{name}"}} 1.0' in client.get("/metrics").text)
    assert f"{name}-typo" not in client.get("/metrics").text
    assert f"{name}-typo" not in [one["name"] for one in client.get("/api/v1/queues").json()["queues"]]
    assert f"{name}-typo" not in {one.queue for one in db.metrics.latest()}


def test_a_queue_that_is_empty_now_gets_numbers(db: QueueDB, name: str, client: httpx2.Client) -> None:
    db.queue(name).enqueue("mail")
    (lease,) = claimed(client, name)
    assert settled(client, name, lease)["verdict"] == "applied"
    db.metrics.flush()
    wait_for(lambda: f'queue_db_last_minute{{event="completed",queue="{name}"}} 1.0' in client.get("/metrics").text)
    assert settled(client, name, lease)["verdict"] == "lost"
    db.metrics.flush()
    wait_for(lambda: f'queue_db_last_minute{{event="lost",queue="{name}"}} 1.0' in client.get("/metrics").text)


def test_it_is_not_settled_in_another_queue(db: QueueDB, name: str, client: httpx2.Client) -> None:
    db.queue(name).enqueue("mail")
    (lease,) = claimed(client, name)
    assert settled(client, f"{name}-2", lease)["verdict"] == "lost"
    assert settled(client, name, lease)["verdict"] == "applied"


def test_the_database_decides_whether_it_holds(db: QueueDB, name: str, client: httpx2.Client) -> None:
    """Another process settles one job, and gets the other one after its lease."""
    ids = db.queue(name).enqueue_many([("mail", n) for n in range(2)])
    done, taken = claimed(client, name, 2)
    with QueueDB(db.database.engine.url) as other:
        queue = other.queue(name)
        assert queue.lease_from_token(int(done["id"]), int(done["version"]), done["token"]).complete()
        assert queue.lease_from_token(int(taken["id"]), int(taken["version"]), taken["token"]).release()
        (job,) = queue.claim()
        for verb, more in (("complete", {}), ("extend", {"seconds": 60}), ("release", {}), ("snooze", {"seconds": 60})):
            assert settled(client, name, done, verb, **more)["verdict"] == "lost"
            assert settled(client, name, taken, verb, **more)["verdict"] == "lost"
        assert job.id in ids
        assert job.complete()


def test_a_lease_of_another_process_is_read(db: QueueDB, name: str, client: httpx2.Client) -> None:
    db.queue(name).enqueue("mail")
    with QueueDB(db.database.engine.url) as other:
        (job,) = other.queue(name).claim()
    lease = {"id": str(job.id), "version": str(job.version), "token": job.token}
    assert settled(client, name, lease)["verdict"] == "applied"


def test_what_needs_the_payload_has_it(db: QueueDB, name: str, client: httpx2.Client) -> None:
    kept, _ = db.queue(name).enqueue_many([("mail", {"to": "ada"}), ("mail", {"to": "bob"}, {"max_attempts": 1})])
    first, second = claimed(client, name, 2)
    assert settled(client, name, first, result_ttl=60, result=1)["verdict"] == "applied"
    assert settled(client, name, second, "fail", error={"message": "no"})["verdict"] == "applied"
    assert client.get(f"/api/v1/finished/{kept}").json()["payload"] == {"to": "ada"}
    (dead,) = db.dead.list(queue=name)
    assert dead.payload == {"to": "bob"}


def test_few_leases_are_remembered_and_nothing_large(db: QueueDB, name: str) -> None:
    queue = db.queue(name)
    queue.enqueue_many([("mail", "x" * 1000, {"headers": {"y": "y" * 1000}}) for _ in range(5)])
    leases = Leases(3)
    jobs = [job for _ in range(5) for job in queue.claim()]
    for job in jobs:
        leases.remember([handed(job)])
        assert len(leases) <= 3
    found = leases.take(queue, [(job.id, job.version) for job in jobs], [own_token(job.token, job.id) for job in jobs])
    assert [None if job is None else job.id for job in found] == [None, None, *(job.id for job in jobs[2:])]
    assert {(job.payload_text, job.headers == {}) for job in found if job is not None} == {("", True)}
    assert len(leases) == 0
    assert all(queue.complete_many([job for job in found if job is not None]))


def test_an_extended_lease_is_remembered_with_its_new_end(db: QueueDB, name: str) -> None:
    queue = db.queue(name)
    queue.enqueue("mail")
    (job,) = queue.claim(lease=10)
    before = job.lease_ends
    assert job.extend(600)
    leases = Leases()
    leases.remember([handed(job)])
    lease, token = (job.id, job.version), own_token(job.token, job.id)
    (remembered,), (read,) = leases.take(queue, [lease], [token]), queue.leases_from_tokens([(*lease, token)])
    assert remembered is not None
    assert read is not None
    assert (remembered.version, remembered.lease_ends) == (read.version, read.lease_ends)
    assert remembered.lease_ends > before


def test_jobs_whose_answer_cannot_be_written_are_given_back(db: QueueDB, name: str) -> None:
    job_id = db.queue(name).enqueue("mail")

    def write(jobs: Sequence[LeasedJob]) -> bytes:
        raise ValueError(jobs)

    async def claim() -> None:
        claims = Claims(db, Waits(db, threading.Event()), Incidents(), CapacityLimiter(1))
        await claims.submit(Wanted(Terms(name, 60.0), 1, None, write))

    with pytest.raises(ValueError, match="LeasedJob"):
        asyncio.run(claim())
    assert job_id
    assert (db.get(job_id).state, db.get(job_id).attempts) == (State.AVAILABLE, 0)
