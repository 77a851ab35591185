"""Claims that take jobs out of the table for good."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queue_db import Queue, QueueDB
from queue_db.testing import counted_statements
from queue_db.verbs import claim_round


@pytest.mark.usefixtures("no_second_look")
def test_where_a_claim_can_take_jobs_out_a_busy_queue_costs_one_statement(
    queue: Queue, db: QueueDB, differs: Callable[[str], None]
) -> None:
    differs("deleted in two steps")
    queue.enqueue_many([("mail", number) for number in range(40)])
    queue.pop(4)
    with counted_statements(db.database.engine) as statements:
        assert [job.attempts for job in queue.pop(4)] == [1] * 4
    assert len(statements) == 1, statements
    assert queue.stats().available == 32
    # One whose attempts are used up is not handed out, and not lost either.
    queue.enqueue("mail", "tired", max_attempts=1, priority=-1)
    (job,) = queue.claim(lease=1)
    assert job.payload == "tired"
    db.rescue(db.worker)
    assert len(queue.pop(100)) == 32
    assert [dead.payload for dead in db.dead.list(queue.name)] == ["tired"]


class Cut(Exception):
    """The process ends here."""


def test_where_a_claim_cannot_take_jobs_out_it_is_one_transaction_with_their_deletion(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a pop that stalls in between would hand out what has been claimed anew since."""
    queue.enqueue_many([("mail", number, {"priority": number % 2}) for number in range(6)])
    assert len(queue.pop(2)) == 2  # from here on it expects to win, and asks for less

    def cut(*_: object, **__: object) -> set[int]:
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(claim_round.settle, "delete", cut)
        with pytest.raises(Cut):
            queue.pop(2)
    assert queue.stats().available == 4
