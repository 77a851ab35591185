"""Claims and settlements go around FastAPI: they answer as its own routes, which stand behind them, would."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from queue_db import QueueDB
from queue_db.service import Settings, service
from queue_db.service.http.direct import Direct
from tests.patience import PATIENCE
from tests.service.conftest import serving_app

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], scope="session")

JSON = "application/json"
LEASE = {"id": "1", "version": "1", "token": "t"}


def settlement(**fields: Any) -> dict[str, Any]:
    return {"settlements": [{"lease": LEASE, "verb": "complete", **fields}]}


BODIES: list[object] = [{}, {"limit": 3}, {"limit": 0}, {"limit": "1"}, {"lease": 0, "wait": -1}, {"other": 1}, [], None, 1]
TYPES = ["text/plain", None, "x", "APPLICATION/JSON", "application/problem+json; charset=utf-8"]
RAW = [b"", b"{", b"\xff", b"[" * 100_000, b'{"limit": NaN}', b'{"worker": "\\ud800"}', b"nul"]
VERDICTS: list[object] = [
    *[{}, {"settlements": []}, settlement(), settlement(verb="extend"), settlement(verb="extend", seconds=0)],
    *[settlement(lease={**LEASE, **wrong}) for wrong in ({"id": 1}, {"version": "x"}, {"token": ""}, {"more": 1})],
    *[settlement(**{field: wrong}) for field, wrong in (("verb", "leave"), ("result_ttl", 0), ("retry_in", -1), ("error", {}))],
]
RAW_VERDICTS = [b"", b'{"settlements": 1', b'{"settlements": [' + b"1," * 2000 + b"1]}"]

#: Content type and body of requests.
CLAIMS: list[tuple[str | None, object]] = [(JSON, one) for one in (*BODIES, *RAW)] + [(one, {"limit": 2}) for one in TYPES]
SETTLEMENTS: list[tuple[str | None, object]] = [(JSON, one) for one in (*VERDICTS, *RAW_VERDICTS)]


@pytest.fixture
def both(db: QueueDB, name: str) -> Iterator[tuple[httpx2.Client, httpx2.Client]]:
    """A client of a service, and one of a service without the direct part."""
    secret = db.tokens.create(name, ["work"], queues=[f"{name}*"])
    straight, behind = service(db, Settings()), service(db, Settings())
    behind.user_middleware[:] = [one for one in behind.user_middleware if one.cls is not Direct]
    assert len(behind.user_middleware) == len(straight.user_middleware) - 1
    with serving_app(straight) as one, serving_app(behind) as two:
        headers = {"Authorization": f"Bearer {secret}"}
        with (
            httpx2.Client(base_url=one, timeout=PATIENCE, headers=headers) as first,
            httpx2.Client(base_url=two, timeout=PATIENCE, headers=headers) as second,
        ):
            yield first, second


def answered(
    client: httpx2.Client, path: str, content_type: str | None, body: object, method: str = "POST"
) -> tuple[int, bytes, dict[str, str | None]]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {} if content_type is None else {"Content-Type": content_type}
    answer = client.request(method, path, content=content, headers=headers)
    kept = {one: answer.headers.get(one) for one in ("content-type", "cache-control", "allow", "www-authenticate")}
    return answer.status_code, answer.content, kept


def test_requests_are_answered_alike(both: tuple[httpx2.Client, httpx2.Client], name: str) -> None:
    statuses = set()
    for what, requests in (("claims", CLAIMS), ("settlements", SETTLEMENTS)):
        for queue, query in ((name, ""), (f"{name}%2F%25", ""), ("x" * 251, ""), ("elsewhere", ""), (name, "?limit=1")):
            for content_type, body in requests:
                path = f"/api/v1/queues/{queue}/{what}{query}"
                first, second = (answered(client, path, content_type, body) for client in both)
                assert first == second, (path, content_type, body)
                statuses.add(first[0])
    assert statuses >= {200, 400, 403, 415, 422}


def test_so_are_those_that_are_not_for_them(both: tuple[httpx2.Client, httpx2.Client], name: str) -> None:
    for path in (f"{name}/claims", f"{name}/settlements", f"{name}/claims/", f"{name}/x/claims", "/claims", "a%2Fb/claims/x"):
        for method in ("GET", "PUT", "POST"):
            first, second = (answered(client, f"/api/v1/queues/{path}", JSON, {}, method) for client in both)
            assert first == second, (path, method)


def test_who_may_not_is_refused_alike(both: tuple[httpx2.Client, httpx2.Client], db: QueueDB, name: str) -> None:
    reader = db.tokens.create(f"{name}-2", ["read"])
    for what in ("claims", "settlements"):
        for secret, status in ((reader, 403), ("qdb_wrong", 401)):
            for client in both:
                client.headers["Authorization"] = f"Bearer {secret}"
            first, second = (answered(client, f"/api/v1/queues/{name}/{what}", JSON, {"x": 1}) for client in both)
            assert first == second
            assert first[0] == status


def test_the_rate_of_a_token_counts_for_them(db: QueueDB, name: str) -> None:
    secret = db.tokens.create(name, ["work"])
    with (
        serving_app(service(db, Settings(max_rate=0.001))) as url,
        httpx2.Client(base_url=url, timeout=PATIENCE, headers={"Authorization": f"Bearer {secret}"}) as client,
    ):
        statuses = [client.post(f"/api/v1/queues/{name}/claims", json={}).status_code for _ in range(2)]
    assert statuses == [200, 429]
