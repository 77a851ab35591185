"""Fair queues: groups take turns by weight, and no claim passes a limit of a group, of each group, or of a prefix."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from queue_db.errors import ArgumentError
from queue_db.leased_job import LeasedJob
from queue_db.model import Verdict
from queue_db.queue import Queue
from queue_db.testing.clock import SettableClock

__all__ = ["TestFairQueues", "TestGroupLimits", "TestPlacesOfGroups"]

#: Seconds, at most, until a process looks again at a group that was at its limit a moment ago.
PATIENCE = 10.0


def _add(queue: Queue, group: str | None, number: int, **options: object) -> None:
    queue.enqueue_many([("mail", place, {"group": group, **options}) for place in range(number)])


def _told(rival: Queue) -> Queue:
    """Another process, which knows now what was set; otherwise it learns it within a second."""
    rival.core.policies.stale = True
    return rival


def _groups(jobs: Sequence[LeasedJob]) -> Counter[str]:
    return Counter(str(job.group) for job in jobs)


def _all(*queues: Queue) -> list[LeasedJob]:
    """Claim by turns until no claim gets a job."""
    jobs: list[LeasedJob] = []
    while found := [job for queue in queues for job in queue.claim(5)]:
        jobs += found
    return jobs


def _next(queue: Queue, limit: int, most: int = 1) -> list[LeasedJob]:
    """Claim until there are ``most`` jobs, which limits allow again."""
    jobs, until = queue.claim(limit), time.monotonic() + PATIENCE
    while len(jobs) < most and time.monotonic() < until:
        jobs += queue.claim(limit)
    return jobs


class TestFairQueues:
    """Claims take turns among the groups that have due jobs."""

    @pytest.mark.parametrize("limit", [1, 10])
    def test_one_job_does_not_wait_behind_the_many_of_another_group(self, queue: Queue, rival_queue: Queue, limit: int) -> None:
        queue.fair()
        _add(queue, "many", 60)
        assert _groups(queue.claim(limit)) == {"many": limit}
        _add(queue, "one", 1)
        assert _groups(queue.claim(limit))["one"] == 1
        _add(queue, "one", 1)
        _told(rival_queue).claim(limit)  # its turns begin at any group
        assert queue.claim(limit)

    def test_groups_share_by_their_weights_while_they_have_jobs(self, queue: Queue) -> None:
        queue.fair(weights={"three": 3})
        for group in ("one", "three"):
            _add(queue, group, 150)
        found = Counter[str]()
        for limit in (10, 3, 7) * 10:
            found += _groups(queue.claim(limit))
        assert found.total() == 200
        assert abs(found["three"] / 150 - 1) <= 0.05

    def test_a_group_that_is_alone_gets_every_place(self, queue: Queue) -> None:
        queue.fair()
        _add(queue, "alone", 25)
        assert [[job.payload for job in queue.claim(10)] for _ in range(3)] == [
            list(range(10)),
            list(range(10, 20)),
            list(range(20, 25)),
        ]

    def test_groups_take_turns_within_a_priority(self, queue: Queue) -> None:
        queue.fair()
        _add(queue, "late", 4, priority=1)
        _add(queue, "urgent", 2)
        _add(queue, None, 1)
        assert _groups(queue.claim(2)) == {"urgent": 2}
        assert _groups(_all(queue)) == {"late": 4, "None": 1}

    def test_jobs_of_a_group_run_beside_each_other(self, queue: Queue) -> None:
        queue.fair()
        _add(queue, "g", 3)
        first, second, third = queue.claim(3)
        assert third.complete()
        assert second.release()
        assert first.complete()
        assert [job.payload for job in queue.claim(3)] == [second.payload]

    def test_a_queue_becomes_fair_and_orders_its_groups_again(self, queue: Queue) -> None:
        _add(queue, "g", 3)
        assert queue.stats().blocked == 2
        queue.fair()
        assert (queue.stats().blocked, queue.controls().fair) == (0, True)
        assert len(queue.claim(3)) == 3
        queue.fair(False)
        _add(queue, "h", 2)
        assert _groups(queue.claim(2)) == {"h": 1}


#: Ways in which a job ends or gives its lease back.
ENDS: dict[str, Callable[[LeasedJob], Verdict]] = {
    "complete": lambda job: job.complete(),
    "fail": lambda job: job.fail("again", retry_in=60),
    "snooze": lambda job: job.snooze(60),
    "cancel": lambda job: job.cancel(),
    "bury": lambda job: job.bury("no use"),
}


class TestGroupLimits:
    """No claim passes a limit, of whatever process it is."""

    def test_limits_of_each_group_of_one_and_of_a_prefix(self, queue: Queue, rival_queue: Queue) -> None:
        queue.fair()
        queue.limit_groups(concurrency=2)
        queue.limit_groups(group="vip", concurrency=4)
        queue.limit_groups(prefix="acme:", concurrency=3)
        for group in ("acme:1", "acme:2", "other", "vip"):
            _add(queue, group, 8)
        found = _groups(_all(queue, _told(rival_queue)))
        assert found["acme:1"] + found["acme:2"] == 3
        assert max(found["acme:1"], found["acme:2"]) == 2
        assert (found["other"], found["vip"]) == (2, 4)

    def test_the_end_of_a_lease_frees_its_place(self, queue: Queue, rival_queue: Queue, clock: SettableClock) -> None:
        queue.fair()
        queue.limit_groups(concurrency=1)
        _add(queue, "g", 2)
        (job,) = queue.claim(2, lease=10)
        assert job.extend(30)
        clock.advance(20)
        assert _told(rival_queue).claim(2) == []
        clock.advance(20)
        assert len(_next(_told(rival_queue), 2)) == 1

    def test_a_rate_of_each_group(self, queue: Queue, rival_queue: Queue, clock: SettableClock) -> None:
        queue.fair()
        queue.limit_groups(rate=6, per=60)
        for group in ("a", "b"):
            _add(queue, group, 20)
        assert _groups(_all(queue, _told(rival_queue))) == {"a": 6, "b": 6}, "after an idle time all at once"
        clock.advance(20)
        assert _groups(_next(queue, 5, 4)) == {"a": 2, "b": 2}

    def test_a_limit_changes_while_jobs_run(self, queue: Queue, rival_queue: Queue) -> None:
        queue.fair()
        queue.limit_groups(concurrency=1)
        _add(queue, "g", 6)
        (job,) = queue.claim(6)
        queue.limit_groups(concurrency=3)
        assert len(_told(rival_queue).claim(6)) == 2
        queue.limit_groups(concurrency=2)
        assert job.complete()
        assert queue.claim(6) == []
        queue.limit_groups(concurrency=None)
        assert len(_next(queue, 6)) == 3
        assert queue.group_limits() == []

    def test_limits_of_groups_need_a_fair_queue(self, queue: Queue) -> None:
        with pytest.raises(ArgumentError, match="fair"):
            queue.limit_groups(concurrency=5)
        queue.fair(weights={"vip": 3})
        queue.limit_groups(group="vip", rate=10, per=2)
        (limit,) = queue.group_limits()
        assert (limit.group, limit.weight, limit.concurrency, limit.rate, limit.per) == ("vip", 3, None, 10, 2.0)


class TestPlacesOfGroups:
    """A job that has left takes no place."""

    @pytest.mark.parametrize("end", ENDS)
    def test_the_end_of_a_job_frees_its_place(self, queue: Queue, end: str) -> None:
        queue.fair()
        queue.limit_groups(concurrency=1)
        _add(queue, "g", 3)
        (job,) = queue.claim(3)
        assert queue.claim(3) == []
        assert ENDS[end](job)
        assert len(_next(queue, 3)) == 1
