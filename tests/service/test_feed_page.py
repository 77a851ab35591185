"""The page of a feed: its newest messages, for those who may read it."""

from __future__ import annotations

import re
from collections.abc import Callable

import httpx2
import pytest
from sqlalchemy import update

from queue_db import QueueDB
from queue_db.feeds import Feed
from queue_db.feeds.position import Position
from queue_db.feeds.tables import feed_tables
from queue_db.service import Settings
from queue_db.service.api import paging
from queue_db.service.pages import feeds
from queue_db.service.pages.feeds import MOST, MOST_CURSORS
from tests.service.test_service_other_pages import logged_in
from tests.service.test_service_pages import look

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], scope="session")

Serve = Callable[[Settings], httpx2.Client]


@pytest.fixture
def url(own_url: str) -> str:
    """A database of its own: the list of feeds is one page, with all that other tests have left."""
    return own_url


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


def test_the_list_of_feeds_has_pages(db: QueueDB, name: str, client: httpx2.Client) -> None:
    names = [f"{name}-{number:02}" for number in range(MOST + 5)]
    for one in names:
        db.feeds.set(one)
        db.feed(one).cursor("reader").close()
    for number in range(MOST_CURSORS):
        db.feed(names[0]).cursor(f"member-{number}").close()
    first = look(client, "/feeds")
    assert f"The {MOST_CURSORS} of {MOST + MOST_CURSORS} cursors" in first
    (more,) = [link["href"] for link in first.all("a") if link.get("rel") == "next"]
    second = look(client, more)
    shown = [re.findall(rf'data-row="({name}-\d\d)"', client.get(path).text) for path in ("/feeds", more)]
    assert shown == [names[:MOST], names[MOST:]]
    assert [link["href"] for link in second.all("a") if link.get("rel") == "next"] == []
    client.get("/feeds", params={"after": names[-1]}).raise_for_status()
    assert client.get("/feeds", params={"after": "a\0"}).status_code in (400, 422)


def test_a_narrow_token_meets_no_name_of_other_feeds(db: QueueDB, name: str, serve: Serve) -> None:
    mine = [f"{name}-mine-{number:03}" for number in range(MOST + 5)]
    for number, one in enumerate(mine):
        db.feeds.set(one)
        for other in range(4):
            db.feeds.set(f"{name}-mine-{number:03}-secret-{other:02}")
    client = logged_in(db, serve(Settings()), name, "read", queues=tuple(mine))
    first = client.get("/feeds")
    (more,) = re.findall(r'href="([^"]+)" rel="next"', first.text)
    second = client.get(more.replace("&amp;", "&"))
    assert [re.findall(r'data-row="([^"]+)"', page.text) for page in (first, second)] == [mine[:MOST], mine[MOST:]]
    assert "secret" not in first.text + second.text
    assert 'rel="next"' not in second.text


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
    assert '"Password": "***"' in page
    assert "s3cr3t" not in page
    assert "x" * 100 not in page


def test_a_message_that_cannot_be_decoded(db: QueueDB, name: str, client: httpx2.Client) -> None:
    db.feed(name).publish(name, {"password": "s3cr3t"})
    table = feed_tables(db.store.tables).messages
    broken = update(table).where(table.c.kind == name).values(payload='{"password": "s3cr3t"')
    db.core.write("test", lambda tx: tx.connection.execute(broken))
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


# What consumers have deleted, as numbers from and below, of feeds with this number of messages.
GAPS = {
    "the newest": (200, [(151, 201)]),
    "most": (300, [(4, 301)]),
    "all but one": (1000, [(1, 951), (952, 1001)]),
    "a few of the newest": (500, [(441, 500)]),
    "in between": (1000, [(300, 310), (311, 980), (990, 1001)]),
    "nearly each": (1500, [(number, number + 28) for number in range(2, 1500, 29)]),
}


@pytest.mark.parametrize("gaps", GAPS)
def test_messages_that_consumers_have_deleted(db: QueueDB, name: str, client: httpx2.Client, gaps: str) -> None:
    total, deleted = GAPS[gaps]
    tasks = with_claims(db, name, total)
    found = {message.seq: message for start in (0, 1000) for message in tasks.read(position(tasks, start), limit=1000).messages}
    for start, end in deleted:
        tasks.delete([found.pop(number) for number in range(start, end) if number in found])
    wanted = sorted(found, reverse=True)[:50]
    assert numbers(client, f"/feeds/{name}") == wanted
    page = look(client, f"/feeds/{name}")
    assert (f"The last 50 of {len(found):,} messages" in page) == (len(found) > 50)


def test_a_page_that_reads_too_little_says_so(
    db: QueueDB, name: str, client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = with_claims(db, name, 300)
    tasks.delete(tasks.read(position(tasks, 3), limit=1000).messages)
    monkeypatch.setattr(feeds, "_READS", 1)
    page = look(client, f"/feeds/{name}")
    assert "No messages" not in page
    assert "The last 25 numbers of this feed have no messages any more: they were deleted. 3 messages are before them" in page
    monkeypatch.setattr(feeds, "_READS", 3)
    assert numbers(client, f"/feeds/{name}") == [3, 2, 1]


def test_a_page_ends_early_where_messages_are_large(
    db: QueueDB, name: str, client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.feed(name).publish_many([*(("paid", "x" * 10_000) for _ in range(40)), *(("paid", number) for number in range(3))])
    assert len(numbers(client, f"/feeds/{name}")) == 43
    monkeypatch.setattr(paging, "MOST_BYTES", 50_000)
    assert numbers(client, f"/feeds/{name}") == list(range(43, 35, -1))
    assert "The last 8 of 43 messages" in look(client, f"/feeds/{name}")


def with_claims(db: QueueDB, name: str, messages: int) -> Feed:
    db.feeds.set(name, claims=True)
    tasks = db.feed(name)
    for start in range(0, messages, 1000):
        tasks.publish_many(("do", number) for number in range(start, min(messages, start + 1000)))
    return tasks


def position(feed: Feed, after: int) -> str:
    return str(Position.parse(feed.start())._replace(seq=min(after, Position.parse(feed.end()).seq)))
