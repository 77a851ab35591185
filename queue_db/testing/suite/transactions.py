"""``using=``: the change of the queue and that of the user in one transaction of the user."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.orm import Session

from queue_db.errors import ConfigurationError, DuplicateJobError, LeaseLostError, PayloadError
from queue_db.model import State, Verdict
from queue_db.queue import Queue
from queue_db.testing.clock import SettableClock
from queue_db.testing.suite.fixtures import Notes

__all__ = ["TestCompleteUsing", "TestEnqueueUsing"]

# Commit or not; the user writes before or after the queue.
WAYS = [(True, True), (True, False), (False, True), (False, False)]


class TestEnqueueUsing:
    """A job that exists if, and only if, the user's transaction commits."""

    @pytest.mark.parametrize("session", [False, True], ids=["connection", "session"])
    def test_one_job(self, queue: Queue, notes: Notes, session: bool) -> None:
        for commit, note_first in WAYS:
            with Session(notes.engine) if session else notes.engine.connect() as using:
                if note_first:
                    notes.write(using, "order")
                assert queue.enqueue("mail", "order", using=using) is not None
                if not note_first:
                    notes.write(using, "order")
                assert queue.peek() == []  # not visible to others yet
                if commit:
                    using.commit()
                else:
                    using.rollback()
            expected = ["order"] if commit else []
            assert [job.payload for job in queue.claim(limit=5)] == expected
            assert notes.read() == expected
            notes.clear()

    @pytest.mark.parametrize("session", [False, True], ids=["connection", "session"])
    def test_many_jobs(self, queue: Queue, notes: Notes, session: bool) -> None:
        for commit, note_first in WAYS:
            with Session(notes.engine) if session else notes.engine.connect() as using:
                if note_first:
                    notes.write(using, "order")
                ids = queue.enqueue_many((("mail", number) for number in range(40)), using=using)
                assert len(set(ids)) == 40
                if not note_first:
                    notes.write(using, "order")
                if commit:
                    using.commit()
                else:
                    using.rollback()
            assert queue.purge() == (40 if commit else 0)
            assert notes.read() == (["order"] if commit else [])
            notes.clear()

    def test_a_refused_job_leaves_the_transaction_usable(self, queue: Queue, notes: Notes) -> None:
        queue.enqueue("mail", unique_key="k")
        with notes.engine.begin() as using:
            notes.write(using, "before")
            with pytest.raises(DuplicateJobError):
                queue.enqueue("mail", unique_key="k", using=using)
            with pytest.raises(PayloadError):
                queue.enqueue_many([("mail", number) for number in range(1100)] + [("mail", object())], using=using)
            with pytest.raises(DuplicateJobError):
                queue.enqueue_many([("mail", 0), ("mail", 1, {"unique_key": "k"})], using=using)
            assert queue.enqueue("other", unique_key="k", on_duplicate="skip", using=using) is None
            notes.write(using, "after")
            queue.enqueue("last", using=using)
        assert notes.read() == ["after", "before"]
        assert [job.kind for job in queue.peek()] == ["mail", "last"]

    def test_a_replacement_is_undone_with_the_transaction(self, queue: Queue, notes: Notes) -> None:
        job_id = queue.enqueue("mail", "old", unique_key="k")
        (job,) = queue.claim()
        with notes.engine.connect() as using:
            assert queue.enqueue("mail", "new", unique_key="k", on_duplicate="replace", using=using) == job_id
            using.rollback()
        assert job.complete() is Verdict.APPLIED

    def test_the_caller_s_transaction_stays_open(self, queue: Queue, notes: Notes) -> None:
        with notes.engine.connect() as using, using.begin() as transaction:
            queue.enqueue("mail", using=using)
            queue.enqueue_many([("mail", 1)], using=using)
            assert transaction.is_active

    def test_other_objects_than_connections_are_refused(self, queue: Queue) -> None:
        wrong: list[Any] = [object(), "postgresql://", 7]
        for using in wrong:
            with pytest.raises(ConfigurationError, match=r"Connection or (Async)?Session"):
                queue.enqueue("mail", using=using)
        assert queue.stats().by_kind == {}


