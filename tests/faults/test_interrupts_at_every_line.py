"""An exception at every line of a verb: what was acknowledged is committed, the rest is there as a whole or not at all.

The lines are those that the verb passes when nothing happens, in this package and in contextlib.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, delete, func, make_url, select

from queue_db import LeasedJob, QueueDB, Suspended
from queue_db.database.connections import Connections
from queue_db.dialects import raw_cursor
from queue_db.dialects.postgresql_server import PostgreSQLServer
from queue_db.dialects.transactions import PooledConnection
from queue_db.feeds.tables import feed_tables
from queue_db.store import enqueue
from tests.databases import KINDS
from tests.interrupting import InterruptError, interrupted, places_of

#: A generator that is closed by an interrupt says so.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

CLASSES: tuple[type[BaseException], ...] = (InterruptError, KeyboardInterrupt, asyncio.CancelledError)


class Stage:
    """A queue, and a connection of its own that sees what has been committed."""

    def __init__(self, db: QueueDB, name: str, observer: Connection) -> None:
        self.db, self.queue, self._observer = db, db.queue(name), observer
        self.feed = db.feed(name)
        self.jobs: list[LeasedJob] = []

    def versions(self) -> dict[int, int]:
        """Id → version of the committed live jobs."""
        jobs = self.db.store.tables.jobs
        found = self._observer.execute(select(jobs.c.id, jobs.c.version).where(jobs.c.queue == self.queue.name))
        return dict(tuple(row) for row in found)

    def steps(self) -> int:
        """The number of committed steps of the leased jobs."""
        steps = self.db.store.tables.slices["steps"]
        ids = [job.id for job in self.jobs]
        return int(self._observer.execute(select(func.count()).select_from(steps).where(steps.c.job_id.in_(ids))).scalar_one())

    def clear(self) -> None:
        """Delete the jobs."""
        jobs = self.db.store.tables.jobs
        self._observer.execute(delete(jobs).where(jobs.c.queue == self.queue.name))

    def messages(self) -> int:
        """The number of committed messages."""
        tables = feed_tables(self.db.store.tables)
        feed = select(tables.feeds.c.id).where(tables.feeds.c.name == self.feed.name).scalar_subquery()
        return int(
            self._observer.execute(
                select(func.count()).select_from(tables.messages).where(tables.messages.c.feed == feed)
            ).scalar_one()
        )


@dataclass(frozen=True)
class Verb:
    """What is interrupted.

    :param run: the verb.
    :param seen: what others see of it.
    :param outcomes: what they may see afterwards, by what they saw before: first without it, then with it.
    :param jobs: due jobs that it needs.
    :param leases: jobs of its own that it needs.
    """

    run: Callable[[Stage], object]
    seen: Callable[[Stage], Any]
    outcomes: Callable[[Any, Stage], list[Any]]
    jobs: int = 0
    leases: int = 0


def count(stage: Stage) -> int:
    return len(stage.versions())


def more(number: int) -> Callable[[int, Stage], list[int]]:
    return lambda before, stage: [before, before + number]


def held(stage: Stage) -> list[int | None]:
    """The versions of the leased jobs; None: it is gone."""
    versions = stage.versions()
    return [versions.get(job.id) for job in stage.jobs]


def raised(before: list[int], stage: Stage) -> list[list[int]]:
    return [before, [version + 1 for version in before]]


def gone(before: list[int], stage: Stage) -> list[list[Any]]:
    return [before, [None] * len(before)]


def claimed(stage: Stage) -> int:
    return sum(stage.versions().values())


def both(stage: Stage) -> tuple[int | None, int]:
    versions = stage.versions()
    (lease,) = stage.jobs
    return versions.pop(lease.id, None), sum(versions.values())


def both_done(before: tuple[int, int], stage: Stage) -> list[Any]:
    # A completion whose claim fails stays, and complete_and_claim says so.
    return [before, (None, before[1]), (None, before[1] + 1)]


def in_a_block(stage: Stage) -> None:
    with stage.queue.transaction() as connection:
        stage.queue.enqueue("a", using=connection)
        stage.queue.enqueue("b", using=connection)


def complete_in_a_block(stage: Stage) -> None:
    (job,) = stage.jobs
    with job.transaction() as connection:  # completes it
        stage.queue.enqueue("b", using=connection)


def lease_and_others(stage: Stage) -> tuple[int | None, int]:
    versions = stage.versions()
    return versions.pop(stage.jobs[0].id, None), len(versions)


def passed_on(before: tuple[int, int], stage: Stage) -> list[Any]:
    return [before, (None, before[1] + 1)]


def nothing(stage: Stage) -> int:
    return 0


def charge(stage: Stage) -> None:
    assert stage.jobs[0].step("charge", lambda: 1) == 1


def charge_in_a_block(stage: Stage) -> None:
    with stage.queue.transaction() as connection:
        stage.jobs[0].step("charge", lambda: stage.queue.enqueue("b", using=connection), using=connection)


def sleeps(stage: Stage) -> None:
    with suppress(Suspended):
        stage.jobs[0].sleep(60)


def steps_and_jobs(stage: Stage) -> tuple[list[int | None], int, int]:
    return held(stage), count(stage), stage.steps()


def charged(before: tuple[Any, int, int], stage: Stage) -> list[Any]:
    return [before, (before[0], before[1], 1)]


def charged_and_more(before: tuple[Any, int, int], stage: Stage) -> list[Any]:
    return [before, (before[0], before[1] + 1, 1)]


def asleep(before: tuple[list[int], int, int], stage: Stage) -> list[Any]:
    return [before, ([version + 1 for version in before[0]], before[1], 1)]


VERBS: dict[str, Verb] = {
    "enqueue": Verb(lambda stage: stage.queue.enqueue("a"), count, more(1)),
    "enqueue with a group": Verb(lambda stage: stage.queue.enqueue("a", group="g"), count, more(1)),
    "enqueue_many": Verb(lambda stage: stage.queue.enqueue_many([("a", 1), ("a", 2), ("a", 3)]), count, more(3)),
    "enqueue_many of more": Verb(lambda stage: stage.queue.enqueue_many([("a", n) for n in range(8)]), count, more(8)),
    "claim": Verb(lambda stage: stage.queue.claim(2), claimed, more(2), jobs=2),
    "complete": Verb(lambda stage: stage.jobs[0].complete(), held, gone, leases=1),
    "complete_many": Verb(lambda stage: stage.queue.complete_many(stage.jobs), held, gone, leases=2),
    "complete_and_claim": Verb(lambda stage: stage.queue.complete_and_claim(stage.jobs), both, both_done, jobs=1, leases=1),
    "fail": Verb(lambda stage: stage.jobs[0].fail("why"), held, raised, leases=1),
    "extend": Verb(lambda stage: stage.jobs[0].extend(90), held, raised, leases=1),
    "publish": Verb(lambda stage: stage.feed.publish("a"), Stage.messages, more(1)),
    "a block": Verb(in_a_block, count, more(2)),
    "complete in a block": Verb(complete_in_a_block, lease_and_others, passed_on, leases=1),
    "a step": Verb(charge, steps_and_jobs, charged, leases=1),
    "a step in a block": Verb(charge_in_a_block, steps_and_jobs, charged_and_more, leases=1),
    "sleep": Verb(sleeps, steps_and_jobs, asleep, leases=1),
    "peek": Verb(lambda stage: stage.queue.peek(), nothing, more(0), jobs=1),
}


@pytest.fixture
def stage(kind: str, url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    # So that few jobs are many.
    monkeypatch.setattr(enqueue, "_LOADED", 5)
    # A lock that was left is reported soon.
    limited = make_url(url).update_query_dict({"timeout": "2"}) if kind == "sqlite" else make_url(url)
    engine = create_engine(limited, isolation_level="AUTOCOMMIT")
    with QueueDB(limited) as db, engine.connect() as observer:
        db.feeds.set(name, ordering="counter")
        gc.collect()
        gc.freeze()  # each run ends with a collection; thawed, all tests that were collected would be looked at by each later one
        yield Stage(db, name, observer)
        db.feeds.delete(name)
    engine.dispose()


def make_ready(stage: Stage, verb: Verb) -> None:
    stage.clear()
    stage.queue.enqueue_many([("old", None)] * verb.leases)
    stage.jobs = stage.queue.claim(verb.leases, lease=3600) if verb.leases else []
    assert len(stage.jobs) == verb.leases
    stage.queue.enqueue_many([("old", None)] * verb.jobs)


def interrupt_everywhere(stage: Stage, verb: Verb, classes: int) -> None:
    """Interrupt ``verb`` at each of its places, with this many of the classes each."""
    for _ in range(3):  # what it keeps, it has then
        make_ready(stage, verb)
        verb.run(stage)
    make_ready(stage, verb)
    places = places_of(lambda: verb.run(stage))
    for number, place in enumerate(places):
        for turn in range(classes):
            error = CLASSES[(number + turn) % len(CLASSES)]
            make_ready(stage, verb)
            before = verb.seen(stage)
            failed = interrupted(lambda: verb.run(stage), place, error)
            gc.collect(1)
            at = f"{error.__name__} at {place}"
            outcomes = verb.outcomes(before, stage)
            seen = verb.seen(stage)
            assert seen in (outcomes if failed else outcomes[1:]), f"{at}: {before} became {seen}"
            job_id = stage.queue.enqueue("afterwards")
            assert job_id in stage.versions(), f"{at}: a later enqueue was not committed"


#: Those that the rest of the suite interrupts with all classes of exceptions; otherwise they take turns from line to line.
THOROUGHLY = ("enqueue with a group", "a block")

#: What stands for the lines on servers: the lines are the same, a statement that is under way is theirs.
ON_SERVERS = pytest.mark.rest("an enqueue is interrupted on PostgreSQL, and more on SQLite")

#: One verb of each way to use a connection; the others do the same for lists, or read.
IN_TEST = ("enqueue", "claim", "complete", "complete_and_claim", "fail", "publish", "a block")
OTHERS = pytest.mark.rest(f"on SQLite make test interrupts one verb of each way to use a connection: {', '.join(IN_TEST)}")


def marks_of(kind: str, verb: str) -> Sequence[pytest.MarkDecorator]:
    if kind != "sqlite":
        return () if verb == "enqueue" else (ON_SERVERS,)
    return () if verb in IN_TEST else (OTHERS,)


#: MySQL has the driver and the dialect of MariaDB.
CASES = [
    pytest.param(kind, verb, marks=marks_of(kind, verb))
    for kind in KINDS
    for verb in VERBS
    if kind != "mysql" or verb in THOROUGHLY
]


@pytest.mark.parametrize("kind, verb", CASES)  # noqa: PT006 - the fixtures look for the name
def test_an_interrupt_at_every_line(kind: str, verb: str, stage: Stage) -> None:
    interrupt_everywhere(stage, VERBS[verb], 1)


@pytest.mark.rest("the classes take turns from line to line")
@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize("verb", THOROUGHLY)
def test_an_interrupt_of_each_class_at_every_line(kind: str, verb: str, stage: Stage) -> None:
    interrupt_everywhere(stage, VERBS[verb], len(CLASSES))


@pytest.mark.parametrize("kind", ["postgresql"])
def test_without_the_check_later_enqueues_are_lost(kind: str, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    put_back = Connections.put_back

    def put_back_anyway(self: Connections, pooled: PooledConnection, *, in_doubt: bool) -> None:
        pooled.info.pop(raw_cursor.TRANSACTION, None)
        put_back(self, pooled)

    monkeypatch.setattr(Connections, "put_back", put_back_anyway)
    monkeypatch.setattr(PostgreSQLServer, "is_idle", lambda self, driver: True)
    with pytest.raises(AssertionError, match="was not committed"):
        interrupt_everywhere(stage, VERBS["enqueue with a group"], 1)
