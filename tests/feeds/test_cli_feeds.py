"""Feeds and cursors from the command line."""

import json
import os
import signal
import subprocess
import sys

import pytest


@pytest.fixture
def feed(db, name):
    """A feed with three messages."""
    feed = db.feed(name)
    feed.publish_many([("n", {"number": number}, {"key": f"order-{number}"}) for number in range(3)])
    return feed


def test_what_is_published_is_read_in_order(ask, name):
    first = ask("feeds", "publish", name, "paid", '{"order": 7}', "--key", "order-7", "--json").record
    ask("feeds", "publish", name, "shipped")
    paid, shipped = ask("feeds", "read", name, "--json").records
    assert (paid["kind"], paid["payload"], paid["key"], paid["position"]) == ("paid", {"order": 7}, "order-7", first["end"])
    assert ask("feeds", "read", name, "--after", first["end"], "--json").records == [shipped]
    limited = ask("feeds", "read", name, "--limit", "1")
    assert "paid [order-7]" in limited.out
    assert f"1 more after {first['end']}" in limited.err


def test_feeds_are_listed_with_their_settings(ask, feed):
    ask("feeds", "set", feed.name, "--keep-rows", "2", "--keep-for", "0", "--keep-unread", "0")
    found = next(one for one in ask("feeds", "list", "--json").records if one["name"] == feed.name)
    assert (found["keep_rows"], found["keep_for"], found["keep_unread"], found["messages"] + found["waiting"]) == (2, None, 0, 3)
    feed.rank()
    assert ask("feeds", "purge", feed.name, "--retained", "--json").record["purged"] in {0, 1}, "ranking may have trimmed it"
    assert [one["payload"]["number"] for one in ask("feeds", "read", feed.name, "--json").records] == [1, 2]
    assert any(feed.name in line for line in ask("feeds", "list").out.splitlines())


def test_a_feed_with_claims_is_made_and_published_to(ask, db, name):
    ask("feeds", "set", name, "--claims", "--max-attempts", "5", "--delay", "60", "--expires-in", "3600")
    found = next(one for one in ask("feeds", "list", "--json").records if one["name"] == name)
    assert (found["claims"], found["max_attempts"], found["delay"], found["expires_in"]) == (True, 5, 60, 3600)
    line = next(line for line in ask("feeds", "list").out.splitlines() if name in line)
    assert "yes, delay 60.0 s, lifetime 60 min" in line
    ask("feeds", "publish", name, "n", "1")
    ask("feeds", "publish", name, "n", "2", "--delay", "0", "--client", "me")
    ask("feeds", "publish", name, "n", "3", "--delay", "0", "--expires-in", "0")
    claim = db.feed(name).claim()
    assert [(one.payload, one.client) for one in claim.messages] == [(2, "me"), (3, None)]
    assert "before its delay is over" in ask("feeds", "publish", name, "n", "--expires-in", "5", status=2).err
    refused = ask("feeds", "set", f"{name}-other", "--delay", "5", "--json", status=1).record["error"]
    assert (refused["code"], "need --claims" in refused["message"]) == ("no_such_feed", True)


def test_settings_that_a_feed_cannot_have_are_wrong_usage(ask, feed):
    assert "without claims" in ask("feeds", "set", feed.name, "--claims", status=2).err
    assert "claims" in ask("feeds", "publish", feed.name, "n", "--delay", "1", status=2).err


def test_a_used_idempotency_key_has_its_own_code(ask, name):
    ask("feeds", "publish", name, "n", "1", "--idempotency-key", "a")
    answer = ask("feeds", "publish", name, "n", "2", "--idempotency-key", "a", "--json", status=1)
    assert answer.record["error"]["code"] == "idempotency_key"


def test_a_message_is_published_with_headers(ask, name):
    ask("feeds", "publish", name, "n", "--headers", '{"trace": "t7"}', "--client", "me")
    (message,) = ask("feeds", "read", name, "--json").records
    assert (message["headers"], message["client"]) == ({"trace": "t7"}, "me")
    assert "headers are not JSON" in ask("feeds", "publish", name, "n", "--headers", "pdf", status=2).err


def test_a_mistyped_name_creates_nothing(ask, db, name):
    before = db.feeds.list()
    for command in (
        ("feeds", "read"),
        ("feeds", "read", "--follow"),
        ("feeds", "purge", "--retained"),
        ("feeds", "purge", "--yes"),
    ):
        assert "there is no feed" in ask(*command, name, status=1).err
    for verb in (("seek", name, "billing", "start"), ("remove", name, "billing")):
        assert "there is no feed" in ask("cursors", *verb, status=1).err
    assert db.feeds.list() == before


def test_all_messages_are_deleted_when_confirmed(ask, feed):
    assert "--yes" in ask("feeds", "purge", feed.name, status=2).err
    assert len(feed.read().messages) == 3
    assert ask("feeds", "purge", feed.name, "--yes", "--json").record == {"feed": feed.name, "purged": 3}
    assert feed.read().messages == []


def test_a_feed_is_removed_when_confirmed(ask, db, feed):
    assert "--yes" in ask("feeds", "remove", feed.name, status=2).err
    assert ask("feeds", "remove", feed.name, "--yes", "--json").record == {"feed": feed.name, "state": "removed"}
    assert feed.name not in [one.name for one in db.feeds.list()]
    assert "there is no feed" in ask("feeds", "remove", feed.name, "--yes", status=1).err


