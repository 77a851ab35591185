"""Groups: the jobs of one group run in enqueue order, at most as many at once as the queue's limit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queue_db.errors import ArgumentError
from queue_db.model import State, Verdict
from queue_db.queue import Queue
from queue_db.testing.clock import SettableClock
from queue_db.testing.statements import counted_statements

__all__ = ["TestGroups", "TestGroupsAndKeys"]


def _numbers(queue: Queue, limit: int = 10) -> list[int]:
    """Claim what is due, complete it, and return the payloads."""
    jobs = queue.claim(limit)
    assert all(queue.complete_many(jobs))
    return [job.payload for job in jobs]


def _enqueue(queue: Queue, *numbers: int, group: str = "g", **options: object) -> list[int]:
    return queue.enqueue_many([("mail", number, {"group": group, **options}) for number in numbers])


# Ways in which the first job of a group leaves; each unblocks the next.
WAYS_OUT: dict[str, Callable[[Queue, int], object]] = {
    "complete": lambda queue, _: queue.claim(3)[0].complete(),
    "complete with others": lambda queue, _: queue.complete_many(queue.claim(3)),
    "cancel": lambda queue, job_id: queue.cancel(job_id),
    "cancel by lease": lambda queue, _: queue.claim(3)[0].cancel(),
    "bury": lambda queue, _: queue.claim(3)[0].bury("no use"),
    "fail for the last time": lambda queue, _: queue.claim(3)[0].fail("no use"),
    "pop": lambda queue, _: queue.pop(3),
}

# Events after which the first job of a group is still the first.
DETOURS: dict[str, Callable[[Queue, SettableClock], object]] = {
    "fail": lambda queue, _: queue.claim()[0].fail("again", retry_in=5),
    "snooze": lambda queue, _: queue.claim()[0].snooze(5),
    "release": lambda queue, _: queue.claim()[0].release(),
    "a vanished worker": lambda queue, _: queue.claim(lease=5),
    "extend": lambda queue, _: queue.claim(lease=1)[0].extend(5),
}


class TestGroups:
    """One at a time, in order, whatever the outcome of the jobs before."""

    def test_one_job_of_each_group_is_claimed_at_a_time(self, queue: Queue) -> None:
        _enqueue(queue, 1, 2, 3, group="a")
        _enqueue(queue, 10, 20, group="b")
        queue.enqueue_many([("mail", 100), ("mail", 200)])
        assert sorted(_numbers(queue)) == [1, 10, 100, 200]
        assert sorted(_numbers(queue)) == [2, 20]
        assert sorted(_numbers(queue)) == [3]
        assert _numbers(queue) == []

    @pytest.mark.parametrize("way", WAYS_OUT)
    def test_the_next_is_unblocked_when_the_first_leaves(self, queue: Queue, way: str) -> None:
        first, second, _ = _enqueue(queue, 1, 2, 3, max_attempts=1)
        assert first is not None
        assert second is not None
        assert queue.get(second).state is State.BLOCKED
        WAYS_OUT[way](queue, first)
        assert queue.get(second).state is State.AVAILABLE
        assert [_numbers(queue), _numbers(queue), _numbers(queue)] == [[2], [3], []]

    @pytest.mark.parametrize("way", DETOURS)
    def test_a_job_that_comes_back_blocks_those_behind_it(self, queue: Queue, clock: SettableClock, way: str) -> None:
        _enqueue(queue, 1, 2)
        DETOURS[way](queue, clock)
        clock.advance(6)
        assert [_numbers(queue), _numbers(queue), _numbers(queue)] == [[1], [2], []]

    def test_a_scheduled_job_blocks_those_behind_it(self, queue: Queue, clock: SettableClock) -> None:
        queue.enqueue("mail", 1, group="g", delay=10)
        queue.enqueue("mail", 2, group="g")
        assert _numbers(queue) == []
        clock.advance(11)
        assert [_numbers(queue), _numbers(queue)] == [[1], [2]]

    def test_a_blocked_job_keeps_its_own_due_time(self, queue: Queue, clock: SettableClock) -> None:
        _enqueue(queue, 1)
        _enqueue(queue, 2, delay=10)
        assert _numbers(queue) == [1]
        assert _numbers(queue) == []
        clock.advance(11)
        assert _numbers(queue) == [2]

    def test_jobs_behind_a_cancelled_blocked_job_stay_blocked(self, queue: Queue) -> None:
        _, second, _ = _enqueue(queue, 1, 2, 3)
        (held,) = queue.claim()
        assert second is not None
        assert queue.cancel(second) is Verdict.APPLIED
        assert queue.claim() == []
        assert held.complete() is Verdict.APPLIED
        assert _numbers(queue) == [3]

    def test_a_lost_lease_unblocks_nothing(self, queue: Queue, clock: SettableClock) -> None:
        _enqueue(queue, 1, 2)
        (late,) = queue.claim(lease=1)
        clock.advance(2)
        (held,) = queue.claim()
        assert late.complete() is Verdict.LOST
        assert queue.claim() == []
        assert held.complete() is Verdict.APPLIED
        assert _numbers(queue) == [2]

    def test_a_job_that_exhausts_its_attempts_unblocks_the_next(self, queue: Queue, clock: SettableClock) -> None:
        _enqueue(queue, 1, 2, max_attempts=1)
        queue.claim(lease=1)
        clock.advance(2)
        assert _numbers(queue) == [2]

    def test_the_same_group_of_another_queue_is_another_group(self, queue: Queue) -> None:
        other = queue.db.queue(f"{queue.name}-other")
        _enqueue(queue, 1, 2)
        _enqueue(other, 1, 2)
        assert (_numbers(queue), _numbers(other)) == ([1], [1])
        assert (_numbers(queue), _numbers(other)) == ([2], [2])

    def test_as_many_run_at_once_as_the_limit_of_the_queue(self, queue: Queue) -> None:
        queue.limit(per_group=2)
        assert queue.controls().per_group == 2
        _enqueue(queue, 1, 2, 3, 4, 5)
        first = queue.claim(5)
        assert [job.payload for job in first] == [1, 2]
        assert first[1].complete() is Verdict.APPLIED
        second = queue.claim(5)
        assert [job.payload for job in second] == [3]
        assert all(queue.complete_many([first[0], *second]))
        assert _numbers(queue) == [4, 5]

    def test_a_new_limit_applies_to_existing_jobs(self, queue: Queue) -> None:
        _enqueue(queue, 1, 2, 3, 4)
        queue.limit(per_group=3)
        assert queue.stats().blocked == 1
        queue.limit(per_group=None)
        (one, *others) = queue.claim(4)
        assert one.complete() is Verdict.APPLIED
        assert queue.claim() == []
        assert all(queue.complete_many(others))
        assert _numbers(queue) == [4]

    def test_stats_and_reads_show_blocked_jobs(self, queue: Queue) -> None:
        _, second, third = _enqueue(queue, 1, 2, 3)
        assert second is not None
        stats = queue.stats()
        assert (stats.available, stats.scheduled, stats.blocked, stats.by_kind["mail"].blocked) == (1, 0, 2, 2)
        assert [job.payload for job in queue.peek()] == [1]
        job = queue.get(second)
        assert (job.group, job.state) == ("g", State.BLOCKED)
        (held,) = queue.claim()
        assert held.group == "g"
        # Nothing becomes due by itself except the running job, at the end of its lease.
        assert all(queue.complete_many([held]))
        assert third is not None
        assert queue.purge() == 2
        assert queue.db.next_due([queue.name])[queue.name] is None

    def test_blocked_jobs_alone_wake_no_worker(self, queue: Queue) -> None:
        _enqueue(queue, 1, 2)
        jobs = queue.db.store.tables.jobs
        with queue.db.database.engine.begin() as connection:
            connection.execute(jobs.delete().where(jobs.c.queue == queue.name, jobs.c.payload == "1"))
        assert queue.db.next_due([queue.name])[queue.name] is None
        # Deleted by hand: the next job stays blocked.
        assert queue.claim() == []
        assert queue.repair_groups() == 1
        assert queue.repair_groups() == 0
        assert _numbers(queue) == [2]

    def test_a_purged_group_starts_anew(self, queue: Queue) -> None:
        _enqueue(queue, 1, 2, 3)
        assert queue.purge() == 3
        _enqueue(queue, 4, 5)
        assert [_numbers(queue), _numbers(queue)] == [[4], [5]]

    def test_a_purge_leaves_the_running_one_and_its_group(self, queue: Queue) -> None:
        _enqueue(queue, 1, 2, 3)
        (held,) = queue.claim()
        assert queue.purge() == 2
        _enqueue(queue, 4)
        assert queue.claim() == []
        assert held.complete() is Verdict.APPLIED
        assert _numbers(queue) == [4]

    def test_a_redriven_job_waits_for_the_running_one(self, queue: Queue) -> None:
        _enqueue(queue, 1, 2, 3)
        (first,) = queue.claim()
        assert first.bury("no use") is Verdict.APPLIED
        (second,) = queue.claim()
        assert queue.db.dead.redrive(queue=queue.name) == [first.id]
        assert queue.claim() == []
        assert queue.get(first.id).state is State.BLOCKED
        assert second.complete() is Verdict.APPLIED
        assert [_numbers(queue), _numbers(queue)] == [[1], [3]]

    def test_each_job_that_leaves_unblocks_one_even_before_the_running_ones(self, queue: Queue) -> None:
        queue.limit(per_group=2)
        _enqueue(queue, 1, 2, 3, 4)
        assert all(queue.bury_many(queue.claim(2), "no use"))
        third, fourth = queue.claim(2)
        assert len(queue.db.dead.redrive(queue=queue.name)) == 2
        assert queue.claim(2) == []
        assert third.complete() is Verdict.APPLIED
        assert [job.payload for job in queue.claim(2)] == [1]
        assert fourth.complete() is Verdict.APPLIED
        assert [job.payload for job in queue.claim(2)] == [2]

    def test_a_redriven_job_whose_group_is_gone_is_due(self, queue: Queue) -> None:
        _enqueue(queue, 1)
        (first,) = queue.claim()
        assert first.bury("no use") is Verdict.APPLIED
        assert queue.db.dead.redrive(queue=queue.name) == [first.id]
        assert queue.get(first.id).group == "g"
        assert _numbers(queue) == [1]

    def test_many_groups_at_once(self, queue: Queue) -> None:
        queue.enqueue_many([("mail", number, {"group": f"g{number % 120}"}) for number in range(360)])
        for turn in range(3):
            assert sorted(_numbers(queue, 500)) == list(range(120 * turn, 120 * (turn + 1)))
        assert queue.stats().blocked == 0

    @pytest.mark.parametrize(("groups", "enqueueing", "completing"), [(1, 3, 4), (40, 4, 6)])
    def test_its_cost_in_statements(self, queue: Queue, groups: int, enqueueing: int, completing: int) -> None:
        """The statements beyond those of the same jobs without a group."""

        def price(jobs: list[tuple[str, int, dict[str, object]]]) -> tuple[int, int]:
            with counted_statements(queue.db.database.engine) as enqueued:
                queue.enqueue_many(jobs)
            claimed = queue.claim(groups)
            assert len(claimed) == groups
            with counted_statements(queue.db.database.engine) as completed:
                assert all(queue.complete_many(claimed))
            queue.purge()
            # A notification of waiting workers is sent at most every 20 ms, with any statement.
            sent = [[text for text in texts if "pg_notify" not in text] for texts in (enqueued, completed)]
            return len(sent[0]), len(sent[1])

        plain = price([("mail", number, {}) for number in range(3 * groups)])
        grouped = price([("mail", number, {"group": f"g{number % groups}"}) for number in range(3 * groups)])
        assert grouped[0] - plain[0] <= enqueueing
        assert grouped[1] - plain[1] <= completing

    @pytest.mark.parametrize("group", ["", "x" * 201, "padded ", 7])
    def test_an_impossible_group_is_refused(self, queue: Queue, group: object) -> None:
        with pytest.raises(ArgumentError, match="group"):
            queue.enqueue("mail", group=group)  # type: ignore[call-overload]

    @pytest.mark.parametrize("most", [0, -1, 1.5])
    def test_an_impossible_limit_is_refused(self, queue: Queue, most: object) -> None:
        with pytest.raises(ArgumentError, match="per_group"):
            queue.limit(per_group=most)  # type: ignore[arg-type]


class TestGroupsAndKeys:
    """A skipped or replaced job does not change the order of its group."""

    def test_a_skipped_job_takes_no_place_in_a_group(self, queue: Queue) -> None:
        queue.enqueue("mail", 0, unique_key="k")
        ids = queue.enqueue_many(
            [("mail", 1, {"group": "g", "unique_key": "k"}), ("mail", 2, {"group": "g"}), ("mail", 3, {"group": "g"})],
            on_duplicate="skip",
        )
        assert ids[0] is None
        assert sorted(_numbers(queue)) == [0, 2]
        assert _numbers(queue) == [3]

    def test_a_replaced_job_keeps_its_place(self, queue: Queue, clock: SettableClock) -> None:
        _enqueue(queue, 1)
        second = queue.enqueue("mail", 2, group="g", unique_key="k")
        _enqueue(queue, 3)
        assert queue.enqueue("mail", 22, group="g", unique_key="k", on_duplicate="replace", delay=5) == second
        assert _numbers(queue) == [1]
        assert _numbers(queue) == []
        clock.advance(6)
        assert [_numbers(queue), _numbers(queue)] == [[22], [3]]

    def test_a_replaced_first_job_stays_the_first(self, queue: Queue) -> None:
        first = queue.enqueue("mail", 1, group="g", unique_key="k")
        _enqueue(queue, 2)
        assert queue.enqueue("mail", 11, group="g", unique_key="k", on_duplicate="replace") == first
        assert [_numbers(queue), _numbers(queue)] == [[11], [2]]

    @pytest.mark.parametrize(("one", "other"), [("a", "b"), ("a", None), (None, "b")])
    def test_a_job_does_not_change_its_group(self, queue: Queue, one: str | None, other: str | None) -> None:
        job_id = queue.enqueue("mail", 1, group=one, unique_key="k")
        with pytest.raises(ArgumentError, match=f"job {job_id} .*group"):
            queue.enqueue("mail", 2, group=other, unique_key="k", on_duplicate="replace")
        assert _numbers(queue) == [1]
