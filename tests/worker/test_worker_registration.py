"""Workers write their rows, and rescue the jobs of dead processes of their machine."""

import logging
import os
import signal
import subprocess
import sys
import threading

import pytest

from queue_db import QueueDB, State, TransientStorageError
from queue_db.core import process_name
from queue_db.store import Transaction
from queue_db.store import worker_registry as stored
from queue_db.worker.registration import Registration, host_identity, rescue
from tests.patience import PATIENCE, wait_for
from tests.worker.serving import serving


def mine(db, queue):
    return [worker for worker in db.workers() if queue.name in worker.queues]


def test_a_worker_is_there_while_it_runs(queue, db, open_db, running, monkeypatch):
    monkeypatch.setattr("queue_db.worker.registration.REPORT_EVERY", 0.02)
    started, go = threading.Event(), threading.Event()

    def handler(job):
        started.set()
        assert go.wait(PATIENCE)

    others = open_db()
    queue.enqueue("n")
    worker = serving(queue, handler, concurrency=7)
    with running(worker):
        assert started.wait(PATIENCE)
        seen = wait_for(lambda: [one for one in mine(others, queue) if one.in_hand == 1])
        assert (seen[0].queues, seen[0].state, seen[0].pid) == ({queue.name: 7}, "working", os.getpid())
        worker.quiet()
        wait_for(lambda: [one for one in mine(others, queue) if one.state == "quiet"])
        worker.resume()
        go.set()
        (info,) = wait_for(lambda: [one for one in mine(others, queue) if one.counters["completed"] == 1])
        assert info.silent < PATIENCE
    assert mine(others, queue) == []


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_task_that_hangs_delays_neither_schedules_nor_progress_nor_presence(queue, db, open_db, running, monkeypatch):
    """As one does that waits for locks."""
    monkeypatch.setattr("queue_db.worker.registration.REPORT_EVERY", 0.02)
    hangs, ticked, go = threading.Event(), threading.Event(), threading.Event()

    def hung(*_: object) -> None:
        hangs.set()
        go.wait(4 * PATIENCE)  # longer than all that is waited for below

    def tick() -> tuple[int, float]:
        if hangs.is_set():
            ticked.set()
        return 0, 0.02

    monkeypatch.setattr("queue_db.dead.registration.prune", hung)
    monkeypatch.setattr(db.schedules, "tick", tick)
    others = open_db()

    def handler(job):
        job.progress(0.5)
        go.wait(4 * PATIENCE)

    worker = serving(queue, handler, concurrency=1, dead_for=3600)
    with running(worker):
        try:
            assert hangs.wait(PATIENCE)
            job_id = queue.enqueue("n")
            wait_for(lambda: others.get(job_id).progress == 0.5)
            wait_for(lambda: [one for one in mine(others, queue) if one.in_hand == 1])
            assert ticked.wait(PATIENCE)
        finally:
            go.set()


