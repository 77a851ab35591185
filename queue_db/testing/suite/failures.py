"""Failed attempts by queue, kind and error class, and what is done with the dead jobs of a group."""

from __future__ import annotations

from datetime import timedelta

import pytest

from queue_db.errors import ArgumentError
from queue_db.queue import Queue
from queue_db.testing.clock import SettableClock

__all__ = ["TestFailures"]


def _raised(error: Exception) -> Exception:
    """The error with a traceback."""
    try:
        raise error  # noqa: TRY301
    except Exception as caught:  # noqa: BLE001 - any will do
        return caught


def _fail(queue: Queue, kind: str, error: Exception | str, *, attempts: int = 1, times: int = 1) -> int:
    """A job after failed attempts; dead if these were all."""
    job_id = queue.enqueue(kind, max_attempts=attempts)
    assert job_id is not None
    for _ in range(times):
        (job,) = queue.claim()
        assert job.fail(error, retry_in=0)
    if times < attempts:
        assert queue.cancel(job_id)
    return job_id


class TestFailures:
    """``db.failures``, and ``db.dead`` by error class."""

    def test_the_newest_are_grouped_with_one_trace_each(self, queue: Queue, name: str, clock: SettableClock) -> None:
        start = clock.now()
        _fail(queue, "mail", _raised(ValueError("first")))
        clock.advance(1)
        _fail(queue, "mail", _raised(ValueError("not the last")), attempts=5, times=2)
        clock.advance(1)
        last = _fail(queue, "mail", _raised(ValueError("last")))
        _fail(queue, "report", "no such file")
        values, reasons = queue.db.failures(name)
        assert (values.queue, values.kind, values.error_class) == (name, "mail", "ValueError")
        assert (values.count, values.dead, values.job_id, values.message) == (4, 2, last, "last")
        assert (values.first_at, values.last_at) == (start, start + timedelta(seconds=2))
        assert values.trace is not None
        assert values.trace.startswith("Traceback (most recent call last):\n  File ")
        assert "in _raised" in values.trace
        assert (reasons.kind, reasons.error_class, reasons.message, reasons.trace) == ("report", "", "no such file", None)
        assert (reasons.count, reasons.dead) == (1, 1)
        assert queue.db.failures(name, kind="report") == [reasons]
        assert queue.db.failures(name, limit=1) == [values] == queue.db.failures(name, error_class="ValueError")
        assert queue.db.failures(name, error_class="") == [reasons]
        assert queue.db.failures(f"{name}-other") == []

    def test_all_dead_jobs_like_these_are_counted_redriven_or_purged(self, queue: Queue, name: str) -> None:
        value, key = _raised(ValueError("%_ 1")), _raised(KeyError("k"))
        ids = {
            (kind, type(error).__name__): [_fail(queue, kind, error) for _ in range(2)]
            for kind in ("mail", "report")
            for error in (value, key)
        }
        reason = _fail(queue, "mail", "no such file")
        dead = queue.db.dead
        assert dead.count(name) == 9
        assert dead.count(name, most=4) == 4
        assert dead.count(name, error_class="ValueError") == 4
        assert dead.count(name, error_class="ValueError", kind="mail", most=1) == 1
        assert dead.count(name, error_class="Value") == dead.count(name, error_class="valueerror") == 0
        assert dead.count(name, error_class="") == 1
        assert dead.count(f"{name}-other", error_class="ValueError") == 0
        for group in queue.db.failures(name):
            assert dead.count(group.queue, kind=group.kind, error_class=group.error_class) == group.dead
        assert [job.id for job in dead.list(name, error_class="KeyError", kind="report")] == ids["report", "KeyError"]
        assert dead.redrive(queue=name, kind="mail", error_class="ValueError", limit=1) == ids["mail", "ValueError"][:1]
        assert dead.redrive(queue=name, kind="mail", error_class="ValueError") == ids["mail", "ValueError"][1:]
        assert dead.redrive(queue=name, error_class="") == [reason]
        assert dead.purge(name, error_class="KeyError", limit=3) == 3
        assert dead.purge(name, error_class="KeyError") == 1
        assert sorted(job.id for job in dead.list(name)) == ids["report", "ValueError"]
        assert {group.dead for group in queue.db.failures(name, kind="mail")} == {0}

    def test_a_class_of_errors_is_a_short_text(self, queue: Queue) -> None:
        for wrong in ("x" * 201, 7):
            with pytest.raises(ArgumentError, match="error_class="):
                queue.db.dead.count(error_class=wrong)
