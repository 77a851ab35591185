"""Routes and topics from the command line."""

import pytest


@pytest.fixture
def route(db, name):
    """The name of a route, which is removed after the test."""
    yield name
    db.routes.remove(name)


def test_what_is_published_goes_where_routes_lead(ask, db, route):
    sha = ask("routes", "set", route, "--feed", route, "--json").record["definition"]
    assert ask("routes", "subscribe", f"{route}.*", route, "--json").record["state"] == "subscribed"
    assert "already subscribed" in ask("routes", "subscribe", f"{route}.*", route).out
    published = ask("feeds", "publish", "--topic", f"{route}.7", "reading", '{"celsius": 21}', "--key", "7", "--json").record
    assert published == {"topic": f"{route}.7", "routes": 1}
    assert "0 routes acted" in ask("feeds", "publish", "--topic", f"{route}-other", "reading").out
    assert "1 route acted" in ask("feeds", "publish", "--topic", f"{route}.7", "other").out
    message, _ = db.feed(route).read().messages
    assert (message.kind, message.payload, message.key) == ("reading", {"celsius": 21}, "7")
    (step,) = ask("routes", "test", f"{route}.7", "--json").records
    assert (step["route"], step["patterns"], step["definition"], step["cut"]) == (route, [f"{route}.*"], sha, "")
    assert route in ask("routes", "test", f"{route}.7").out
    assert "unsubscribed" in ask("routes", "unsubscribe", f"{route}.*", route).out
    missing = ask("routes", "unsubscribe", f"{route}.*", route, "--json", status=1).record["error"]
    assert missing["code"] == "no_such_subscription"
    assert "--group" in ask("routes", "set", route, "--feed", route, "--group", status=2).err


def test_a_counter_counts_by_key(ask, db, route):
    ask("routes", "set", route, "--count", route, "--by", "key")
    ask("routes", "subscribe", route, route, "--form", "exact")
    for key in "aab":
        ask("feeds", "publish", "--topic", route, "n", "--key", key)
    assert ask("routes", "list", "--counter", route, "--json").records == [{"key": "a", "messages": 2}, {"key": "b", "messages": 1}]
    assert ask("routes", "list", "--counter", route, "--limit", "1").out.split() == ["key", "messages", "a", "2"]
    assert (route, "key", 3) in [(one["target"], one["by"], one["messages"]) for one in ask("routes", "list", "--json").records]
    assert any(f"{route} by key" in line for line in ask("routes", "list").out.splitlines())
    assert any(f"{route} by key" in line for line in ask("routes", "list", "--definitions").out.splitlines())
    (step,) = ask("routes", "test", route, "--key", "b", "--json").records
    assert (step["counted"], step["cut"]) == ("b", "")
    assert f"{route} b" in ask("routes", "test", route, "--key", "b").out
    assert "reset" in ask("routes", "reset", route, "--key", "a", "--yes").out
    assert db.routes.top(route) == [("b", 1)]
    assert ask("routes", "reset", route, "--yes", "--json").record["state"] == "reset"
    assert "not found" in ask("routes", "reset", route, "--yes", status=1).err
    assert "--by" in ask("routes", "set", route, "--feed", route, "--by", "topic", status=2).err
    assert ask("routes", "list", "--counter", route, "--json").records == [], "a route counts there"
    missing = ask("routes", "list", "--counter", f"{route}-none", "--json", status=1).record["error"]
    assert missing["code"] == "no_such_counter"
    assert "--counter" in ask("routes", "list", "--limit", "1", status=2).err


