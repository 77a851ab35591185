"""``async with worker``: coroutines run on the event loop of the application, which the worker never blocks."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from queue_db import ConfigurationError, LeasedJob, Queue, QueueDB, SchemaOutOfDateError, State
from queue_db.worker import Worker, hosted
from tests.aio.cancelling import cancel_everywhere
from tests.patience import HOURS, PATIENCE, wait_for
from tests.worker.harness import Log

on_postgresql = pytest.mark.parametrize("kind", ["postgresql"])
on_sqlite = pytest.mark.parametrize("kind", ["sqlite"])

ROOT = Path(__file__).parents[2]

asked_by: ContextVar[str] = ContextVar("asked_by", default="nobody")


async def until(find: Callable[[], Any]) -> None:
    """Wait on the loop until ``find``, which may ask the database, returns something true."""
    await asyncio.to_thread(wait_for, find)


def serving(queue: Queue, handler: Callable[[LeasedJob], Any], **options: Any) -> Worker:
    worker = Worker(queue.db, queue.name, schedules=False, **options)
    worker.handles("n")(handler)
    return worker


def ended_in(queue: Queue) -> bool:
    """Whether no job is leased any more, and no attempt counts for those that are left."""
    return queue.stats().running == 0 and all(job.attempts == 0 for job in queue.peek(100))


async def test_coroutines_run_on_the_loop_of_the_application_and_functions_on_threads(queue: Queue) -> None:
    loops: dict[str, Any] = {}
    both = asyncio.Event()
    worker = Worker(queue.db, queue.name, schedules=False)

    @worker.handles("coroutine")
    async def coroutine(job: LeasedJob) -> None:
        loops["coroutine"] = asyncio.get_running_loop(), threading.get_ident(), asked_by.get()
        if len(loops) == 2:
            both.set()

    @worker.handles("function")
    def function(job: LeasedJob) -> None:
        loops["function"] = threading.get_ident()
        if len(loops) == 2:
            here.call_soon_threadsafe(both.set)

    here = asyncio.get_running_loop()
    asked_by.set("the application")
    queue.enqueue_many([("coroutine", None), ("function", None)])
    async with worker:
        await both.wait()
    assert loops["coroutine"] == (here, threading.get_ident(), "the application")
    assert loops["function"] != threading.get_ident()
    assert worker.summary.completed == 2


async def test_the_start_waits_for_the_database_and_the_loop_goes_on(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a blocked loop nothing would open the gate."""
    asked, gate = asyncio.Event(), threading.Event()
    here, ready = asyncio.get_running_loop(), queue.db.ready

    def slow() -> None:
        here.call_soon_threadsafe(asked.set)
        assert gate.wait(PATIENCE)
        ready()

    monkeypatch.setattr(queue.db, "ready", slow)
    worker = serving(queue, print)
    entering = asyncio.create_task(worker.__aenter__())
    await asked.wait()
    assert not entering.done()
    gate.set()
    await entering
    assert worker.running
    await worker.__aexit__()
    assert not worker.running


async def test_the_end_waits_for_a_handler_that_waits_for_a_lock_of_this_loop(queue: Queue) -> None:
    lock, begun = asyncio.Lock(), asyncio.Event()

    async def handler(job: LeasedJob) -> None:
        begun.set()
        async with lock:
            pass

    queue.enqueue("n")
    worker = serving(queue, handler, grace=HOURS)
    async with lock, asyncio.TaskGroup() as others:
        async with worker:
            await begun.wait()
            others.create_task(released_after(lock, worker._run.stopping.is_set))
        assert worker.summary.completed == 1
        await lock.acquire()  # for the end of the block
    assert queue.stats().by_kind == {}


async def released_after(lock: asyncio.Lock, when: Callable[[], bool]) -> None:
    await until(when)
    lock.release()


async def test_after_the_grace_time_the_coroutine_is_cancelled_and_its_job_released(queue: Queue) -> None:
    begun, cleaned = asyncio.Event(), []

    async def handler(job: LeasedJob) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:  # what the application closes after the block is still open
            await worker.hosted._ended.wait()
            for _ in range(10):
                await asyncio.sleep(0)
            cleaned.append(job.id)

    job_id = queue.enqueue("n")
    worker = serving(queue, handler, grace=0)
    async with worker:
        await begun.wait()
    assert cleaned == [job_id]
    job = queue.get(job_id)
    assert (job.state, job.attempts, worker.summary.released) == (State.AVAILABLE, 0, 1)


