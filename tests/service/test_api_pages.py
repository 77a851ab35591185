"""Pages of jobs with large payloads end early, over REST and on the dashboard, and no job is left out or comes twice."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import httpx2
import pytest

from queue_db import QueueDB
from queue_db.model import StoredResult
from queue_db.service.api import paging

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], scope="session")

JOBS = 60


def pages(client: httpx2.Client, path: str, **params: Any) -> list[list[str]]:
    """The ids of the jobs, by page."""
    found, after = [], None
    while True:
        page = client.get(f"/api/v1{path}", params={**params, **({} if after is None else {"after": after})}).json()
        found.append([job["id"] for job in page["jobs"]])
        after = page["after"]
        if after is None:
            return found


@pytest.mark.parametrize("state", ["available", "blocked", "dead", "finished"])
def test_a_page_ends_early_where_payloads_are_large(
    db: QueueDB, name: str, client: httpx2.Client, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    queue = db.queue(name)
    # The first read of a page has only small ones; the large ones come in a further read.
    payloads = ["" if n < 25 else "x" * 10_000 for n in range(JOBS)]
    group = "g" if state == "blocked" else None
    ids = [str(one) for one in queue.enqueue_many([("mail", payload, {"group": group}) for payload in payloads])]
    if state == "dead":
        queue.bury_many(queue.claim(JOBS), "broken")
    elif state == "finished":
        queue.complete_many(queue.claim(JOBS), results=[StoredResult("1", 10**9)] * JOBS)
    path, params = {
        "available": (f"/queues/{name}/jobs", {}),
        "blocked": (f"/queues/{name}/groups/g/jobs", {}),
        "dead": ("/dead", {"queue": name}),
        "finished": ("/finished", {"queue": name}),
    }[state]
    wanted = ids[1:] if group else ids
    assert pages(client, path, limit=1000, **params) == [wanted]
    assert [len(page) for page in pages(client, path, limit=25, **params)][:2] == [25, 25]
    monkeypatch.setattr(paging, "MOST_BYTES", 50_000)
    found = pages(client, path, limit=1000, **params)
    assert [one for page in found for one in page] == wanted
    # About 25 small ones and 5 large ones, then 5 at a time.
    assert 25 < len(found[0]) < 32
    assert [len(page) for page in found[1:-1]] == [5] * len(found[1:-1])
    monkeypatch.setattr(paging, "MOST_BYTES", 1)
    assert [len(page) for page in pages(client, path, limit=1000, **params)][:3] == [1, 1, 1]


@pytest.mark.parametrize("state", ["available", "dead", "finished"])
def test_a_page_of_the_dashboard_ends_early_too(
    db: QueueDB, name: str, client: httpx2.Client, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    queue = db.queue(name)
    ids = [str(one) for one in queue.enqueue_many([("mail", "x" * 10_000 if n < 30 else "") for n in range(JOBS)])]
    if state == "dead":
        queue.bury_many(queue.claim(JOBS), "broken")
    elif state == "finished":
        queue.complete_many(queue.claim(JOBS), results=[StoredResult("1", 10**9)] * JOBS)
    path = f"/{'jobs' if state == 'available' else state}?queue={name}"
    assert [len(page) for page in followed(client, path)] == [50, 10]
    monkeypatch.setattr(paging, "MOST_BYTES", 50_000)
    found = followed(client, path)
    assert [one for page in found for one in page] == ids
    assert [len(page) for page in found] == [5] * 6 + [30]


def followed(client: httpx2.Client, path: str) -> list[list[str]]:
    """The ids of the jobs on a page of the dashboard and on those that it leads to."""
    found = []
    while path:
        page = client.get(path).text
        found.append(re.findall(r'<tr data-row="(\d+)"', page))
        path = "".join(unescape(link) for link in re.findall(r'<a href="([^"]+)" rel="next"', page))
    return found
