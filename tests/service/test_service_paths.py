"""Names in URLs: with ``/``, ``%``, blanks and letters of every alphabet; also where the service is mounted under a prefix."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from queue_db import QueueDB
from queue_db.service import Settings, service
from queue_db.service.http.paths import Name, Paths, decoded, escaped, unescaped

NAMES = ["mail", "a/b", "a%2Fb", "100%", "%25", "%2f", "ä ö", "日本/語", "a?b#c", "..a", "a+b", "%41", "a//b", "/", "'\"<&>"]


def app() -> FastAPI:
    inner = FastAPI()

    @inner.get("/queues/{name}/jobs", name="jobs")
    def jobs(name: Name, request: Request) -> dict[str, str]:
        return {"name": name, "url": str(request.url_for("jobs", name=escaped(name)))}

    inner.add_middleware(Paths, router=inner.router)
    return inner


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_one_segment(name: str) -> None:
    client = TestClient(app())
    answer = client.get(f"/queues/{escaped(name)}/jobs").json()
    assert answer["name"] == name
    assert client.get(answer["url"]).json()["name"] == name


@pytest.mark.parametrize("prefix", ["/queue", "/a b/c"])
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_one_segment_under_a_prefix(name: str, prefix: str) -> None:
    outer = FastAPI()

    @outer.get("/other", name="jobs")
    def other() -> None:
        """A route of the outer application with the name of one of ours."""

    outer.mount(prefix, app())
    client = TestClient(outer)
    answer = client.get(f"{prefix.replace(' ', '%20')}/queues/{escaped(name)}/jobs").json()
    assert answer["name"] == name
    assert client.get(answer["url"]).json()["name"] == name


@pytest.mark.parametrize("name", NAMES)
def test_decoding_keeps_what_divides(name: str) -> None:
    path = decoded(b"/queues/" + escaped(name).encode() + b"/jobs?x=%2F")
    _, queues, segment, jobs = path.split("/")
    assert (queues, unescaped(segment), jobs) == ("queues", name, "jobs")


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_a_program_mounts_the_service(db: QueueDB) -> None:
    """As docs/service.md has it: under its prefix, for the host names of the program, which closes the database."""
    queues = service(db, Settings(hosts=("shop.example.com",)))

    @asynccontextmanager
    async def lifespan(_outer: FastAPI) -> AsyncIterator[None]:
        async with queues.router.lifespan_context(queues):
            yield

    outer = FastAPI(lifespan=lifespan)
    outer.mount("/queue", queues)
    name = f"mounted-{uuid.uuid4().hex}"
    secret = db.tokens.create(name, ("read", "enqueue"))
    with TestClient(outer, base_url="http://shop.example.com", follow_redirects=False) as client:
        assert client.get("/queue/").headers["location"].startswith("/queue/login")
        entered = client.post("/queue/login", data={"token": secret})
        assert (entered.status_code, entered.headers["location"]) == (303, "/queue/")
        assert "Path=/queue;" in entered.headers["set-cookie"]
        page = client.get("/queue/")
        assert page.status_code == 200
        assert set(re.findall(r'(?:href|src)="(?:http://shop\.example\.com)?/(\w+)', page.text)) == {"queue"}
        about = client.get("/queue/api/v1").json()
        described = client.get(about["openapi"]).json()
        assert (about["dashboard"], described["servers"]) == ("/queue/", [{"url": "/queue"}])
        client.headers["Authorization"] = f"Bearer {secret}"
        assert client.get(f"{described['servers'][0]['url']}/api/v1/queues").status_code == 200
        assert "/queue/api/v1/openapi.json" in client.get("/queue/api/v1/nothing").json()["detail"]
        enqueued = client.post(f"/queue/api/v1/queues/{name}/jobs", json={"kind": "mail"})
        assert client.get(enqueued.headers["location"]).json()["queue"] == name
        assert client.get("/queue/api/v1/queues", headers={"Host": "elsewhere.example.com"}).status_code == 421
    assert db.queues() is not None  # the program closes it
