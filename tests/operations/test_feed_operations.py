"""What operations on feeds, routes, streams and tokens allow, beside what holds for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx2
import pytest
from sqlalchemy import update

from queue_db import QueueDB
from queue_db.errors import FeedError, NoSuchFeedError, StreamError
from queue_db.operations import cursors, feeds, routes, streams
from queue_db.operations.actor import ANYBODY, Actor, ForbiddenError
from queue_db.service import Settings
from queue_db.spark.tables import spark_tables
from tests.cli.harness import Ask
from tests.operations.sides_feeds import hold, prepare
from tests.patience import PATIENCE
from tests.service.conftest import serving

pytestmark = pytest.mark.parametrize("kind", ["sqlite"], scope="session")


@contextmanager
def client(db: QueueDB, **token: Any) -> Iterator[httpx2.Client]:
    """A client of a closed service, with a token."""
    with ExitStack() as stack:
        base = stack.enter_context(serving(db, Settings()))
        headers = {"Authorization": f"Bearer {db.tokens.create('asks', **token)}"}
        yield stack.enter_context(httpx2.Client(base_url=base, headers=headers, timeout=PATIENCE, verify=False))


@pytest.fixture
def own(own_url: str) -> Iterator[QueueDB]:
    with QueueDB(own_url) as db:
        yield db


def entries(db: QueueDB) -> list[tuple[str, str, int | None]]:
    return [(one.action, one.target, one.number) for one in db.actions.list()]


def test_a_route_leads_only_where_its_owner_may_manage(own: QueueDB) -> None:
    """Forms with patterns may match every topic, and definitions of others lead elsewhere."""
    names = prepare(own)
    with client(own, scopes=["read", "manage"], queues=["archive", "seen"]) as asks:
        refused = [
            asks.put("/api/v1/routes/archive", json={"action": "feed", "target": "orders"}),
            asks.post("/api/v1/routes/seen/assign", json={"definition": names["definition"]}),
            asks.post("/api/v1/routes/archive/subscriptions", json={"pattern": "*"}),
            asks.post("/api/v1/routes/archive/subscriptions", json={"pattern": "other", "form": "exact"}),
        ]
    assert [answer.status_code for answer in refused] == [403, 404, 403, 403]
    assert entries(own) == []


def test_a_token_gets_no_more_than_its_maker_has(own: QueueDB) -> None:
    with client(own, scopes=["read", "manage"]) as asks:
        made = asks.post("/api/v1/tokens", json={"name": "reader", "scopes": ["read"], "queues": ["mail*"], "expires_in": 60})
        more = asks.post("/api/v1/tokens", json={"name": "worker", "scopes": ["read", "work"]})
        again = asks.post("/api/v1/tokens", json={"name": "reader", "scopes": ["read"]})
        listed = asks.get("/api/v1/tokens")
        assert asks.get("/api/v1/queues", headers={"Authorization": f"Bearer {made.json()['secret']}"}).status_code == 200
    assert (made.status_code, more.status_code, again.status_code) == (201, 403, 422)
    found = {one["name"]: one for one in listed.json()["tokens"]}
    assert sorted(found) == ["asks", "reader"]
    assert (found["reader"]["scopes"], found["reader"]["queues"], found["reader"]["active"]) == (["read"], ["mail*"], True)
    assert made.json()["secret"] not in listed.text


def test_a_token_that_ends_makes_none_that_lasts_longer(own: QueueDB) -> None:
    with client(own, scopes=["read", "manage"], expires_in=600) as asks:
        made = asks.post("/api/v1/tokens", json={"name": "lasting", "scopes": ["read"]})
        shorter = asks.post("/api/v1/tokens", json={"name": "shorter", "scopes": ["read"], "expires_in": 60})
        later = asks.post("/api/v1/tokens", json={"name": "later", "scopes": ["read"], "expires_in": 601})
    assert (made.status_code, shorter.status_code, later.status_code) == (201, 201, 422)
    assert "none that it makes ends later" in later.text
    ends = {one.name: one.expires_at for one in own.tokens.list() if one.expires_at is not None}
    assert sorted(ends) == ["asks", "lasting", "shorter"]
    assert ends["shorter"] < ends["lasting"] <= ends["asks"]


def test_a_token_that_is_made_later_than_its_end_was_compared_ends_with_its_maker(
    own: QueueDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client(own, scopes=["read", "manage"], expires_in=600) as asks:
        now = own.core.now
        monkeypatch.setattr(own.core, "now", lambda: now() - 5_000_000)
        assert asks.post("/api/v1/tokens", json={"name": "lasting", "scopes": ["read"]}).status_code == 201
    ends = {one.name: one.expires_at for one in own.tokens.list()}
    assert ends["lasting"] == ends["asks"]


def test_a_stream_of_another_queue_is_not_known(own: QueueDB) -> None:
    prepare(own)
    mine = Actor("me", frozenset({"manage"}), ("mine",))
    with pytest.raises(StreamError, match="there is no stream 'etl'; known: none"):
        streams.release(own, mine, "etl")
    with pytest.raises(ForbiddenError):
        streams.release_expired(own, mine)
    assert entries(own) == []


def test_a_purge_of_a_feed_without_messages_is_an_entry(own: QueueDB) -> None:
    """Positions from before are refused; a feed that is not there gets none."""
    prepare(own)
    assert [feeds.purge(own, ANYBODY, "orders") for _ in range(2)] == [1, 0]
    with pytest.raises(FeedError, match="there is no feed"):
        feeds.purge(own, ANYBODY, "nothing")
    assert entries(own) == [("purge", "feed orders", None), ("purge", "feed orders", 1)]


def test_the_settings_of_a_feed_that_cannot_be_new_are_no_entry(own: QueueDB) -> None:
    """Limits of claims do not create a feed."""
    with pytest.raises(FeedError, match="there is no feed"):
        feeds.set(own, ANYBODY, "nothing", feeds.Settings(max_attempts=1))
    assert entries(own) == []


def test_a_missing_route_has_one_code(own: QueueDB) -> None:
    with client(own, scopes=["read", "manage"]) as asks:
        answers = [
            asks.get("/api/v1/routes/nothing/subscriptions"),
            asks.delete("/api/v1/routes/nothing"),
            asks.post("/api/v1/routes/nothing/pause"),
            asks.post("/api/v1/routes/nothing/assign", json={"definition": "0" * 12}),
        ]
    assert [(one.status_code, one.json()["code"]) for one in answers] == [(404, "route")] * 4


def test_a_feed_that_is_asked_for_all_the_time_is_read_again(own: QueueDB, own_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("queue_db.feeds.feed.time.monotonic", lambda: now)
    own.feeds.set("orders")
    feed = own.feed("orders")
    assert feed.existing() is not None
    with QueueDB(own_url) as other:
        other.feeds.delete("orders")
    now = 0.6
    assert feed.existing() is not None
    now = 1.2
    assert feed.existing() is None


@pytest.mark.parametrize(
    "change",
    [
        lambda db: cursors.seek(db, ANYBODY, "orders", "billing", "end"),
        lambda db: cursors.remove(db, ANYBODY, "orders", "billing"),
        lambda db: feeds.purge(db, ANYBODY, "orders", retained=True),
        lambda db: db.feed("orders").seek("billing", "start"),
        lambda db: db.feed("orders").remove_cursor("billing"),
        lambda db: db.feed("orders").trim(),
    ],
)
def test_a_change_of_a_feed_that_is_gone_makes_none(own: QueueDB, own_url: str, change: Callable[[QueueDB], object]) -> None:
    """This process has just used it."""
    own.feeds.set("orders", claims=True)
    own.feed("orders").row()
    with QueueDB(own_url) as other:
        other.feeds.delete("orders")
    with pytest.raises(NoSuchFeedError, match="there is no feed 'orders'"):
        change(own)
    assert own.feeds.list() == []


def test_an_expired_stream_without_jobs_is_an_entry_with_its_name(own: QueueDB) -> None:
    """Its checkpoint ends: a query that still has it is refused."""
    for name in ("etl", "other"):
        job = own.queue(name).enqueue("k", unique_key="once")
        own.core.write("test", hold, name)
        assert own.queue(name).cancel(job)
    with own.database.begin() as connection:
        connection.execute(update(spark_tables(own.store.tables).streams).values(retention=0))
    before = {one.name: one.epoch for one in own.streams.list()}
    assert streams.release_expired(own, ANYBODY) == ["etl", "other"]
    assert {one.name: one.epoch - before[one.name] for one in own.streams.list()} == {"etl": 1, "other": 1}
    (one,) = own.actions.list()
    assert (one.target, one.number, one.detail) == ("expired streams", 2, {"streams": ["etl", "other"]})


def test_a_missing_feed_cursor_or_stream_has_one_code(ask_at: Ask, own: QueueDB, own_url: str) -> None:
    own.feeds.set("orders")
    asked = {
        "no_such_feed": ("cursors seek nothing billing end", "/api/v1/feeds/nothing/cursors/billing/seek"),
        "no_such_cursor": ("cursors seek orders nobody end", "/api/v1/feeds/orders/cursors/nobody/seek"),
        "no_such_stream": ("streams release nothing --yes", "/api/v1/streams/nothing/release"),
    }
    with client(own, scopes=["read", "manage"]) as asks:
        for code, (command, path) in asked.items():
            answer = asks.post(path, json={"position": "end"})
            said = ask_at(own_url, *command.split(), "--json", status=1).record["error"]
            assert (answer.status_code, answer.json()["code"], said["code"]) == (404, code, code)


def test_the_log_has_no_more_of_a_webhook_than_its_site(own: QueueDB) -> None:
    """Its path and its query are often a secret."""
    address = "https://hooks.example.com:8443/services/T0/B0?token=abc"
    routes.set(own, ANYBODY, "chat", routes.RouteAction("webhook", address))
    assert own.actions.list()[0].detail == {"action": "webhook", "target": "https://hooks.example.com:8443"}
    assert own.routes.list()[0].target == address
