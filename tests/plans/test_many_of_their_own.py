"""Verbs over many jobs of which each has values of its own: as many statements, and each as long, as the number of jobs says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from queue_db import DuplicateJobError, Queue, QueueDB, Verdict
from queue_db.store import history
from queue_db.store.portions import AT_ONCE

#: More than this no driver that we know takes (asyncpg).
MOST_PARAMETERS = 32_767


@contextmanager
def parameters(db: QueueDB) -> Iterator[list[tuple[str, int]]]:
    """Text and number of parameters of each statement that is sent; of several sets of parameters the first one counts."""
    sent: list[tuple[str, int]] = []

    def before(_: object, __: object, statement: str, values: Any, *___: object) -> None:
        sent.append((statement.replace("`", ""), len(values[0] if isinstance(values, list) else values)))

    engine = db.database.engine
    event.listen(engine, "before_cursor_execute", before)
    try:
        yield sent
    finally:
        event.remove(engine, "before_cursor_execute", before)


def fail(queue: Queue, jobs: list[Any]) -> list[Verdict]:
    waits = [float(place) for place in range(len(jobs))]
    return queue.fail_many(jobs, [ValueError(str(job.id)) for job in jobs], retry_in=waits)


def bury(queue: Queue, jobs: list[Any]) -> list[Verdict]:
    return queue.bury_many(jobs, [str(job.id) for job in jobs])


def fail_for_good(queue: Queue, jobs: list[Any]) -> list[Verdict]:
    return queue.fail_many(jobs, [ValueError(str(job.id)) for job in jobs], last=[True] * len(jobs))


@pytest.mark.parametrize("verb", [fail, bury, fail_for_good])
def test_a_statement_does_not_grow_with_the_jobs(queue: Queue, verb: Callable[[Queue, list[Any]], list[Verdict]]) -> None:
    longest, numbers = [], []
    for parts in (2, 4):
        queue.enqueue_many([("mail", number) for number in range(parts * AT_ONCE)])
        jobs = queue.claim(parts * AT_ONCE)
        with parameters(queue.db) as sent:
            assert verb(queue, jobs) == [Verdict.APPLIED] * len(jobs)
        own = [count for text, count in sent if text.startswith(("UPDATE jobs ", "INSERT INTO jobs ", "INSERT INTO jobs_dead "))]
        longest.append(max(own))
        numbers.append(len(own))
    assert longest[0] == longest[1] <= MOST_PARAMETERS / 4
    assert numbers == [2, 4]
    dead = [job.last_error for job in queue.db.dead.list(queue.name, limit=4 * AT_ONCE)]
    assert len(set(dead)) == len(dead) == (0 if verb is fail else 4 * AT_ONCE)


def test_errors_that_are_too_many_are_forgotten_by_one_look_and_one_statement(queue: Queue) -> None:
    db = queue.db
    queue.enqueue_many([("mail", number, {"max_attempts": 50}) for number in range(3)])
    for attempt in range(history.KEPT + 2):
        jobs = queue.claim(3)
        with parameters(db) as sent:
            assert queue.fail_many(jobs, f"attempt {attempt}", retry_in=0) == [Verdict.APPLIED] * 3
        if attempt >= history.KEPT:
            about = [text.split()[0] for text, _ in sent if "jobs_errors" in text]
            assert about == ["INSERT", "SELECT", "DELETE"]
    for job in jobs:
        kept = [error.message for error in db.errors(job.id)]
        assert kept == [f"attempt {attempt}" for attempt in range(2, history.KEPT + 2)]


def test_a_taken_key_is_named_without_a_look_at_the_other_dead(queue: Queue) -> None:
    db = queue.db
    queue.enqueue_many([("mail", number, {"unique_key": f"k{number}"}) for number in range(20)])
    jobs = queue.claim(20)
    queue.bury_many(jobs, "bad")
    live = queue.enqueue("mail", unique_key=jobs[7].unique_key)
    read: list[int] = []
    event.listen(db.database.engine, "after_cursor_execute", lambda *about: read.append(about[1].rowcount))
    with parameters(db) as sent, pytest.raises(DuplicateJobError) as refused:
        db.dead.redrive(jobs[7].id)
    assert (refused.value.unique_key, refused.value.existing_id) == ("k7", live)
    assert max(read) <= 1
    assert all(count < 10 for _, count in sent)


def test_thousands_of_ids_are_redriven_some_at_a_time(queue: Queue) -> None:
    queue.enqueue_many([("mail", number) for number in range(1200)])
    jobs = queue.claim(1200)
    queue.bury_many(jobs, "bad")
    ids = [job.id for job in reversed(jobs)]
    with parameters(queue.db) as sent:
        assert sorted(queue.db.dead.redrive(ids + ids)) == sorted(ids)
    selects = [count for text, count in sent if text.startswith("SELECT") and count > 400]
    assert selects
    assert max(selects) < 600
    assert queue.stats().available == 1200
