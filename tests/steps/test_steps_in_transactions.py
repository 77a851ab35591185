"""A step in a transaction of its handler: whichever statement fails, the step and its rows are there together or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from queue_db import LeasedJob, Queue
from queue_db.testing.suite.fixtures import Notes, notes

__all__ = ["notes"]

Book = Callable[[LeasedJob, Notes], None]


class RefusedError(Exception):
    """What a statement raises here."""


@contextmanager
def failing_at(engine: Engine, number: int) -> Iterator[None]:
    """Raise in place of the statement or COMMIT with this number."""
    sent = 0

    def count(*_: Any) -> None:
        nonlocal sent
        sent += 1
        if sent == number:
            raise RefusedError

    for name in ("before_cursor_execute", "commit"):
        event.listen(engine, name, count)
    try:
        yield
    finally:
        for name in ("before_cursor_execute", "commit"):
            event.remove(engine, name, count)


def with_a_connection(job: LeasedJob, notes: Notes) -> None:
    with notes.engine.begin() as connection:
        job.step("book", notes.write, connection, "booked", using=connection)


def with_a_session(job: LeasedJob, notes: Notes) -> None:
    with Session(notes.engine) as session, session.begin():
        job.step("book", notes.write, session, "booked", using=session)


@pytest.mark.parametrize("book", [with_a_connection, with_a_session])
def test_a_failure_at_each_statement_leaves_both_or_none(queue: Queue, notes: Notes, book: Book) -> None:
    """The run tries again each time, as a handler does that meets a deadlock."""
    queue.enqueue("order")
    (job,) = queue.claim()
    for failures in range(20):
        try:
            with failing_at(notes.engine, failures + 1):
                book(job, notes)
        except RefusedError:
            assert (notes.read(), queue.db.steps.list(job.id)) == ([], []), f"at statement {failures + 1}"
        else:
            break
    assert failures >= 5
    assert (notes.read(), [step.name for step in queue.db.steps.list(job.id)]) == (["booked"], ["book"])
    assert job.complete()