async def test_a_coroutine_that_ignores_its_cancellation_is_left_behind(
    queue: Queue, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted, "_CANCELLED", 0.0)
    begun, end = asyncio.Event(), asyncio.Event()

    async def handler(job: LeasedJob) -> None:
        begun.set()
        while not end.is_set():
            with suppress(asyncio.CancelledError):
                await end.wait()

    queue.enqueue("n")
    worker = serving(queue, handler, grace=0)
    async with worker:
        await begun.wait()
    assert log.has("1 coroutines still run 0 s after they were cancelled")
    end.set()
    assert ended_in(queue)


@on_postgresql
async def test_a_cancellation_at_the_end_releases_the_jobs_at_once(queue: Queue) -> None:
    begun = asyncio.Event()

    async def handler(job: LeasedJob) -> None:
        begun.set()
        await asyncio.Event().wait()

    job_id = queue.enqueue("n")
    worker = serving(queue, handler, grace=HOURS)

    async def application() -> None:
        async with worker:
            await begun.wait()

    task = asyncio.create_task(application())
    await until(lambda: worker._run is not None and worker._run.stopping.is_set())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (queue.get(job_id).state, queue.get(job_id).attempts) == (State.AVAILABLE, 0)
    assert not worker.running


@on_postgresql
@pytest.mark.parametrize("error", [asyncio.CancelledError, ZeroDivisionError])
async def test_a_block_that_is_cancelled_or_raises_drains_too(queue: Queue, error: type[BaseException]) -> None:
    begun = asyncio.Event()

    async def handler(job: LeasedJob) -> None:
        begun.set()
        await until(worker._run.stopping.is_set)

    async def block() -> None:
        async with worker:
            await begun.wait()
            raise error

    queue.enqueue("n")
    worker = serving(queue, handler, grace=HOURS)
    with pytest.raises(error):
        await block()
    assert worker.summary.completed == 1


async def test_a_cancellation_at_any_wait_of_start_and_end_leaves_no_lease_and_no_thread(queue: Queue) -> None:
    """The worker can be entered again, and each job is completed or waits, with its attempt not counted."""

    async def handler(job: LeasedJob) -> None:
        await asyncio.sleep(0)

    worker = serving(queue, handler)

    async def block() -> None:
        async with worker:
            await asyncio.sleep(0)

    async def check(at: int, cancelled: bool) -> None:
        await until(lambda: not worker.running)
        assert ended_in(queue)
        queue.enqueue("n")

    assert await cancel_everywhere(lambda at: block(), check) >= 4
    # A thread has a few lines to go after its run.
    await until(lambda: not [one for one in threading.enumerate() if repr(queue.name) in one.name and not one.daemon])


@on_sqlite
async def test_a_cancellation_after_the_run_does_not_stop_the_next_one(queue: Queue) -> None:
    worker = serving(queue, print)
    await worker.__aenter__()
    leaving = asyncio.create_task(worker.__aexit__())
    await asyncio.sleep(0)  # it has told the worker to stop
    wait_for(lambda: not worker.running)  # on this loop, so that the task does not get to know it
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    queue.enqueue("n")
    async with worker:
        await until(lambda: worker.summary.completed)


