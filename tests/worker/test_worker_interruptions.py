"""An attempt that the end of a worker interrupts does not count, five times for each job: then it does, and a bad job dies."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

import pytest
from sqlalchemy import update

from queue_db import State
from queue_db.errors import HandlerProcessError
from queue_db.model import DeathReason
from queue_db.processes.program import Program
from queue_db.worker import Worker, interruptions
from queue_db.worker.interruptions import INTERRUPTIONS, Killed
from tests.patience import HOURS, PATIENCE
from tests.worker import in_processes
from tests.worker.in_processes import Meeting

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])
TWO = pytest.mark.parametrize("kind", ["sqlite", "postgresql"])


@pytest.fixture
def interrupt(queue, running):
    """Run a worker until it has begun the job of the queue, and stop it at once."""

    def once(**options):
        entered, go = threading.Event(), threading.Event()
        worker = Worker(queue.db, queue.name, concurrency=1, schedules=False, grace=0, **options)

        @worker.handles("work")
        def work(job):
            entered.set()
            go.wait(PATIENCE)

        with running(worker):
            assert entered.wait(PATIENCE)
        go.set()
        return worker

    return once


def test_the_sixth_interruption_counts_and_a_job_that_outlasts_every_stop_dies(queue, interrupt, log):
    """Without the limit its attempts would stay 0, and each deploy would run it again."""
    deaths = []
    job_id = queue.enqueue("work", {"n": 1}, max_attempts=2, headers={"trace": "ü"})
    for number in range(1, INTERRUPTIONS + 1):
        worker = interrupt()
        job = queue.get(job_id)
        assert (job.state, job.attempts, job.headers) == (State.AVAILABLE, 0, {"trace": "ü", "interruptions": number})
        assert worker.summary.released == 1
    assert not log.has("so this attempt counts")
    for attempts in (1, 2):
        interrupt()
        assert queue.get(job_id).attempts == attempts
        assert log.count("so this attempt counts") == attempts
    queue.db.deaths.add(deaths.append)
    assert queue.claim() == []
    queue.db.deaths.remove(deaths.append)
    assert [death.reason for death in deaths if death.job.queue == queue.name] == [DeathReason.EXHAUSTED]
    assert queue.get(job_id).state is State.DEAD


@pytest.mark.parametrize("headers", [{"trace": "ü"}, None])
def test_a_redriven_job_may_be_interrupted_as_often_as_a_new_one(queue, interrupt, log, headers):
    job_id = queue.enqueue("work", max_attempts=1, headers=headers)
    interrupt(max_interruptions=1)
    assert queue.get(job_id).headers == {**(headers or {}), "interruptions": 1}
    interrupt(max_interruptions=1)
    assert queue.claim() == []
    assert queue.get(job_id).state is State.DEAD
    queue.db.dead.redrive(job_id)
    assert queue.get(job_id).headers == (headers or {})
    interrupt(max_interruptions=1)
    assert (queue.get(job_id).attempts, log.count("so this attempt counts")) == (0, 1)


@TWO
def test_several_jobs_of_one_stop_have_their_own_numbers(queue, running):
    """One has been interrupted too often, one has no headers, and one has headers that an INSERT by hand has left."""
    worker = Worker(queue.db, queue.name, concurrency=4, schedules=False, grace=0, max_interruptions=2)
    entered, go = threading.Semaphore(0), threading.Event()

    @worker.handles("work")
    def work(job):
        entered.release()
        go.wait(PATIENCE)

    headers = [None, {"interruptions": 1}, {"interruptions": 2}, {"interruptions": "many"}, {}]
    ids = [queue.enqueue("work", headers=each) for each in headers]
    by_hand = queue.enqueue("work")
    jobs = queue.db.store.tables.jobs
    with queue.transaction() as connection:
        connection.execute(update(jobs).where(jobs.c.id == by_hand).values(headers="[1]"))
    worker.configure(concurrency=6)
    with running(worker):
        for _ in range(6):
            assert entered.acquire(timeout=PATIENCE)
    go.set()
    found = [queue.get(one) for one in ids]
    assert [job.attempts for job in found] == [0, 0, 1, 1, 0]
    assert [job.headers.get("interruptions") for job in found] == [1, 2, 2, "many", 1]
    assert queue.get(by_hand).attempts == 1


@SQLITE
def test_jobs_that_have_not_begun_are_released_and_nothing_is_noted(queue, running):
    worker = Worker(queue.db, queue.name, concurrency=1, prefetch=3, schedules=False, grace=0)
    entered, go = threading.Event(), threading.Event()

    @worker.handles("work")
    def work(job):
        entered.set()
        go.wait(PATIENCE)

    ids = queue.enqueue_many([("work", None)] * 4)
    with running(worker):
        assert entered.wait(PATIENCE)
    go.set()
    found = [queue.get(one) for one in ids]
    assert [job.attempts for job in found] == [0] * 4
    assert sorted(job.headers.get("interruptions", 0) for job in found) == [0, 0, 0, 1]


@SQLITE
@pytest.mark.parametrize("stops", [True, False])
def test_a_coroutine_that_is_cancelled_while_the_worker_stops_was_interrupted(queue, running, stops):
    """Not by the worker, which waits for it: an application cancels all tasks when it ends. Otherwise it is a failure."""
    worker = Worker(queue.db, queue.name, concurrency=1, schedules=False)
    tasks, entered = [], threading.Event()

    @worker.handles("work", backoff=lambda attempt: HOURS)
    async def work(job):
        tasks.append((asyncio.current_task(), asyncio.get_running_loop()))
        entered.set()
        await asyncio.sleep(HOURS)

    job_id = queue.enqueue("work")
    with running(worker) as thread:
        assert entered.wait(PATIENCE)
        if stops:
            worker.stop()
            assert worker._run.stopping.wait(PATIENCE)
        task, loop = tasks[0]
        loop.call_soon_threadsafe(task.cancel)
        if stops:
            thread.join(PATIENCE)
        else:
            while queue.get(job_id).state is State.RUNNING:
                threading.Event().wait(0.01)
    job = queue.get(job_id)
    assert (job.attempts, job.headers) == ((0, {"interruptions": 1}) if stops else (1, {}))
    assert (worker.summary.released, worker.summary.failed) == ((1, 0) if stops else (0, 1))


@SQLITE
def test_a_handlers_process_that_is_killed_at_the_stop_was_interrupted(queue, running):
    with Meeting() as meeting:
        worker = Worker(queue.db, queue.name, concurrency=1, schedules=False)
        worker.handles("work", executor="process", backoff=lambda attempt: HOURS)(in_processes.meets)
        job_id = queue.enqueue("work", {"port": meeting.port})
        with running(worker):
            visitor = meeting.visitor()
            worker.stop()
            assert worker._run.stopping.wait(PATIENCE)
            os.kill(visitor.pid, signal.SIGKILL)
        job = queue.get(job_id)
        assert (job.attempts, job.headers) == (0, {"interruptions": 1})


@SQLITE
def test_a_handlers_process_that_is_killed_otherwise_has_failed(queue, running, monkeypatch):
    monkeypatch.setattr("queue_db.worker.executor.STOP_FOLLOWS", 0.0)
    with Meeting() as meeting:
        worker = Worker(queue.db, queue.name, concurrency=1, schedules=False)
        worker.handles("work", executor="process", backoff=lambda attempt: HOURS)(in_processes.meets)
        job_id = queue.enqueue("work", {"port": meeting.port})
        with running(worker, until_empty=True) as thread:
            os.kill(meeting.visitor().pid, signal.SIGKILL)
            thread.join(PATIENCE)
        job = queue.get(job_id)
        assert (job.attempts, job.last_error) == (
            1,
            f"{HandlerProcessError.__name__}: the process of this handler died: killed by SIGKILL",
        )


def program(script):
    return Program(f"sh -c '{script}'", environment={"PATH": os.defpath})


@pytest.mark.parametrize("status", ["kill -TERM $$", "exit 143", "exit 130"])
def test_a_program_that_the_signal_of_the_stop_has_ended_says_so(status):
    class Job:
        payload_text, queue, id, kind, fence, attempts = "null", "q", 1, "work", "1:1", 1

    assert isinstance(program(status)(Job()), Killed)
    assert not isinstance(program("exit 75")(Job()), Killed)


# --- real processes ---------------------------------------------------------------------------------------------------

MODULE = """
import asyncio, os, sys, time
from queue_db import QueueDB
from queue_db.worker import Worker
import crunching

