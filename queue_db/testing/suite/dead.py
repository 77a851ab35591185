"""Dead jobs: list, redrive, purge."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import product

import pytest

from queue_db.errors import ArgumentError, DuplicateJobError, JobNotFoundError
from queue_db.model import State
from queue_db.queue import Queue
from queue_db.testing.clock import SettableClock

__all__ = ["TestDead"]


def _bury(queue: Queue, kinds: Sequence[str], clock: SettableClock, **options: object) -> list[int]:
    """Dead jobs, each of which died one second after the one before."""
    ids = []
    for kind in kinds:
        queue.enqueue(kind, **options)  # type: ignore[call-overload]
        (job,) = queue.claim()
        assert job.bury(f"{kind} is hopeless")
        ids.append(job.id)
        clock.advance(1)
    return ids


class TestDead:
    """``db.dead``."""

    def test_the_list_is_the_longest_dead_first(self, queue: Queue, name: str, clock: SettableClock) -> None:
        start = clock.now()
        ids = _bury(queue, ["a", "b", "c"], clock)
        listed = queue.db.dead.list(name)
        assert [job.id for job in listed] == ids
        assert [job.available_at for job in listed] == [start + timedelta(seconds=second) for second in range(3)]
        assert {(job.state, job.queue, job.attempts) for job in listed} == {(State.DEAD, name, 1)}
        assert [job.last_error for job in listed] == [f"{kind} is hopeless" for kind in "abc"]
        assert [job.kind for job in queue.db.dead.list(name, kind="b")] == ["b"]
        assert queue.db.dead.list(f"{name}-other") == []

    def test_the_list_is_read_in_pages(self, queue: Queue, name: str) -> None:
        queue.enqueue_many([("mail", number) for number in range(7)])
        jobs = queue.claim(limit=7)
        assert all(queue.bury_many(jobs, "all at one moment"))
        pages, after = [], None
        while page := queue.db.dead.list(name, limit=3, after=after):
            pages.append([job.id for job in page])
            after = page[-1]
        assert pages == [[job.id for job in jobs[start : start + 3]] for start in (0, 3, 6)]

    def test_pages_go_by_the_time_of_death_and_not_by_id(self, queue: Queue, name: str, clock: SettableClock) -> None:
        queue.enqueue_many([("mail", number) for number in range(4)])
        for job in reversed(queue.claim(limit=4)):
            assert job.bury("later ones first")
            clock.advance(1)
        first = queue.db.dead.list(name, limit=2)
        second = queue.db.dead.list(name, limit=2, after=first[-1])
        assert [job.payload for job in [*first, *second]] == [3, 2, 1, 0]

    def test_pages_of_all_queues_are_one_order(self, queue: Queue, name: str, clock: SettableClock) -> None:
        deaths = []
        for number in range(20):
            # Long runs of one queue, and jobs of several queues that die at the same time.
            of = queue.db.queue(f"{name}-{'aabcaaaaaac'[number % 11]}")
            of.enqueue(f"kind{number % 2}")
            (job,) = of.claim()
            assert job.bury("no")
            deaths.append((clock.now(), job.id, job.kind))
            clock.advance(number % 3 == 0)
        for newest, limit, kind in product((False, True), (1, 7, 100), (None, "kind1")):
            listed, after = [], None
            while page := queue.db.dead.list(kind=kind, limit=limit, after=after, newest=newest):
                assert len(page) <= limit
                listed += [job.id for job in page if job.queue.startswith(f"{name}-")]
                after = page[-1]
            assert listed == [job_id for _, job_id, of_kind in sorted(deaths, reverse=newest) if kind in (None, of_kind)]

    def test_the_newest_of_a_queue_come_first(self, queue: Queue, name: str, clock: SettableClock) -> None:
        ids = _bury(queue, ["a", "b"] * 3, clock)
        first = queue.db.dead.list(name, limit=4, newest=True)
        second = queue.db.dead.list(name, limit=4, newest=True, after=first[-1])
        assert [job.id for job in [*first, *second]] == ids[::-1]
        assert [job.id for job in queue.db.dead.list(name, kind="a", newest=True)] == ids[::2][::-1]

    def test_a_redriven_job_starts_again_under_its_old_id(self, queue: Queue, clock: SettableClock) -> None:
        (job_id,) = _bury(queue, ["mail"], clock, payload="text", headers={"h": 1}, priority=3, unique_key="k", max_attempts=5)
        dead = queue.get(job_id)
        clock.advance(100)
        assert queue.db.dead.redrive(job_id) == [job_id]
        back = queue.get(job_id)
        assert (back.state, back.attempts, back.version, back.worker) == (State.AVAILABLE, 0, dead.version + 1, None)
        assert (back.available_at, back.created_at, back.last_error) == (clock.now(), dead.created_at, dead.last_error)
        assert (back.payload, back.headers, back.priority) == (dead.payload, dead.headers, dead.priority)
        assert (back.unique_key, back.max_attempts) == (dead.unique_key, dead.max_attempts)
        assert queue.db.dead.list(queue.name) == []
        (job,) = queue.claim()
        assert (job.id, job.attempts, job.version) == (job_id, 1, dead.version + 2)
        assert job.complete()

    def test_some_are_chosen_by_id_queue_kind_and_number(self, queue: Queue, name: str, clock: SettableClock) -> None:
        a, b, c, d = _bury(queue, ["even", "odd", "even", "odd"], clock)
        redrive = queue.db.dead.redrive
        assert redrive(queue=f"{name}-other") == []
        assert redrive([]) == []
        assert redrive(queue=name, kind="odd", limit=1) == [b]
        assert redrive([c, a], limit=1) == [a]
        assert redrive([c, d], queue=name) == [c, d]
        assert queue.stats().available == 4

    def test_hundreds_come_back(self, queue: Queue, name: str) -> None:
        ids = queue.enqueue_many([("mail", number) for number in range(600)])
        assert all(queue.bury_many(queue.claim(limit=600), "no use"))
        assert queue.db.dead.redrive(queue=name, limit=50) == ids[:50]
        assert queue.db.dead.redrive(queue=name) == ids[50:]
        assert (queue.stats().available, queue.stats().dead) == (600, 0)

    def test_a_dry_run_promises_what_goes_and_changes_nothing(self, queue: Queue, name: str, clock: SettableClock) -> None:
        """Also with two dead jobs of one unique key, and one whose key a live job has; more than one batch of them."""
        dead = queue.db.dead
        old = _bury(queue, ["mail"] * 2, clock, unique_key="one")
        (taken,) = _bury(queue, ["mail"], clock, unique_key="taken")
        queue.enqueue("mail", unique_key="taken")
        clock.advance(3600)
        ids = queue.enqueue_many([("bulk", number) for number in range(600)])
        assert all(queue.bury_many([job for job in queue.claim(limit=601) if job.kind == "bulk"], "no use"))
        assert dead.purge(name, older_than=1800, dry_run=True) == dead.purge(name, kind="mail", dry_run=True) == 3
        assert dead.purge(name, older_than=1800, keep=601, dry_run=True) == 2
        assert (dead.purge(name, keep=602, dry_run=True), dead.purge(name, limit=7, dry_run=True)) == (1, 7)
        assert dead.redrive(queue=name, kind="mail", dry_run=True) == [old[0]]
        assert dead.redrive([*old, taken], dry_run=True) == [old[0]]
        assert dead.redrive([*old, taken], limit=0, dry_run=True) == []
        assert dead.redrive(queue=name, dry_run=True) == [old[0], *ids]
        _bury(queue, ["mail"], clock, unique_key="one")  # its batch is the second
        assert dead.redrive(queue=name, dry_run=True) == [old[0], *ids]
        with pytest.raises(DuplicateJobError):
            dead.redrive(taken, dry_run=True)
        with pytest.raises(JobNotFoundError):
            dead.redrive([old[0], 2**40], dry_run=True)
        assert queue.stats().dead == 604
        assert dead.redrive(queue=name) == [old[0], *ids]
        assert dead.purge(name, older_than=1800) == 2

    def test_the_error_names_a_job_that_is_not_dead(self, queue: Queue, clock: SettableClock) -> None:
        (dead,) = _bury(queue, ["mail"], clock)
        live = queue.enqueue("mail")
        assert live is not None
        with pytest.raises(JobNotFoundError) as caught:
            queue.db.dead.redrive(live)
        assert caught.value.job_id == live
        with pytest.raises(JobNotFoundError, match=f"job {live} is not dead: it is available"):
            queue.db.dead.redrive([dead, live])
        assert queue.get(dead).state is State.DEAD
        assert queue.db.dead.redrive([dead]) == [dead]
        with pytest.raises(JobNotFoundError):
            queue.db.dead.redrive(dead)
        with pytest.raises(ArgumentError):
            queue.db.dead.redrive("all")

    def test_a_live_unique_key_prevents_a_redrive(self, queue: Queue, name: str, clock: SettableClock) -> None:
        ids = _bury(queue, ["mail", "mail"], clock, unique_key="k")
        (free,) = _bury(queue, ["free"], clock)
        live = queue.enqueue("mail", unique_key="k")
        assert live is not None
        with pytest.raises(DuplicateJobError):
            queue.db.dead.redrive(ids[0])
        assert queue.db.dead.redrive(queue=name) == [free]
        assert queue.cancel(live)
        # Of two dead with one key one comes back.
        assert queue.db.dead.redrive(queue=name) == [ids[0]]
        assert [job.id for job in queue.db.dead.list(name)] == [ids[1]]

    def test_purge_deletes_dead_jobs(self, queue: Queue, name: str, clock: SettableClock) -> None:
        a, b, c = _bury(queue, ["old", "odd", "new"], clock)
        assert queue.db.dead.purge(f"{name}-other") == 0
        assert queue.db.dead.purge(name, older_than=2.5) == 1
        with pytest.raises(JobNotFoundError):
            queue.get(a)
        assert queue.db.dead.purge(name, kind="odd") == 1
        with pytest.raises(JobNotFoundError):
            queue.get(b)
        assert queue.get(c).state is State.DEAD
        assert queue.db.dead.purge(name) == 1
        assert queue.db.dead.list(name) == []
