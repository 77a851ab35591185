"""Jobs that suspend: sleeps, loops of steps, and waits for signals."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest

from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, JobNotFoundError, LeaseLostError
from queue_db.leased_job import LeasedJob, claimed_by
from queue_db.model import State
from queue_db.outcomes import Suspended
from queue_db.queue import Queue
from queue_db.resumable import Claimant
from queue_db.steps.resumption import Loop
from queue_db.testing.clock import SettableClock
from queue_db.testing.suite.fixtures import Notes
from queue_db.testing.suite.steps import Handler, leased, noted, run, taken_over

__all__ = ["TestSignals", "TestSleeps", "TestStepLoops"]


class TestSleeps:
    """``job.sleep``."""

    def test_a_job_sleeps_until_the_time_is_over(self, queue: Queue, clock: SettableClock) -> None:
        runs: list[int] = []

        def handler(job: LeasedJob) -> None:
            runs.append(job.attempts)
            job.sleep(60)
            job.sleep(30, name="again")

        job_id = queue.enqueue("order")
        assert run(queue, handler) == "suspended"
        assert (queue.get(job_id).state, queue.get(job_id).attempts) == (State.SCHEDULED, 0)
        (step,) = queue.db.steps.list(job_id)
        assert (step.what, step.done, step.ends_at) == ("sleep", False, queue.get(job_id).available_at)
        clock.advance(59)
        assert run(queue, handler) is None
        clock.advance(1)
        assert run(queue, handler) == "suspended"
        clock.advance(30)
        assert run(queue, handler) == "completed"
        assert runs == [1, 1, 1]

    def test_a_job_that_runs_early_sleeps_on_until_the_same_time(self, queue: Queue, clock: SettableClock) -> None:
        job_id = queue.enqueue("order")
        assert run(queue, lambda job: job.sleep(60)) == "suspended"
        ends = queue.get(job_id).available_at
        clock.advance(20)
        assert queue.reschedule(job_id, delay=0)
        assert run(queue, lambda job: job.sleep(60)) == "suspended"
        assert queue.get(job_id).available_at == ends

    def test_a_second_sleep_needs_a_name(self, queue: Queue, clock: SettableClock) -> None:
        queue.enqueue("order")

        def handler(job: LeasedJob) -> None:
            job.sleep(1)
            job.sleep(1)

        assert run(queue, handler) == "suspended"
        clock.advance(1)
        error = run(queue, handler)
        assert isinstance(error, ArgumentError)
        assert "job.sleep(60, name=…)" in str(error)

    def test_a_handler_that_catches_exceptions_does_not_stop_it(self, queue: Queue) -> None:
        def handler(job: LeasedJob) -> None:
            try:
                job.sleep(60)
            except Exception:  # noqa: BLE001 - what a careless handler does
                pytest.fail("caught")

        queue.enqueue("order")
        assert run(queue, handler) == "suspended"

    def test_a_stale_worker_does_not_put_the_job_to_sleep(self, queue: Queue, rival_queue: Queue, clock: SettableClock) -> None:
        stale, fresh = taken_over(queue, rival_queue, clock)
        with pytest.raises(LeaseLostError):
            stale.sleep(60)
        assert queue.db.steps.list(fresh.id) == []
        assert fresh.complete()

    def test_the_next_job_of_a_group_waits_for_one_that_sleeps(self, queue: Queue, clock: SettableClock) -> None:
        ran: list[int] = []
        first, second = (queue.enqueue("order", group="g") for _ in range(2))

        def handler(job: LeasedJob) -> None:
            job.sleep(60)
            ran.append(job.id)

        assert run(queue, handler) == "suspended"
        assert run(queue, handler) is None
        clock.advance(60)
        assert run(queue, handler) == "completed"
        assert run(queue, lambda job: ran.append(job.id)) == "completed"
        assert ran == [first, second]


class TestStepLoops:
    """``job.loop``."""

    def test_a_loop_goes_on_from_its_cursor(self, queue: Queue) -> None:
        done: list[int] = []
        cursors: list[int | None] = []

        def rename(loop: Loop, upto: int) -> str:
            cursors.append(loop.cursor)
            for number in range((loop.cursor or 0) + 1, upto + 1):
                if number == 4 and len(cursors) == 1:
                    raise RuntimeError("at the fourth")
                done.append(number)
                loop.advance(number)
            return "all"

        job_id = queue.enqueue("order")
        assert isinstance(run(queue, lambda job: job.loop("rename", rename, 6)), RuntimeError)
        (step,) = queue.db.steps.list(job_id)
        assert (step.name, step.done, step.value) == ("rename", False, 3)
        results: list[object] = []
        assert run(queue, lambda job: results.append(job.loop("rename", rename, 6))) == "completed"
        assert (done, cursors, results) == ([1, 2, 3, 4, 5, 6], [None, 3], ["all"])

    def test_a_loop_that_is_done_is_not_entered_again(self, queue: Queue) -> None:
        entered: list[Loop] = []
        queue.enqueue("order")

        def handler(job: LeasedJob) -> None:
            job.loop("rename", entered.append)
            if job.attempts == 1:
                raise RuntimeError("after the loop")

        assert isinstance(run(queue, handler), RuntimeError)
        assert run(queue, handler) == "completed"
        assert len(entered) == 1

    def test_a_cursor_may_be_a_list(self, queue: Queue) -> None:
        seen: list[object] = []

        def rows_of_pages(loop: Loop) -> None:
            page, row = loop.cursor or (0, 0)
            seen.append((page, row))
            loop.advance([page, row + 1])

        def half(loop: Loop) -> float:
            rows_of_pages(loop)
            return 1 / 0

        def handler(job: LeasedJob) -> None:
            job.loop("pages", rows_of_pages)
            raise RuntimeError("again")

        queue.enqueue("order")
        for _ in range(2):
            run(queue, handler)
        assert seen == [(0, 0)]  # it was done
        (first,) = queue.claim()
        assert first.complete()
        job = leased(queue)
        with pytest.raises(ZeroDivisionError):
            job.loop("pages", half)
        assert job.release()
        (again,) = queue.claim()
        again.loop("pages", rows_of_pages)
        assert seen == [(0, 0), (0, 0), (0, 1)]

    def test_a_worker_that_stops_interrupts_a_loop_and_the_attempt_does_not_count(self, queue: Queue) -> None:
        stopping = threading.Event()
        done: list[int] = []

        def count_up(loop: Loop) -> None:
            for number in range((loop.cursor or 0) + 1, 6):
                done.append(number)
                if number == 2:
                    stopping.set()
                loop.advance(number)

        job_id = queue.enqueue("order")
        with claimed_by(Claimant(stopping=stopping)):
            assert run(queue, lambda job: job.loop("count", count_up)) == "suspended"
        assert (queue.get(job_id).state, queue.get(job_id).attempts) == (State.AVAILABLE, 0)
        assert run(queue, lambda job: job.loop("count", count_up)) == "completed"
        assert done == [1, 2, 3, 4, 5]

    def test_a_worker_that_stops_begins_no_further_step(self, queue: Queue) -> None:
        stopping = threading.Event()
        ran: list[str] = []

        def handler(job: LeasedJob) -> None:
            job.step("one", noted, ran, "one")
            stopping.set()
            job.step("two", noted, ran, "two")

        queue.enqueue("order")
        with claimed_by(Claimant(stopping=stopping)):
            assert run(queue, handler) == "suspended"
        assert run(queue, handler) == "completed"
        assert ran == ["one", "two"]

    def test_a_cursor_and_the_rows_up_to_it_commit_together(self, queue: Queue, notes: Notes) -> None:
        def copy(loop: Loop) -> None:
            for number in range(loop.cursor or 0, 4):
                with queue.transaction() as connection:
                    notes.write(connection, f"row {number}")
                    loop.advance(number + 1, using=connection)
                    if number == 2 and not notes.read()[2:]:
                        attempts.append(number)
                        if len(attempts) == 1:
                            raise RuntimeError("before the commit")

        attempts: list[int] = []
        queue.enqueue("order")
        assert isinstance(run(queue, lambda job: job.loop("copy", copy)), RuntimeError)
        assert run(queue, lambda job: job.loop("copy", copy)) == "completed"
        assert notes.read() == [f"row {number}" for number in range(4)]


class TestSignals:
    """``job.wait_for``, ``job.callback`` and ``db.steps.send``."""

    def wait(self, *got: Any, timeout: float | None = None) -> Handler:
        (results,) = got or ([],)
        return lambda job: results.append(job.wait_for("approved", timeout=timeout))

    def test_a_job_that_waits_runs_when_the_signal_is_sent(self, queue: Queue, rival: QueueDB) -> None:
        got: list[object] = []
        job_id = queue.enqueue("order")
        assert run(queue, self.wait(got)) == "suspended"
        assert (queue.get(job_id).state, queue.get(job_id).attempts) == (State.SCHEDULED, 0)
        assert [(one.what, one.name, one.done) for one in queue.db.steps.list(job_id)] == [("signal", "approved", False)]
        assert run(queue, self.wait(got)) is None
        assert rival.steps.send(job_id, "approved", {"by": "ann"}) is True
        assert run(queue, self.wait(got)) == "completed"
        assert got == [{"by": "ann"}]

    def test_a_signal_that_is_sent_before_the_wait_is_kept(self, queue: Queue) -> None:
        got: list[object] = []
        job_id = queue.enqueue("order")
        assert queue.db.steps.send(job_id, "approved", 1)
        assert queue.db.steps.send(job_id, "approved", 2) is False, "the first one counts"
        assert run(queue, self.wait(got)) == "completed"
        assert got == [1]

    def test_a_signal_that_is_sent_while_the_handler_runs_is_found(self, queue: Queue) -> None:
        job = leased(queue)
        job.step("ask", lambda: queue.db.steps.send(job.id, "approved", "quick"))
        assert job.wait_for("approved") == "quick"
        with pytest.raises(ArgumentError, match="the wait for 'approved': a signal is sent once"):
            job.wait_for("approved")

    def test_a_signal_is_found_again_in_each_run(self, queue: Queue) -> None:
        got: list[object] = []

        def handler(job: LeasedJob) -> None:
            got.append(job.wait_for("approved"))
            if len(got) == 1:
                raise RuntimeError("after the signal")

        job_id = queue.enqueue("order")
        queue.db.steps.send(job_id, "approved", "yes")
        assert isinstance(run(queue, handler), RuntimeError)
        assert run(queue, handler) == "completed"
        assert got == ["yes", "yes"]

    def test_a_wait_ends_at_its_timeout_and_refuses_what_comes_later(self, queue: Queue, clock: SettableClock) -> None:
        got: list[object] = []

        def handler(job: LeasedJob) -> None:
            try:
                got.append(job.wait_for("approved", timeout=60))
            except TimeoutError as error:
                got.append(str(error))
                if len(got) == 1:
                    raise

        job_id = queue.enqueue("order")
        assert run(queue, handler) == "suspended"
        clock.advance(60)
        assert isinstance(run(queue, handler), TimeoutError)
        assert queue.db.steps.send(job_id, "approved") is False
        assert run(queue, handler) == "completed"
        assert got == [f"the signal 'approved' was not sent to job {job_id} in time"] * 2

    def test_a_signal_that_comes_after_the_timeout_and_before_the_run_is_taken(self, queue: Queue, clock: SettableClock) -> None:
        got: list[object] = []
        job_id = queue.enqueue("order")
        assert run(queue, self.wait(got, timeout=60)) == "suspended"
        clock.advance(61)
        assert queue.db.steps.send(job_id, "approved", "just")
        assert run(queue, self.wait(got, timeout=60)) == "completed"
        assert got == ["just"]

    def test_a_signal_to_a_job_that_has_left_is_an_error(self, queue: Queue) -> None:
        job = leased(queue)
        assert job.complete()
        with pytest.raises(JobNotFoundError):
            queue.db.steps.send(job.id, "approved")
        with pytest.raises(ArgumentError, match="the payload cannot be stored"):
            queue.db.steps.send(job.id, "approved", {1})

    def test_a_dead_job_keeps_a_signal_until_it_is_redriven(self, queue: Queue) -> None:
        got: list[object] = []
        job = leased(queue)
        assert job.bury("no use")
        assert queue.db.steps.send(job.id, "approved", 1)
        queue.db.dead.redrive(job.id)
        assert run(queue, self.wait(got)) == "completed"
        assert got == [1]

    def test_a_signal_is_sent_with_the_callers_transaction(self, queue: Queue) -> None:
        job_id = queue.enqueue("order")
        assert run(queue, self.wait()) == "suspended"
        with suppress(RuntimeError), queue.transaction() as connection:
            assert queue.db.steps.send(job_id, "approved", using=connection)
            raise RuntimeError("rolled back")
        assert run(queue, self.wait()) is None
        with queue.transaction() as connection:
            assert queue.db.steps.send(job_id, "approved", using=connection)
        assert run(queue, self.wait()) == "completed"

    def test_a_callback_sends_its_signal_once(self, queue: Queue) -> None:
        got: list[object] = []
        job = leased(queue)
        mails: list[str] = []
        job.step("ask", lambda: noted(mails, job.callback("approved")))
        (token,) = mails
        other = job.callback("other")
        with pytest.raises(Suspended):
            job.wait_for("approved")
        assert token not in repr(queue.db.steps.list(job.id))
        for wrong in ("", "qdbc_", f"qdbc_{job.id}_x", token[:-1], token.upper(), "qdbc_99999999999999999999_x", "é"):
            assert queue.db.steps.call_back(wrong) is None
        assert queue.db.steps.call_back(token, {"ok": True}) == job.id
        assert queue.db.steps.call_back(token, {"ok": False}) is None
        assert run(queue, self.wait(got)) == "completed"
        assert got == [{"ok": True}]
        assert queue.db.steps.call_back(other) is None, "the job has left"
