"""Commands that follow a feed: they outlast a database that is away, and take cursors over."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from queue_db.cli import lasting
from queue_db.errors import PermanentStorageError, TransientStorageError
from queue_db.feeds import Cursor, Feed
from tests.patience import PATIENCE

AWAY = TransientStorageError("the server is away", server_away=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(lasting, "RETRY", (0.001, 0.001))


@pytest.fixture
def feed(db, name):
    """A feed with three messages, with numbers."""
    feed = db.feed(name)
    feed.publish_many([("n", number) for number in range(3)])
    feed.rank()
    return feed


def failing(monkeypatch, owner, verb, *, calls, error=AWAY):
    """Let these calls of a verb fail; the first is 0."""
    real, count = getattr(owner, verb), iter(range(1000))

    def run(self, *args, **named):
        if next(count) in calls:
            raise error
        return real(self, *args, **named)

    monkeypatch.setattr(owner, verb, run)


FOLLOWERS = pytest.mark.parametrize("verb", [("feeds", "forward", "{0}", "billing", "{0}"), ("routes", "relay", "{0}", "billing")])


@FOLLOWERS
def test_a_follower_goes_on_when_the_database_is_back(ask, feed, verb, monkeypatch):
    words = [word.format(feed.name) for word in verb]
    failing(monkeypatch, Cursor, "transfer", calls={0, 1})
    failing(monkeypatch, Cursor, "close", calls={0, 1})  # so that this process seems to hold the cursor
    failing(monkeypatch, Cursor, "read", calls={3}, error=KeyboardInterrupt)
    answer = ask(*words, "--follow", status=130)
    assert ": 3 messages" in answer.out
    assert answer.err.count("trying again") >= 1
    assert feed.cursors()[0].behind == 0


@FOLLOWERS
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_during_a_commit_loses_no_count(ask, feed, verb, number, status, monkeypatch):
    words = [word.format(feed.name) for word in verb]
    commit = Cursor.transfer

    def commit_and_be_signalled(*args, **named):
        result = commit(*args, **named)
        signal.raise_signal(number)
        return result

    monkeypatch.setattr(Cursor, "transfer", commit_and_be_signalled)
    assert ": 3 messages" in ask(*words, "--follow", status=status).out
    assert feed.cursors()[0].holder is None


@FOLLOWERS
def test_without_follow_an_error_is_an_error(ask, feed, verb, monkeypatch):
    words = [word.format(feed.name) for word in verb]
    failing(monkeypatch, Cursor, "transfer", calls={0})
    assert "trying again" not in ask(*words, status=3).err


@FOLLOWERS
def test_what_no_retry_cures_ends_a_follower(ask, feed, verb, monkeypatch):
    words = [word.format(feed.name) for word in verb]
    failing(monkeypatch, Cursor, "transfer", calls={0}, error=PermanentStorageError("no right"))
    assert "no right" in ask(*words, "--follow", status=3).err


def test_a_tail_goes_on_when_the_database_is_back(ask, feed, monkeypatch):
    start = feed.start()
    failing(monkeypatch, Feed, "read", calls={0, 1})
    failing(monkeypatch, lasting.Pause, "reset", calls={1}, error=KeyboardInterrupt)
    answer = ask("feeds", "tail", feed.name, "--after", start, "--json", status=130)
    assert [one["payload"] for one in answer.records] == [0, 1, 2]
    assert answer.err.count("trying again") == 1
    assert "back again" in answer.err


@FOLLOWERS
def test_a_held_cursor_is_taken_over(ask, feed, verb):
    words = [word.format(feed.name) for word in verb]
    with feed.cursor("billing") as held:
        assert "--take-over" in ask(*words, status=1).err
        assert ": 3 messages" in ask(*words, "--take-over").out
        assert not held.ack(feed.end())


@pytest.mark.parametrize(
    "verb", [("feeds", "forward", "{0}", "billing", "{0}"), ("routes", "relay", "{0}", "billing"), ("feeds", "read", "{0}")]
)
def test_trimmed_messages_are_passed_over_if_wanted(ask, db, feed, verb):
    words = [word.format(feed.name) for word in verb]
    if verb[1] == "read":
        words += ["--after", feed.start()]
    with feed.cursor("billing"):
        db.feeds.set(feed.name, keep_rows=1, keep_unread=0)
    feed.trim()
    assert "--on-trimmed skip" in ask(*words, status=1).err
    shown = ask(*words, "--on-trimmed", "skip").out
    assert ": 1 messages" in shown or "  n  2" in shown


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
@FOLLOWERS
def test_a_follower_that_is_terminated_ends_its_hold(url, feed, verb):
    """Otherwise the next one, after a restart of the service, would wait for the end of the lease."""
    words = [word.format(feed.name) for word in verb]
    program = [sys.executable, "-m", "queue_db", *words, "--follow"]
    with subprocess.Popen(program, env={**os.environ, "QUEUE_DB_URL": url}, stdout=subprocess.PIPE, text=True) as process:
        try:
            for _ in range(int(PATIENCE / 0.05)):
                if any(info.holder and info.behind == 0 for info in feed.cursors()):
                    break
                threading.Event().wait(0.05)
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert (process.returncode, ": 3 messages" in out) == (0, True)
    assert feed.cursors()[0].holder is None