def test_what_a_dead_process_of_this_machine_had_is_given_back(queue, db, url, running):
    """With a lease of an hour, and no parent that sees it die."""
    job_id = queue.enqueue("n")
    program = (
        "import sys, time; from queue_db import QueueDB; from queue_db.worker.registration import Registration\n"
        f"db = QueueDB({url!r}); (job,) = db.queue({queue.name!r}).claim(lease=3600)\n"
        f"Registration(db, {{{queue.name!r}: 1}}, lambda: ('working', 1, {{}})).report()\n"
        "print('ready', flush=True); time.sleep(1000)"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        done = threading.Event()
        own = Registration(db, {queue.name: 1}, lambda: ("working", 0, {}))
        own.rescue_dead()
        assert queue.get(job_id).state is State.RUNNING, "a living process was robbed"
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
        with running(serving(queue, lambda job: done.set())):
            assert done.wait(PATIENCE)
        wait_for(lambda: not mine(db, queue))  # the row goes after the jobs
    finally:
        process.kill()
        process.wait(PATIENCE)
        process.stdout.close()


@pytest.mark.parametrize("kind", ["sqlite"])
def test_those_of_other_machines_and_of_chosen_names_are_left_alone(queue, db, open_db):
    job_id = queue.enqueue("n")
    queue.claim(lease=3600)
    dead = 2**22 + 1  # no process has such a number
    rows = {
        f"{process_name().rpartition(':')[0]}:{dead}-0123abcd": "another-machine/1234/5",
        "the-mail-worker": host_identity(),
    }
    for name, host in rows.items():
        values = {"host": host, "pid": dead, "queues": "{}", "state": "working", "in_hand": 1, "counters": "{}"}
        with queue.transaction() as connection:
            stored.heartbeat(Transaction(connection, db.store), f"{name}#1", values)
    own = Registration(db, {}, lambda: ("working", 0, {}))
    assert own.rescue_dead() == 0
    assert {worker.name for worker in db.workers()} >= {f"{name}#1" for name in rows}
    assert queue.get(job_id).state is State.RUNNING
    for name in rows:
        with queue.transaction() as connection:
            stored.deregister(Transaction(connection, db.store), f"{name}#1")


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_worker_claims_after_its_row_is_written(queue, db, name, monkeypatch):
    """A kill in between would leave its jobs to their leases: by the row others find them. Here the row comes late."""
    called, rows = threading.Event(), []
    report = Registration.report

    def slow(registration):
        called.wait(0.5)  # a claim that does not wait for the row wins
        return report(registration)

    monkeypatch.setattr(Registration, "report", slow)

    def handler(job):
        rows.append(mine(db, queue))
        called.set()

    feed = db.feed(f"f-{name}"[:40])
    feed.shared("c")
    feed.publish("n")
    queue.enqueue("n")
    serving(queue, handler, feeds={f"{feed.name}:c": 1}).run(until_empty=True)
    assert list(map(len, rows)) == [1, 1]


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_stop_does_not_wait_for_the_row(queue, running, monkeypatch, log):
    def refused(*_):
        raise TransientStorageError("the table is locked")

    monkeypatch.setattr(stored, "heartbeat", refused)
    queue.enqueue("n")
    worker = serving(queue, lambda job: None)
    with running(worker):
        log.wait("registering this worker failed, trying again: the table is locked")
    assert worker.summary.completed == 0


@pytest.mark.parametrize("kind", ["sqlite"])
def test_an_old_row_of_a_dead_process_is_read_before_it_is_deleted(queue, db, clock, open_db):
    """The first worker that starts on a machine after hours without one."""
    timed = open_db(clock=clock)
    job_id = queue.enqueue("n")
    name = f"{process_name().rpartition(':')[0]}:{2**22 + 1}-0123abcd"
    open_db(worker=name).queue(queue.name).claim(lease=86400)
    values = {"host": host_identity(), "pid": 2**22 + 1, "queues": "{}", "state": "working", "in_hand": 1, "counters": "{}"}
    with queue.transaction() as connection:
        stored.heartbeat(Transaction(connection, timed.store), f"{name}#1", values)
    clock.advance(7200)
    own = Registration(timed, {}, lambda: ("working", 0, {}))
    assert own.rescue_dead() == 1
    assert timed.get(job_id).state is State.AVAILABLE
    assert timed.workers() == []


def test_a_report_that_is_under_way_leaves_no_row_of_a_worker_that_has_ended(queue, db):
    """Deregistering loses to the report: its row is written afterwards."""

    def status():
        registration.deregister()
        return "stopping", 0, {}

    registration = Registration(db, {queue.name: 1}, status)
    registration.report()
    assert mine(db, queue) == []


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_in_the_child_of_a_fork_the_default_name_is_that_of_the_child():
    with QueueDB("sqlite://") as db, QueueDB("sqlite://", worker="mine") as other:
        mine = process_name()
        child = os.fork()
        if not child:
            os._exit(0 if (db.worker, other.worker) == (process_name(), "mine") and db.worker != mine else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert (db.worker, other.worker) == (mine, "mine")


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_rescue_is_logged_with_one_level_whoever_makes_it(open_db, db, queue, caplog):
    """A supervisor and another worker of the machine: the second one finds nothing any more."""
    gone = f"gone-{queue.name}"
    queue.enqueue("n")
    open_db(worker=gone).queue(queue.name).claim()
    with caplog.at_level(logging.DEBUG, "queue_db.worker"):
        assert (rescue(db, gone), rescue(db, gone)) == (1, 0)
    assert [(record.levelname, record.message) for record in caplog.records if gone in record.message] == [
        ("WARNING", f"the process of worker {gone} is dead: returned its 1 jobs and spans"),
        ("DEBUG", f"the process of worker {gone} is dead: returned its 0 jobs and spans"),
    ]
