"""The action log: entries, pages, and their deletion."""

from __future__ import annotations

from datetime import timedelta

import pytest

from queue_db.errors import ArgumentError
from queue_db.queue import Queue
from queue_db.testing.clock import SettableClock
from queue_db.testing.suite.fixtures import Notes

__all__ = ["TestActions"]


class TestActions:
    """``db.actions``."""

    def test_the_newest_is_first_and_pages_go_on(self, queue: Queue, name: str, clock: SettableClock) -> None:
        actions = queue.db.actions
        start = clock.now()
        actions.add("ann", "purge", name, 12, {"kind": "mail", "ü": [1, None]})
        clock.advance(1)
        actions.add("robot", "pause", name)
        clock.advance(1)
        actions.add("ann", "resume", name, 0)
        found = [one for one in actions.list(limit=1000) if one.target == name]
        assert [(one.who, one.action, one.number) for one in found] == [
            ("ann", "resume", 0),
            ("robot", "pause", None),
            ("ann", "purge", 12),
        ]
        assert [one.at - start for one in found] == [timedelta(seconds=seconds) for seconds in (2, 1, 0)]
        assert [one.detail for one in found] == [None, None, {"kind": "mail", "ü": [1, None]}]
        assert [one.id for one in actions.list(limit=1, after=found[0].id)] == [found[1].id]
        assert [one.action for one in actions.list(after=found[1].id) if one.target == name] == ["purge"]

    def test_in_a_transaction_of_the_caller_it_is_there_if_that_commits(self, queue: Queue, name: str, notes: Notes) -> None:
        actions = queue.db.actions
        with notes.engine.begin() as connection:
            actions.add("ann", "done", name, using=connection)
        with notes.engine.connect() as connection, connection.begin() as transaction:
            actions.add("ann", "undone", name, using=connection)
            transaction.rollback()
        assert [one.action for one in actions.list(limit=1000) if one.target == name] == ["done"]

    def test_pruning_deletes_those_of_more_than_ninety_days_ago(self, queue: Queue, name: str, clock: SettableClock) -> None:
        actions = queue.db.actions
        actions.add("ann", "old", name)
        clock.advance(1)
        actions.add("ann", "new", name)
        clock.advance(90 * 86_400 - 0.5)
        queue.db.prune()
        assert [one.action for one in actions.list(limit=1000) if one.target == name] == ["new"]

    def test_what_cannot_be_written_is_refused(self, queue: Queue, name: str) -> None:
        actions = queue.db.actions
        with pytest.raises(ArgumentError, match="who is empty"):
            actions.add("", "purge", name)
        with pytest.raises(ArgumentError, match="detail has 10,0"):
            actions.add("ann", "purge", name, detail={"text": "x" * 10_000})
        with pytest.raises(ArgumentError, match="cannot be written as JSON"):
            actions.add("ann", "purge", name, detail={"text": object()})
        actions.add("ann", "purge", name + "x" * 1000)
        assert {len(one.target) for one in actions.list(limit=1000) if one.target.startswith(name)} == {250}
