"""Unique keys: at most one live job has a key, under every policy for duplicates."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from queue_db.db import QueueDB
from queue_db.errors import ArgumentError, DuplicateJobError
from queue_db.model import State, Verdict
from queue_db.queue import Queue
from queue_db.testing.clock import SettableClock

__all__ = ["TestDebounce", "TestRefusedLists", "TestUniqueFor", "TestUniqueKey", "TestUniqueKeysOfMany"]


WAYS_OUT: dict[str, Callable[[Queue, int], object]] = {
    "complete": lambda queue, _: queue.claim()[0].complete(),
    "cancel": lambda queue, job_id: queue.cancel(job_id),
    "cancel by lease": lambda queue, _: queue.claim()[0].cancel(),
    "bury": lambda queue, _: queue.claim()[0].bury("no use"),
    "purge": lambda queue, _: queue.purge(),
}


class TestUniqueKey:
    """One job at a time."""

    def test_raise_names_the_key_and_the_live_job(self, queue: Queue) -> None:
        first = queue.enqueue("mail", 1, unique_key="k")
        with pytest.raises(DuplicateJobError) as caught:
            queue.enqueue("mail", 2, unique_key="k")
        assert (caught.value.unique_key, caught.value.existing_id) == ("k", first)
        assert [job.payload for job in queue.peek()] == [1]

    def test_skip_keeps_the_live_job(self, queue: Queue) -> None:
        queue.enqueue("mail", 1, unique_key="k")
        assert queue.enqueue("mail", 2, unique_key="k", on_duplicate="skip") is None
        assert [job.payload for job in queue.peek()] == [1]

    def test_replace_puts_the_new_content_in_the_old_place(self, queue: Queue, clock: SettableClock) -> None:
        first = queue.enqueue("mail", 1, unique_key="k", priority=9, max_attempts=3, headers={"old": 1})
        clock.advance(5)
        again = queue.enqueue("post", 2, unique_key="k", on_duplicate="replace", priority=1, delay=7, headers={"new": 2})
        assert first is not None
        assert again == first
        job = queue.get(first)
        assert (job.kind, job.payload, job.priority, job.max_attempts, job.headers) == ("post", 2, 1, 25, {"new": 2})
        assert (job.created_at, job.available_at) == (clock.now(), clock.now() + timedelta(seconds=7))
        assert (job.version, job.attempts) == (1, 0)

    def test_replace_of_a_running_job_fences_its_worker(self, queue: Queue, rival_queue: Queue) -> None:
        queue.enqueue("mail", "old", unique_key="k")
        (old,) = queue.claim()
        assert rival_queue.enqueue("mail", "new", unique_key="k", on_duplicate="replace") == old.id
        replaced = queue.get(old.id)
        assert (replaced.state, replaced.worker, replaced.attempts) == (State.AVAILABLE, None, 0)
        assert old.complete() is Verdict.LOST
        assert old.extend(60) is Verdict.LOST
        assert queue.get(old.id) == replaced
        (new,) = rival_queue.claim()
        assert (new.payload, new.attempts) == ("new", 1)
        assert new.version > old.version
        assert new.complete()

    def test_replace_of_nothing_is_an_enqueue(self, queue: Queue) -> None:
        assert queue.enqueue("mail", 1, unique_key="k", on_duplicate="replace") is not None
        assert [job.payload for job in queue.peek()] == [1]

    def test_the_key_is_taken_while_the_job_lives(self, queue: Queue) -> None:
        queue.enqueue("mail", unique_key="k")
        (job,) = queue.claim()
        assert queue.enqueue("mail", unique_key="k", on_duplicate="skip") is None
        assert job.fail("again", retry_in=60)
        assert queue.enqueue("mail", unique_key="k", on_duplicate="skip") is None

    def test_the_key_is_free_when_the_job_has_left(self, queue: Queue) -> None:
        for way, leave in WAYS_OUT.items():
            first = queue.enqueue("mail", 1, unique_key=way)
            assert first is not None
            assert leave(queue, first)
            second = queue.enqueue("mail", 2, unique_key=way)
            assert second is not None
            assert second > first
            assert [job.payload for job in queue.claim(limit=10)] == [2], way

    def test_another_queue_has_keys_of_its_own(self, db: QueueDB, name: str) -> None:
        ids = {db.queue(f"{name}-{number}").enqueue("mail", unique_key="k") for number in range(3)}
        assert None not in ids
        assert len(ids) == 3

    def test_keys_differ_by_every_character(self, queue: Queue) -> None:
        keys = ["key", "Key", "këy", "key.", "clé", "🔑", "🗝"]
        assert None not in [queue.enqueue("mail", key, unique_key=key, on_duplicate="skip") for key in keys]
        assert sorted(job.payload for job in queue.peek()) == sorted(keys)
        assert queue.enqueue("mail", unique_key="🗝", on_duplicate="skip") is None


class TestUniqueKeysOfMany:
    """Within one list, across its chunks, and against live jobs."""

    def test_raise_enqueues_nothing(self, queue: Queue) -> None:
        live = queue.enqueue("live", unique_key="k")
        with pytest.raises(DuplicateJobError) as caught:
            queue.enqueue_many([("new", 1), ("new", 2, {"unique_key": "k"}), ("new", 3)])
        assert (caught.value.unique_key, caught.value.existing_id) == ("k", live)
        with pytest.raises(DuplicateJobError):
            queue.enqueue_many([("new", 1, {"unique_key": "n"}), ("new", 2, {"unique_key": "n"})])
        assert [job.kind for job in queue.peek()] == ["live"]

    def test_skip_returns_none_for_each_skipped_job(self, queue: Queue) -> None:
        queue.enqueue("live", "live", unique_key="k")
        ids = queue.enqueue_many(
            [
                ("new", 0),
                ("new", 1, {"unique_key": "k"}),
                ("new", 2, {"unique_key": "a"}),
                ("new", 3),
                ("new", 4, {"unique_key": "a"}),
                ("new", 5, {"unique_key": "b"}),
            ],
            on_duplicate="skip",
        )
        assert [job_id is None for job_id in ids] == [False, True, False, False, True, False]
        for position in (0, 2, 3, 5):
            job_id = ids[position]
            assert job_id is not None
            assert queue.get(job_id).payload == position
        assert [job.payload for job in queue.peek()] == ["live", 0, 2, 3, 5]

    def test_replace_lets_the_last_one_win(self, queue: Queue) -> None:
        live = queue.enqueue("live", "live", unique_key="k")
        ids = queue.enqueue_many(
            [
                ("new", 0, {"unique_key": "k"}),
                ("new", 1, {"unique_key": "a"}),
                ("new", 2),
                ("new", 3, {"unique_key": "k"}),
                ("new", 4, {"unique_key": "a"}),
            ],
            on_duplicate="replace",
        )
        assert ids[3] == live
        assert sorted(job.payload for job in queue.peek()) == [2, 3, 4]

    def test_a_key_of_another_chunk_is_seen(self, queue: Queue) -> None:
        def jobs(last: str) -> list[tuple[str, object, dict[str, object]]]:
            return [
                ("new", "first", {"unique_key": "k"}),
                *[("filler", n, {}) for n in range(1100)],
                ("new", last, {"unique_key": "k"}),
            ]

        with pytest.raises(DuplicateJobError):
            queue.enqueue_many(jobs("raised"))
        assert queue.stats().available == 0
        ids = queue.enqueue_many(jobs("skipped"), on_duplicate="skip")
        assert ids[0] is not None
        assert ids[-1] is None
        assert queue.get(ids[0]).payload == "first"
        again = queue.enqueue_many(jobs("last"), on_duplicate="replace")
        assert again[-1] == ids[0]
        assert queue.get(ids[0]).payload == "last"


class TestUniqueFor:
    """A key that stays taken for a time, whatever the outcome of its job."""

    @pytest.mark.parametrize("way", [None, *WAYS_OUT])
    def test_a_key_is_taken_until_its_time_is_over(self, queue: Queue, clock: SettableClock, way: str | None) -> None:
        first = queue.enqueue("mail", 1, unique_key="k", unique_for=60)
        assert first is not None
        if way is not None:
            WAYS_OUT[way](queue, first)
        clock.advance(59)
        with pytest.raises(DuplicateJobError) as caught:
            queue.enqueue("mail", 2, unique_key="k", unique_for=60)
        assert (caught.value.unique_key, caught.value.existing_id) == ("k", first)
        assert str(caught.value).endswith('; pass on_duplicate="skip" to keep it')  # a job with unique_for replaces none
        assert queue.enqueue("mail", 2, unique_key="k", unique_for=60, on_duplicate="skip") is None
        clock.advance(2)
        again = queue.enqueue("mail", 3, unique_key="k", unique_for=60, on_duplicate="skip")
        # A live job keeps its key for longer.
        assert (again is None) is (way is None)

    def test_the_jobs_that_hold_keys_are_found(self, queue: Queue, clock: SettableClock) -> None:
        held = queue.enqueue("mail", 1, unique_key="k", unique_for=60)
        assert queue.claim()[0].complete()
        queue.enqueue("mail", 2, unique_key="live")
        assert queue.unique_key_holders(["k", "free", "live"]) == {"k": held}
        clock.advance(61)
        assert queue.unique_key_holders(["k"]) == {}
        assert queue.unique_key_holders([]) == {}

    def test_a_refused_one_takes_no_key(self, queue: Queue) -> None:
        live = queue.enqueue("mail", 1, unique_key="k")
        assert queue.enqueue("mail", 2, unique_key="k", unique_for=60, on_duplicate="skip") is None
        with pytest.raises(DuplicateJobError) as caught:
            queue.enqueue("mail", 2, unique_key="k", unique_for=60)
        assert caught.value.existing_id == live
        assert queue.claim()[0].complete()
        assert queue.enqueue("mail", 3, unique_key="k", unique_for=60) is not None

    def test_of_many_each_has_its_own_time(self, queue: Queue, clock: SettableClock) -> None:
        jobs = [("mail", key, {"unique_key": key, "unique_for": seconds}) for key, seconds in (("a", 10), ("b", 20))]
        assert None not in queue.enqueue_many(jobs)
        assert queue.purge() == 2
        clock.advance(11)
        ids = queue.enqueue_many([*jobs, jobs[0]], on_duplicate="skip")
        assert [job_id is None for job_id in ids] == [False, True, True]

    def test_the_same_key_of_another_queue_is_free(self, queue: Queue) -> None:
        queue.enqueue("mail", unique_key="k", unique_for=60)
        assert queue.db.queue(f"{queue.name}-other").enqueue("mail", unique_key="k", unique_for=60) is not None

    def test_expired_keys_are_pruned_and_no_others(self, queue: Queue, clock: SettableClock) -> None:
        windows = queue.db.store.tables.windows
        mine = windows.select().where(windows.c.queue.in_([queue.name, f"{queue.name}-other"]))

        def keys() -> list[tuple[str, str]]:
            queue.db.prune()
            with queue.db.database.engine.connect() as connection:
                return sorted((row.queue.removeprefix(queue.name), row.unique_key) for row in connection.execute(mine))

        queue.enqueue("mail", unique_key="k", unique_for=60)
        queue.enqueue("mail", unique_key="longer", unique_for=90)
        queue.db.queue(f"{queue.name}-other").enqueue("mail", unique_key="k", unique_for=90)
        assert keys() == [("", "k"), ("", "longer"), ("-other", "k")]
        clock.advance(60)
        assert keys() == [("", "longer"), ("-other", "k")]
        clock.advance(30)
        assert keys() == []

    def test_it_needs_a_key_and_cannot_replace(self, queue: Queue) -> None:
        with pytest.raises(ArgumentError, match="unique key"):
            queue.enqueue("mail", unique_for=60)
        for policy in ("replace", "debounce"):
            with pytest.raises(ArgumentError, match="unique_for"):
                queue.enqueue("mail", unique_key="k", unique_for=60, on_duplicate=policy)
        assert queue.stats().available == 0


class TestDebounce:
    """Debounce: each further call postpones the job."""

    def test_each_call_postpones_it(self, queue: Queue, clock: SettableClock) -> None:
        first = queue.enqueue("mail", 1, unique_key="k", on_duplicate="debounce", delay=5)
        for number in (2, 3):
            clock.advance(4)
            assert queue.claim() == []
            assert queue.enqueue("mail", number, unique_key="k", on_duplicate="debounce", delay=5) == first
        clock.advance(6)
        assert [job.payload for job in queue.claim(2)] == [3]

    def test_a_running_job_stays_and_the_next_one_waits_beside_it(self, queue: Queue, clock: SettableClock) -> None:
        queue.enqueue("mail", 1, unique_key="k", on_duplicate="debounce")
        (held,) = queue.claim()
        second = queue.enqueue("mail", 2, unique_key="k", on_duplicate="debounce", delay=5)
        assert second not in (None, held.id)
        assert held.extend(100)
        assert queue.enqueue("mail", 3, unique_key="k", on_duplicate="debounce", delay=5) == second
        assert held.complete()
        clock.advance(6)
        assert [job.payload for job in queue.claim(2)] == [3]

    def test_one_whose_worker_vanished_is_replaced(self, queue: Queue, clock: SettableClock) -> None:
        first = queue.enqueue("mail", 1, unique_key="k", on_duplicate="debounce")
        (late,) = queue.claim(lease=1)
        clock.advance(1)  # the lease is over when it could be claimed again
        assert queue.enqueue("mail", 2, unique_key="k", on_duplicate="debounce") == first
        assert not late.complete()
        assert [job.payload for job in queue.claim(2)] == [2]

    def test_of_many_the_last_wins(self, queue: Queue) -> None:
        queue.enqueue_many([("mail", n, {"unique_key": "k"}) for n in range(3)], on_duplicate="debounce")
        assert [job.payload for job in queue.claim(5)] == [2]


class TestRefusedLists:
    """A list with a key that is taken is refused as a whole, and the error names the place of the job, its key, and who has it."""

    @pytest.mark.parametrize("within", [False, True])
    def test_a_key_twice_in_a_long_list_is_of_no_job(self, queue: Queue, within: bool) -> None:
        """They are inserted in several statements; the first of the two is undone with the rest."""
        jobs = [("k", number, {"unique_key": str(number % 2100)}) for number in range(2200)]
        error = _refusal(queue, jobs, within=within)
        assert (error.position, error.unique_key, error.existing_id, error.other) == (2100, "0", None, 0)
        assert str(error).startswith("job 2100: unique_key '0' is taken by job 0 of the same call; ")
        assert queue.stats().available == 0

    @pytest.mark.parametrize("window", [None, 60])
    def test_a_key_of_a_live_job_is_that_of_this_job(self, queue: Queue, window: float | None) -> None:
        there = queue.enqueue("k", unique_key="1500", unique_for=window)
        jobs = [("k", number, {"unique_key": str(number), "unique_for": window}) for number in range(1600)]
        error = _refusal(queue, jobs)
        assert (error.position, error.unique_key, error.existing_id) == (1500, "1500", there)
        assert str(error).startswith(
            f"job 1500: unique_key '1500' is taken by a job in the queue, or one whose unique_for is not over (id {there})"
        )
        assert ("replace" in str(error)) is (window is None)

    @pytest.mark.parametrize("within", [False, True])
    def test_a_key_twice_that_a_live_job_has_is_of_this_job(self, queue: Queue, within: bool) -> None:
        there = queue.enqueue("k", unique_key="one")
        error = _refusal(queue, [("k", number, {"unique_key": "one"}) for number in range(2)], within=within)
        assert (error.existing_id, error.other) == (there, None)

    def test_a_job_alone_has_no_place(self, queue: Queue) -> None:
        there = queue.enqueue("k", unique_key="one")
        with pytest.raises(DuplicateJobError, match=r"^unique_key 'one' is taken") as caught:
            queue.enqueue("k", unique_key="one")
        assert (caught.value.position, caught.value.existing_id) == (None, there)


def _refusal(queue: Queue, jobs: list[tuple[str, int, dict[str, Any]]], *, within: bool = False) -> DuplicateJobError:
    if not within:
        with pytest.raises(DuplicateJobError) as caught:
            queue.enqueue_many(jobs)
        return caught.value
    with queue.transaction() as connection, pytest.raises(DuplicateJobError) as caught:
        queue.enqueue_many(jobs, using=connection)
    return caught.value
