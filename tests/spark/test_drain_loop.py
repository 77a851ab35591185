"""A task of a drain, without Spark: leases are kept, limits and pauses are heeded, and there is an end."""

import threading
import time
from dataclasses import replace
from functools import partial

import pytest
from sqlalchemy import func, select, update

from queue_db import QueueDB
from queue_db.spark.drain_loop import DrainLoop, Limits, OfKind
from queue_db.spark.drain_rounds import leased
from queue_db.spark.streams import store as streams
from queue_db.strategies import known_strategies, strategy_for
from tests.patience import HOURS, PATIENCE, wait_for

LIMITS = Limits(batch=10, lease=60.0)
YEAR = 366 * 86400.0


@pytest.fixture
def run(url, name):
    """Run a loop to its end; ``work(jobs, heartbeat)`` is done with each batch. Returns the tally."""

    def run(limits=LIMITS, work=lambda jobs, heartbeat: None, **settings):
        def settle(queue, jobs, heartbeat, tally):
            with heartbeat:
                work(jobs, heartbeat)
            tally.completed += sum(map(bool, queue.complete_many(jobs)))

        with QueueDB(url, **settings) as db:
            return DrainLoop(db.queue(name), limits, settle).run()

    return run


def soon(db, seconds):
    """A moment of the database's clock."""
    return db.core.now() + round(seconds * 1_000_000)


def test_leases_are_kept_while_the_function_runs(run, queue, name, open_db, monkeypatch):
    monkeypatch.setattr("queue_db.spark.drain_loop._BEATS", HOURS / 0.05)  # a beat every 50 ms, of leases of hours
    queue.enqueue_many(("k", n) for n in range(3))
    seen = []

    def work(jobs, heartbeat):
        ends = max(job.lease_ends for job in jobs)
        wait_for(lambda: all(job.lease_ends > ends for job in jobs))
        with open_db(clock=lambda: ends) as then:  # when the leases that were claimed are over
            seen.append(then.queue(name).claim(10))

    tally = run(replace(LIMITS, lease=HOURS), work)
    assert seen == [[]]
    assert (tally.completed, tally.drained) == (3, True)


def test_a_lost_lease_is_noticed_and_the_others_are_kept(run, queue, db):
    first, *_ = queue.enqueue_many(("k", n) for n in range(3))
    jobs_table = db.store.tables.jobs
    seen = []

    def work(jobs, heartbeat):
        if seen:
            return
        mine = update(jobs_table).where(jobs_table.c.id == first)
        with db.database.begin("steal") as connection:
            connection.execute(mine.values(version=jobs_table.c.version + 1, available_at=0, claim_token=None))
        before = {job.id: job.version for job in jobs}
        heartbeat.beat()
        seen.append((set(heartbeat.lost), [job.version - before[job.id] for job in jobs]))

    tally = run(work=work)
    assert seen == [({first}, [0, 1, 1])]
    assert (tally.claimed, tally.completed) == (4, 3)  # the stolen one came again


def test_a_paused_queue_is_left_alone(run, queue, db):
    queue.enqueue_many(("k", n) for n in range(3))
    queue.pause()
    tally = run(replace(LIMITS, until=soon(db, 0.3)))
    assert (tally.claimed, tally.drained) == (0, False)
    queue.resume()
    assert run().completed == 3


def test_a_paused_queue_without_jobs_is_drained(run, queue):
    queue.pause()
    assert run().drained


def test_a_rate_is_heeded(run, queue, db):
    queue.enqueue_many(("k", n) for n in range(20))
    queue.limit(rate=5, per=36_000)
    assert run(replace(LIMITS, jobs=5, until=soon(db, PATIENCE))).completed == 5
    tally = run(replace(LIMITS, until=soon(db, 0.3)))
    assert (tally.claimed, tally.drained) == (0, False)


