"""A claim of a lower queue, which takes nothing while a job is due in a higher one: what it asks and what it counts."""

import gc
from weakref import ref

import pytest
from sqlalchemy import event

from queue_db import QueueDB
from queue_db.dialects.claim_sql import ClaimText
from queue_db.model import Capability, ClaimRequest
from queue_db.store import lease
from queue_db.strategies import known_strategies, strategy_for


@pytest.fixture(params=known_strategies())
def strategy(request, differs):
    if Capability.SKIP_LOCKED in strategy_for(request.param).needs:
        differs("no SKIP LOCKED")
    return request.param


def test_a_claim_that_must_wait_for_a_higher_queue_has_lost_nothing(open_db, name, strategy):
    """Nobody was faster: it comes back at once, and is counted as empty."""
    db = open_db(strategy=strategy)
    high, low = db.queue(f"{name}-high"), db.queue(f"{name}-low")
    high.enqueue("n")
    low.enqueue_many([("n", None)] * 3)
    assert low.claim_if_idle([high.name], 2, 60.0) == []
    counters = db.counters
    assert (counters.attempts, counters.missed, counters.contended, counters.empty) == (1, 0, 0, 1)
    assert len(high.claim()) == 1
    assert len(low.claim_if_idle([high.name], 2, 60.0)) == 2


@pytest.mark.parametrize(("own", "others"), [(1, 3), (10, 10), (20, 20)])
def test_it_asks_once_however_many_priorities_its_own_queue_has(db, open_db, name, own, others):
    """And in sixteen ranges at most: what lies beyond is left to the worker's polls."""
    high, low = db.queue(f"{name}-high"), db.queue(f"{name}-low")
    high.enqueue_many([("n", None, {"priority": priority, "delay": 3600}) for priority in range(others)])
    low.enqueue_many([("n", None, {"priority": priority}) for priority in range(own)] * 3)
    db.next_due([high.name, low.name])  # now it knows the priorities; a claim by itself would not
    texts = []
    event.listen(db.database.engine, "before_cursor_execute", lambda *arguments: texts.append(arguments[2]))
    assert len(low.claim_if_idle([high.name], own, 60.0)) == own
    # With a single range there is one more question, for jobs of lower priority number.
    assert max(text.count("jobs AS other") for text in texts) <= min(16, 2 * others) + (own == 1)
    late = open_db().queue(high.name)
    late.enqueue("n", priority=others - 1)
    assert len(low.claim_if_idle([high.name], own, 60.0)) == (own if others > 16 else 0)
    late.enqueue("n", priority=0)
    assert low.claim_if_idle([high.name], own, 60.0) == []
    assert db.next_due([high.name])[high.name] <= 0


@pytest.mark.parametrize("own", [1, 5, 13])
def test_a_claim_over_several_priorities_takes_each_job_once_and_finds_new_ones(db, open_db, name, own, strategy):
    """Whatever the number of ranges of the statement is that has room for these."""
    queue = open_db(strategy=strategy).queue(name)
    queue.enqueue_many([("n", None, {"priority": 2 * number}) for number in range(own)] * 2)
    jobs = queue.claim(3 * own)
    assert sorted(job.priority for job in jobs) == sorted([2 * number for number in range(own)] * 2)
    assert queue.db.counters.missed == 0
    # One between the known ones, and one beyond them all.
    db.queue(name).enqueue_many([("n", None, {"priority": priority}) for priority in (1, 99)])
    assert [job.priority for job in (queue.claim(9) + queue.claim(9))] == [1, 99]


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.rest("tests/sql has the statements, and tests/plans what they read")
def test_numbers_of_priorities_share_statements_and_few_are_kept(db, name):
    """Each is written, sent and planned, and what is made of it stays in memory."""

    def ranges(count):
        return tuple((priority, 0) for priority in range(count))

    def claim(tx, own, others, order):
        request = ClaimRequest(
            name, 1, 1, "w", "t", ranges(own), if_idle=(("a", ranges(others - others // 2)), ("b", ranges(others // 2)))
        )
        window = lease.CandidateWindow(order, read=2, start=1)
        assert lease.claim(tx, request, window).rows == ()
        return lease.asked(tx, request, window)[0].shape

    for order in (lease.Order.HEAD, lease.Order.SLICE):
        shapes = {db.core.write("test", claim, own, others, order) for own in range(1, 11) for others in range(1, 11)}
        assert 32 <= len(shapes) <= 35
    gc.collect()
    kept = [one for one in gc.get_objects() if type(one) is ClaimText and one._dialect is db.store.dialect]
    assert db.store.claim_text.cache_info().currsize == db.store.claim_text.cache_info().maxsize < 50
    # All that was made of one goes with it.
    assert all(0 < one.made.cache_info().currsize <= 3 for one in kept)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_statements_of_claims_are_forgotten_with_their_handle(url, name):
    with QueueDB(url) as db:
        assert db.queue(name).claim() == []
        assert db.queue(name).claim_if_idle([f"{name}-high"], 1, 1.0) == []
        known = [ref(one) for one in gc.get_objects() if type(one) is ClaimText and one._dialect is db.store.dialect]
    assert len(known) == 2
    del db
    gc.collect()
    assert [claim() for claim in known] == [None, None]
