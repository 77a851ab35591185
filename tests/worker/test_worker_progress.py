"""How far handlers say that they are: what is shown, for how long, and what it costs."""

import threading

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from queue_db import ArgumentError, Verdict
from queue_db.testing import counted_statements
from queue_db.worker import Worker
from queue_db.worker.leases import InFlight, Progress
from tests.patience import PATIENCE, wait_for
from tests.worker import in_processes
from tests.worker.in_processes import Meeting

ROUNDS = 30
SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


def shown(queue, job_id):
    job = queue.get(job_id)
    return job.progress, job.progress_note


def test_what_is_said_about_a_job_is_shown(queue, db):
    first, second, _ = ids = queue.enqueue_many([("n", None)] * 3)
    jobs = queue.claim(3)
    assert queue.stats().progress is None
    assert jobs[0].progress(0.4, "Seite 4 von 10 — 頁") is Verdict.APPLIED
    assert shown(queue, first) == (0.4, "Seite 4 von 10 — 頁")
    assert jobs[1].progress(0.8)
    assert shown(queue, second) == (0.8, None)
    assert queue.stats().progress == pytest.approx(0.6), "the mean of those that have reported"
    assert jobs[0].progress(1)
    assert shown(queue, first) == (1.0, None)
    assert [queue.get(job_id).version for job_id in ids] == [job.version for job in jobs], "to say something changes no state"
    assert all(queue.complete_many(jobs))


def test_a_note_is_cut_and_made_storable(queue):
    job_id = queue.enqueue("n")
    (job,) = queue.claim()
    assert job.progress(0, "ä" * 500)
    assert shown(queue, job_id) == (0.0, "ä" * 199 + "…")
    assert job.progress(0, "a\x00b\udc80")
    assert shown(queue, job_id) == (0.0, "a\ufffdb?")
    assert job.progress(0, "")
    assert shown(queue, job_id) == (0.0, None)


@SQLITE
@pytest.mark.parametrize("wrong", [(-0.1,), (1.1,), (float("nan"),), ("half",), (True,), (None,), (0.5, 7)])
def test_what_is_no_progress_is_refused(queue, wrong):
    queue.enqueue("n")
    (job,) = queue.claim()
    with pytest.raises(ArgumentError):
        job.progress(*wrong)


def test_a_late_worker_says_nothing_any_more(queue, db, open_db):
    job_id = queue.enqueue("n")
    (late,) = queue.claim()
    assert late.progress(0.9)
    db.rescue(db.worker)
    assert shown(queue, job_id) == (None, None)
    assert late.progress(0.95) is Verdict.LOST
    assert shown(queue, job_id) == (None, None)
    (now,) = open_db().queue(queue.name).claim()
    assert now.progress(0.1, "anew")
    assert not late.progress(0.99)
    assert shown(queue, job_id) == (0.1, "anew")
    assert now.complete()
    assert not now.progress(1)


FREEING = {
    "fail": lambda job: job.fail("no", retry_in=0),
    "snooze": lambda job: job.snooze(0),
    "release": lambda job: job.release(),
}


@pytest.mark.parametrize("verb", FREEING)
def test_the_next_attempt_starts_anew(queue, verb):
    job_id = queue.enqueue("n")
    (job,) = queue.claim()
    assert job.progress(0.9, "almost")
    with counted_statements(queue.db.database.engine) as seen:
        assert FREEING[verb](job)
    changes = [statement for statement in seen if "UPDATE" in statement or statement.startswith("EXECUTE")]
    assert len([statement for statement in changes if not statement.startswith("PREPARE")]) == 1
    assert shown(queue, job_id) == (None, None)
    assert queue.stats().progress is None


def test_an_attempt_after_a_lease_that_ran_out_starts_anew(open_db, clock, name):
    queue = open_db(clock=clock).queue(name)
    job_id = queue.enqueue("n")
    (job,) = queue.claim(lease=10)
    assert job.progress(0.9, "almost")
    clock.advance(11)
    assert len(queue.claim()) == 1
    assert shown(queue, job_id) == (None, None)


def test_a_new_content_has_no_progress(queue):
    job_id = queue.enqueue("n", unique_key="k")
    (job,) = queue.claim()
    assert job.progress(0.9)
    assert queue.enqueue("n", unique_key="k", on_duplicate="replace") == job_id
    assert shown(queue, job_id) == (None, None)


def in_hand(*queues):
    """Jobs as a worker holds them, three of each queue."""
    made = InFlight([queue.name for queue in queues])
    reports = Progress(queues[0].db.core, made)
    jobs = []
    for queue in queues:
        queue.enqueue_many([("n", None)] * 3)
        mine = queue.claim(3)
        made.add(queue.name, mine)
        for job in mine:
            job.report_progress_to(reports.report)
        jobs += mine
    return made, reports, jobs


