"""Claims on the messages of a feed from the command line."""

import pytest


@pytest.fixture
def feed(db, name):
    """A feed with claims and four messages."""
    db.feeds.set(name, claims=True)
    feed = db.feed(name)
    feed.publish_many([("n", number, {"key": f"order-{number}"}) for number in range(4)])
    return feed


def payloads(messages):
    return [message["payload"] for message in messages]


def test_a_claim_is_made_listed_extended_and_deleted(ask, feed):
    claimed = ask("claims", "claim", feed.name, "--limit", "2", "--lease", "60", "--json").record
    assert (claimed["feed"], payloads(claimed["messages"])) == (feed.name, [0, 1])
    assert [(one["key"], one["attempts"]) for one in claimed["messages"]] == [("order-0", 1), ("order-1", 1)]
    claim = claimed["claim"]
    (listed,) = ask("claims", "list", feed.name, "--json").records
    assert (listed["id"], listed["messages"]) == (claim, 2)
    extended = ask("claims", "extend", feed.name, claim, "600", "--grace", "5", "--json").record
    assert extended["expires_at"] > claimed["expires_at"]
    assert any(claim in line and extended["expires_at"] in line for line in ask("claims", "list", feed.name).out.splitlines())
    first = claimed["messages"][0]["position"]
    assert ask("claims", "delete", feed.name, first, "--claim", claim, "--json").record == {"feed": feed.name, "deleted": 1}
    assert payloads(ask("claims", "show", feed.name, claim, "--json").record["messages"]) == [1]
    assert f"claim {claim} until" in ask("claims", "show", feed.name, claim).out
    assert "1 messages deleted" in ask("claims", "delete", feed.name, "--claim", claim).out
    assert ask("claims", "list", feed.name, "--json").records == []
    assert [message.payload for message in feed.read().messages] == [2, 3]


def test_a_claim_is_released(ask, feed):
    claim = ask("claims", "claim", feed.name, "--json").record["claim"]
    nothing = ask("claims", "claim", feed.name, "--json", status=1)
    assert nothing.record == {"feed": feed.name, "claim": None, "messages": []}
    assert "no message is free" in nothing.err
    assert ask("claims", "release", feed.name, claim, "--json").record["released"] == 4
    for late in (("release", claim), ("show", claim), ("extend", claim, "5"), ("delete", "--claim", claim)):
        assert f"no claim {claim}" in ask("claims", late[0], feed.name, *late[1:], status=1).err
    again = ask("claims", "claim", feed.name).out.splitlines()
    assert again[0].startswith("claim ")
    assert [line.split()[-1] for line in again[1:]] == ["0", "1", "2", "3"]


def test_messages_are_popped(ask, feed):
    assert payloads(ask("claims", "pop", feed.name, "--limit", "3", "--json").records) == [0, 1, 2]
    assert "[order-3]" in ask("claims", "pop", feed.name).out
    empty = ask("claims", "pop", feed.name, "--json", status=1)
    assert (empty.out, "no message is free" in empty.err) == ("", True)


def test_messages_are_deleted_without_a_claim_if_no_consumer_has_them(ask, feed):
    zero, one, two, _ = (message.position for message in feed.read().messages)
    assert "no messages chosen" in ask("claims", "delete", feed.name, status=2).err
    assert "2 messages deleted" in ask("claims", "delete", feed.name, zero, one).out
    claim = ask("claims", "claim", feed.name, "--limit", "1", "--json").record["claim"]
    assert "is claimed" in ask("claims", "delete", feed.name, two, status=1).err
    assert ask("claims", "delete", feed.name, zero, "--json").record["deleted"] == 0
    assert ask("claims", "delete", feed.name, two, "--claim", claim, "--json").record["deleted"] == 1


def test_the_messages_are_counted(ask, feed):
    feed.publish("n", 4, delay=60)
    feed.claim(1)
    found = ask("claims", "stats", feed.name, "--json").record
    assert [found[name] for name in ("total", "free", "claimed", "delayed")] == [5, 3, 1, 1]
    assert (found["oldest"]["payload"], found["newest"]["payload"]) == (0, 4)
    assert found["newest"]["position"] in ask("claims", "stats", feed.name).out
    feed.delete([message for message in feed.read().messages if message.payload])
    feed.claims()[0]
    ask("claims", "delete", feed.name, "--claim", feed.claims()[0].id)
    empty = ask("claims", "stats", feed.name, "--json").record
    assert (empty["total"], empty["oldest"], empty["newest"]) == (0, None, None)


def test_only_a_feed_with_claims_has_them(ask, db, name):
    db.feed(name).publish("n")
    for command in ("claim", "list", "pop", "stats"):
        assert "without claims" in ask("claims", command, name, status=1).err
        assert "there is no feed" in ask("claims", command, f"{name}-other", status=1).err


def test_a_second_attempt_is_shown(ask, feed, db):
    db.feeds.set(feed.name, max_attempts=5)
    assert "(attempt" not in ask("claims", "claim", feed.name, "--limit", "1", "--lease", "0.000001").out
    assert "(attempt 2)" in ask("claims", "claim", feed.name, "--limit", "1").out
