"""Processes that use feeds are killed at chosen statements. ``python -m tests.feeds.storms kills`` does so at random ones."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from queue_db import QueueDB
from tests.feeds.accounts import Account, account, everything, finish, prepare
from tests.feeds.lives import AFTER, AFTER_COMMIT, BEFORE_COMMIT, Nursery, Order, Point, notes
from tests.patience import PATIENCE

Die = Callable[..., None]

_JOB, _INBOX, _MESSAGE, _ACK = (
    "INSERT INTO jobs (",
    "INSERT INTO jobs_inbox",
    "INSERT INTO jobs_messages",
    "UPDATE jobs_cursors SET acked",
)
_EVERY = (AFTER, BEFORE_COMMIT, AFTER_COMMIT)

#: What each role does last in its transaction, and what else it does there.
POINTS = {
    "publish": [*(Point(_INBOX, when) for when in _EVERY), Point(_INBOX, AFTER_COMMIT, 2), Point(_INBOX, AFTER, 3)],
    "topic": [Point(_JOB), *(Point(_INBOX, when) for when in _EVERY), Point(_INBOX, BEFORE_COMMIT, 2)],
    "rank": [Point("UPDATE jobs_feeds SET next_seq", when) for when in _EVERY],
    "copy": [Point(_ACK, when) for when in _EVERY],
    "share": [Point("UPDATE jobs_spans", when) for when in _EVERY],
    "claim": [Point("UPDATE jobs_claims", AFTER_COMMIT), *(Point("DELETE FROM jobs_claims", when) for when in _EVERY)],
    "route": [Point(_JOB), *(Point(_ACK, when) for when in _EVERY)],
    "forward": [Point(_JOB), *(Point(_ACK, when) for when in _EVERY)],
}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def die(nursery: Nursery, url: str, name: str, tmp_path: Path, db: QueueDB) -> Die:
    """Let a process of a role die at a point; without one it does its steps. Some messages are there."""
    prepare(db, name, "ranked")
    seeds = count(1)

    def live(role: str, point: Point | None = None, steps: int = 6, wrong: str = "") -> None:
        # A claim is not good for anything after its lease, and a cursor is: the next process opens it.
        # What is wrong must have had its effect: without a lease nothing is acknowledged.
        lease = 60.0 if role == "claim" or wrong else 0.001
        limit = time.monotonic() + PATIENCE
        while True:
            order = Order(url, name, role, "0", str(tmp_path), next(seeds), point, lease=lease, steps=steps, wrong=wrong)
            status = nursery.run(order)
            if point is None:
                assert status == 0, (tmp_path / "errors").read_text()
                return
            if status == -signal.SIGKILL:
                return
            # The server may not have noticed yet that the last one is gone, and others step over the rows that it has locked.
            assert time.monotonic() < limit, f"{role} did not come to {point}"
            assert status == 0, (tmp_path / "errors").read_text()

    # The last one is within a transaction of the publisher's own: it has no number yet, however often publishers number.
    live("publish", steps=36)
    live("topic", steps=2)
    return live


@pytest.fixture
def settled(open_db: Callable[..., QueueDB], db: QueueDB, name: str, tmp_path: Path) -> Callable[[], Account]:
    """What there is when all leases are over and others have done the rest."""

    def settle() -> Account:
        later = db.core.now() + 3_600_000_000
        clocked = open_db(clock=lambda: later)
        finish(clocked, name)
        return account(clocked, name, tmp_path)

    return settle


@pytest.mark.parametrize(("role", "points"), POINTS.items())
def test_what_a_killed_process_was_doing_is_done_once(
    role: str, points: list[Point], die: Die, settled: Callable[[], Account], tmp_path: Path
) -> None:
    for point in points:
        die(role, point)
    died = [values for what, *values in notes(tmp_path, f"{role}-") if what == "dies"]
    assert len(died) == len(points)
    found = settled()
    assert found.faults == []
    assert found.published >= 20


@pytest.mark.parametrize(("when", "there"), [(BEFORE_COMMIT, False), (AFTER_COMMIT, True)])
@pytest.mark.parametrize("using", [False, True])
def test_a_reader_alone_gets_what_its_publisher_could_not_number(
    nursery: Nursery, url: str, name: str, tmp_path: Path, db: QueueDB, when: str, there: bool, using: bool
) -> None:
    """The publisher dies before or right after the COMMIT. No worker runs, and nobody else publishes."""
    prepare(db, name, "ranked")
    # Every second message is for this feed; each third publish is within a transaction of the publisher's own.
    steps = 6 if using else 2
    order = Order(url, name, "publish", "0", str(tmp_path), point=Point(_INBOX, when, steps), steps=steps)
    assert nursery.run(order) == -signal.SIGKILL
    tried = [texts for what, part, texts in notes(tmp_path, "publish-") if (what, part) == ("try", "")]
    assert len(tried) == steps // 2
    committed = tried if there else tried[:-1]
    assert [text for _, text in everything(db.feed(name))] == [text for texts in committed for text in texts]


@pytest.mark.parametrize(
    ("wrong", "role", "point", "fault"),
    [
        ("ranker", "rank", Point(_MESSAGE, AFTER_COMMIT), "feed: there twice"),
        ("router", "route", Point(_ACK, AFTER_COMMIT), "routed: lost"),
        ("router", "forward", Point(_ACK, AFTER_COMMIT), "forwarded: lost"),
    ],
)
def test_two_transactions_instead_of_one_are_noticed(
    die: Die, settled: Callable[[], Account], wrong: str, role: str, point: Point, fault: str
) -> None:
    """The negative controls: a ranker that leaves the inbox for later, and a cursor that moves first."""
    die(role, point, wrong=wrong)
    assert any(found.startswith(fault) for found in settled().faults), "the account does not notice it"


def test_an_observer_that_was_given_nothing_is_noticed(die: Die, settled: Callable[[], Account], tmp_path: Path) -> None:
    die("observe")
    assert settled().faults == []
    (tmp_path / "observe-1").touch()
    assert settled().faults == ["observe-1: given nothing: True"]