def test_a_route_is_pointed_paused_and_removed(ask, db, route):
    first = ask("routes", "set", route, "--enqueue", route, "--kind", "check", "--group", "--json").record["definition"]
    ask("routes", "set", route, "--count", route)
    ask("routes", "subscribe", f"{route}.#", route, "--form", "amqp")
    ask("feeds", "publish", "--topic", route, "n")
    listed = next(one for one in ask("routes", "list", "--json").records if one["name"] == route)
    assert (listed["action"], listed["messages"], listed["patterns"], listed["version"]) == (
        "count",
        1,
        [["amqp", f"{route}.#"]],
        2,
    )
    assert any(f"amqp:{route}.#" in line for line in ask("routes", "list").out.splitlines())
    ask("routes", "set", route, "--definition", first[:12])
    assert first in [one["sha"] for one in ask("routes", "list", "--definitions", "--json").records]
    assert first[:12] in ask("routes", "list", "--definitions").out
    ask("feeds", "publish", "--topic", f"{route}.a", "n", "--key", "k")
    assert [(job.kind, job.group) for job in db.queue(route).claim(limit=5)] == [("check", "k")]
    assert "paused" in ask("routes", "pause", route).out
    assert ask("feeds", "publish", "--topic", route, "n", "--json").record["routes"] == 0
    assert "resumed" in ask("routes", "resume", route).out
    assert ask("routes", "remove", route, "--json").record["state"] == "removed"
    assert "not found" in ask("routes", "remove", route, status=1).err


def test_what_may_be_meant_otherwise_is_noted(ask, route):
    ask("routes", "set", route, "--drop")
    for pattern, form, part in (
        (f"{route}.#", "glob", "only with --form amqp"),
        (f"{route}.[a", "glob", "has no ]"),
        (f"{route}#x.*", "amqp", "only as whole words"),
        (f"{route}.a*", "amqp", "only as whole words"),
    ):
        assert part in ask("routes", "subscribe", pattern, route, "--form", form).err
    for pattern, form in ((f"{route}.[a-z]*", "glob"), (f"{route}.*.#", "amqp"), (f"{route}#", "exact"), (f"{route}.\\[a", "glob")):
        assert ask("routes", "subscribe", pattern, route, "--form", form).err == ""


def test_a_topic_without_a_route_is_named(ask, route):
    assert ask("routes", "test", f"{route}-other").err == f"{route}-other: no route\n"
    assert ask("routes", "test", f"{route}-other", "--json").out == ""


def test_groups_and_clients_are_shown(ask, db, route):
    ask("routes", "set", route, "--enqueue", route, "--group")
    assert any(route in line and "by key" in line for line in ask("routes", "list").out.splitlines())
    ask("routes", "set", route, "--feed", route)
    ask("routes", "subscribe", route, route, "--form", "exact")
    assert "1 route acted" in ask("feeds", "publish", "--topic", route, "n", "--client", "me").out
    assert [one.client for one in db.feed(route).read().messages] == ["me"]


def test_a_condition_and_the_header_of_patterns_are_shown(ask, route):
    where = f"kind == '{route}'"
    ask("routes", "set", route, "--feed", route, "--where", where, "--matched")
    for listing in ((), ("--definitions",)):
        head, *lines = ask("routes", "list", *listing).out.splitlines()
        (line,) = [line for line in lines if where in line]
        assert line[head.index("matched") :].startswith("yes")


def test_headers_decide(ask, db, route):
    ask("routes", "set", route, "--count", route)
    ask("routes", "subscribe", f'{{"topic": "{route}", "format": "pdf"}}', route, "--form", "headers")
    for headers, routed in (('{"format": "pdf"}', 1), ('{"format": "zip"}', 0)):
        assert len(ask("routes", "test", route, "--headers", headers, "--json").records) == routed
        assert ask("feeds", "publish", "--topic", route, "n", "--headers", headers, "--json").record["routes"] == routed
    assert "the headers are not JSON" in ask("feeds", "publish", "--topic", route, "n", "--headers", "pdf", status=2).err
    assert "mapping" in ask("routes", "test", route, "--headers", "[1]", status=2).err


def test_what_is_not_there_is_named(ask, route):
    assert "there is no route" in ask("routes", "pause", route, status=1).err
    assert "there is no route" in ask("routes", "subscribe", "a", route, status=1).err
    assert "there is no route" in ask("routes", "set", route, "--definition", "0" * 64, status=1).err
    assert "give it alone" in ask("routes", "set", route, "--definition", "0" * 64, "--drop", status=2).err
    assert "give one action" in ask("routes", "set", route, status=2).err
    assert "--enqueue" in ask("routes", "set", route, "--kind", "k", "--drop", status=2).err
    assert "is not JSON" in ask("feeds", "publish", "--topic", route, "n", "{", status=2).err
