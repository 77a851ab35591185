"""The orderings of feeds are measured on every database, and what readers miss is counted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from queue_db import QueueDB
from queue_db.compare import feed_race
from queue_db.compare.contestant import Target
from queue_db.compare.feed_controls import CONTROLS, CompareAndSet, registered
from queue_db.compare.laboratory import compare
from queue_db.compare.plan import Plan
from queue_db.compare.results import Comparison
from queue_db.feeds.store.messages import First, NewMessage
from queue_db.feeds.store.orderings import ORDERINGS
from queue_db.feeds.store.rows import FeedRow
from queue_db.store import Transaction


class Loses(CompareAndSet):
    """Does not insert what it has numbered."""

    name = "loses"

    def append(self, tx: Transaction, feed: FeedRow, new: Sequence[NewMessage]) -> First | None:
        if new[0].kind == "n":
            return First(1, 1)
        return super().append(tx, feed, new)


def quick(url: str, monkeypatch: pytest.MonkeyPatch) -> Comparison:
    monkeypatch.setattr(feed_race.race, "__kwdefaults__", {"publishers": 3, "feeds": 2})
    plan = Plan(strategies=("DBO-1",), jobs=4, workers=1, repeat=1, batches=(1,), kind="threads", feeds=0.2)
    return compare([url], plan)


def test_every_ordering_is_measured(kind: str, fresh_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = dict(ORDERINGS)
    found = quick(fresh_url, monkeypatch)
    assert before == ORDERINGS
    (bench,) = found.benches
    assert [row.name for row in bench.feeds] == [*ORDERINGS, *CONTROLS]
    for row in bench.feeds:
        assert row.failed is None
        (turn,) = row.turns
        assert turn.messages
        assert turn.post is not None
        assert (turn.gaps, turn.duplicates) == ((None, None) if row.name == "bare_insert" else (0, 0))
        assert (turn.visible is None) is (row.name == "bare_insert")
    found.save(tmp_path / "results.json")
    assert Comparison.load(tmp_path / "results.json") == found


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_what_a_reader_misses_is_counted(url: str, db: QueueDB, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONTROLS, "loses", Loses())
    row = feed_race.race(Target(url, None), "loses", turns=1, seconds=0.1, publishers=2, feeds=1)
    (turn,) = row.turns
    assert turn.gaps == turn.messages > 0


def test_the_controls_leave_other_orderings_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = dict(ORDERINGS)
    with registered():
        with registered():
            monkeypatch.setitem(ORDERINGS, "mine", CompareAndSet())
        assert ORDERINGS.keys() == {*before, *CONTROLS, "mine"}
    assert ORDERINGS.keys() == {*before, "mine"}


@pytest.mark.parametrize("kind", ["sqlite"], scope="session")
def test_a_feed_that_exists_with_another_ordering_is_a_failure(url: str, db: QueueDB) -> None:
    db.feeds.set("feed-1", ordering="counter")
    row = feed_race.race(Target(url, None), "ranked", turns=1, seconds=0.1, publishers=2, feeds=2)
    assert row.failed is not None
    assert "turn 1: feed 'feed-1' has the ordering 'counter'" in row.failed
    assert not row.turns
    assert db.feeds.delete("feed-1")
