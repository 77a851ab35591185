"""The article "Subscribe a script to a Pub/Sub channel", step by step, with routes; and the exchanges of AMQP."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from queue_db import QueueDB
from queue_db.errors import RouteError

OpenDB = Callable[..., QueueDB]


def payloads(db: QueueDB, feed: str) -> list[object]:
    return [message.payload for message in db.feed(feed).read().messages]


def test_the_scripts_of_the_article(db: QueueDB, routed: str, open_db: OpenDB) -> None:
    channel = f"{routed}.router.messages"

    # SSUBSCRIBE channel script: the script gets the channel and the message.
    db.routes.set(f"{routed}-script", feed=f"{routed}-list")
    assert db.routes.subscribe(channel, f"{routed}-script", form="exact")
    assert db.topic(channel).publish("HELLO") == 1, "PUBLISH returns the number of receivers"
    (hello,) = db.feed(f"{routed}-list").read().messages
    assert (hello.headers["topic"], hello.kind) == (channel, "HELLO")

    # The script is in the server: it acts after who subscribed it has disconnected.
    with QueueDB(db.database.engine.url) as subscriber:
        subscriber.routes.set(f"{routed}-later", feed=f"{routed}-later")
        subscriber.routes.subscribe(f"{routed}.later", f"{routed}-later", form="exact")
    assert open_db().topic(f"{routed}.later").publish("n", "after") == 1
    assert payloads(db, f"{routed}-later") == ["after"]

    # A channel that loses nothing: no client listens, and the message waits for the next one.
    assert db.topic(f"{routed}.nobody").publish("n", "lost") == 0
    with open_db().feed(f"{routed}-later").cursor("client") as client:
        assert [message.payload for message in client.follow(idle=0)] == ["after"]

    # A log of history in a list of fixed size.
    db.feeds.set(f"{routed}-log", keep_rows=3, ordering="counter")
    db.routes.set(f"{routed}-log", feed=f"{routed}-log")
    db.routes.subscribe(f"{routed}.news", f"{routed}-log")
    for number in range(10):
        db.topic(f"{routed}.news").publish("n", number)
    assert payloads(db, f"{routed}-log") == [7, 8, 9]

    # A script that publishes to its own channel. "This is bad."
    db.routes.set(f"{routed}-loop", forward=channel)
    db.routes.subscribe(channel, f"{routed}-loop", form="exact")
    assert db.topic(channel).publish("HELLO") == 1
    assert db.counters.loops == 1
    db.routes.unsubscribe(channel, f"{routed}-loop", form="exact")

    # SPSUBSCRIBE: metrics by pattern.
    db.routes.set(f"{routed}-sets", count=f"{routed}-sets")
    db.routes.subscribe(f"{routed}__keyevent@*__:set", f"{routed}-sets")
    for event in ("@0__:set", "@1__:set", "@0__:del"):
        db.topic(f"{routed}__keyevent{event}").publish("key", "user:7")
    assert [info.messages for info in db.routes.list() if info.name == f"{routed}-sets"] == [2]

    # Messages to other channels, by the channel they come from.
    db.routes.set(f"{routed}-up", forward=f"{routed}.all")
    db.routes.subscribe(f"{routed}.in.*", f"{routed}-up")
    db.routes.set(f"{routed}-all", enqueue=(routed, "seen"))
    db.routes.subscribe(f"{routed}.all", f"{routed}-all")
    assert db.topic(f"{routed}.in.7").publish("n", 7) == 1
    assert [(job.kind, job.payload) for job in db.queue(routed).claim(limit=5)] == [("seen", 7)]


def test_the_names_of_scripts(db: QueueDB, routed: str) -> None:
    # SCRIPT LOAD, SCRIPT NAME, SCRIPT GETNAME.
    monday = db.routes.set("userMetrics" + routed, count=f"{routed}-monday")
    wednesday = db.routes.define(count=f"{routed}-wednesday")
    name = "userMetrics" + routed
    assert [info.definition for info in db.routes.list() if info.name == name] == [monday]
    db.routes.subscribe(routed, name)
    db.topic(routed).publish("n")
    # "You can re-point names at any time": nobody unsubscribes or subscribes.
    db.routes.assign(name, wednesday)
    db.topic(routed).publish("n")
    db.topic(routed).publish("n")
    assert [info.messages for info in db.routes.list() if info.name == name] == [2]
    db.routes.assign(name, monday)
    assert [info.messages for info in db.routes.list() if info.name == name] == [1]
    # SCRIPT DELNAME "does not delete script or SHA".
    assert db.routes.remove(name)
    assert {monday, wednesday} <= {one.sha for one in db.routes.definitions()}
    with pytest.raises(RouteError, match="there is no route"):
        db.routes.pause(name)


def test_the_exchanges_of_amqp(db: QueueDB, routed: str) -> None:
    for queue in ("one", "two", "three"):
        db.routes.set(f"{routed}-{queue}", enqueue=f"{routed}-{queue}")

    def received() -> dict[str, list[object]]:
        found = {}
        for queue in ("one", "two", "three"):
            jobs = db.queue(f"{routed}-{queue}").claim(limit=9)
            found[queue] = [job.payload for job in jobs]
            for job in jobs:
                job.complete()
        return found

    # direct: a binding key is compared as it is; two queues may have the same.
    for key, queue in (("black", "one"), ("black", "two"), ("green", "three")):
        db.routes.subscribe(f"{routed}.{key}", f"{routed}-{queue}", form="exact")
    assert [db.topic(f"{routed}.{key}").publish("n", key) for key in ("black", "green", "white")] == [2, 1, 0]
    assert received() == {"one": ["black"], "two": ["black"], "three": ["green"]}

    # fanout: every queue, whatever the key.
    for queue in ("one", "two", "three"):
        db.routes.subscribe(f"{routed}-fanout.*", f"{routed}-{queue}")
    assert db.topic(f"{routed}-fanout.any").publish("n", "all") == 3
    assert received() == {"one": ["all"], "two": ["all"], "three": ["all"]}

    # topic: the animals of RabbitMQ's tutorial.
    for pattern, queue in (("*.orange.*", "one"), ("*.*.rabbit", "two"), ("lazy.#", "two")):
        db.routes.subscribe(f"{routed}-animals.{pattern}", f"{routed}-{queue}", form="amqp")
    routed_to = {
        "quick.orange.rabbit": 2,
        "lazy.orange.elephant": 2,
        "quick.orange.fox": 1,
        "lazy.brown.fox": 1,
        "lazy.pink.rabbit": 1,  # two patterns of one queue: once
        "quick.brown.fox": 0,
        "orange": 0,
        "quick.orange.new.rabbit": 0,
        "lazy.orange.new.rabbit": 1,
    }
    assert {key: db.topic(f"{routed}-animals.{key}").publish("n", key) for key in routed_to} == routed_to
    assert received() == {
        "one": ["quick.orange.rabbit", "lazy.orange.elephant", "quick.orange.fox"],
        "two": [key for key, count in routed_to.items() if count and key != "quick.orange.fox"],
        "three": [],
    }

    # headers: RabbitMQ's reports, by all or any of their headers.
    for queue, pattern in (
        ("one", {"x-match": "all", "format": "pdf", "type": "report"}),
        ("two", {"x-match": "any", "format": "pdf", "type": "log"}),
        ("three", {"x-match": "all", "format": "zip", "type": "report"}),
    ):
        db.routes.subscribe(json.dumps({"topic": f"{routed}-reports", **pattern}), f"{routed}-{queue}", form="headers")
    reports = db.topic(f"{routed}-reports")
    assert reports.publish("n", "first", headers={"format": "pdf", "type": "report"}) == 2
    assert reports.publish("n", "second", headers={"format": "pdf"}) == 1
    assert reports.publish("n", "third", headers={"format": "zip", "type": "log"}) == 1
    assert received() == {"one": ["first"], "two": ["first", "second", "third"], "three": []}
