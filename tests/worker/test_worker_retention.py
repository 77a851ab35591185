"""How long dead and completed jobs stay."""

import dataclasses
import enum
import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import PurePosixPath
from uuid import UUID

import msgspec
import pydantic
import pytest

from queue_db import ArgumentError, JobNotFoundError
from queue_db.dead.registration import PRUNE_LIMIT, prune
from queue_db.feeds.store import messages
from queue_db.slices import AGAIN, Task, tasks
from queue_db.testing import drain
from queue_db.worker import Worker
from queue_db.worker.logs import Activity
from queue_db.worker.maintenance import logged
from queue_db.worker.options import Options
from tests.patience import PATIENCE

SQLITE = pytest.mark.parametrize("kind", ["sqlite"])


@pytest.fixture
def timed(open_db, clock, name):
    """The queue by a clock that the test sets."""
    return open_db(clock=clock).queue(name)


def bury(queue, *kinds):
    """One after the other, a second apart by the queue's clock."""
    ids = []
    for kind in kinds:
        ids.append(queue.enqueue(kind))
        (job,) = queue.claim()
        assert job.bury("no")
        queue.db.store.clock.advance(1)
    return ids


def left(queue):
    return [job.id for job in queue.db.dead.list(queue.name)]


def test_all_but_the_last_dead_jobs_are_purged(timed, db):
    ids = bury(timed, *"abcde")
    other = db.queue(f"{timed.name}-other")
    other.enqueue("n")
    (job,) = other.claim()
    assert job.bury("no")
    purge = timed.db.dead.purge
    assert purge(timed.name, keep=5) == 0
    assert purge(timed.name, keep=3) == 2
    assert left(timed) == ids[2:]
    assert purge(timed.name, kind="c", keep=1) == 0
    assert purge(timed.name, keep=1, older_than=2) == 1, "both say what stays: e is kept, d is too young"
    assert left(timed) == ids[3:]
    assert purge(timed.name, keep=0, limit=1) == 1
    assert left(timed) == ids[4:]
    assert purge(timed.name, keep=0) == 1
    assert len(left(other)) == 1


def test_those_that_died_at_the_same_moment_go_by_their_ids(timed, clock):
    ids = timed.enqueue_many([("n", None)] * 4)
    assert all(timed.bury_many(timed.claim(4), "no"))
    assert timed.db.dead.purge(timed.name, keep=3) == 1
    assert left(timed) == ids[1:]
    assert timed.db.dead.purge(timed.name, older_than=0) == 0, "not even a microsecond"
    clock.advance(1)
    assert timed.db.dead.purge(timed.name, older_than=1) == 0
    assert timed.db.dead.purge(timed.name, older_than=0.5) == 3


def test_a_worker_deletes_what_has_been_dead_for_long_and_what_is_too_much(timed, clock, log):
    ids = bury(timed, *"abcdef")
    other = bury(timed.db.queue(f"{timed.name}-other"), "n")
    prune(timed.db, [timed.name], None, None)
    assert left(timed) == ids
    prune(timed.db, [timed.name], 5.5, None)
    assert left(timed) == ids[2:]
    prune(timed.db, [timed.name], None, 3)
    assert left(timed) == ids[3:]
    clock.advance(10)
    prune(timed.db, [timed.name], 13.5, 1)
    assert left(timed) == ids[5:]
    assert left(timed.db.queue(f"{timed.name}-other")) == other, "the queue is not this worker's"
    assert log.has(f"deleted 2 dead jobs of '{timed.name}'")


@SQLITE
def test_many_dead_jobs_are_deleted_a_part_at_a_time(queue):
    queue.enqueue_many([("n", None)] * (PRUNE_LIMIT + 1))
    assert all(queue.bury_many(queue.claim(PRUNE_LIMIT + 1), "no"))
    task = logged(Task("deleting", 60.0, lambda: prune(queue.db, [queue.name], None, 0)), Activity())
    assert task() == AGAIN, "so that leases are extended in between"
    assert len(left(queue)) == 1
    assert task() > AGAIN
    assert left(queue) == []


