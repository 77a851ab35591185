"""Pages of jobs by state."""

from __future__ import annotations

import base64

import pytest

from queue_db.errors import ArgumentError
from queue_db.model import PRESENT, Job, PresentState, State
from queue_db.monitoring.listing import PRIORITIES, SCANNED
from queue_db.queue import Queue
from queue_db.testing.clock import SettableClock

__all__ = ["TestJobs"]


def _all(
    queue: Queue, state: PresentState | State, *, kind: str | None = None, group: str | None = None, limit: int = 2
) -> list[Job]:
    """The jobs of all pages; none has more than ``limit``."""
    found: list[Job] = []
    after = None
    while True:
        page = queue.jobs(state, kind=kind, group=group, after=after, limit=limit)
        assert len(page.jobs) <= limit
        found += page.jobs
        if page.after is None:
            return found
        assert page.after != after
        after = page.after


class TestJobs:
    """``queue.jobs``."""

    def test_each_state_has_its_jobs(self, queue: Queue, clock: SettableClock) -> None:
        queue.enqueue_many([("dead", None), ("run out", None), ("running", None)])
        buried, over, running = queue.claim(limit=3, lease=100)
        assert buried.bury("no use")
        assert running.extend(1000)
        clock.advance(100)
        queue.enqueue("late", delay=60)
        queue.enqueue("head", group="g", delay=30)
        queue.enqueue("behind", group="g")
        queue.db.queue(f"{queue.name}-other").enqueue("other")
        kinds = {state: [job.kind for job in _all(queue, state)] for state in PRESENT}
        assert kinds == {
            State.AVAILABLE: ["run out"],
            State.SCHEDULED: ["head", "late"],
            State.RUNNING: ["running"],
            State.BLOCKED: ["behind"],
            State.DEAD: ["dead"],
        }
        for state in PRESENT:
            for job in queue.jobs(state).jobs:
                assert job == queue.get(job.id)
        assert over.complete()

    def test_pages_follow_the_order_of_claims(self, queue: Queue, clock: SettableClock) -> None:
        for moment in range(2):
            # Each priority, and several jobs of one time.
            queue.enqueue_many(
                [("mail", (priority, moment, each), {"priority": priority}) for each in range(3) for priority in (7, -7, 0)]
            )
            clock.advance(1)
        wanted = sorted((priority, moment, each) for priority in (-7, 0, 7) for moment in range(2) for each in range(3))
        for limit in (1, 2, 3, 5, 17, 18, 19, 50):
            assert [tuple(job.payload) for job in _all(queue, "available", limit=limit)] == wanted
        assert [tuple(job.payload) for job in queue.peek(18)] == wanted
        assert queue.jobs("available", limit=18).after is None

    def test_a_page_that_is_read_again_is_the_same(self, queue: Queue) -> None:
        queue.enqueue_many([("mail", number) for number in range(5)])
        first = queue.jobs("available", limit=2)
        second = queue.jobs("available", after=first.after, limit=2)
        assert [job.payload for job in second.jobs] == [2, 3]
        assert queue.jobs("available", after=first.after, limit=2) == second

    def test_jobs_that_left_meanwhile_do_not_disturb_the_pages(self, queue: Queue) -> None:
        queue.enqueue_many([("mail", number) for number in range(6)])
        first = queue.jobs("available", limit=2)
        second = queue.jobs("available", after=first.after, limit=2)
        assert all(queue.cancel(job.id) for job in [*first.jobs, *second.jobs])
        assert [job.payload for job in queue.jobs("available", after=first.after).jobs] == [4, 5]

    def test_one_kind_and_one_group(self, queue: Queue) -> None:
        for number in range(4):
            queue.enqueue("even" if number % 2 == 0 else "odd", number, group="g" if number < 3 else "h")
        assert [job.payload for job in _all(queue, "available")] == [0, 3]
        assert [job.payload for job in _all(queue, "blocked", limit=1)] == [1, 2]
        assert [job.payload for job in _all(queue, "blocked", kind="odd")] == [1]
        assert [job.payload for job in _all(queue, "blocked", group="g", limit=1)] == [1, 2]
        assert [job.payload for job in _all(queue, "available", group="g")] == [0]
        assert [job.payload for job in _all(queue, "available", group="g", kind="odd")] == []
        assert _all(queue, "available", group="none") == []

    def test_dead_jobs_the_longest_dead_first(self, queue: Queue, clock: SettableClock) -> None:
        queue.enqueue_many([("even" if number % 2 == 0 else "odd", number) for number in range(4)])
        queue.enqueue("even", 4, group="g")
        jobs = queue.claim(limit=5)
        assert all(queue.bury_many(jobs[2:], "at one moment"))
        clock.advance(1)
        assert all(queue.bury_many(jobs[:2], "later"))
        dead = _all(queue, "dead")
        assert [job.payload for job in dead] == [2, 3, 4, 0, 1]
        assert dead == queue.db.dead.list(queue.name)
        assert [job.payload for job in _all(queue, "dead", kind="even", limit=1)] == [2, 4, 0]
        assert [job.payload for job in _all(queue, "dead", group="g")] == [4]

    def test_a_rare_kind_is_found_on_a_later_page(self, queue: Queue) -> None:
        queue.enqueue_many([("frequent", number) for number in range(SCANNED)])
        queue.enqueue("rare")
        first = queue.jobs("available", kind="rare")
        assert first.jobs == []
        assert first.after is not None
        second = queue.jobs("available", kind="rare", after=first.after)
        assert [job.kind for job in second.jobs] == ["rare"]
        assert second.after is None

    def test_jobs_behind_many_priorities_are_found_on_a_later_page(self, queue: Queue) -> None:
        queue.enqueue_many([("late", None, {"priority": priority, "delay": 60}) for priority in range(PRIORITIES)])
        queue.enqueue("due", priority=2**31 - 1)
        first = queue.jobs("available")
        assert (first.jobs, first.after is None) == ([], False)
        assert [job.kind for job in queue.jobs("available", after=first.after).jobs] == ["due"]
        assert [job.kind for job in _all(queue, "available")] == ["due"]
        assert len(_all(queue, "scheduled", limit=50)) == PRIORITIES

    def test_an_empty_queue_has_one_empty_page(self, queue: Queue) -> None:
        for state in PRESENT:
            page = queue.jobs(state)
            assert (page.jobs, page.after) == ([], None)

    def test_what_is_no_page_is_refused(self, queue: Queue) -> None:
        queue.enqueue_many([("mail", number, {"group": str(number)}) for number in range(3)])
        after = queue.jobs("available", limit=1).after
        assert after is not None

        def text(plain: str) -> str:
            return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")

        wrong = [
            "",
            "x",
            "é",
            after + "=",
            17,
            text("c.0.0"),
            text("c.0.0.x"),
            text("c.0.0.+1"),
            text(f"c.0.0.{2**63}"),
            "A" * 10_000,
        ]
        for bad in wrong:
            with pytest.raises(ArgumentError, match="after="):
                queue.jobs("available", after=bad)  # type: ignore[arg-type]
        for other in ("dead", "available"):  # a list in another order
            with pytest.raises(ArgumentError, match="of the same state and group"):
                queue.jobs(other, group="1" if other == "available" else None, after=after)
        for bad in ("finished", "", None, 1):
            with pytest.raises(ArgumentError, match=r"state=.*: must be one of available, "):
                queue.jobs(bad)  # type: ignore[arg-type]
        for bad in (0, 1001, "1", None):
            with pytest.raises(ArgumentError, match="limit="):
                queue.jobs("available", limit=bad)  # type: ignore[arg-type]