worker = Worker(QueueDB(os.environ["QUEUE_DB_URL"]), os.environ["QUEUE"], lease=3600, schedules=False)

@worker.handles("function")
def function(job):
    print("begun", flush=True)
    time.sleep(1000)

@worker.handles("coroutine")
async def coroutine(job):
    print("begun", flush=True)
    await asyncio.sleep(1000)

worker.handles("process", executor="process")(crunching.crunch)
"""

CRUNCHING = """
import time

def crunch(job):
    print("begun", flush=True)
    time.sleep(1000)
"""


class Process:
    """``queue-db work`` in a process group of its own."""

    def __init__(self, folder: Path, url: str, queue: str, *arguments: str) -> None:
        (folder / "handlers.py").write_text(MODULE)
        (folder / "crunching.py").write_text(CRUNCHING)
        environment = {"QUEUE_DB_URL": url, "QUEUE": queue, "PATH": os.defpath, "PYTHONPATH": str(Path.cwd())}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "queue_db", "work", *arguments],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.watchdog = threading.Timer(PATIENCE, self.process.kill)
        self.watchdog.start()

    def begun(self) -> None:
        line = self.process.stdout.readline()
        assert line == "begun\n", line + self.process.stderr.read()

    def logged(self, part: str) -> None:
        assert any(part in line for line in self.process.stderr), part

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.watchdog.cancel()
        self.process.kill()
        self.process.communicate()


@SQLITE
@pytest.mark.parametrize(
    "what",
    [
        *(pytest.param(what, marks=pytest.mark.rest("of the three the process stays")) for what in ("function", "coroutine")),
        "process",
    ],
)
def test_sigterm_of_a_real_process_interrupts_an_attempt_that_does_not_count(queue, url, tmp_path, what):
    job_id = queue.enqueue(what, max_attempts=1)
    with Process(tmp_path, url, queue.name, "handlers:worker", "--grace", "0.05") as worker:
        worker.begun()
        worker.process.send_signal(signal.SIGTERM)
        worker.logged("released 1 unfinished jobs")
        assert worker.process.wait() == 0
    job = queue.get(job_id)
    assert (job.state, job.attempts, job.headers) == (State.AVAILABLE, 0, {"interruptions": 1})


@SQLITE
@pytest.mark.rest("test_worker_process.py has a second signal, and above is the limit")
def test_a_second_sigterm_interrupts_too_and_beyond_the_limit_the_attempt_counts(queue, url, tmp_path):
    job_id = queue.enqueue("function", max_attempts=1)
    for attempts in (0, 1):
        with Process(tmp_path, url, queue.name, "handlers:worker", "--max-interruptions", "1") as worker:
            worker.begun()
            worker.process.send_signal(signal.SIGTERM)
            worker.logged("no more claims, up to 30 s")
            worker.process.send_signal(signal.SIGTERM)
            worker.logged("released 1 unfinished jobs")
            assert worker.process.wait() == 0
        assert queue.get(job_id).attempts == attempts


@SQLITE
def test_a_program_that_got_the_signal_of_its_worker_was_interrupted(queue, url, tmp_path):
    """As a service manager sends it to all processes, to the program first: its exit must not count as a failure."""
    (tmp_path / "program.sh").write_text("echo begun; echo $$ > pid; exec sleep 1000")
    job_id = queue.enqueue("work", max_attempts=1)
    with Process(tmp_path, url, queue.name, queue.name, "--exec", "sh program.sh") as worker:
        worker.begun()
        pid = tmp_path / "pid"
        while not (pid.exists() and pid.read_text().strip()):
            threading.Event().wait(0.01)
        os.kill(int(pid.read_text()), signal.SIGTERM)
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait() == 0
    job = queue.get(job_id)
    assert (job.state, job.attempts, job.headers) == (State.AVAILABLE, 0, {"interruptions": 1})


@SQLITE
def test_a_program_that_was_killed_while_nobody_stops_the_worker_has_failed(queue, running, monkeypatch):
    monkeypatch.setattr("queue_db.worker.executor.STOP_FOLLOWS", 0.0)
    worker = Worker(queue.db, queue.name, concurrency=1, schedules=False)
    worker.handles("work", backoff=lambda attempt: HOURS)(program("kill -TERM $$"))
    job_id = queue.enqueue("work")
    worker.run(until_empty=True)
    assert (queue.get(job_id).attempts, queue.get(job_id).last_error) == (1, "killed by SIGTERM")


def test_the_statuses_of_a_stop():
    assert [status for status in (None, 0, 1, 75, 137, 143, 130, 129, 139, -9, -11, -15) if interruptions.is_stopped(status)] == [
        *(137, 143, 130, 129),
        *(-9, -15),
    ]


@SQLITE
async def test_a_coroutine_that_the_application_cancels_is_lost_with_at_most_once(queue, log):
    """Its row is gone, so it cannot be released: it must not be counted as completed, or be said not to count."""
    begun, ended = [], asyncio.Event()
    loop = asyncio.get_running_loop()
    worker = Worker(queue.db, queue.name, schedules=False, mode="at_most_once")

    @worker.on
    def note(event):
        if event.type != "started":
            loop.call_soon_threadsafe(ended.set)

    @worker.handles("work")
    async def work(job):
        begun.append(asyncio.current_task())
        loop.call_soon(begun[0].cancel)
        await asyncio.Event().wait()

    queue.enqueue("work")
    async with worker:
        await asyncio.wait_for(ended.wait(), PATIENCE)
    assert (worker.summary.dead, worker.summary.completed) == (1, 0)
    assert not log.has("the attempt does not count")
