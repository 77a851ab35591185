"""The deletion of steps meets a job that moves between the tables of the queue: it keeps its steps."""

from __future__ import annotations

import pytest

from queue_db import LeasedJob, Queue
from queue_db.steps import store
from queue_db.testing import SettableClock
from tests.races.interleaving import between
from tests.spark.streams.conftest import open_stream


def released_with_a_step(queue: Queue) -> LeasedJob:
    queue.enqueue("order")
    (job,) = queue.claim(lease=60)
    assert job.step("charge", lambda: "paid") == "paid"
    assert job.release()
    return job


def goes_on(queue: Queue, job: LeasedJob) -> None:
    (again,) = queue.claim()
    assert again.id == job.id
    assert again.step("charge", lambda: "twice") == "paid"
    assert again.complete()


def test_a_prune_loses_to_a_stream_that_gives_its_job_back(
    kind: str, ours: Queue, theirs: Queue, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is in the tables of the stream when the prune looks into that of the queue, and back when it asks the streams."""
    job = released_with_a_step(ours)
    reader = open_stream(theirs.db, theirs.name)
    reader.allocate(reader.initial())
    assert ours.claim() == []
    given_back: list[int] = []

    def give_back() -> None:
        if not given_back:
            given_back.append(theirs.db.streams.release(theirs.name))

    holders = store.holders

    class Asked:
        """Gives the job back when the streams are asked in a statement of their own."""

        def __init__(self, holder: object) -> None:
            self._holder = holder

        def __getattr__(self, name: str) -> object:
            if name == "queues":
                give_back()
            return getattr(self._holder, name)

    if kind != "sqlite":  # there the transaction of the prune keeps others from the tables
        monkeypatch.setattr(store, "holders", lambda: [Asked(holder) for holder in holders()])
        with between(ours.db.database.engine, "DELETE", give_back):
            ours.db.core.write("steps.prune", store.prune, 1000)
    give_back()
    assert given_back == [1]
    goes_on(ours, job)


def test_a_prune_keeps_the_steps_of_a_job_that_a_stream_holds(ours: Queue, theirs: Queue, clock: SettableClock) -> None:
    job = released_with_a_step(ours)
    reader = open_stream(theirs.db, theirs.name)
    reader.allocate(reader.initial())
    ours.db.prune()
    assert theirs.db.streams.release(theirs.name) == 1
    goes_on(ours, job)
    ours.db.prune()
    assert ours.db.steps.list(job.id) == []
