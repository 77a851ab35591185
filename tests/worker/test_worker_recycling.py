"""Workers and handlers' processes that end after some jobs, or with too much memory, so that new ones take their places."""

from __future__ import annotations

import signal
import threading

import pytest

from queue_db import ArgumentError, State
from queue_db.processes.pool import ProcessPool
from queue_db.worker import Worker, resident
from tests.patience import PATIENCE, wait_for
from tests.worker import in_processes
from tests.worker.test_worker_supervisor import Supervisor

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


@pytest.mark.parametrize("options", [{"concurrency": 1}, {"concurrency": 4}, {"concurrency": 2, "prefetch": 10}])
def test_a_worker_claims_as_many_jobs_as_it_may_and_ends_when_they_are_done(queue, options):
    """Not one more: a count of jobs that have ended would be late by all that are in hand."""
    worker = Worker(queue.db, queue.name, schedules=False, max_jobs=5, **options)
    worker.handles("work")(lambda job: None)
    queue.enqueue_many([("work", None)] * 8)
    for left in (3, 0):
        summary = worker.run()  # not until the queue is empty
        assert (queue.stats().available, summary.recycled) == (left, True) if left else summary.completed == 3
        if left:
            assert summary.completed == 5
            worker.configure(max_jobs=3)


@SQLITE
def test_it_waits_for_its_jobs_longer_than_the_grace_time_and_a_stop_ends_the_wait(queue, running):
    worker = Worker(queue.db, queue.name, schedules=False, max_jobs=1, grace=0)
    entered, go = threading.Event(), threading.Event()

    @worker.handles("work")
    def work(job):
        entered.set()
        assert go.wait(PATIENCE)

    job_id = queue.enqueue("work")
    with running(worker) as thread:
        assert entered.wait(PATIENCE)
        wait_for(lambda: worker._run.fetcher._claims_left == 0)
        assert thread.is_alive()
        worker.stop()
        thread.join(PATIENCE)
    go.set()
    assert (worker.summary.released, worker.summary.recycled) == (1, False)
    assert queue.get(job_id).state is State.AVAILABLE


@SQLITE
def test_a_worker_with_too_much_memory_ends_after_a_job_and_not_before(queue, log, running):
    worker = Worker(queue.db, queue.name, schedules=False, max_memory=1)
    worker.handles("work")(lambda job: None)
    with running(worker) as thread:
        wait_for(lambda: worker._run is not None)
        assert worker._run._check_memory() > 0
        assert worker._run.fetcher._claims_left > 0
        queue.enqueue("work")
        thread.join(PATIENCE)
    assert (worker.summary.completed, worker.summary.recycled) == (1, True)
    log.wait("max_memory is 1: no more claims")
    log.wait("(max_memory)")


@SQLITE
def test_a_worker_with_little_memory_goes_on(queue, running):
    worker = Worker(queue.db, queue.name, schedules=False, max_memory=1e9)
    worker.handles("work")(lambda job: None)
    queue.enqueue("work")
    with running(worker):
        wait_for(lambda: worker.summary.completed == 1)
        worker._run._check_memory()
        assert worker._run.fetcher._claims_left > 0
    assert not worker.summary.recycled


@SQLITE
def test_a_handlers_process_with_too_much_memory_is_replaced_after_its_call(queue, monkeypatch):
    """The worker itself is large too: here it does not look."""
    pids = []
    for most in (1.0, 1e9):
        worker = Worker(queue.db, queue.name, concurrency=1, schedules=False, result_ttl=60)
        monkeypatch.setattr("queue_db.worker.executor.load", lambda *_, most=most: lambda _: ProcessPool(most))
        worker.handles("work", executor="process")(in_processes.pid)
        ids = queue.enqueue_many([("work", None)] * 2)
        worker.run(until_empty=True)
        pids.append(len({queue.db.finished(one).result for one in ids}))
    assert pids == [2, 1]


@SQLITE
def test_wrong_numbers_are_refused(queue, monkeypatch):
    for option in ({"max_jobs": 0}, {"max_memory": 0}, {"max_memory": "much"}, {"max_interruptions": -1}):
        with pytest.raises(ArgumentError, match=next(iter(option))):
            Worker(queue.db, queue.name, **option)
    monkeypatch.setattr(resident, "resident", lambda: None)
    with pytest.raises(ArgumentError, match="/proc"):
        Worker(queue.db, queue.name, max_memory=100)


HANDLERS = """
import os
from queue_db import QueueDB
from queue_db.worker import Worker

worker = Worker(QueueDB(os.environ["QUEUE_DB_URL"]), os.environ["QUEUE"], concurrency=2, lease=3600)
record = os.open("record", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@worker.handles("work")
def work(job):
    os.write(record, f"{os.getpid()}\\n".encode())
"""


@SQLITE
def test_a_command_that_is_to_be_started_again_ends_with_its_own_status(ask, queue):
    queue.enqueue_many([("work", None)] * 2)
    command = ("work", queue.name, "--exec", "true", "--max-jobs", 1, "--until-empty", "--json")
    for left in (1, 0):
        answer = ask(*command, status=75)
        assert (queue.stats().available, answer.record["recycled"]) == (left, True)
    assert not ask(*command).record["recycled"]


@SQLITE
@pytest.mark.rest("several processes; in test_worker_supervisor.py those that die are replaced in the same way")
def test_the_supervisor_replaces_processes_that_have_done_their_jobs_at_once(queue, url, tmp_path):
    """A process that died would be replaced with a warning, after a pause that grows to seconds, and its jobs searched."""
    (tmp_path / "handlers.py").write_text(HANDLERS)
    queue.enqueue_many([("work", None)] * 9)
    arguments = ("handlers:worker", "--processes", "2", "--max-jobs", "3", "--until-empty")
    with Supervisor(tmp_path, url, queue.name, *arguments) as supervisor:
        assert supervisor.process.wait() == 0, supervisor.log
    pids = (tmp_path / "record").read_text().split()
    assert len(pids) == 9
    assert max(map(pids.count, pids)) == 3
    assert "died" not in supervisor.log
    assert "has ended to be replaced" in supervisor.log
    assert "(max_jobs)" in supervisor.log


@SQLITE
@pytest.mark.rest("above the supervisor replaces; the stop of one is in test_worker_supervisor.py")
def test_a_supervisor_that_stops_replaces_nobody(queue, url, tmp_path):
    (tmp_path / "handlers.py").write_text(HANDLERS)
    queue.enqueue("work")
    with Supervisor(tmp_path, url, queue.name, "handlers:worker", "--processes", "2", "--max-memory", "1") as supervisor:
        supervisor.logs("has ended to be replaced")
        supervisor.process.send_signal(signal.SIGTERM)
        assert supervisor.process.wait() == 0, supervisor.log
    assert len((tmp_path / "record").read_text().split()) == 1