async def test_an_entry_that_is_cancelled_before_the_run_claims_nothing(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, gate = asyncio.Event(), threading.Event()
    here, ready = asyncio.get_running_loop(), queue.db.ready

    def slow() -> None:
        here.call_soon_threadsafe(asked.set)
        assert gate.wait(PATIENCE)
        ready()

    monkeypatch.setattr(queue.db, "ready", slow)
    queue.enqueue("n")
    worker = serving(queue, print)
    entering = asyncio.create_task(worker.__aenter__())
    await asked.wait()
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering  # while the thread still waits for the database
    gate.set()
    await until(lambda: not worker.running)
    assert queue.db.counters.claims == 0
    monkeypatch.setattr(queue.db, "ready", ready)
    async with worker:
        await until(lambda: worker.summary.completed)


async def test_a_stop_loses_no_job_of_a_claim_that_is_under_way(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim has won when the worker stops, and gives its job to the worker afterwards."""
    won, gate = asyncio.Event(), threading.Event()
    here, claim = asyncio.get_running_loop(), Queue.claim

    def held(self: Queue, *arguments: Any, **options: Any) -> list[LeasedJob]:
        jobs = claim(self, *arguments, **options)
        if jobs:
            here.call_soon_threadsafe(won.set)
            assert gate.wait(PATIENCE)
        return jobs

    async def handler(job: LeasedJob) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(Queue, "claim", held)
    queue.enqueue("n")
    worker = serving(queue, handler)
    await worker.__aenter__()
    await won.wait()
    leaving = asyncio.create_task(worker.__aexit__())
    await until(worker._run.stopping.is_set)
    assert queue.stats().running == 1
    gate.set()
    await leaving
    assert ended_in(queue)
    assert worker.summary.completed + worker.summary.released == 1


@on_postgresql
async def test_a_coroutine_that_the_application_cancels_does_not_use_up_its_attempt(queue: Queue, log: Log) -> None:
    """As asyncio.run does with all tasks at its end. An exception of the same class from what it awaits is its own failure."""
    begun: list[asyncio.Task[Any] | None] = []

    async def handler(job: LeasedJob) -> None:
        if job.payload == "own":
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future
        begun.append(asyncio.current_task())
        await asyncio.Event().wait()

    own, outside = queue.enqueue("n", "own"), queue.enqueue("n", "outside")
    worker = serving(queue, handler)
    async with worker:
        await until(lambda: begun and worker.summary.failed)
        worker.quiet()  # the job is due again
        assert begun[0] is not None
        begun[0].cancel()
        await until(lambda: worker.summary.released or worker.summary.failed == 2)
    assert queue.get(outside).attempts == 0
    assert queue.get(own).attempts == 1
    log.wait("the application has cancelled its coroutine; the attempt does not count")


@on_postgresql
async def test_an_attempt_that_counts_although_it_was_cancelled_is_noticed(
    queue: Queue, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queue_db.worker.executor.was_cancelled", lambda _: False)
    with pytest.raises(AssertionError):
        await test_a_coroutine_that_the_application_cancels_does_not_use_up_its_attempt(queue, log)


@on_postgresql
async def test_a_coroutine_that_outlives_the_block_is_noticed(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosted.Hosted, "_end_of_coroutines", lambda _: asyncio.sleep(0))
    with pytest.raises(AssertionError):
        await test_after_the_grace_time_the_coroutine_is_cancelled_and_its_job_released(queue)


@on_postgresql
def test_a_loop_that_is_closed_before_the_end_of_the_block_ends_the_worker(queue: Queue, log: Log) -> None:
    begun = threading.Event()

    async def handler(job: LeasedJob) -> None:
        begun.set()
        await asyncio.Event().wait()

    worker = serving(queue, handler, grace=HOURS)

    async def enter() -> None:
        await worker.__aenter__()
        queue.enqueue("n")
        await asyncio.to_thread(begun.wait, PATIENCE)

    loop = asyncio.new_event_loop()  # asyncio.run would cancel the task of the handler
    loop.run_until_complete(enter())
    tasks = asyncio.all_tasks(loop)
    loop.close()
    log.wait("the event loop of the application has ended before")
    wait_for(lambda: not worker.running)
    assert ended_in(queue)
    for task in tasks:
        task._log_destroy_pending = False  # asyncio would log this
        task.get_coro().close()
    worker._leave()


@on_postgresql
def test_a_program_that_ends_inside_the_block_is_not_kept_alive(url: str, name: str, db: QueueDB) -> None:
    program = f"""
import asyncio, os
from queue_db import QueueDB
from queue_db.worker import Worker

worker = Worker(QueueDB({url!r}), {name!r}, grace=0)
begun = asyncio.Event()

@worker.handles("n")
async def handler(job):
    begun.set()
    await asyncio.Event().wait()

async def main():
    await worker.__aenter__()
    await begun.wait()
    if os.environ["HOW"] == "fork":  # the child has none of the threads
        child = os.fork()
        if not child:
            await worker.__aexit__()
            os._exit(3 + worker.running)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        await worker.__aexit__()

asyncio.new_event_loop().run_until_complete(main())  # not closed
"""
    for how in ("fork", "end"):
        job_id = db.queue(name).enqueue("n")
        command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program]
        done = subprocess.run(command, env={"HOW": how}, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        assert (db.get(job_id).state, db.get(job_id).attempts) == (State.AVAILABLE, 0)
        db.cancel(job_id)


@pytest.mark.usefixtures("quick_beats")
@on_postgresql
async def test_a_loop_that_stands_still_is_logged_and_leases_are_extended(
    queue: Queue, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted, "SILENT", 0.0)
    done = asyncio.Event()

    async def blocks(job: LeasedJob) -> None:
        said = log.wait("the event loop of the application has not answered")
        assert "in blocks" in said  # where its thread is
        version = job.version
        wait_for(lambda: job.version > version)
        done.set()

    queue.enqueue("n")
    worker = serving(queue, blocks)
    async with worker:
        await done.wait()
        await asyncio.to_thread(log.wait, "the event loop of the application answers again")
    assert worker.summary.completed == 1


@on_sqlite
async def test_what_cannot_start_says_so_and_can_be_entered_again(queue: Queue, fresh_url: str, name: str) -> None:
    async def handler(job: LeasedJob) -> None:
        pass

    with QueueDB(fresh_url) as empty:
        unmigrated = serving(empty.queue(name), handler)
        for _ in range(2):
            with pytest.raises(SchemaOutOfDateError):
                await unmigrated.__aenter__()
        empty.migrate()
        async with unmigrated:
            assert unmigrated.running
    worker = serving(queue, handler)
    async with worker:
        with pytest.raises(ConfigurationError, match="runs already"):
            await worker.__aenter__()
        worker.stop()
        await until(lambda: not worker.running)
        with pytest.raises(ConfigurationError, match="runs already"):
            worker.run(until_empty=True)  # its block has not ended
    worker.run(until_empty=True)
    with pytest.raises(ConfigurationError, match="no handlers"):
        await Worker(queue.db, name).__aenter__()


@on_sqlite
def test_without_a_loop_of_asyncio_there_is_a_way_out(queue: Queue) -> None:
    entering: Coroutine[Any, Any, Any] = serving(queue, print).__aenter__()
    with pytest.raises(ConfigurationError, match="needs a running event loop of asyncio"):
        entering.send(None)


@on_sqlite
async def test_what_ends_the_run_is_raised_at_the_end_of_the_block(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = serving(queue, print)
    monkeypatch.setattr("queue_db.worker.run.Run._log_end", lambda _: 1 // 0)  # its threads have ended
    with pytest.raises(ZeroDivisionError):
        async with worker:
            pass
    assert not worker.running


@on_postgresql
async def test_messages_of_feeds_are_handled_on_the_loop_too(db: QueueDB, name: str) -> None:
    db.feed(name).publish_many([("n", number) for number in range(3)])
    loops, done = set(), asyncio.Event()
    worker = Worker(db, feeds={f"{name}:{name}": 1}, schedules=False)

    @worker.handles("n")
    async def handler(job: LeasedJob) -> None:
        loops.add(asyncio.get_running_loop())
        if job.payload == 2:
            done.set()

    async with worker:
        await done.wait()
    assert loops == {asyncio.get_running_loop()}
    assert worker.summary.completed == 3


@on_sqlite
async def test_two_workers_share_a_loop(db: QueueDB, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "queue_db.worker")
    met = asyncio.Barrier(2)
    workers = [serving(db.queue(f"{name}-{number}"), lambda job: None) for number in range(2)]

    async def handler(job: LeasedJob) -> None:
        await met.wait()

    for worker in workers:
        worker.handles("m")(handler)
        db.queue(next(iter(worker.options.limits))).enqueue("m")
    async with workers[0], workers[1]:
        await until(lambda: all(worker.summary.completed for worker in workers))
