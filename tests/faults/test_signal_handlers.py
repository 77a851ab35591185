"""A signal handler that enqueues and works, at any line of a verb: it waits for nothing that the verb holds in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from sqlalchemy import func, select

from queue_db import Queue, TransientStorageError
from tests.interrupting import called_within, interrupted, places_of
from tests.patience import PATIENCE

VERBS: dict[str, Callable[[Queue], object]] = {
    "enqueue": lambda queue: queue.enqueue("k"),
    "claim": lambda queue: queue.claim(),
    "complete": lambda queue: queue.complete_many(queue.claim()),
}


@pytest.mark.parametrize("kind", ["postgresql"], scope="session")  # where one writes while another does
@pytest.mark.parametrize("verb", VERBS)
def test_a_signal_handler_that_enqueues_and_works_waits_for_nobody(queue: Queue, verb: str) -> None:
    queue.enqueue_many([("k", None)] * 1000)
    for _ in range(3):
        VERBS[verb](queue)
    enqueued: list[int | None] = []
    ended: list[None] = []

    # Of another queue: a job that the verb has in its transaction is locked in the database until that ends.
    other = queue.db.queue(f"{queue.name}-other")

    def handler() -> None:
        enqueued.append(queue.enqueue("of a signal handler"))
        other.enqueue("k")
        other.complete_many(other.claim())

    for called, (place, call) in enumerate(called_within(lambda: VERBS[verb](queue), handler), 1):

        def run(call: Callable[[], None] = call) -> None:
            call()
            ended.append(None)

        thread = threading.Thread(target=run, daemon=True)  # one that waits for ever must not keep the suite from ending
        thread.start()
        thread.join(PATIENCE)
        assert len(ended) == called, place
    assert len(set(enqueued)) == len(enqueued) > 100  # a few places are passed now and then only


class OfItsOwnTransactionError(TransientStorageError):
    """A signal handler used the queue, and lets out what that raised."""

    def __init__(self) -> None:
        super().__init__("the handler's own transaction was refused")


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"], scope="session")
def test_an_enqueue_loses_to_an_error_of_a_signal_handler_and_is_not_made_twice(queue: Queue) -> None:
    """The error asks to run again, but not this transaction, which may have been committed."""
    for _ in range(3):
        queue.enqueue("warm")
    raised = {}
    for number, place in enumerate(places_of(lambda: queue.enqueue("warm"))):
        kind = f"cut {number}"
        raised[kind] = interrupted(lambda kind=kind: queue.enqueue(kind), place, OfItsOwnTransactionError)  # type: ignore[misc]
    jobs = queue.db.core.store.tables.jobs
    with queue.db.core.database.begin() as connection:
        made = dict(
            connection.execute(select(jobs.c.kind, func.count()).where(jobs.c.queue == queue.name).group_by(jobs.c.kind)).all()
        )
    assert len(raised) > 30
    assert {kind: made.get(kind, 0) for kind in raised if made.get(kind, 0) > 1} == {}
    assert [kind for kind, told in raised.items() if not told and made.get(kind) != 1] == [], "it returned, and there is no job"
