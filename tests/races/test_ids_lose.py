"""The ids of new jobs are read from the server: a step of ids that changes within an open session takes none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, event, select, text

from queue_db import Queue, QueueDB, State
from queue_db.testing import SettableClock
from tests.faults.once import Once

pytestmark = pytest.mark.parametrize("kind", ["mysql", "mariadb"], scope="session")

Options = dict[str, Any]


@pytest.fixture
def other_step(db: QueueDB) -> Iterator[Callable[[int, int], None]]:
    """Change the step and the offset of the session that the library's next statement uses, as a cluster does."""
    database = db.database

    def change(connection: Connection, step: int, offset: int) -> None:
        connection.execute(text(f"SET SESSION auto_increment_increment = {step}, SESSION auto_increment_offset = {offset}"))

    def to(step: int, offset: int) -> None:
        database.run(change, step, offset, name="change")
        assert database.run(_step, name="step") == step  # in the same session

    yield to
    to(1, 1)


def _step(connection: Connection) -> int:
    return int(connection.execute(text("SELECT @@auto_increment_increment")).scalar_one())


def payloads(db: QueueDB, ids: list[int | None]) -> list[Any]:
    return [db.get(job_id or 0).payload for job_id in ids]


def due_times(db: QueueDB, ids: list[int]) -> list[int | None]:
    jobs = db.core.store.tables.jobs
    with db.database.engine.connect() as connection:
        return list(connection.execute(select(jobs.c.due_at).where(jobs.c.id.in_(ids))).scalars())


SORTS: dict[str, Callable[[int], Options]] = {
    "plain": lambda at: {},
    "grouped": lambda at: {"group": f"g{at % 3}", "delay": 3600.0},
    "windowed": lambda at: {"unique_key": str(at), "unique_for": 3600.0},
}


@pytest.mark.parametrize("sort", SORTS)
def test_a_step_that_changes_between_two_lists(
    db: QueueDB, queue: Queue, other_step: Callable[[int, int], None], sort: str
) -> None:
    def many(start: int) -> list[tuple[str, int, Options]]:
        return [("k", start + at, SORTS[sort](start + at)) for at in range(10)]

    queue.enqueue_many(many(0))
    for number, step in enumerate((3, 1), 1):
        other_step(step, 2 if step > 1 else 1)
        ids = list(queue.enqueue_many(many(10 * number)))
        assert payloads(db, ids) == list(range(10 * number, 10 * number + 10))
        if sort == "grouped":
            # Those that wait in their groups kept their due times: no row of others got them.
            blocked = [job_id for job_id in ids if job_id and db.get(job_id).state is State.BLOCKED]
            assert all(due is not None for due in due_times(db, blocked))


def test_a_step_that_changes_between_two_batches(db: QueueDB, queue: Queue, other_step: Callable[[int, int], None]) -> None:
    queue.enqueue_batch([("k", at) for at in range(3)], then=("done", None))
    other_step(3, 2)
    _, ids = queue.enqueue_batch([("k", at) for at in range(3)], then=("done", None))
    assert payloads(db, ids) == [0, 1, 2]


def test_a_step_that_changes_just_before_the_insert(db: QueueDB, queue: Queue, other_step: Callable[[int, int], None]) -> None:
    queue.enqueue_many([("k", at) for at in range(3)])
    left = [2]

    def change(connection: Connection, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("INSERT INTO jobs") and left:
            step = left.pop()
            connection.exec_driver_sql(f"SET SESSION auto_increment_increment = {step}")

    event.listen(db.database.engine, "before_cursor_execute", change)
    try:
        ids = list(queue.enqueue_many([("k", at) for at in range(10)]))
    finally:
        event.remove(db.database.engine, "before_cursor_execute", change)
    other_step(1, 1)
    assert not left
    assert payloads(db, ids) == list(range(10))


def test_another_transaction_with_the_same_time_takes_no_id(kind: str, open_db: Callable[..., QueueDB], name: str) -> None:
    """Between the insert and the read of its ids."""
    clock = SettableClock()
    db, rival = open_db(clock=clock), open_db(clock=clock)
    looked = Once(db.database.engine, "SELECT count(*) AS inserted", lambda: rival.queue(name).enqueue_many([("k", -1), ("k", -2)]))
    assert payloads(db, list(db.queue(name).enqueue_many([("k", at) for at in range(10)]))) == list(range(10))
    assert looked.happened or kind == "mariadb"  # there the insert returns them
