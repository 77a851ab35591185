"""Which changes notify the workers of other processes: those that leave a job due, and with the name of its queue."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import text

from queue_db import Queue, QueueDB, TransientStorageError
from queue_db.dialects import raw_cursor

pytestmark = pytest.mark.parametrize("kind", ["postgresql"], scope="session")

PATIENCE = 30.0


@pytest.fixture
def received(open_db: Callable[..., QueueDB]) -> Iterator[Callable[[], set[str]]]:
    """All notifications since the last call. They come in the order of the commits, so a last one of our own ends them."""
    db = open_db()
    channel = db.core.notifications.channel
    listener = db.database.listen(channel)
    assert listener is not None

    def until_now() -> set[str]:
        with db.database.engine.begin() as connection:
            connection.execute(text("SELECT pg_notify(:channel, '\x18end')"), {"channel": channel})
        found: set[str] = set()
        while "\x18end" not in found:
            assert select.select([listener], [], [], PATIENCE)[0]
            found |= listener.received()
        return found - {"\x18end"}

    yield until_now
    listener.close()


def complete_first_of_group(queue: Queue) -> None:
    (job,) = queue.claim()
    assert job.complete()


CHANGES: dict[str, tuple[Callable[[Queue], object], Callable[[Queue], object], bool]] = {
    "enqueue": (lambda queue: None, lambda queue: queue.enqueue("k"), True),
    "enqueue for later": (lambda queue: None, lambda queue: queue.enqueue("k", delay=60), False),
    "enqueue many": (lambda queue: None, lambda queue: queue.enqueue_many([("k", 1, {"delay": 60}), ("k", 2)]), True),
    "enqueue many for later": (lambda queue: None, lambda queue: queue.enqueue_many([("k", 1, {"delay": 60})]), False),
    "complete the first of a group": (
        lambda queue: queue.enqueue_many([("k", number, {"group": "g"}) for number in range(2)]),
        complete_first_of_group,
        True,
    ),
    "pop the first of a group": (
        lambda queue: queue.enqueue_many([("k", number, {"group": "g"}) for number in range(2)]),
        lambda queue: queue.pop(),
        True,
    ),
    "complete one without successors": (lambda queue: queue.enqueue("k"), complete_first_of_group, False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_notifies_if_it_leaves_a_job_due(
    open_db: Callable[..., QueueDB], name: str, received: Callable[[], set[str]], change: str
) -> None:
    before, act, notifies = CHANGES[change]
    before(open_db().queue(name))
    received()
    act(open_db().queue(name))  # of another object: one object notifies a queue once in a while only
    assert (name in received()) is notifies


def test_an_enqueue_on_a_connection_in_use_is_one_statement_that_notifies_too(
    open_db: Callable[..., QueueDB], name: str, received: Callable[[], set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    db = open_db(pool_size=1)
    queue = db.queue(name)

    def sent() -> int:
        db.core.notifications.unsent(name)
        before = db.counters.statements
        assert queue.enqueue("k")
        return db.counters.statements - before

    # Of a connection that was not used for some time it is not known whether it works. If BEGIN fails it can be sent again.
    assert sent() == 3
    received()
    assert sent() == 1
    assert received() == {name}
    monkeypatch.setattr(raw_cursor, "_FORGOTTEN", -1.0)
    assert sent() == 3
    assert received() == {name}
    assert queue.stats().available == 3


def test_a_notification_of_an_insert_that_failed_is_sent_with_the_next(
    open_db: Callable[..., QueueDB], name: str, received: Callable[[], set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    db = open_db()
    queue = db.queue(name)
    real, attempts = type(db.database.dialect.inserts).insert_new, []

    def insert_new(*arguments: object) -> object:
        attempts.append(arguments[-1])
        if len(attempts) == 1:
            raise TransientStorageError("a deadlock")
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(type(db.database.dialect.inserts), "insert_new", insert_new)
    assert queue.enqueue("k")
    assert len(attempts) == 2
    assert received() == {name}
