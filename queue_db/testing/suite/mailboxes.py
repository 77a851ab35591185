"""Mailboxes and chat: a feed for each group and a cursor for each member. The recipes of the documentation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import func, select

from queue_db.db import QueueDB
from queue_db.errors import PositionError
from queue_db.feeds.settings import FeedOrdering
from queue_db.feeds.tables import feed_tables
from queue_db.model import Verdict
from queue_db.testing.clock import SettableClock
from queue_db.testing.statements import counted_statements

__all__ = ["Group", "TestMailboxes", "group", "several_groups"]

# Lock the cursors, read their feeds, move the cursors.
_ACKNOWLEDGED = 3


class Group:
    """A group of members, in one process."""

    def __init__(self, db: QueueDB, name: str) -> None:
        self.db = db
        self.name = name
        self.feed = db.feed(name)

    def join(self, member: str) -> None:
        """Later messages only."""
        self.feed.cursor(member, start="end").close()

    def send(self, member: str, text: str) -> None:
        """Publish."""
        self.feed.publish("text", text, client=member)

    def fetch(self, member: str, limit: int = 100) -> list[Any]:
        """Read messages, acknowledge each, and trim."""
        seen = []
        with self.feed.cursor(member, take_over=True, on_trimmed="skip") as cursor:
            for message in cursor.read(limit):
                seen.append(message.payload)
                cursor.ack(message)
        self.feed.trim()
        return seen

    def leave(self, member: str) -> None:
        """The last one deletes the group."""
        self.feed.remove_cursor(member)
        if not self.feed.cursors():
            self.db.feeds.delete(self.name)

    def kept(self) -> list[Any]:
        """The messages that are there."""
        return [message.payload for message in self.feed.read(self.feed.start()).messages]


@pytest.fixture
def group(db: QueueDB, name: str, ordering: FeedOrdering) -> Iterator[Group]:
    """An empty group, whose messages are kept for nobody but the members."""
    db.feeds.set(name, ordering=ordering, keep_for=0.000001, keep_unread=4)
    yield Group(db, name)
    db.feeds.delete(name)


@pytest.fixture
def several_groups(db: QueueDB, name: str, ordering: FeedOrdering) -> Iterator[list[Group]]:
    """Several groups, by name."""
    names = [f"{name}-{number}" for number in range(6)]
    for one in names:
        db.feeds.set(one, ordering=ordering, keep_unread=4)
    yield [Group(db, one) for one in names]
    for one in names:
        db.feeds.delete(one)


def rows(db: QueueDB, feed: int) -> dict[str, int]:
    """Table → how many rows it has of a feed; without those that have none."""
    tables = feed_tables(db.store.tables)
    of = {"feeds": tables.feeds.c.id} | {
        name: getattr(tables, name).c.feed for name in ("inbox", "messages", "cursors", "spans", "claims")
    }
    with db.database.begin() as connection:
        counts = {name: connection.execute(select(func.count()).where(column == feed)).scalar_one() for name, column in of.items()}
    return {name: count for name, count in counts.items() if count}


class TestMailboxes:
    """A message is there until each member has acknowledged it."""

    def test_messages_vanish_when_the_slowest_member_has_acknowledged_them(self, group: Group, clock: SettableClock) -> None:
        for member in ("ann", "ben", "cat"):
            group.join(member)
        for text in ("one", "two", "three"):
            group.send("ann", text)
        clock.advance(1)
        assert group.fetch("ann") == ["one", "two", "three"]
        assert group.fetch("ben", 2) == ["one", "two"]
        assert group.kept() == ["one", "two", "three"]
        assert group.fetch("cat", 1) == ["one"]
        assert group.kept() == ["two", "three"]
        assert group.fetch("cat") == ["two", "three"]
        assert group.kept() == ["three"]
        assert group.fetch("ben") == ["three"]
        assert group.kept() == []
        assert rows(group.db, group.feed.row().id) == {"feeds": 1, "cursors": 3}

    def test_who_joins_sees_later_messages_only(self, group: Group, rival: QueueDB) -> None:
        group.join("ann")
        group.send("ann", "before")
        theirs = Group(rival, group.name)
        theirs.join("ben")
        group.send("ann", "after")
        assert theirs.fetch("ben") == ["after"]
        assert group.fetch("ann") == ["before", "after"]
        theirs.join("ben")
        assert theirs.fetch("ben") == [], "who joins again keeps the position"

    def test_a_crash_between_fetch_and_acknowledgement_delivers_again(
        self, group: Group, rival: QueueDB, clock: SettableClock
    ) -> None:
        group.join("ann")
        group.send("ben", "one")
        group.send("ben", "two")
        crashed = group.feed.cursor("ann", lease=30)
        first, second = crashed.read()
        assert crashed.ack(first) is Verdict.APPLIED
        # It neither acknowledges the second one nor closes the cursor.
        clock.advance(31)
        theirs = Group(rival, group.name)
        theirs.feed.trim()
        assert theirs.fetch("ann") == ["two"]
        assert crashed.ack(second) is Verdict.LOST
        assert theirs.fetch("ann") == []

    def test_the_last_to_leave_leaves_no_rows(self, group: Group, clock: SettableClock) -> None:
        feed = group.feed.row().id
        for member in ("ann", "ben"):
            group.join(member)
            group.send(member, "hello")
        group.fetch("ann")
        group.leave("ann")
        assert rows(group.db, feed)["cursors"] == 1
        group.send("ben", "nobody reads it")
        group.leave("ben")
        assert rows(group.db, feed) == {}

    def test_who_never_comes_back_costs_the_others_a_bounded_number(self, group: Group, clock: SettableClock) -> None:
        group.join("ann")
        group.join("gone")
        for number in range(10):
            group.send("ann", str(number))
            clock.advance(1)
            assert group.fetch("ann") == [str(number)]
        assert group.kept() == ["6", "7", "8", "9"]
        assert group.fetch("gone") == ["6", "7", "8", "9"]
        assert group.kept() == []

    def test_the_sender_sees_how_far_members_are(self, group: Group, clock: SettableClock) -> None:
        group.join("ann")
        group.join("ben")
        group.send("ann", "hello")
        clock.advance(5)
        group.fetch("ann")
        members = {info.name: info for info in group.feed.cursors()}
        assert (members["ann"].behind, members["ben"].behind) == (0, 1)
        assert (members["ann"].seen_at - members["ben"].seen_at).total_seconds() == 5

    def test_all_groups_of_a_member_are_seen_and_acknowledged_at_once(self, several_groups: list[Group], db: QueueDB) -> None:
        member = several_groups[0].name
        one, *others = several_groups
        for each in several_groups:
            each.join(member)
            each.join("ben")
            each.send("ben", "hello")
        for each in others:
            each.send("ben", "again")
        with counted_statements(db.database.engine) as few:
            assert [info.behind for info in db.feeds.cursors("nobody")] == []
        with counted_statements(db.database.engine) as sent:
            unread = db.feeds.cursors(member)
        assert [(info.feed, info.behind) for info in unread] == [(each.name, 1 if each is one else 2) for each in several_groups]
        # One for all messages without a number.
        assert len(sent) <= len(few) + 1
        read = [db.feed(info.feed).read(info.position).messages for info in unread]
        with counted_statements(db.database.engine) as sent:
            verdicts = db.feeds.ack(member, [messages[0] for messages in read] + [messages[-1].position for messages in read])
        assert verdicts == [Verdict.APPLIED] * 2 * len(several_groups)
        assert len(sent) <= _ACKNOWLEDGED
        assert [info.behind for info in db.feeds.cursors(member)] == [0] * len(several_groups)
        assert [info.behind for info in db.feeds.cursors("ben") if info.feed == others[0].name] == [2]
        assert db.feeds.ack(member, [messages[0] for messages in read]) == [Verdict.APPLIED] * len(several_groups)
        assert [info.behind for info in db.feeds.cursors(member)] == [0] * len(several_groups), "it never moves back"

    def test_only_a_position_of_a_group_of_the_member_is_acknowledged(
        self, several_groups: list[Group], db: QueueDB, rival: QueueDB
    ) -> None:
        member = several_groups[0].name
        for each in several_groups:
            each.join(member)
            each.send("ben", "hello")
        left, purged, shared, ok = several_groups[:4]
        left.leave(member)
        positions = [info.position for each in (purged, ok) for info in each.feed.cursors()]
        (old,) = purged.feed.read(positions[0]).messages
        (message,) = ok.feed.read(positions[1]).messages
        db.feeds.purge(purged.name)
        (other,) = shared.feed.read(shared.feed.start()).messages
        shared.feed.remove_cursor(member)
        shared.feed.shared(member).claim(1)
        gone = str(message.position).replace(".", "0.", 1)
        assert db.feeds.ack(member, [old, gone, other, message]) == [Verdict.LOST, Verdict.LOST, Verdict.LOST, Verdict.APPLIED]
        token, epoch, number = message.position.split(".")
        with pytest.raises(PositionError, match="ahead"):
            db.feeds.ack(member, [f"{token}.{epoch}.{int(number) + 1}"])
        assert db.feeds.ack(member, []) == []
        # The holder goes on, and its older acknowledgements move nothing back.
        ok.send("ben", "two")
        ok.send("ben", "three")
        with Group(rival, ok.name).feed.cursor(member) as held:
            two, three = held.read()
            assert db.feeds.ack(member, [three]) == [Verdict.APPLIED]
            assert held.ack(two) is Verdict.APPLIED
            (info,) = [one for one in db.feeds.cursors(member) if one.feed == ok.name]
            assert (info.position, info.behind) == (three.position, 0)
