"""Hooks: what is called at the start and the end of a worker, and events of some types only."""

from __future__ import annotations

import asyncio
import threading

import pytest

from queue_db import ArgumentError, Dead, State
from queue_db.backoff import constant
from queue_db.worker import Worker
from tests.patience import HOURS, PATIENCE, wait_for

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


def test_the_hooks_of_the_start_come_before_the_first_job_and_those_of_the_stop_after_the_last(queue, running):
    """The pool is open for each job, also for one that the stop waits for, and is closed when none can use it."""
    worker = Worker(queue.db, queue.name, schedules=False)
    order, entered, go = [], threading.Event(), threading.Event()
    worker.on_start(lambda: order.append("open pool"))
    worker.on_start(lambda: order.append("open cache"))
    worker.on_stop(lambda: order.append("close pool"))
    worker.on_stop(lambda: order.append("close cache"))

    @worker.handles("work")
    def work(job):
        entered.set()
        assert go.wait(PATIENCE)
        order.append("job")

    job_id = queue.enqueue("work")
    with running(worker):
        assert entered.wait(PATIENCE)
        worker.stop()
        go.set()
    assert order == ["open pool", "open cache", "job", "close cache", "close pool"]
    assert job_id not in [job.id for job in queue.peek()]
    order.clear()
    worker.changed(concurrency=1).run(until_empty=True)
    assert order == ["open pool", "open cache", "close cache", "close pool"]


@SQLITE
@pytest.mark.parametrize("handler", [True, False])
def test_coroutines_are_called_on_the_loop_of_the_handlers(queue, handler):
    worker = Worker(queue.db, queue.name, schedules=False)
    loops = []

    @worker.on_start
    async def begin():
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())

    @worker.on_stop
    async def end():
        loops.append(asyncio.get_running_loop())

    if handler:

        @worker.handles("work")
        async def work(job):
            loops.append(asyncio.get_running_loop())
    else:
        worker.handles("work")(lambda job: loops.append(loops[0]))
    queue.enqueue("work")
    worker.run(until_empty=True)
    assert len(loops) == 3
    assert len(set(map(id, loops))) == 1


def run(worker, how, called):
    if how == "with":
        with worker:
            called.append("block")
    else:
        worker.run(until_empty=True)


@pytest.mark.parametrize("how", ["run", "with", "coroutine"])
@SQLITE
def test_an_exception_at_the_start_ends_the_run_and_no_job_is_claimed(queue, how):
    worker = Worker(queue.db, queue.name, schedules=False)
    called = []

    def fails():
        raise ValueError("no pool")

    async def fails_on_the_loop():
        fails()

    worker.on_start(fails_on_the_loop if how == "coroutine" else fails)
    worker.on_stop(lambda: called.append("stop"))
    worker.handles("work")(lambda job: called.append("job"))
    job_id = queue.enqueue("work")
    before = set(threading.enumerate())
    with pytest.raises(ValueError, match="no pool"):
        run(worker, how, called)
    assert called == []
    assert (queue.get(job_id).state, queue.get(job_id).attempts) == (State.AVAILABLE, 0)
    assert not worker.running
    wait_for(lambda: not [one for one in set(threading.enumerate()) - before if one.name.startswith("queue_db handler")])
    worker.ends.start.clear()
    worker.run(until_empty=True)
    assert called == ["job", "stop"]


@SQLITE
def test_exceptions_at_the_stop_are_logged_and_lose_nothing(queue, log):
    worker = Worker(queue.db, queue.name, schedules=False)
    called = []
    worker.on_stop(lambda: called.append("first"))

    @worker.on_stop
    def fails():
        raise SystemExit

    worker.handles("work")(lambda job: called.append("job"))
    queue.enqueue("work")
    worker.run(until_empty=True)
    assert called == ["job", "first"]
    assert log.has("fails")
    assert worker.summary.completed == 1


def test_a_hook_gets_events_of_its_types_only(queue):
    worker = Worker(queue.db, queue.name, schedules=False)
    bad, every = [], []

    @worker.on("failed", "dead")
    def note(event):
        bad.append((event.type, event.job.payload))
        raise ValueError("a hook that raises loses nothing")

    worker.on(lambda event: every.append(event.type), "completed")
    outcomes = {"fails": ValueError("no"), "dies": Dead("no")}

    @worker.handles("work", backoff=constant(HOURS))
    def work(job):
        outcome = outcomes.get(job.payload)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    queue.enqueue_many([("work", payload) for payload in ("fine", "fails", "dies")])
    worker.run(until_empty=True)
    assert sorted(bad) == [("dead", "dies"), ("failed", "fails")]
    assert every == ["completed"]
    assert callable(note)
    assert (worker.summary.completed, worker.summary.failed, worker.summary.dead) == (1, 1, 1)


@SQLITE
def test_what_a_hook_cannot_be_is_refused(queue):
    worker = Worker(queue.db, queue.name)
    for wrong in (5, lambda event: None, type):
        with pytest.raises(ArgumentError):
            worker.on_start(wrong)
        with pytest.raises(ArgumentError):
            worker.on_stop(wrong)
    with pytest.raises(ArgumentError, match="must be one of started, completed"):
        worker.on("faild")(lambda event: None)
    with pytest.raises(ArgumentError, match="must be one of"):
        worker.on(lambda event: None, 5)
    with pytest.raises(ArgumentError):
        worker.on()
