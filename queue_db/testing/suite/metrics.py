"""What is counted of the verbs, by queue."""

from __future__ import annotations

from datetime import timedelta

from queue_db.monitoring.metrics import QueueMetrics
from queue_db.queue import Queue
from queue_db.testing.clock import SettableClock

__all__ = ["TestMetrics"]


def _counts(one: QueueMetrics) -> tuple[int, ...]:
    return one.completed, one.failed, one.died, one.lost


class TestMetrics:
    """``db.metrics``."""

    def test_verbs_are_counted_by_queue_in_steps_of_ten_seconds(self, queue: Queue, name: str, clock: SettableClock) -> None:
        metrics, start = queue.db.metrics, clock.now()
        queue.enqueue_many([("mail", number, {"max_attempts": 2}) for number in range(8)])
        for job in queue.claim(limit=2):
            assert job.complete()
        metrics.flush()
        metrics.flush()  # what is written is not written again
        clock.advance(20)
        jobs = queue.claim(limit=6)
        assert jobs[0].complete()
        assert not jobs[0].complete()
        assert jobs[1].fail("again")
        assert jobs[2].bury("no use")
        assert jobs[3].cancel()
        assert jobs[4].release()
        assert jobs[5].complete()
        metrics.flush()
        found = metrics.history(name, since=start - timedelta(seconds=10))
        assert [_counts(one) for one in found] == [(2, 0, 0, 0), (2, 1, 1, 1)]
        assert [one.queue for one in found] == [name, name]
        assert found[1].at - found[0].at == timedelta(seconds=20)
        assert found[0].at <= start < found[0].at + timedelta(seconds=10)
        (whole,) = metrics.history(name, since=start - timedelta(seconds=86_000), width=86_400)[-1:]
        assert whole.completed >= 2
        assert [one for one in metrics.history(since=start - timedelta(seconds=10)) if one.queue == name] == found

    def test_a_last_attempt_that_fails_is_a_death_and_a_popped_job_is_completed(
        self, queue: Queue, name: str, clock: SettableClock
    ) -> None:
        start = clock.now()
        queue.enqueue("mail", max_attempts=1)
        (job,) = queue.claim()
        assert job.fail("the last one")
        queue.enqueue("mail")
        assert len(queue.pop()) == 1
        queue.db.metrics.flush()
        (found,) = queue.db.metrics.history(name, since=start - timedelta(seconds=10))
        assert _counts(found) == (1, 0, 1, 0)

    def test_several_processes_add_to_the_same_row(self, queue: Queue, name: str, rival_queue: Queue, clock: SettableClock) -> None:
        queue.enqueue_many([("mail", number) for number in range(5)])
        for one, jobs in ((queue, queue.claim(limit=2)), (rival_queue, rival_queue.claim(limit=3))):
            assert all(one.complete_many(jobs))
            one.db.metrics.flush()
        (found,) = queue.db.metrics.history(name, since=clock.now() - timedelta(seconds=10))
        assert found.completed == 5
