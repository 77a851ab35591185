"""A claim of a lower queue, which takes nothing while a job is due in a higher one: what it asks and what it counts."""

import pytest


@pytest.fixture(params=["adaptive", "optimistic", "skip_locked", "pessimistic"])
def strategy(request, differs):
    if request.param == "skip_locked":
        differs("no SKIP LOCKED")
    return request.param


def test_a_claim_that_must_wait_for_a_higher_queue_has_lost_nothing(open_db, name, strategy):
    """Nobody was faster: it comes back at once, and is counted as empty."""
    db = open_db(strategy=strategy)
    high, low = db.queue(f"{name}-high"), db.queue(f"{name}-low")
    high.enqueue("n")
    low.enqueue_many([("n", None)] * 3)
    assert low.claim_unless([high.name], 2, 60.0) == []
    counters = db.counters
    assert (counters.attempts, counters.missed, counters.contended, counters.empty) == (1, 0, 0, 1)
    assert len(high.claim()) == 1
    assert len(low.claim_unless([high.name], 2, 60.0)) == 2
