"""The database goes away: 503 meanwhile, and everything goes on by itself when it is back."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from queue_db import QueueDB
from queue_db.service import Settings, service
from queue_db.service.live import kept
from tests.patience import PATIENCE, wait_for
from tests.servers import Server, provide
from tests.servers.proxy import Proxy
from tests.service.conftest import serving_app


@pytest.fixture
def own_server() -> Iterator[Server]:
    server = provide("postgresql")
    try:
        yield server
    finally:
        server.remove()


def ask_until(client: httpx2.Client, url: str, status: int) -> httpx2.Response:
    """Ask until the answer has this status; only 200 and 503 may come before."""
    for _ in range(int(PATIENCE / 0.05)):
        answer = client.get(url)
        if answer.status_code == status:
            return answer
        assert answer.status_code in {200, 503}, answer.text
        threading.Event().wait(0.05)
    pytest.fail(f"no answer with status {status}")


def test_metrics_are_what_there_is_while_the_database_is_away(own_server: Server) -> None:
    """For a token that was found before, and for no other."""
    with QueueDB(own_server.create_database()) as db:
        db.migrate()
        db.queue("mail").enqueue("mail")
        known, other = (f"Bearer {db.tokens.create(name, ['read'])}" for name in ("known", "other"))
        enqueues = f"Bearer {db.tokens.create('enqueues', ['enqueue'])}"
        with serving_app(service(db, Settings())) as url, httpx2.Client(base_url=url, timeout=PATIENCE) as client:

            def scrape(token: str | None) -> tuple[int, str]:
                answer = client.get("/metrics", headers={} if token is None else {"Authorization": token})
                return answer.status_code, answer.text

            status, text = scrape(known)
            assert (status, "queue_db_up 1.0" in text, "queue_db_claims_total" in text) == (200, True, True)
            assert scrape(enqueues)[0] == 403
            own_server.kill()
            for _ in range(2):  # the first one finds that it is away
                status, text = scrape(known)
                assert (status, "queue_db_up 0.0" in text, "queue_db_claims_total" in text) == (200, True, True)
                assert "queue_db_depth" not in text
            assert [scrape(token)[0] for token in (other, "Bearer qdb_unknown", enqueues, None)] == [503, 503, 403, 401]
            assert client.get("/api/v1/queues", headers={"Authorization": known}).status_code == 503
            own_server.start()
            for _ in range(int(PATIENCE / 0.05)):
                if "queue_db_up 1.0" in scrape(known)[1]:
                    break
                threading.Event().wait(0.05)
            else:
                pytest.fail("the database is back, and metrics do not say so")


def test_a_database_that_does_not_answer_is_away_soon(shared_urls: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before the network, or the server, gives up."""
    url = shared_urls("postgresql")
    with Proxy.before(url) as proxy, QueueDB(proxy.url(url)) as db:
        name = uuid.uuid4().hex
        known, other = (f"Bearer {db.tokens.create(name + one, ['read'])}" for one in "ab")
        with serving_app(service(db, Settings())) as base, httpx2.Client(base_url=base, timeout=PATIENCE) as client:

            def scrape(token: str) -> tuple[int, bool]:
                answer = client.get("/metrics", headers={"Authorization": token})
                return answer.status_code, "queue_db_up 1.0" in answer.text

            assert scrape(known) == (200, True)
            with monkeypatch.context() as patch:
                patch.setattr(kept, "_ANSWERS_WITHIN", 0.1)
                proxy.silence()
                assert scrape(known) == (200, False)
                ready = client.get("/readyz")
                assert (ready.status_code, ready.headers["retry-after"]) == (503, "1")
                assert scrape(other)[0] == 503
            proxy.forward()
            wait_for(lambda: scrape(known) == (200, True))
            assert client.get("/readyz").status_code == 200


def test_a_database_that_is_away_and_comes_back(own_server: Server) -> None:
    with QueueDB(own_server.create_database()) as db:
        db.migrate()
        app = service(db, Settings(closed=False))
        with serving_app(app) as url, httpx2.Client(base_url=url, timeout=PATIENCE) as client, ThreadPoolExecutor(1) as pool:
            job_id = client.post("/api/v1/queues/mail/jobs", json={"kind": "mail"}).json()["id"]
            waiting = pool.submit(client.post, "/api/v1/queues/empty/claims", json={"wait": 50})
            for _ in range(int(PATIENCE / 0.01)):
                if app.state.claims.waiting("empty"):
                    break
                threading.Event().wait(0.01)
            own_server.kill()
            # A client that waits learns it, too, and comes again.
            assert waiting.result(PATIENCE).status_code == 503
            away = ask_until(client, f"/api/v1/jobs/{job_id}", 503)
            assert away.headers["retry-after"] == "1"
            assert away.headers["content-type"] == "application/problem+json"
            assert "postgresql" not in away.text
            own_server.start()
            assert ask_until(client, f"/api/v1/jobs/{job_id}", 200).json()["state"] == "available"
            (claimed,) = client.post("/api/v1/queues/mail/claims", json={"wait": 5}).json()["jobs"]
            assert claimed["id"] == job_id