@SQLITE
def test_a_worker_does_it_from_its_start_and_only_if_it_is_told_to(timed, running, log):
    ids = bury(timed, "a", "b")
    started = threading.Event()

    def wait_for_the_start(worker):
        worker.handles(None)(lambda job: started.set())
        timed.enqueue("n")
        return worker

    with running(wait_for_the_start(Worker(timed.db, timed.name))):
        assert started.wait(PATIENCE)
    assert left(timed) == ids
    purging = Worker(timed.db, timed.name, dead_at_most=1)
    purging.handles(None)(print)
    with running(purging):
        log.wait("deleted 1 dead jobs")
    assert left(timed) == ids[1:]
    bury(timed, "c")
    with running(purging.changed(dead_for=0.5, dead_at_most=None)):
        log.wait("deleted 2 dead jobs")
    assert left(timed) == []


@SQLITE
@pytest.mark.parametrize("wrong", [{"dead_for": 0}, {"dead_for": "x"}, {"dead_at_most": -1}, {"result_ttl": 0}, {"result_ttl": -1}])
def test_a_retention_that_cannot_be_meant_is_refused(queue, wrong):
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        Worker(queue.db, queue.name, **wrong)


@SQLITE
def test_a_workers_keep_is_for_handlers_that_say_nothing(timed):
    db = timed.db

    def handled(worker):
        for kind, options in {"as the worker": {}, "longer": {"result_ttl": 200}, "not at all": {"result_ttl": 0}}.items():
            worker.handles(kind, **options)(lambda job: job.kind)
        return worker

    def kept(work):
        ids = [timed.enqueue(kind) for kind in ("as the worker", "longer", "not at all")]
        work()
        found = {}
        for job_id in ids:
            try:
                one = db.finished(job_id)
            except JobNotFoundError:
                continue
            found[one.result] = (one.expires_at - one.finished_at).total_seconds()
        return found

    plain = handled(Worker(db, timed.name))
    assert kept(lambda: plain.run(until_empty=True)) == {"longer": 200}
    changed = plain.changed(result_ttl=100)
    assert kept(lambda: changed.run(until_empty=True)) == {"as the worker": 100, "longer": 200}
    assert kept(lambda: drain(changed)) == {"as the worker": 100, "longer": 200}


@SQLITE
def test_options_are_changed_in_place_as_in_another_worker(queue):
    options = {
        "concurrency": 3,
        "lease": 7,
        "prefetch": 2,
        "weights": {"a": 2, "b": 1},
        "poll": 2,
        "grace": 3,
        "unknown": "dead",
        "unknown_grace": 4,
    }
    options |= {"exit_when_stuck": 2, "schedules": False, "result_ttl": 6, "dead_for": 8, "dead_at_most": 9}
    worker = Worker(queue.db, ["a", "b"])
    other, state = worker.changed(**options), {"_lock", "_commands", "_background", "quieted", "summary", "_run"}
    worker.configure(**options)
    with pytest.raises(ArgumentError, match="prefetch"):
        worker.configure(mode="at_most_once", result_ttl=60)
    assert {name: value for name, value in vars(worker).items() if name not in state} == {
        name: value for name, value in vars(other).items() if name not in state
    }
    worker.configure(prefetch=0, mode="at_most_once")
    assert (worker.options.mode, worker.options.result_ttl) == ("at_most_once", 6)


def test_what_is_kept_is_listed_page_by_page(timed, clock):
    db = timed.db
    worker = Worker(db, timed.name, result_ttl=100)
    worker.handles("a")(lambda job: job.payload)
    worker.handles("b", result_ttl=10)(lambda job: None)
    ids = timed.enqueue_many([("a", 0), ("b", 1), ("a", 2), ("a", 3)])
    drain(worker)
    first = db.finished_jobs(timed.name, limit=2)
    assert [(job.id, job.kind, job.payload, job.result) for job in first] == [(ids[0], "a", 0, 0), (ids[1], "b", 1, None)]
    assert first[0] == db.finished(ids[0])
    assert [job.id for job in db.finished_jobs(timed.name, after=first[-1])] == ids[2:]
    assert [job.id for job in db.finished_jobs(timed.name, kind="b")] == [ids[1]]
    assert {job.id for job in db.finished_jobs(limit=100_000)} >= set(ids)
    clock.advance(50)
    assert [job.id for job in db.finished_jobs(timed.name)] == [ids[0], *ids[2:]], "one has expired"
    for wrong in ({"limit": 0}, {"queue": ""}, {"kind": " "}):
        with pytest.raises(ArgumentError):
            db.finished_jobs(**wrong)