def test_a_concurrency_is_heeded_over_all_tasks(run, queue, db):
    queue.enqueue_many(("k", n) for n in range(40))
    queue.limit(concurrency=3)
    lock, in_hand, most = threading.Lock(), [0], [0]

    def work(jobs, heartbeat):
        with lock:
            in_hand[0] += len(jobs)
            most[0] = max(most[0], in_hand[0])
        time.sleep(0.01)
        with lock:
            in_hand[0] -= len(jobs)

    done = []
    tasks = [threading.Thread(target=lambda: done.append(run(work=work).completed)) for _ in range(2)]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()
    assert sum(done) == 40
    assert 0 < most[0] <= 3


def test_a_job_of_next_year_is_not_waited_for(run, queue):
    queue.enqueue("k", "now")
    queue.enqueue("k", "later", delay=YEAR)
    tally = run(replace(LIMITS, within=3600.0))
    assert (tally.completed, tally.drained, queue.stats().scheduled) == (1, True, 1)


def test_a_job_that_is_due_soon_is_waited_for(run, queue):
    queue.enqueue("k", "soon", delay=0.5)
    assert run(replace(LIMITS, within=3600.0)).completed == 1


def test_a_job_that_is_leased_for_long_is_waited_for(run, queue, db):
    queue.enqueue("k")
    queue.claim(lease=YEAR)
    assert not run(replace(LIMITS, until=soon(db, 0.3))).drained


def test_what_a_stream_holds_is_not_waited_for(run, queue, db, name):
    queue.enqueue("k", unique_key="one")
    opened = partial(streams.open_stream, name=name, queue=name, holder="h", retention=10**15)
    session = db.database.run(opened, store=db.store, name="open")
    start = db.core.write("streams.initial", streams.initial, session=session)
    claim = partial(streams.allocate, session=session, start=start, limit=10, ceiling=None, partitions=1)
    db.database.run(claim, store=db.store, name="claim")
    assert run(replace(LIMITS, within=YEAR)).drained


def test_no_more_jobs_than_asked_for(run, queue):
    queue.enqueue_many(("k", n) for n in range(40))
    tally = run(replace(LIMITS, jobs=13))
    assert (tally.claimed, tally.completed, tally.drained) == (13, 13, False)


def test_nothing_is_claimed_after_the_end(run, queue, db):
    queue.enqueue_many(("k", n) for n in range(3))
    tally = run(replace(LIMITS, until=soon(db, -1)))
    assert (tally.claimed, tally.drained) == (0, False)


def test_one_kind_only(run, queue, db, name):
    jobs = db.store.tables.jobs
    for number, strategy in enumerate(known_strategies()):
        made = strategy_for(strategy)
        if not made.needs <= db.database.capabilities:
            continue
        wanted = f"wanted-{number}"
        queue.enqueue_many((kind, n, {"priority": n % 2}) for n in range(15) for kind in (wanted, "other"))
        kinds = []
        tally = run(
            replace(LIMITS, kind=wanted, batch=4),
            lambda claimed, heartbeat, kinds=kinds: kinds.extend(job.kind for job in claimed),
            strategy=OfKind(made, wanted),
        )
        assert (strategy, tally.completed, tally.drained, set(kinds)) == (strategy, 15, True, {wanted})
    touched = select(func.count()).where(jobs.c.queue == name, jobs.c.version > 0)
    assert db.database.run(lambda connection: connection.execute(touched).scalar_one(), name="touched", write=False) == 0


def test_jobs_are_found_again_by_id_and_version_as_long_as_they_are_leased(queue):
    """So that the driver completes what is written; what hangs on a job leaves with it."""
    queue.enqueue_many([("k", n, {"group": "g"} if n < 2 else {}) for n in range(6)])
    jobs = queue.claim(10, 60)
    pairs = [(job.id, job.version) for job in jobs]
    by_number = {job.payload: job for job in jobs}
    assert sorted(by_number) == [0, 2, 3, 4, 5]
    assert by_number[3].extend(60)  # another version
    assert by_number[4].complete()
    assert by_number[5].release()
    found = leased(queue, pairs)
    assert {job.id for job in found} == {by_number[0].id, by_number[2].id}
    assert all(queue.complete_many(found))
    assert sorted(job.payload for job in queue.claim(10)) == [1, 5], "the next of the group was not let go"
