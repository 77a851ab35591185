"""Names in URLs: with ``/``, ``%``, blanks and letters of every alphabet; also where the service is mounted under a prefix."""

from __future__ import annotations

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from queue_db.service.paths import Name, Paths, decoded, escaped, unescaped

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
