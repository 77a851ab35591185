"""What each operation on feeds, cursors, routes, streams and tokens is on the three sides: a command, a request, a form."""

from __future__ import annotations

from sqlalchemy import update

from queue_db import QueueDB
from queue_db.spark.streams import store
from queue_db.spark.tables import spark_tables
from queue_db.store import Transaction
from tests.operations.sides import Sides


def prepare(db: QueueDB) -> dict[str, str]:
    """One of everything that the operations change; what has no fixed name."""
    db.feed("orders").publish("paid")
    db.feed("orders").cursor("billing").close()
    for _ in range(3):
        db.feed("long").publish("paid")
    for name in ("orders", "long"):
        db.feed(name).rank()
    db.feeds.set("long", keep_rows=1)
    definition = db.routes.set("archive", feed="orders")
    db.routes.subscribe("sensor.7", "archive", "exact")
    db.routes.set("seen", count="seen", by="topic")
    db.routes.run("seen", "reading")
    db.routes.set("idle", drop=True)
    db.routes.pause("idle")
    db.tokens.create("known", ["read"])
    for name in ("etl", "old"):
        db.queue(name).enqueue("k")
        db.core.write("test", hold, name)
    with db.database.begin() as connection:
        kept = spark_tables(db.store.tables).streams
        connection.execute(update(kept).where(kept.c.name == "old").values(retention=0))
    return {"definition": definition}


def hold(tx: Transaction, name: str) -> None:
    session = store.open_stream(tx, name=name, queue=name, holder="here:1", retention=10**12)
    start = store.initial(tx, session)
    store.allocate(tx, session, start=start, limit=1, ceiling=None, partitions=1)


FEED, ROUTE, STREAM = "/feeds/orders", "/routes/archive", "/streams/etl"

SIDES = [
    Sides(
        "feeds.set",
        ("set", "feed orders", None),
        "feeds set orders --keep-rows 10",
        ("PATCH", FEED, {"keep_rows": 10}),
        FEED,
        ("/feeds/set", {"feed": "orders", "keep_rows": "10"}),
    ),
    Sides(
        "feeds.set",
        ("set", "feed new", None),
        "feeds set new --keep-rows 10 --claims",
        ("PUT", "/feeds/new", {"keep_rows": 10, "claims": True}),
        "/feeds",
        ("/feeds/make", {"feed": "new", "keep_rows": "10", "claims": "1"}),
    ),
    Sides(
        "feeds.purge",
        ("purge", "feed orders", 1),
        "feeds purge orders --yes",
        ("POST", f"{FEED}/purge"),
        FEED,
        ("/feeds/purge", {"feed": "orders", "retained": ""}),
    ),
    Sides(
        "feeds.purge",
        ("purge", "feed long", 2),
        "feeds purge long --retained",
        ("POST", "/feeds/long/purge?retained=true"),
        "/feeds/long",
        ("/feeds/purge", {"feed": "long", "retained": "1"}),
    ),
    Sides(
        "feeds.remove",
        ("remove", "feed orders", None),
        "feeds remove orders --yes",
        ("DELETE", FEED),
        FEED,
        ("/feeds/remove", {"feed": "orders"}),
    ),
    Sides(
        "feeds.restored",
        ("restored", "all feeds", 2),
        "feeds restored --yes",
        ("POST", "/restored"),
        "/feeds",
        ("/feeds/restored", {}),
    ),
    Sides(
        "cursors.seek",
        ("seek", "cursor billing of feed orders", None),
        "cursors seek orders billing end",
        ("POST", f"{FEED}/cursors/billing/seek", {"position": "end"}),
        FEED,
        ("/feeds/cursors/seek", {"feed": "orders", "name": "billing", "position": "end"}),
    ),
    Sides(
        "cursors.remove",
        ("remove", "cursor billing of feed orders", None),
        "cursors remove orders billing",
        ("DELETE", f"{FEED}/cursors/billing"),
        FEED,
        ("/feeds/cursors/remove", {"feed": "orders", "name": "billing"}),
    ),
    Sides(
        "routes.set",
        ("set", "route archive", None),
        "routes set archive --enqueue mail --kind check --group --where kind=='a'",
        ("PUT", ROUTE, {"action": "enqueue", "target": "mail", "kind": "check", "group": True, "where": "kind=='a'"}),
        "/routes",
        (
            "/routes/set",
            {"name": "archive", "action": "enqueue", "target": "mail", "kind": "check", "group": "1", "where": "kind=='a'"},
        ),
    ),
    Sides(
        "routes.assign",
        ("set", "route seen", None),
        "routes set seen --definition {definition}",
        ("POST", "/routes/seen/assign", {"definition": "{definition}"}),
        "/routes",
        ("/routes/assign", {"name": "seen", "definition": "{definition}"}),
    ),
    Sides(
        "routes.subscribe",
        ("subscribe", "route archive", None),
        "routes subscribe new.* archive",
        ("POST", f"{ROUTE}/subscriptions", {"pattern": "new.*"}),
        "/routes",
        ("/routes/subscribe", {"name": "archive", "pattern": "new.*", "form": "glob"}),
    ),
    Sides(
        "routes.unsubscribe",
        ("unsubscribe", "route archive", None),
        "routes unsubscribe sensor.7 archive --form exact",
        ("DELETE", f"{ROUTE}/subscriptions?pattern=sensor.7&form=exact"),
        "/routes",
        ("/routes/unsubscribe", {"name": "archive", "pattern": "sensor.7", "form": "exact"}),
    ),
    Sides(
        "routes.pause",
        ("pause", "route archive", None),
        "routes pause archive",
        ("POST", f"{ROUTE}/pause"),
        "/routes",
        ("/routes/pause", {"name": "archive"}),
    ),
    Sides(
        "routes.resume",
        ("resume", "route idle", None),
        "routes resume idle",
        ("POST", "/routes/idle/resume"),
        "/routes",
        ("/routes/resume", {"name": "idle"}),
    ),
    Sides(
        "routes.remove",
        ("remove", "route archive", None),
        "routes remove archive",
        ("DELETE", ROUTE),
        "/routes",
        ("/routes/remove", {"name": "archive"}),
    ),
    Sides(
        "routes.reset",
        ("reset", "counter seen", None),
        "routes reset seen --yes",
        ("DELETE", "/counters/seen"),
        "/routes",
        ("/counters/reset", {"counter": "seen"}),
    ),
    Sides(
        "streams.complete",
        ("complete", "stream etl", 1),
        "streams complete etl --yes",
        ("POST", f"{STREAM}/complete"),
        "/streams",
        ("/streams/complete", {"name": "etl"}),
    ),
    Sides(
        "streams.release",
        ("release", "stream etl", 1),
        "streams release etl --yes",
        ("POST", f"{STREAM}/release"),
        "/streams",
        ("/streams/release", {"name": "etl"}),
    ),
    Sides(
        "streams.release_expired",
        ("release", "expired streams", 1),
        "streams release --expired --yes",
        ("POST", "/streams/release-expired"),
        "/streams",
        ("/streams/release-expired", {}),
    ),
    Sides(
        "tokens.create",
        ("create", "token shop", None),
        "tokens create shop --scope read",
        ("POST", "/tokens", {"name": "shop", "scopes": ["read"]}),
        "/tokens",
        ("/tokens", {"name": "shop", "queues": "*", "scope-read": "1"}),
    ),
    Sides(
        "tokens.revoke",
        ("revoke", "token known", None),
        "tokens revoke known",
        ("DELETE", "/tokens/known"),
        "/tokens",
        ("/tokens/revoke", {"name": "known"}),
    ),
]