@pytest.mark.parametrize("ordering", ["counter", "ranked"])
def test_a_worker_trims_feeds_a_part_at_a_time(open_db, clock, name, log, ordering, monkeypatch):
    monkeypatch.setattr(messages, "TRIMMED_AT_ONCE", 1000)
    db = open_db(clock=clock)
    db.feeds.set(name, ordering=ordering, keep_for=60)
    feed = db.feed(name)
    with db.database.begin() as connection:
        feed.publish_many([("n", number) for number in range(1500)], using=connection)
    clock.advance(61)
    (trim,) = [task for task in tasks(db, Options(queues="mail")) if task.name == "trimming feeds"]
    task = logged(trim, Activity())
    waits = []
    while name in {info.name for info in db.feeds.list() if info.messages or info.waiting}:
        waits.append(task())
    assert AGAIN in waits, "so that other tasks run in between"
    assert log.has(f"trimmed 1000 messages of feed {name!r}")
    assert log.has(f"trimmed 500 messages of feed {name!r}")
    assert db.counters.trimmed >= 1500


@dataclasses.dataclass
class Bill:
    order: int
    at: datetime


class Struct(msgspec.Struct):
    total: Decimal


class Model(pydantic.BaseModel):
    at: datetime


class Colour(enum.Enum):
    RED = "red"


NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)

#: What handlers return, with what is kept.
RESULTS = {
    "row": (
        {"at": NOON, "day": NOON.date(), "total": Decimal("1.10"), "id": UUID(int=7), "took": timedelta(seconds=1.5)},
        {
            "at": "2026-11-24T12:00:00+00:00",
            "day": "2026-11-24",
            "total": "1.10",
            "id": "00000000-0000-0000-0000-000000000007",
            "took": 1.5,
        },
    ),
    "set": (frozenset({7}), [7]),
    "dataclass": ([Bill(1, NOON)], [{"order": 1, "at": "2026-11-24T12:00:00+00:00"}]),
    "struct": (Struct(Decimal(2)), {"total": "2"}),
    "model": (Model(at=NOON), {"at": "2026-11-24T12:00:00Z"}),
    "others": ({Colour.RED: PurePosixPath("/tmp")}, {"red": "/tmp"}),
    "plain": ({"a": [1, 2.5, None, "x"]}, {"a": [1, 2.5, None, "x"]}),
    "nothing": (None, None),
}


@SQLITE
@pytest.mark.parametrize("how", ["worker", "drain"])
def test_results_that_json_lacks_are_kept_in_what_it_has(queue, db, how):
    worker = Worker(db, queue.name, result_ttl=100)
    for kind, (result, _) in RESULTS.items():
        worker.handles(kind)(lambda job, result=result: result)
    ids = {kind: queue.enqueue(kind) for kind in RESULTS}
    drain(worker) if how == "drain" else worker.run(until_empty=True)
    assert {kind: db.finished(job_id).result for kind, job_id in ids.items()} == {kind: kept for kind, (_, kept) in RESULTS.items()}


@SQLITE
@pytest.mark.parametrize("how", ["worker", "drain"])
def test_a_result_that_cannot_be_kept_is_not_lost_in_silence_and_not_worked_for_again(queue, db, how):
    """The others of the same report are completed."""
    itself = []
    itself.append(itself)
    results = {"bytes": b"x", "object": {"a": object()}, "itself": itself, "nan": float("nan"), "good": 7}
    worker = Worker(db, queue.name, result_ttl=100)
    for kind, result in results.items():
        worker.handles(kind)(lambda job, result=result: result)
    ids = {kind: queue.enqueue(kind) for kind in results}
    drain(worker) if how == "drain" else worker.run(until_empty=True)
    assert db.finished(ids.pop("good")).result == 7
    for job_id in ids.values():
        assert "the work is done, but its result cannot be kept: " in queue.get(job_id).last_error
    assert queue.stats().dead == len(ids)
    ids = [queue.enqueue(kind) for kind in results]
    assert worker.changed(result_ttl=None).run(until_empty=True).completed == len(ids), "without result_ttl nobody reads it"
