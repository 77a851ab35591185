"""Steps: a job that runs again goes on where it was; its state."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Connection, func, select
from sqlalchemy.orm import Session

from queue_db.codecs import JSONCodec
from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, ConfigurationError, HandlerResultError, LeaseLostError
from queue_db.leased_job import LeasedJob
from queue_db.model import Verdict
from queue_db.outcomes import Suspended
from queue_db.queue import Queue
from queue_db.steps.resumption import MOST_BYTES
from queue_db.testing.clock import SettableClock
from queue_db.testing.suite.fixtures import Notes, OpenDB

__all__ = ["TestState", "TestSteps", "TestStepsOfLeftJobs"]

Handler = Callable[[LeasedJob], object]


def run(queue: Queue, handler: Handler) -> object:
    """Run the next job as a worker does.

    :return: ``completed``, ``suspended``, or what the handler raised; None: no job is due.
    """
    for job in queue.claim(lease=60):
        try:
            handler(job)
        except Suspended:
            return "suspended"
        except Exception as error:  # noqa: BLE001 - it fails the attempt
            job.fail(error, retry_in=0)
            return error
        job.complete()
        return "completed"
    return None


def noted(notes: list[Any], what: object, result: object = None) -> Any:
    """The result of a step that is noted."""
    notes.append(what)
    return result


def leased(queue: Queue, **options: Any) -> LeasedJob:
    queue.enqueue("order", **options)
    (job,) = queue.claim(lease=60)
    return job


def taken_over(queue: Queue, rival_queue: Queue, clock: SettableClock) -> tuple[LeasedJob, LeasedJob]:
    """A stale lease of a job, and the lease that another worker has."""
    stale = leased(queue)
    clock.advance(61)
    (fresh,) = rival_queue.claim(lease=60)
    assert fresh.id == stale.id
    return stale, fresh


class TestSteps:
    """``job.step`` and ``job.step_transaction``."""

    def test_a_step_returns_its_result(self, queue: Queue) -> None:
        job = leased(queue, payload={"value": 42})
        assert job.step("process", lambda value, unit: f"{value} {unit}", job.payload["value"], unit="kg") == "42 kg"
        assert [(one.what, one.name, one.done, one.value) for one in queue.db.steps.list(job.id)] == [
            ("step", "process", True, "42 kg")
        ]

    def test_only_what_is_not_done_runs_again(self, queue: Queue) -> None:
        ran: list[str] = []
        results: list[object] = []

        def handler(job: LeasedJob) -> None:
            first = job.step("one", noted, ran, "one", "result 1")
            second = job.step("two", noted, ran, "two")
            if job.attempts == 1:
                raise RuntimeError("before the third")
            results.extend([first, second, job.step("three", noted, ran, "three", 3)])

        queue.enqueue("order")
        assert isinstance(run(queue, handler), RuntimeError)
        assert run(queue, handler) == "completed"
        assert (ran, results) == (["one", "two", "three"], ["result 1", None, 3])

    def test_a_step_that_raises_stores_nothing_and_runs_again(self, queue: Queue) -> None:
        calls: list[int] = []

        def charge() -> str:
            calls.append(len(calls))
            if len(calls) == 1:
                raise ConnectionError("the bank does not answer")
            return "paid"

        queue.enqueue("order")
        assert isinstance(run(queue, lambda job: job.step("charge", charge)), ConnectionError)
        assert run(queue, lambda job: job.step("charge", charge)) == "completed"
        assert calls == [0, 1]

    def test_a_step_that_has_failed_may_be_tried_again_in_the_same_run(self, queue: Queue) -> None:
        job = leased(queue)
        with pytest.raises(ZeroDivisionError):
            job.step("charge", lambda: 1 // 0)
        assert job.step("charge", lambda: 1) == 1

    def test_values_are_stored_by_the_codec_of_the_queue(self, open_db: OpenDB, name: str) -> None:
        class Marked(JSONCodec):
            def encode(self, payload: Any) -> str:
                return f"!{super().encode(payload)}"

            def decode(self, text: str) -> Any:
                return super().decode(text.removeprefix("!"))

        db = open_db(codec=Marked())
        job = leased(db.queue(name))
        db.steps.send(job.id, "approved", "yes")
        assert [job.step("charge", lambda: 1), job.wait_for("approved")] == [1, "yes"]
        assert {one.value for one in db.steps.list(job.id)} == {1, "yes"}

    def test_a_name_is_for_one_step_of_a_run(self, queue: Queue) -> None:
        job = leased(queue)
        assert job.step("mail", lambda: 1) == 1
        with pytest.raises(ArgumentError, match=r"the step 'mail': give each step a name of its own.*or use job\.loop"):
            job.step("mail", lambda: 2)
        assert [job.step(f"mail {number}", int.__mul__, number, 10) for number in range(3)] == [0, 10, 20]
        assert job.release()
        (again,) = queue.claim()
        assert again.step("mail", lambda: 3) == 1

    def test_a_step_within_a_step_is_stored_too(self, queue: Queue) -> None:
        job = leased(queue)
        assert job.step("outer", lambda: job.step("inner", lambda: 1) + 1) == 2
        assert {one.name: one.value for one in queue.db.steps.list(job.id)} == {"inner": 1, "outer": 2}

    def test_the_result_is_the_same_in_each_run(self, queue: Queue) -> None:
        first = leased(queue)
        pair: Any = (1, {2: "two"})
        assert first.step("pair", lambda: pair) == [1, {"2": "two"}]
        assert first.release()
        (again,) = queue.claim()
        assert again.step("pair", lambda: None) == [1, {"2": "two"}]

    def test_a_result_that_cannot_be_kept_fails_the_attempt(self, queue: Queue) -> None:
        job = leased(queue)
        with pytest.raises(HandlerResultError, match="the result of the step 'set' cannot be stored"):
            job.step("set", lambda: {1})
        with pytest.raises(HandlerResultError, match="'long' is longer than 65,536 bytes: store it elsewhere"):
            job.step("long", lambda: "x" * MOST_BYTES)
        with pytest.raises(HandlerResultError, match="the step 'later' returned a function"):
            job.step("later", lambda: lambda: 1)
        assert queue.db.steps.list(job.id) == []

    def test_a_stale_worker_stores_no_step(self, queue: Queue, rival_queue: Queue, clock: SettableClock) -> None:
        stale, fresh = taken_over(queue, rival_queue, clock)
        with pytest.raises(LeaseLostError):
            stale.step("charge", lambda: "stale")
        assert fresh.step("charge", lambda: "fresh") == "fresh"
        assert [one.value for one in queue.db.steps.list(fresh.id)] == ["fresh"]

    def test_a_step_after_an_extension_counts(self, queue: Queue) -> None:
        job = leased(queue)
        assert job.extend(100)
        assert job.step("charge", lambda: 1) == 1
        assert job.complete()

    def test_a_step_and_its_sql_commit_together(self, queue: Queue, notes: Notes) -> None:
        def book(connection: Connection, text: str) -> str:
            notes.write(connection, text)
            return text

        def failing(connection: Connection) -> None:
            notes.write(connection, "rolled back")
            raise RuntimeError("no")

        job = leased(queue)
        assert job.step_transaction("book", book, "booked") == "booked"
        with pytest.raises(RuntimeError):
            job.step_transaction("fail", failing)
        assert job.release()
        (again,) = queue.claim()
        assert again.step_transaction("book", book, "twice") == "booked"
        assert notes.read() == ["booked"]
        assert [one.name for one in queue.db.steps.list(job.id)] == ["book"]

    def test_a_lost_lease_rolls_back_the_sql_of_a_step(
        self, queue: Queue, rival_queue: Queue, clock: SettableClock, notes: Notes
    ) -> None:
        stale, fresh = taken_over(queue, rival_queue, clock)
        with pytest.raises(LeaseLostError):
            stale.step_transaction("book", notes.write, "stale")
        fresh.step_transaction("book", notes.write, "fresh")
        assert notes.read() == ["fresh"]

    def test_a_step_is_stored_with_the_transaction_of_its_caller(self, queue: Queue, notes: Notes) -> None:
        def book(using: Connection | Session, text: str) -> str:
            notes.write(using, text)
            return text

        job = leased(queue)
        with suppress(RuntimeError), notes.engine.begin() as connection:
            assert job.step("book", book, connection, "rolled back", using=connection) == "rolled back"
            raise RuntimeError
        assert (notes.read(), queue.db.steps.list(job.id)) == ([], [])
        with Session(notes.engine) as session, session.begin():
            assert job.step("book", book, session, "booked", using=session) == "booked"
            with pytest.raises(ArgumentError, match="has had the step 'book'"):
                job.step("book", book, session, "twice", using=session)
        with notes.engine.begin() as connection, pytest.raises(ArgumentError, match="has had the step 'book'"):
            job.step("book", book, connection, "twice", using=connection)
        with pytest.raises(ArgumentError, match="has had the step 'book'"):
            job.step("book", str)
        assert job.release()
        (again,) = queue.claim()
        with notes.engine.begin() as connection:
            assert again.step("book", book, connection, "twice", using=connection) == "booked"
        assert notes.read() == ["booked"]

    def test_a_lost_lease_is_raised_in_the_transaction_of_the_caller(
        self, queue: Queue, rival_queue: Queue, clock: SettableClock, notes: Notes
    ) -> None:
        stale, fresh = taken_over(queue, rival_queue, clock)
        with pytest.raises(LeaseLostError), notes.engine.begin() as connection:
            stale.step("book", notes.write, connection, "stale", using=connection)
        assert (notes.read(), queue.db.steps.list(fresh.id)) == ([], [])

    def test_a_transaction_that_cannot_be_used_is_refused_before_the_call(self, queue: Queue, notes: Notes) -> None:
        job = leased(queue)
        engine: Any = notes.engine
        with engine.connect() as connection, pytest.raises(ConfigurationError):
            job.step("book", notes.write, connection, "no", using=engine)
        assert notes.read() == []

    def test_a_replaced_job_begins_anew(self, queue: Queue, clock: SettableClock) -> None:
        job = leased(queue, unique_key="order")
        assert job.step("charge", lambda: "old") == "old"
        clock.advance(1)
        queue.enqueue("order", unique_key="order", on_duplicate="replace")
        (again,) = queue.claim()
        assert again.id == job.id
        assert queue.db.steps.list(job.id) == []
        assert again.step("charge", lambda: "new") == "new"


class TestStepsOfLeftJobs:
    """When the steps of a job are deleted."""

    def test_a_dead_job_keeps_its_steps_until_it_has_left(self, queue: Queue) -> None:
        job = leased(queue)
        job.step("charge", lambda: "paid")
        assert job.bury("no use")
        queue.db.prune()
        assert [one.value for one in queue.db.steps.list(job.id)] == ["paid"]
        assert queue.db.dead.redrive(job.id)
        (again,) = queue.claim()
        assert again.step("charge", lambda: "twice") == "paid"
        queue.db.prune()
        assert rows(queue.db, job.id) == 1
        assert again.complete()
        assert queue.db.steps.list(job.id) == []
        queue.db.prune()
        assert rows(queue.db, job.id) == 0


def rows(db: QueueDB, job_id: int) -> int:
    """How many rows a job has in the table of steps."""
    table = db.store.tables.slices["steps"]
    with db.database.begin(write=False) as connection:
        return int(connection.execute(select(func.count()).select_from(table).where(table.c.job_id == job_id)).scalar_one())


class TestState:
    """``job.state``."""

    def test_a_state_is_kept_from_run_to_run(self, queue: Queue) -> None:
        job = leased(queue)
        assert job.state.load() is None
        assert job.state.load({"page": 0}) == {"page": 0}
        assert job.state.save({"page": 1}) is Verdict.APPLIED
        assert job.state.save({"page": 2}) is Verdict.APPLIED
        assert job.state.load() == {"page": 2}
        assert job.release()
        (again,) = queue.claim()
        assert again.state.load() == {"page": 2}

    def test_a_stale_worker_overwrites_no_state(self, queue: Queue, rival_queue: Queue, clock: SettableClock) -> None:
        stale, fresh = taken_over(queue, rival_queue, clock)
        assert fresh.state.save("fresh") is Verdict.APPLIED
        assert stale.state.save("stale") is Verdict.LOST
        assert [one.value for one in queue.db.steps.list(fresh.id)] == ["fresh"]
        assert fresh.complete()
        assert fresh.state.save("late") is Verdict.LOST

    def test_a_state_is_json_of_at_most_64_kb(self, queue: Queue) -> None:
        job = leased(queue)
        assert job.state.save("x" * (MOST_BYTES - 2))
        with pytest.raises(ArgumentError, match="the state is longer than 65,536 bytes"):
            job.state.save("x" * (MOST_BYTES - 1))
        with pytest.raises(ArgumentError, match="the state cannot be stored"):
            job.state.save(object())
