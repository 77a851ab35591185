"""A command that follows a feed outlasts a database that is away."""

import pytest

from queue_db.cli import lasting
from queue_db.errors import PermanentStorageError, TransientStorageError
from queue_db.feeds import Feed

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


def test_a_reader_goes_on_when_the_database_is_back(ask, feed, monkeypatch):
    start = feed.start()
    failing(monkeypatch, Feed, "read", calls={0, 1})
    failing(monkeypatch, lasting.Pause, "reset", calls={1}, error=KeyboardInterrupt)
    answer = ask("feeds", "read", feed.name, "--follow", "--after", start, "--json", status=130)
    assert [one["payload"] for one in answer.records] == [0, 1, 2]
    assert answer.err.count("trying again") == 1
    assert "back again" in answer.err


def test_what_no_retry_cures_ends_a_reader(ask, feed, monkeypatch):
    failing(monkeypatch, Feed, "read", calls={0}, error=PermanentStorageError("no right"))
    assert "no right" in ask("feeds", "read", feed.name, "--follow", status=3).err


def test_without_follow_an_error_is_an_error(ask, feed, monkeypatch):
    failing(monkeypatch, Feed, "read", calls={0})
    assert "trying again" not in ask("feeds", "read", feed.name, status=3).err


def test_trimmed_messages_are_passed_over_if_wanted(ask, db, feed):
    read = ["feeds", "read", feed.name, "--after", feed.start()]
    db.feeds.set(feed.name, keep_rows=1, keep_unread=0)
    feed.trim()
    assert "--on-trimmed skip" in ask(*read, status=1).err
    assert "  n  2" in ask(*read, "--on-trimmed", "skip").out