def test_earlier_positions_are_refused_after_a_restore(ask_at, fresh_url):
    ask_at(fresh_url, "migrate")
    before = ask_at(fresh_url, "feeds", "publish", "orders", "n", "--json").record["end"]
    ahead = f"{before.rpartition('.')[0]}.99"
    assert "mistyped" in ask_at(fresh_url, "feeds", "read", "orders", "--after", ahead, status=1).err
    assert "--yes" in ask_at(fresh_url, "feeds", "restored", status=2).err
    assert ask_at(fresh_url, "feeds", "restored", "--yes", "--json").record == {"feeds": 1}
    assert "restored" in ask_at(fresh_url, "feeds", "read", "orders", "--after", before, status=1).err


def test_a_reader_begins_at_the_start_or_the_end(ask, feed):
    assert len(ask("feeds", "read", feed.name, "--after", "start", "--json").records) == 3
    assert ask("feeds", "read", feed.name, "--after", "end", "--json").records == []
    feed.cursor("billing").close()
    assert "and no spans" in ask("cursors", "list", "--spans", "--feed", feed.name, "--name", "billing", status=2).err
    for command in (("feeds", "read", feed.name, "--after", "begin"), ("cursors", "seek", feed.name, "billing", "begin")):
        assert "start, or end" in ask(*command, status=2).err


def test_impossible_values_are_refused(ask, feed):
    assert "is not JSON" in ask("feeds", "publish", feed.name, "n", "{", status=2).err
    assert "nested too deeply" in ask("feeds", "publish", feed.name, "n", "[" * 200_000, status=2).err
    assert "publish without --topic" in ask("feeds", "publish", feed.name, "n", "--topic", "--delay", "1", status=2).err
    for option, value in (("--max-attempts", "-1"), ("--keep-for", "nan"), ("--keep-rows", "-1")):
        assert ask("feeds", "set", feed.name, option, value, status=2).err.startswith(f"queue-db: {option}={value}: must be ")
    for after in ("7", "x.1.9999999999999999999"):
        assert "must be a position" in ask("feeds", "read", feed.name, "--after", after, status=2).err
    assert "must be counter or ranked" in ask("feeds", "set", feed.name, "--ordering", "naive", status=2).err


def test_cursors_are_listed_moved_and_removed(ask, feed):
    with feed.cursor("billing") as cursor:
        first, *_ = cursor.read()
        cursor.ack(first)
        (found,) = [one for one in ask("cursors", "list", "--json").records if one["feed"] == feed.name]
        assert (found["name"], found["behind"], found["position"]) == ("billing", 2, first.position)
        assert found["holder"] in ask("cursors", "list").out
        ask("cursors", "seek", feed.name, "billing", "end")
        assert not cursor.ack(first)
    assert feed.cursors()[0].behind == 0
    assert "has no cursor" in ask("cursors", "seek", feed.name, "other", "end", status=1).err
    assert ask("cursors", "remove", feed.name, "billing", "--json").record["state"] == "removed"
    assert ask("cursors", "remove", feed.name, "billing", "--json", status=1).record["error"]["code"] == "no_such_cursor"
    assert "has no cursor" in ask("cursors", "list", "--spans", "--feed", feed.name, "--name", "billing", status=1).err


def test_shared_cursors_and_their_spans_are_listed(ask, feed):
    span = feed.shared("mailers").claim(2)
    (found,) = [one for one in ask("cursors", "list", "--json").records if one["feed"] == feed.name]
    assert (found["name"], found["behind"], found["shared"], found["spans"]) == ("mailers", 3, True, 1)
    assert "shared" in ask("cursors", "list").out
    (open_one,) = ask("cursors", "list", "--spans", "--feed", feed.name, "--json").records
    assert (open_one["id"], open_one["low"], open_one["high"], open_one["attempts"]) == (span.id, 1, 2, 1)
    assert open_one["worker"] in ask("cursors", "list", "--spans", "--feed", feed.name).out
    span.release()
    (open_one,) = ask("cursors", "list", "--spans", "--feed", feed.name, "--json").records
    assert (open_one["worker"], open_one["expires_at"]) == (None, None)
    assert str(span.id) in ask("cursors", "list", "--spans", "--feed", feed.name).out


def test_a_limit_ends_a_read_that_follows(ask, feed):
    read = ("feeds", "read", feed.name, "--follow", "--after", "start", "--limit", "2", "--json")
    assert [one["payload"]["number"] for one in ask(*read).records] == [0, 1]


def test_new_messages_are_printed_until_ctrl_c(url, feed):
    start = feed.start()
    command = [sys.executable, "-m", "queue_db", "feeds", "read", feed.name, "--follow", "--after", start, "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "QUEUE_DB_URL": url, "PYTHONUNBUFFERED": "1"}
    ) as tail:
        numbers = [json.loads(tail.stdout.readline())["payload"]["number"] for _ in range(3)]
        feed.publish("n", {"number": 3})
        numbers.append(json.loads(tail.stdout.readline())["payload"]["number"])
        tail.send_signal(signal.SIGINT)
        assert tail.wait(60) == 130
    assert numbers == [0, 1, 2, 3]