def test_in_a_worker_it_costs_one_statement_for_all_jobs(queue, db):
    _, reports, jobs = in_hand(queue, db.queue(f"{queue.name}-other"))
    with counted_statements(db.database.engine) as seen:
        for number in range(100):
            assert all(job.progress(number / 100, f"page {number} of {place}") for place, job in enumerate(jobs))
        assert seen == []
        reports.write()
        assert len(seen) == 1
        reports.write()
        assert len(seen) == 1, "nothing new was reported"
    assert [(db.get(job.id).progress, db.get(job.id).progress_note) for job in jobs] == [
        (0.99, f"page 99 of {place}") for place in range(6)
    ]


def test_a_job_that_was_dropped_is_not_told_of(queue):
    in_flight, reports, (first, second, third) = in_hand(queue)
    assert first.progress(0.5)
    assert second.progress(0.5)
    in_flight.remove(first)
    assert second.release(), "settled by its handler, and still in flight"
    assert first.progress(0.6) is Verdict.LOST
    with counted_statements(queue.db.database.engine) as seen:
        reports.write()
    assert seen == []
    assert third.progress(0.7)
    reports.write()
    assert [shown(queue, job.id)[0] for job in (first, second, third)] == [None, None, 0.7]


def test_a_job_that_was_lost_meanwhile_is_not_changed(queue, open_db):
    _, reports, (stolen, other, _) = in_hand(queue)
    assert stolen.progress(0.5)
    assert other.progress(0.5)
    thief = open_db()
    assert thief.cancel(stolen.id)
    reports.write()
    assert shown(queue, other.id) == (0.5, None)
    with open_db().queue(queue.name).transaction() as connection:
        jobs = queue.db.store.tables.jobs
        connection.execute(jobs.update().where(jobs.c.id == other.id).values(version=other.version + 1))
    assert other.progress(0.6)
    reports.write()
    assert shown(queue, other.id) == (0.5, None)


def test_it_does_not_get_lost_between_two_heartbeats(queue):
    """Both at the same moment, again and again: the fence must be that of the moment."""
    _, reports, (job, *_) = in_hand(queue)
    barrier = threading.Barrier(2)

    def beat():
        for _ in range(ROUNDS):
            barrier.wait(PATIENCE)
            assert job.extend(60)
            barrier.wait(PATIENCE)

    heart = threading.Thread(target=beat)
    heart.start()
    seen = []
    for number in range(ROUNDS):
        assert job.progress(number / ROUNDS)
        barrier.wait(PATIENCE)
        reports.write()
        barrier.wait(PATIENCE)
        seen.append(shown(queue, job.id)[0])
    heart.join(PATIENCE)
    assert seen == [number / ROUNDS for number in range(ROUNDS)]
    assert job.complete()


@SQLITE
def test_what_the_database_did_not_take_is_told_the_next_time(queue):
    _, reports, (job, *_) = in_hand(queue)
    engine = queue.db.database.engine

    def refuse(_connection, _cursor, statement, *_):
        raise OperationalError(statement, {}, Exception("away"))

    assert job.progress(0.5)
    event.listen(engine, "before_cursor_execute", refuse)
    try:
        reports.write()
    finally:
        event.remove(engine, "before_cursor_execute", refuse)
    assert shown(queue, job.id) == (None, None)
    reports.write()
    assert shown(queue, job.id) == (0.5, None)


def test_a_worker_tells_while_the_handler_runs(queue, db, running, log):
    worker = Worker(db, queue.name)
    go = threading.Event()

    @worker.handles("n")
    def handler(job):
        assert job.progress(0.1)
        assert job.progress(0.5, "halfway")
        assert go.wait(PATIENCE)

    job_id = queue.enqueue("n")
    with running(worker):
        log.wait("wrote the progress of 1 jobs")
        wait_for(lambda: shown(queue, job_id) == (0.5, "halfway"))  # the first write may have had only 0.1
        go.set()
    assert worker.summary.completed == 1


@SQLITE
def test_a_handler_in_a_process_says_it_too(queue, db, running, log):
    worker = Worker(db, queue.name)
    worker.handles("n", executor="process")(in_processes.meets)
    with Meeting() as meeting:
        job_id = queue.enqueue("n", {"port": meeting.port})
        with running(worker):
            one = meeting.visitor()
            one.tell("progress")
            log.wait("wrote the progress of 1 jobs")
            assert shown(queue, job_id) == (0.25, "a quarter")
            one.tell("return")
    assert worker.summary.completed == 1


@SQLITE
def test_a_job_that_has_left_the_table_has_none(queue, db):
    reports = []
    worker = Worker(db, queue.name, mode="at_most_once")
    worker.handles("n")(lambda job: reports.append(job.progress(0.5)))
    queue.enqueue("n")
    assert worker.run(until_empty=True).completed == 1
    assert reports == [Verdict.LOST]
