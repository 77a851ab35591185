"""Messages of a shared cursor and the options of their handlers."""

from __future__ import annotations

import pytest

from queue_db import UnknownKindError
from queue_db.backoff import give_up
from queue_db.testing import SettableClock
from queue_db.worker import Worker
from tests.patience import HOURS


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_handler_of_many_jobs_gets_each_message_in_a_list_and_may_give_it_up(db, queue, name, asynchronous):
    db.feed(name).publish_many([("n", number) for number in range(3)])
    worker = Worker(db, feeds={f"{name}:{name}": 1}, schedules=False)
    seen = []

    def of_function(jobs):
        seen.append([job.payload for job in jobs])
        if jobs[0].payload == 1:
            raise ValueError("wrong")
        if jobs[0].payload == 2:
            raise KeyError("later")
        return [None]

    async def of_coroutine(jobs):
        return of_function(jobs)

    policy = {ValueError: give_up, KeyError: HOURS}
    worker.handles("n", many=5, retry=policy)(of_coroutine if asynchronous else of_function)
    worker.run(until_empty=True)
    assert seen == [[0], [1], [2]]
    (dead,) = db.dead.list(queue.name)
    assert (dead.payload, dead.attempts, dead.last_error) == (1, 1, "ValueError: wrong")
    assert queue.stats().scheduled == 1
    assert (worker.summary.completed, worker.summary.dead, worker.summary.failed) == (1, 1, 1)


def test_a_message_of_a_kind_that_the_handler_of_all_kinds_has_no_code_for_waits_as_a_job(db, name, open_db, log):
    db.feed(name).publish("stranger")
    worker = Worker(db, feeds={f"{name}:{name}": 1}, schedules=False)

    @worker.handles(None, max_attempts=1)
    def knows_nothing(job):
        raise UnknownKindError(job.kind, message=f"no code for {job.kind}")

    summary = worker.run(until_empty=True)
    assert (summary.failed, summary.dead) == (0, 0)
    later = SettableClock()
    later.advance(3600)
    (job,) = open_db(clock=later).queue(name).peek()
    assert (job.kind, job.attempts, job.max_attempts) == ("stranger", 0, 25)
    assert log.count("no code for stranger; its jobs wait for a worker that has one, and are dead after 3600 s") == 1
