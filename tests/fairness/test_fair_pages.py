"""Fair queues over HTTP and in the dashboard: what is set, and what the groups do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from queue_db import Queue, QueueDB
from queue_db.fairness import shares
from queue_db.service import Settings
from queue_db.testing import SettableClock
from tests.fairness.test_fair_queues import add
from tests.patience import PATIENCE
from tests.service.conftest import serving, submitted


@pytest.fixture
def fair(open_db: Callable[..., QueueDB], name: str, clock: SettableClock) -> Queue:
    queue = open_db(clock=clock).queue(name)
    queue.fair(weights={"idle": 3})
    queue.limit_groups(concurrency=2)
    queue.limit_groups(group="vip", concurrency=5)
    queue.limit_groups(prefix="acme:", concurrency=3)
    for group, jobs in (("acme:1", 4), ("acme:2", 4), ("vip", 4)):
        add(queue, group, jobs)
    return queue


def seen(queue: Queue) -> dict[str | None, tuple[int, int | None, int, bool]]:
    listed = shares.shares(queue.db, queue.name).listed
    return {one.rule.group or one.rule.prefix: (one.running, one.most, one.due, one.full) for one in listed}


def test_what_each_group_does_is_seen(fair: Queue, clock: SettableClock) -> None:
    jobs = [job for _ in range(12) for job in fair.claim(1, lease=10)]
    acme = [len([job for job in jobs if job.group == f"acme:{number}"]) for number in (1, 2)]
    assert sorted(acme) == [1, 2]
    expected = {f"acme:{number}": (acme[number - 1], 2, 4 - acme[number - 1], acme[number - 1] == 2) for number in (1, 2)}
    expected |= {"acme:": (3, 3, 5, True), "vip": (4, 5, 0, False), "idle": (0, 2, 0, False)}
    assert seen(fair) == expected
    clock.advance(11)
    assert seen(fair)["acme:"] == (0, 3, 8, False), "what runs ends with its lease"


def test_more_jobs_than_are_looked_at(fair: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "MOST_JOBS", 3)
    monkeypatch.setattr(shares, "MOST", 2)
    found = shares.shares(fair.db, fair.name)
    assert found.cut
    assert len(found.listed) == 2
    assert all(one.due <= 3 for one in found.listed)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx2.Client]:
    with (
        QueueDB(f"sqlite:///{tmp_path}/queue.db") as db,
        serving(db, Settings(closed=False)) as base,
        httpx2.Client(base_url=base, timeout=PATIENCE, verify=False) as client,
    ):
        db.migrate()
        add(db.queue("exports"), "<b>", 2)
        yield client


def limit(of: dict[str, Any]) -> tuple[Any, ...]:
    return of["group"], of["prefix"], of["weight"], of["concurrency"], of["rate"], of["per"]


def test_a_program_reads_and_sets_fairness(client: httpx2.Client) -> None:
    url = "/api/v1/queues/exports"
    assert client.get(f"{url}/fairness").json() == {"fair": False, "groups": []}
    refused = client.put(f"{url}/group-limits", json={"concurrency": 5})
    assert (refused.status_code, "fair() first" in refused.json()["detail"]) == (422, True)
    assert client.patch(f"{url}/fairness", json={"fair": True, "weights": {"vip": 3}}).json()["fair"] is True
    assert client.get(url).json()["controls"]["fair"] is True
    client.put(f"{url}/group-limits", json={"concurrency": 5})
    client.put(f"{url}/group-limits", params={"group": "vip"}, json={"concurrency": 50, "rate": 10})
    client.patch(f"{url}/group-limits", params={"group": "vip"}, json={"per": 2})
    changed = client.put(f"{url}/group-limits", params={"prefix": "acme:"}, json={"rate": 7, "per": 60}).json()
    assert [limit(one) for one in changed["groups"]] == [
        (None, None, 1, 5, None, None),
        ("vip", None, 3, 50, 10, 2.0),
        (None, "acme:", 1, None, 7, 60.0),
    ]
    changed = client.put(f"{url}/group-limits", params={"group": "vip"}, json={}).json()
    assert ("vip", None, 3, None, None, None) in map(limit, changed["groups"])
    for params, body in (
        ({"group": "a", "prefix": "b"}, {"rate": 1}),
        ({"group": ""}, {"rate": 1}),
        ({}, {"rate": 0}),
        ({}, {"per_group": 1}),
    ):
        assert client.put(f"{url}/group-limits", params=params, json=body).status_code == 422, (params, body)
    assert client.patch(f"{url}/group-limits", json={}).status_code == 422
    for body in ({}, {"fair": 1}, {"fair": True, "weights": {"g": 0}}, {"fair": True, "weights": {"": 2}}):
        assert client.patch(f"{url}/fairness", json=body).status_code == 422, body
    assert client.patch(f"{url}/fairness", json={"fair": False}).json()["fair"] is False


def test_a_person_reads_and_sets_fairness(client: httpx2.Client) -> None:
    page, fair, limits = "/queues/exports", "/queues/exports/fair", "/queues/exports/limit-groups"
    assert "not fair" in client.get(page).text
    assert submitted(client, page, fair, fair="1", group="vip", weight="").status_code == 422
    assert submitted(client, page, fair, fair="1", group="", weight="").status_code == 303
    assert submitted(client, page, limits, scope="each", name="", concurrency="2", rate="", per="").status_code == 303
    assert submitted(client, page, limits, scope="prefix", name="<b", concurrency="", rate="7", per="60").status_code == 303
    for scope, name in (("each", "vip"), ("group", ""), ("queue", "")):
        assert submitted(client, page, limits, scope=scope, name=name, concurrency="2").status_code == 422, (scope, name)
    text = client.get(page).text
    assert "no limits of its own: at most 2 at the same time" in text
    assert "at most 7 begun in 60 s" in text
    assert '<td class="n">0 of 2</td>' in text
    assert "&lt;b&gt;" in text
    assert "<b>" not in text.partition('id="shares"')[2]
    assert 'href="/queues/exports#groups"' in client.get("/groups").text
    assert submitted(client, page, fair, fair="").status_code == 303
    assert "not fair" in client.get(page).text
