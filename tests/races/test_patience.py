"""A claim that expects jobs waits for who is taking the same row, but not for somebody's long transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import select

from queue_db import Optimistic, Queue, QueueDB
from tests.races.interleaving import open_transaction

pytestmark = pytest.mark.parametrize("kind", ["postgresql"], scope="session")


@pytest.fixture
def winning(open_db: Callable[..., QueueDB], name: str) -> Iterator[Queue]:
    """A queue of five jobs, of which this process has claimed the first: it expects more at the head."""
    with open_db(strategy=Optimistic(pick="head")) as db:
        queue = db.queue(name)
        queue.enqueue_many([("mail", number) for number in range(5)])
        assert queue.claim()[0].payload == 0
        yield queue


def hold_the_head(connection: object, queue: Queue) -> None:
    jobs = queue.db.store.tables.jobs
    first = select(jobs.c.id).where(jobs.c.queue == queue.name, jobs.c.attempts == 0).order_by(jobs.c.id).limit(1)
    assert connection.execute(first.with_for_update()).scalar_one()  # type: ignore[attr-defined]


def test_a_claim_of_several_takes_those_that_nobody_holds(winning: Queue, open_db: Callable[..., QueueDB]) -> None:
    with open_db() as other, open_transaction(other) as connection:
        hold_the_head(connection, winning)
        assert [job.payload for job in winning.claim(3)] == [2, 3]
        # And goes on without another wait, until the job is free.
        assert [job.payload for job in winning.claim(3)] == [4]
        connection.rollback()
        assert [job.payload for job in winning.claim(3)] == [1]
    counters = winning.db.counters
    assert (counters.claimed, counters.retried) == (5, 0)
    assert counters.missed == counters.candidates - counters.claimed > 0


def test_a_claim_of_one_comes_back_empty_and_says_why(winning: Queue, open_db: Callable[..., QueueDB]) -> None:
    with open_db() as other, open_transaction(other) as connection:
        hold_the_head(connection, winning)
        assert winning.claim() == []
        connection.rollback()
        assert [job.payload for job in winning.claim()] == [1]
    assert (winning.db.counters.contended, winning.db.counters.empty) == (1, 0)


def test_a_pop_of_several_takes_those_that_nobody_holds(winning: Queue, open_db: Callable[..., QueueDB]) -> None:
    with open_db() as other, open_transaction(other) as connection:
        hold_the_head(connection, winning)
        assert [job.payload for job in winning.pop(3)] == [2, 3]
        connection.rollback()
    missed = winning.db.counters.missed
    assert [job.payload for _ in range(2) for job in winning.pop()] == [1, 4]
    # The second does not try the short statement, and counts nothing for it.
    assert winning.db.counters.missed == missed
    # One statement, no transaction around it: the wait that came to nothing has undone nothing.
    assert (winning.db.counters.retried, winning.db.counters.claimed) == (0, 5)
