"""Batches: a callback job is enqueued once, when all jobs of the batch have left, with the counts of their outcomes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queue_db.errors import ArgumentError, DuplicateJobError
from queue_db.queue import Queue
from queue_db.testing.clock import SettableClock

__all__ = ["TestBatches"]

LEAVING: dict[str, tuple[Callable[[Queue], object], int, int]] = {
    "completed": (lambda queue: queue.claim()[0].complete(), 0, 0),
    "popped": (lambda queue: queue.pop(), 0, 0),
    "cancelled by lease": (lambda queue: queue.claim()[0].cancel(), 0, 1),
    "cancelled": (lambda queue: queue.cancel(queue.peek()[0].id), 0, 1),
    "purged": (lambda queue: queue.purge(), 0, 1),
    "buried": (lambda queue: queue.claim()[0].bury("no use"), 1, 0),
    "failed": (lambda queue: queue.claim()[0].fail("no use"), 1, 0),
}


class TestBatches:
    """The last job that leaves enqueues the callback."""

    def test_the_callback_comes_when_all_have_left(self, queue: Queue) -> None:
        batch_id, ids = queue.enqueue_batch([("mail", n) for n in range(3)], ("report", {"for": "ann"}, {"priority": 4}))
        assert len(ids) == 3
        jobs = queue.claim(3)
        assert {job.batch for job in jobs} == {batch_id}
        for left, job in zip((2, 1), jobs, strict=False):
            assert job.complete()
            batch = queue.db.batch(batch_id)
            assert batch is not None
            assert (batch.id, batch.queue, batch.jobs, batch.pending) == (batch_id, queue.name, 3, left)
            assert queue.stats().available == 0
        assert jobs[2].complete()
        assert queue.db.batch(batch_id) is None
        (callback,) = queue.claim(2)
        assert (callback.kind, callback.payload, callback.priority) == ("report", {"for": "ann"}, 4)
        assert callback.headers["batch"] == {"id": batch_id, "jobs": 3, "dead": 0, "cancelled": 0}
        assert callback.batch is None
        assert callback.complete()

    def test_batches_are_listed_newest_first(self, queue: Queue) -> None:
        first, second, third = (queue.enqueue_batch([("mail", 1)] * jobs, ("report", None))[0] for jobs in (1, 2, 3))
        ours = [batch for batch in queue.db.batches(limit=1000) if batch.queue == queue.name]
        assert [(batch.id, batch.jobs) for batch in ours] == [(third, 3), (second, 2), (first, 1)]
        (next_one, *_) = queue.db.batches(limit=1, after=ours[0])
        assert next_one.id < third
        assert queue.db.batches(limit=1, after=third) == [next_one]
        assert queue.db.batches(limit=1000, after=ours[1])[0].id < second
        assert queue.purge() == 6
        assert not [batch for batch in queue.db.batches(limit=1000) if batch.queue == queue.name]

    @pytest.mark.parametrize("way", LEAVING)
    def test_the_callback_has_the_counts_of_outcomes(self, queue: Queue, way: str) -> None:
        leave, dead, cancelled = LEAVING[way]
        queue.enqueue_batch([("mail", 1, {"max_attempts": 1})], ("report", None))
        leave(queue)
        (callback,) = queue.claim(2)
        assert callback.kind == "report"
        assert (callback.headers["batch"]["dead"], callback.headers["batch"]["cancelled"]) == (dead, cancelled)

    def test_all_in_one_statement(self, queue: Queue) -> None:
        queue.enqueue_batch([("mail", n) for n in range(5)], ("report", None))
        queue.enqueue_batch([("mail", n) for n in range(5)], ("report", None))
        jobs = queue.claim(10)
        assert all(queue.complete_many(jobs))
        assert [job.kind for job in queue.claim(10)] == ["report", "report"]

    def test_the_callback_waits_for_a_job_that_comes_back(self, queue: Queue, clock: SettableClock) -> None:
        queue.enqueue_batch([("mail", 1)], ("report", None))
        (job,) = queue.claim()
        assert job.fail("again", retry_in=1)
        clock.advance(2)
        (late,) = queue.claim(lease=1)
        clock.advance(2)
        (job,) = queue.claim()
        assert not late.complete()
        assert queue.claim() == []
        assert job.complete()
        assert [job.kind for job in queue.claim(2)] == ["report"]

    def test_a_vanished_worker_counts_in_the_end(self, queue: Queue, clock: SettableClock) -> None:
        queue.enqueue_batch([("mail", 1, {"max_attempts": 1})], ("report", None))
        queue.claim(lease=1)
        clock.advance(2)
        (callback,) = queue.claim() or queue.claim()
        assert callback.headers["batch"]["dead"] == 1

    def test_an_empty_batch_enqueues_its_callback_at_once(self, queue: Queue) -> None:
        batch_id, ids = queue.enqueue_batch([], ("report", None))
        assert ids == []
        assert queue.db.batch(batch_id) is None
        assert [job.kind for job in queue.claim(2)] == ["report"]

    def test_the_callback_does_not_wait_for_skipped_jobs(self, queue: Queue) -> None:
        queue.enqueue("mail", 0, unique_key="k")
        _, ids = queue.enqueue_batch([("mail", 1, {"unique_key": "k"}), ("mail", 2)], ("report", None), on_duplicate="skip")
        assert ids[0] is None
        jobs = queue.claim(3)
        assert all(queue.complete_many([job for job in jobs if job.id == ids[1]]))
        assert [job.kind for job in queue.claim(2)] == ["report"]

    def test_a_refused_batch_enqueues_nothing(self, queue: Queue) -> None:
        queue.enqueue("mail", 0, unique_key="k")
        with pytest.raises(DuplicateJobError):
            queue.enqueue_batch([("mail", 1), ("mail", 2, {"unique_key": "k"})], ("report", None))
        assert queue.stats().available == 1

    def test_groups_in_a_batch(self, queue: Queue) -> None:
        queue.enqueue_batch([("mail", n, {"group": "g"}) for n in range(3)], ("report", None))
        kinds = []
        while jobs := queue.claim(5):
            assert len(jobs) == 1
            kinds.append(jobs[0].kind)
            assert jobs[0].complete()
        assert kinds == ["mail", "mail", "mail", "report"]

    def test_a_batch_of_many_chunks(self, queue: Queue) -> None:
        batch_id, ids = queue.enqueue_batch((("mail", n) for n in range(2500)), ("report", None))
        assert len(set(ids)) == 2500
        batch = queue.db.batch(batch_id)
        assert batch is not None
        assert batch.pending == 2500
        assert queue.purge() == 2500
        assert [job.kind for job in queue.claim(2)] == ["report"]

    def test_the_callback_is_stamped_as_its_jobs_are(self, queue: Queue) -> None:
        queue.db.header_provider = lambda: {"trace": "00-1"}
        queue.enqueue_batch([("mail", 1)], ("report", None, {"headers": {"for": "ann"}}))
        (job,) = queue.claim()
        assert job.headers["trace"] == "00-1"
        assert job.complete()
        (callback,) = queue.claim()
        assert (callback.headers["trace"], callback.headers["for"]) == ("00-1", "ann")

    def test_a_callback_may_be_a_kind_alone(self, queue: Queue) -> None:
        queue.enqueue_batch([("mail", 1)], ("report",))  # type: ignore[arg-type]
        assert queue.claim()[0].complete()
        (callback,) = queue.claim()
        assert (callback.kind, callback.payload) == ("report", None)

    def test_impossible_callbacks_are_refused(self, queue: Queue) -> None:
        for then in ("report", (), ("report", None, {"delay": 3}), ("", None)):
            with pytest.raises(ArgumentError):
                queue.enqueue_batch([("mail", 1)], then)  # type: ignore[arg-type]
        with pytest.raises(ArgumentError, match="replace"):
            queue.enqueue_batch([("mail", 1)], ("report", None), on_duplicate="replace")  # type: ignore[call-overload]
        assert queue.stats().available == 0
