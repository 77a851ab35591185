"""Workers and steps: what ends a run, what is counted and logged, and coroutines."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import text

from queue_db import ArgumentError, ConfigurationError, LeasedJob, Queue, QueueDB, State, Suspended
from queue_db.aio import AsyncLeasedJob
from queue_db.leased_job import claimed_by
from queue_db.resumable import Claimant
from queue_db.steps.resumption import AsyncLoop, Loop
from queue_db.testing import async_job, drain
from queue_db.testing import job as made_job
from queue_db.worker import Worker
from queue_db.worker.events import JobEvent
from queue_db.worker.handlers import awaited_job
from tests.patience import PATIENCE
from tests.worker.harness import Log


def test_a_job_that_sleeps_frees_its_slot_and_is_snoozed(db: QueueDB, queue: Queue, log: Log) -> None:
    events: list[JobEvent] = []
    worker = Worker(db, queue.name, schedules=False)
    worker.hooks.append(events.append)

    @worker.handles("order")
    def order(job: LeasedJob) -> None:
        job.step("charge", lambda: "paid")
        try:
            job.sleep(3600)
        except Exception:  # noqa: BLE001 - what a careless handler does
            pytest.fail("caught")

    job_id = queue.enqueue("order")
    summary = worker.run(until_empty=True)
    assert (summary.snoozed, summary.failed, summary.completed, summary.lost) == (1, 0, 0, 0)
    assert [(event.type, event.outcome) for event in events] == [("started", None), ("snoozed", None)]
    assert (queue.get(job_id).state, queue.get(job_id).attempts) == (State.SCHEDULED, 0)
    assert not log.has("failed")
    assert not log.has("raised after")


def test_a_job_does_not_sleep_while_a_step_of_it_runs(queue: Queue) -> None:
    """Its lease would end, so that the next run calls the function of the step again while it runs here."""
    queue.enqueue("order")
    (job,) = queue.claim()
    begun, done = threading.Event(), threading.Event()

    def charge() -> str:
        begun.set()
        assert done.wait(PATIENCE)
        return "paid"

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(job.step, "charge", charge)
        try:
            assert begun.wait(PATIENCE)
            with pytest.raises(ArgumentError, match=r"job\.sleep would end this run of job \d+ while its step 'charge' runs"):
                job.sleep(60)
            with pytest.raises(ArgumentError, match=r"job\.wait_for would end this run"):
                job.wait_for("approved")
        finally:
            done.set()
        assert running.result(PATIENCE) == "paid"
    assert job.release()
    (again,) = queue.claim()
    with pytest.raises(Suspended):
        again.sleep(60)
    with pytest.raises(ArgumentError, match=r"job\.sleep has ended this run of job \d+: begin no step beside it"):
        again.step("late", lambda: pytest.fail("called"))


def test_one_that_is_raised_by_hand_fails_the_attempt(db: QueueDB, queue: Queue, log: Log) -> None:
    """It says that a verb has ended the run. If none has, the job must not be completed."""
    worker = Worker(db, queue.name, schedules=False)

    @worker.handles("order", max_attempts=1)
    def order(job: LeasedJob) -> None:
        raise Suspended(job.id, "was not suspended")

    queue.enqueue("order")
    assert worker.run(until_empty=True).dead == 1


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_stop_releases_no_job_while_another_step_of_it_is_under_way(queue: Queue) -> None:
    """Else the next run would call the function of that step while it runs here."""
    stopping = threading.Event()
    ran: list[str] = []

    async def noted(name: str) -> None:
        ran.append(name)

    async def order(job: AsyncLeasedJob) -> None:
        begun, looked = asyncio.Event(), asyncio.Event()

        async def charge() -> None:
            stopping.set()
            begun.set()
            await looked.wait()
            ran.append("charge")

        async def beside(loop: AsyncLoop) -> None:
            await begun.wait()
            try:
                await loop.advance(1)
                await job.step("beside", noted, "beside")
            finally:
                looked.set()

        await asyncio.gather(job.step("charge", charge), job.loop("loop", beside))
        await job.step("after", noted, "after")

    job_id = queue.enqueue("order")
    for expected in (["beside", "charge"], ["beside", "charge", "after"]):
        with claimed_by(Claimant(stopping=stopping)):
            (job,) = queue.claim()
        if "after" in expected:
            stopping.clear()
            asyncio.run(order(awaited_job(job)))
        else:
            with pytest.raises(Suspended):
                asyncio.run(order(awaited_job(job)))
            assert (queue.get(job_id).state, queue.get(job_id).attempts) == (State.AVAILABLE, 0)
        assert ran == expected


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_stop_ends_a_run_at_a_step_within_a_loop_and_at_all_steps_after_it(queue: Queue) -> None:
    """The loop is under way too, but it is not another step: it waits for this one."""
    stopping = threading.Event()
    ran: list[str] = []

    def within(loop: Loop) -> None:
        stopping.set()
        for name in ("one", "two"):
            with pytest.raises(Suspended):
                job.step(name, ran.append, name)
        loop.check()

    queue.enqueue("order")
    with claimed_by(Claimant(stopping=stopping)):
        (job,) = queue.claim()
    with pytest.raises(Suspended):
        job.loop("loop", within)
    assert (ran, job.settled_by) == ([], "release")


@pytest.mark.parametrize("kind", ["sqlite"])
def test_at_most_once_there_are_no_steps_and_none_is_called(db: QueueDB, queue: Queue) -> None:
    """The row is gone at the claim. Without the refusal the effect would happen, and its store would say that a lease was lost."""
    worker = Worker(db, queue.name, schedules=False, mode="at_most_once")
    ran: list[str] = []
    errors: list[str] = []

    @worker.handles("order")
    def order(job: LeasedJob) -> None:
        for verb in (lambda: job.step("charge", lambda: ran.append("charge")), lambda: job.sleep(1), lambda: job.state):
            with pytest.raises(ConfigurationError) as caught:
                verb()
            errors.append(str(caught.value))

    queue.enqueue("order")
    assert worker.run(until_empty=True).completed == 1
    queue.enqueue("order")
    assert [job.settled_by for job in drain(worker)] == ["complete"]
    assert (ran, len(errors)) == ([], 6)
    assert all("give its worker mode='at_least_once'" in error for error in errors)


def test_a_signal_wakes_a_worker(db: QueueDB, queue: Queue, running: Callable[..., Any]) -> None:
    worker = Worker(db, queue.name, schedules=False)
    got: list[object] = []
    done, asked = threading.Event(), threading.Event()

    @worker.handles("order")
    def order(job: LeasedJob) -> None:
        asked.set()
        got.append(job.wait_for("approved"))
        done.set()

    with running(worker):
        job_id = queue.enqueue("order")
        assert asked.wait(PATIENCE)
        assert db.steps.send(job_id, "approved", {"by": "ann"})
        assert done.wait(PATIENCE)
    assert got == [{"by": "ann"}]


def test_a_worker_that_stops_ends_a_loop_between_two_rows(db: QueueDB, queue: Queue, running: Callable[..., Any], log: Log) -> None:
    worker = Worker(db, queue.name, schedules=False)
    began = threading.Event()
    done: list[int] = []

    def count(loop: Loop) -> None:
        for number in range((loop.cursor or 0) + 1, 10_000_000):
            done.append(number)
            loop.advance(number)
            began.set()

    worker.handles("order")(lambda job: job.loop("count", count))
    job_id = queue.enqueue("order")
    with running(worker):
        assert began.wait(PATIENCE)
    assert worker.summary.released == 1
    assert (queue.get(job_id).state, queue.get(job_id).attempts) == (State.AVAILABLE, 0)
    (step,) = db.steps.list(job_id)
    assert (step.value, step.done) == (done[-1], False)


def test_coroutines_have_steps_too(db: QueueDB, queue: Queue, kind: str) -> None:
    worker = Worker(db, queue.name, schedules=False)
    ran: list[object] = []

    async def charge(amount: int) -> str:
        await asyncio.sleep(0)
        ran.append(amount)
        return f"paid {amount}"

    async def book(connection: Any, number: int) -> int:
        return int((await connection.execute(text("SELECT 1"))).scalar_one()) + number

    async def count(loop: AsyncLoop) -> None:
        for number in range(loop.cursor or 0, 3):
            ran.append(("row", number))
            await loop.advance(number + 1)
            await loop.check()

    @worker.handles("order", max_attempts=2)
    async def order(job: AsyncLeasedJob) -> None:
        both = await asyncio.gather(job.step("one", charge, 1), job.step("two", charge, 2))
        booked = await job.step_transaction("book", book, 1)
        await job.loop("count", count)
        await job.state.save({"page": 1})
        try:
            await job.sleep(0, name="short")
        except Exception:  # noqa: BLE001 - what a careless handler does
            pytest.fail("caught")
        ran.append((both, booked, await job.state.load(), await job.wait_for("approved")))
        assert (await job.callback("other")).startswith("qdbc_")

    job_id = queue.enqueue("order")
    worker.run(until_empty=True)
    assert db.steps.send(job_id, "approved", "yes")
    worker.run(until_empty=True)
    rows = [("row", number) for number in range(3)]
    assert sorted(ran[:2], key=str) == [1, 2]
    assert ran[2:] == [*rows, (["paid 1", "paid 2"], 2, {"page": 1}, "yes")]
    assert db.queues().count(queue.name) == 0


def test_a_coroutine_function_is_awaited_by_its_job_and_no_other_is(queue: Queue) -> None:
    queue.enqueue("order")
    (job,) = queue.claim()

    async def charge() -> int:
        return 1

    with pytest.raises(ArgumentError, match="step 'charge' is an async def: annotate the handler's job as AsyncLeasedJob"):
        job.step("charge", charge)
    with pytest.raises(ArgumentError, match="the step 'charge' is awaited: make it an async def"):
        asyncio.run(awaited_job(job).step("charge", lambda: 1))  # type: ignore[arg-type, return-value]
    assert asyncio.run(awaited_job(job).step("charge", charge)) == 1


class TestHelpers:
    """What users test with."""

    @pytest.mark.parametrize("kind", ["sqlite"])
    def test_drain_goes_on_from_the_steps(self, db: QueueDB, queue: Queue) -> None:
        worker = Worker(db, queue.name)
        ran: list[object] = []

        @worker.handles("order")
        def order(job: LeasedJob) -> None:
            job.step("charge", lambda: ran.append("charge"))
            ran.append(job.wait_for("approved"))

        @worker.handles("async order")
        async def async_order(job: AsyncLeasedJob) -> None:
            ran.append(await job.wait_for("approved"))

        ids = [queue.enqueue(kind) for kind in ("order", "async order")]
        assert [job.settled_by for job in drain(worker)] == ["snooze"] * 2
        for number, job_id in enumerate(ids):
            db.steps.send(job_id, "approved", number)
        assert [job.settled_by for job in drain(worker)] == ["complete"] * 2
        assert ran == ["charge", 0, 1]

    def test_a_job_without_a_database_keeps_its_steps(self) -> None:
        ran: list[object] = []

        def order(job: LeasedJob) -> object:
            job.step("charge", lambda: ran.append("charge"))
            job.state.save(job.state.load(0) + 1)
            job.sleep(60)
            return job.loop("count", lambda loop: loop.advance(3)) or job.wait_for("approved", timeout=60)

        first = made_job()
        with pytest.raises(Suspended):
            order(first)
        assert first.settled_by == "snooze"
        second = made_job(resumes=first)
        with pytest.raises(Suspended):
            order(second)
        assert order(made_job(resumes=second, signals={"approved": "yes"})) == "yes"
        with pytest.raises(TimeoutError):
            order(made_job(resumes=second))
        assert (ran, made_job(resumes=second).state.load()) == (["charge"], 2)

    def test_a_coroutine_is_tested_without_a_database_too(self) -> None:
        async def charge() -> int:
            return 1

        async def order(job: AsyncLeasedJob) -> object:
            return [await job.step("charge", charge), await job.wait_for("approved")]

        assert asyncio.run(order(async_job(signals={"approved": 2}))) == [1, 2]
        with pytest.raises(Suspended):
            asyncio.run(order(async_job()))

    @pytest.mark.parametrize("kind", ["sqlite"])
    def test_a_message_of_a_feed_has_no_steps(self, db: QueueDB, name: str) -> None:
        feed = db.feed(name)
        worker = Worker(db, feeds={f"{name}:readers": 1}, schedules=False)
        errors: list[Exception] = []

        @worker.handles(None)
        def handler(job: LeasedJob) -> None:
            try:
                job.step("charge", lambda: 1)
            except ConfigurationError as error:
                errors.append(error)

        feed.publish("order", 1)
        worker.run(until_empty=True)
        assert "is a message, which has no steps" in str(errors[0])
