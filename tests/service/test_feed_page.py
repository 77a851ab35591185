"""The page of a feed: its newest messages, for those who may read it."""

from __future__ import annotations

import re
from collections.abc import Callable

import httpx2
import pytest
from sqlalchemy import update

from queue_db import QueueDB
from queue_db.service import Settings
from tests.service.test_service_other_pages import logged_in
from tests.service.test_service_pages import look

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], scope="session")

Serve = Callable[[Settings], httpx2.Client]


def numbers(client: httpx2.Client, path: str) -> list[int]:
    """The numbers of the messages on a page, from above."""
    return [int(number) for number in re.findall(r'<tr data-row="(\d+)"', client.get(path).text)]


def test_the_last_messages_newest_first(db: QueueDB, name: str, client: httpx2.Client) -> None:
    db.feed(name).publish_many(("paid", {"order": number}, {"key": f"order-{number}"}) for number in range(120))
    assert numbers(client, f"/feeds/{name}") == list(range(120, 70, -1))
    page = look(client, f"/feeds/{name}")
    for text in ("paid", "order-119", '{"order": 119}', "The last 50 of 120 messages"):
        assert text in page, text
    assert f"/feeds/{name}" in {link["href"] for link in look(client, "/feeds").all("a")}


def test_a_feed_without_messages_and_one_that_is_not_there(db: QueueDB, name: str, client: httpx2.Client) -> None:
    db.feeds.set(name)
    assert "No messages" in look(client, f"/feeds/{name}")
    look(client, f"/feeds/{name}-unknown", 404)
    assert f"{name}-unknown" not in [one.name for one in db.feeds.list()]


def test_text_is_text_shortened_and_masked(db: QueueDB, name: str, client: httpx2.Client) -> None:
    odd = f"<img src=x onerror=alert(1)>/%2F{name}"
    db.feed(odd).publish(odd, {"Password": "s3cr3t", "text": odd + "x" * 10_000}, key=odd, client=odd[:36])
    (path,) = {link["href"] or "" for link in look(client, "/feeds").all("a") if name in (link["href"] or "")}
    page = look(client, path)
    assert '"Password": "•••"' in page
    assert "s3cr3t" not in page
    assert "x" * 100 not in page


def test_a_message_that_cannot_be_decoded(db: QueueDB, name: str, client: httpx2.Client) -> None:
    db.feed(name).publish(name, {"password": "s3cr3t"})
    table = db.store.tables.feeds.messages
    broken = update(table).where(table.c.kind == name).values(payload='{"password": "s3cr3t"')
    db.core.write(lambda connection, _store: connection.execute(broken))
    page = look(client, f"/feeds/{name}")
    assert "cannot be decoded" in page
    assert "s3cr3t" not in page


def test_the_rights_of_reading(db: QueueDB, name: str, serve: Serve) -> None:
    for feed in (f"{name}-mine", f"{name}-other"):
        db.feed(feed).publish("paid", f"payload of {feed}")
    client = logged_in(db, serve(Settings()), name, "read", queues=(f"{name}-mine*",))
    assert f"payload of {name}-mine" in look(client, f"/feeds/{name}-mine")
    for path in (f"/feeds/{name}-other", f"/api/v1/feeds/{name}-other/messages"):
        answer = client.get(path)
        assert (path, answer.status_code, "payload of" in answer.text) == (path, 403, False)


def test_messages_that_consumers_have_deleted(db: QueueDB, name: str, client: httpx2.Client) -> None:
    """It looks further back, but a page never reads more messages at once than it shows."""
    db.feeds.set(name, claims=True)
    tasks = db.feed(name)
    tasks.publish_many(("do", number) for number in range(200))
    messages = tasks.read(limit=200).messages
    tasks.delete(messages[159:199])
    assert numbers(client, f"/feeds/{name}") == [200, *range(159, 150, -1)]
    tasks.delete(messages[20:159])
    assert numbers(client, f"/feeds/{name}") == [200, *range(20, 0, -1)]
