"""Two who bring the dead back at once: each job comes back once."""

from __future__ import annotations

from queue_db import JobNotFoundError, Queue
from tests.races.interleaving import at_once


def test_redrive_loses_what_another_brought_back(ours: Queue, theirs: Queue) -> None:
    for _ in range(5):
        ours.enqueue_many([("mail", number) for number in range(120)])
        jobs = ours.claim(limit=120)
        assert all(ours.bury_many(jobs, "no use"))
        mine, others = at_once(lambda: ours.db.dead.redrive(queue=ours.name), lambda: theirs.db.dead.redrive(queue=theirs.name))
        assert not isinstance(mine, Exception), mine
        assert not isinstance(others, Exception), others
        assert sorted([*mine, *others]) == sorted(job.id for job in jobs)
        assert (ours.stats().available, ours.stats().dead) == (120, 0)
        assert ours.purge() == 120


def test_redrive_of_one_id_loses_and_says_so(ours: Queue, theirs: Queue) -> None:
    for _ in range(10):
        ours.enqueue("mail")
        (job,) = ours.claim()
        assert job.bury("no use")
        got = at_once(
            lambda job=job: ours.db.dead.redrive(job.id),
            lambda job=job: theirs.db.dead.redrive(job.id),
        )
        assert got.count([job.id]) == 1, got
        assert [type(other) for other in got if other != [job.id]] == [JobNotFoundError]
        (again,) = ours.claim()
        assert (again.id, again.version) == (job.id, job.version + 3)
        assert again.complete()


def test_redrive_loses_to_a_purge_or_the_purge_to_it(ours: Queue, theirs: Queue) -> None:
    for _ in range(5):
        ours.enqueue_many([("mail", number) for number in range(60)])
        assert all(ours.bury_many(ours.claim(limit=60), "no use"))
        back, purged = at_once(lambda: ours.db.dead.redrive(queue=ours.name), lambda: theirs.db.dead.purge(theirs.name))
        assert isinstance(back, list), back
        assert isinstance(purged, int), purged
        assert len(back) + purged == 60
        assert (ours.stats().available, ours.stats().dead) == (len(back), 0)
        ours.purge()