class TestCompleteUsing:
    """Exactly-once effect: the writes of a job and its completion share one transaction."""

    @pytest.mark.parametrize("session", [False, True], ids=["connection", "session"])
    def test_both_commit(self, queue: Queue, notes: Notes, session: bool) -> None:
        queue.enqueue("mail")
        (job,) = queue.claim()
        with Session(notes.engine) if session else notes.engine.connect() as using:
            notes.write(using, "sent")
            job.complete(using=using).require(job)
            using.commit()
        assert notes.read() == ["sent"]
        assert (queue.stats().running, queue.stats().available) == (0, 0)
        assert job.complete() is Verdict.LOST

    @pytest.mark.parametrize("session", [False, True], ids=["connection", "session"])
    def test_both_roll_back(self, queue: Queue, notes: Notes, session: bool) -> None:
        queue.enqueue("mail")
        (job,) = queue.claim()
        before = queue.get(job.id)
        with Session(notes.engine) if session else notes.engine.connect() as using:
            notes.write(using, "sent")
            assert job.complete(using=using) is Verdict.APPLIED
            using.rollback()
        assert notes.read() == []
        assert queue.get(job.id) == before
        assert job.complete() is Verdict.APPLIED

    def test_after_a_rollback_that_is_told_the_job_is_leased_as_before(self, queue: Queue, notes: Notes) -> None:
        queue.enqueue("mail")
        (job,) = queue.claim()
        with notes.engine.connect() as using:
            job.complete(using=using).require(job)
            using.rollback()
        assert job.state.save({"page": 1}) is Verdict.LOST  # not told yet
        job.rolled_back()
        assert (job.settled, job.settled_by) == (False, None)
        assert job.state.save({"page": 1}) is Verdict.APPLIED
        assert job.extend(60) is Verdict.APPLIED
        assert job.fail("no page", retry_in=0) is Verdict.APPLIED
        (again,) = queue.claim()
        assert (again.id, again.attempts, again.state.load()) == (job.id, 2, {"page": 1})

    def test_a_rollback_that_was_a_commit_is_found_out_by_the_next_verb(self, queue: Queue, notes: Notes) -> None:
        queue.enqueue("mail")
        (job,) = queue.claim()
        with notes.engine.begin() as using:
            job.complete(using=using).require(job)
        job.rolled_back()  # the answer to its COMMIT was lost
        assert job.state.save({"page": 1}) is Verdict.LOST
        assert job.fail("no page") is Verdict.LOST
        assert (queue.stats().running, queue.stats().available, queue.stats().dead) == (0, 0, 0)

    def test_a_lost_lease_rolls_the_user_s_writes_back(
        self, queue: Queue, rival_queue: Queue, notes: Notes, clock: SettableClock
    ) -> None:
        queue.enqueue("mail")
        (late,) = queue.claim(lease=1)
        clock.advance(2)
        (theirs,) = rival_queue.claim()
        before = queue.get(theirs.id)

        def work_too_late() -> None:
            with notes.engine.begin() as using:
                notes.write(using, "sent by the late one")
                late.complete(using=using).require(late)

        with pytest.raises(LeaseLostError):
            work_too_late()
        assert notes.read() == []
        assert queue.get(theirs.id) == before
        with notes.engine.begin() as using:
            notes.write(using, "sent")
            theirs.complete(using=using).require(theirs)
        assert notes.read() == ["sent"]

    def test_verdicts_of_many_stand_by_position(self, queue: Queue, rival_queue: Queue, notes: Notes, clock: SettableClock) -> None:
        queue.enqueue_many([("mail", number) for number in range(4)])
        jobs = queue.claim(limit=4, lease=10)
        assert all(queue.extend_many(jobs[:2], 100))
        clock.advance(10)
        assert len(rival_queue.claim(limit=4)) == 2
        with notes.engine.begin() as using:
            verdicts = queue.complete_many(jobs[::-1], using=using)
            assert verdicts == [Verdict.LOST, Verdict.LOST, Verdict.APPLIED, Verdict.APPLIED]
        assert {queue.get(job.id).state for job in jobs[2:]} == {State.RUNNING}
        assert queue.stats().running == 2
