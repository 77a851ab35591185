"""``retry=``: what follows a failed attempt depends on the class of the exception."""

from __future__ import annotations

import math

import pytest

from queue_db import ArgumentError, Retry, State
from queue_db.backoff import constant, give_up
from queue_db.model import DeathReason
from queue_db.worker import Worker
from tests.patience import HOURS

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


class Busy(ConnectionError):
    """More specific than its base class."""


ERRORS = {
    "busy": Busy("busy"),
    "away": ConnectionError("away"),
    "wrong": ValueError("wrong"),
    "other": KeyError("other"),
    "decode": UnicodeDecodeError("utf-8", b"", 0, 1, "a subclass of ValueError"),
}


def raises(job):
    raise ERRORS[job.payload]


def test_the_most_specific_class_decides_and_the_backoff_is_for_the_others(queue):
    worker = Worker(queue.db, queue.name, schedules=False)
    attempts = []

    def counted(attempt):
        attempts.append(attempt)
        return HOURS

    policy = {Exception: constant(3 * HOURS), ConnectionError: counted, Busy: 2 * HOURS, ValueError: give_up}
    worker.handles("work", retry=policy, backoff=constant(0))(raises)
    ids = {name: queue.enqueue("work", name) for name in ERRORS}
    deaths = []
    worker.db.deaths.add(deaths.append)
    worker.run(until_empty=True)
    worker.db.deaths.remove(deaths.append)
    jobs = {name: queue.get(one) for name, one in ids.items()}
    assert [name for name, job in jobs.items() if job.state is State.DEAD] == ["wrong", "decode"]
    due = sorted(("busy", "away", "other"), key=lambda name: jobs[name].available_at)
    assert due == ["away", "busy", "other"]
    assert attempts == [1]
    # A failed attempt with its traceback, and attempts left: not used up.
    assert [(death.reason, death.job.attempts) for death in deaths if death.job.queue == queue.name] == [
        (DeathReason.FAILED, 1)
    ] * 2
    assert jobs["wrong"].max_attempts == 25
    assert "ValueError: wrong" in queue.db.errors(ids["wrong"])[0].trace
    assert (worker.summary.dead, worker.summary.failed) == (2, 3)


@SQLITE
def test_a_backoff_may_give_up_after_some_attempts(queue):
    worker = Worker(queue.db, queue.name, schedules=False)
    worker.handles("work", backoff=lambda attempt: 0 if attempt < 3 else math.inf)(raises)
    job_id = queue.enqueue("work", "other")
    worker.run(until_empty=True)
    assert (queue.get(job_id).state, queue.get(job_id).attempts) == (State.DEAD, 3)


@SQLITE
def test_a_death_by_giving_up_is_logged_once(queue, caplog):
    worker = Worker(queue.db, queue.name, schedules=False)
    worker.handles("work", retry={KeyError: give_up})(raises)
    job_id = queue.enqueue("work", "other")
    worker.run(until_empty=True)
    mine = [record for record in caplog.records if getattr(record, "job_id", None) == job_id and record.levelname == "WARNING"]
    assert [record.name for record in mine] == ["queue_db.dead"]


@SQLITE
def test_a_redriven_job_that_was_given_up_has_all_its_attempts(queue):
    worker = Worker(queue.db, queue.name, schedules=False)
    worker.handles("work", retry={ValueError: give_up})(raises)
    job_id = queue.enqueue("work", "wrong")
    worker.run(until_empty=True)
    queue.db.dead.redrive([job_id])
    assert (queue.get(job_id).attempts, queue.get(job_id).max_attempts) == (0, 25)


@SQLITE
def test_a_timeout_is_an_exception_of_its_policy(queue):
    worker = Worker(queue.db, queue.name, schedules=False)

    @worker.handles("work", timeout=0.02, retry={TimeoutError: give_up})
    def slow(job):
        assert job.lost.wait(HOURS)

    job_id = queue.enqueue("work")
    worker.run(until_empty=True)
    assert queue.get(job_id).state is State.DEAD


@SQLITE
def test_a_returned_retry_waits_by_the_backoff_or_as_it_says(queue):
    worker = Worker(queue.db, queue.name, schedules=False)
    worker.handles("work", retry={Exception: give_up}, backoff=constant(HOURS))(lambda job: Retry("no", job.payload))
    ids = [queue.enqueue("work"), queue.enqueue("work", 2 * HOURS)]
    worker.run(until_empty=True)
    assert [queue.get(one).state for one in ids] == [State.SCHEDULED] * 2
    assert queue.get(ids[0]).available_at < queue.get(ids[1]).available_at


@SQLITE
def test_a_policy_that_raises_is_logged_and_the_default_applies(queue, caplog):
    worker = Worker(queue.db, queue.name, schedules=False)
    worker.handles("work", retry={KeyError: lambda attempt: 1 / 0})(raises)
    job_id = queue.enqueue("work", "other")
    worker.run(until_empty=True)
    assert queue.get(job_id).state is State.SCHEDULED
    assert len([record for record in caplog.records if "the default is used" in record.getMessage()]) == 1


@SQLITE
@pytest.mark.parametrize(
    ("retry", "why"),
    [
        ([ValueError], "must be a mapping"),
        ({"ValueError": 1}, "must be a class of exceptions"),
        ({int: 1}, "must be a class of exceptions"),
        ({ValueError: -1}, r"retry\[ValueError\]"),
        ({ValueError: "soon"}, r"retry\[ValueError\]"),
        ({ValueError: lambda: 1}, "must take one argument"),
    ],
)
def test_what_a_policy_cannot_be_is_refused(queue, retry, why):
    worker = Worker(queue.db, queue.name)
    with pytest.raises(ArgumentError, match=why):
        worker.handles("work", retry=retry)(raises)
