"""Tasks on a database: they are enqueued with their options, run by a worker, and waited for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from queue_db import (
    ArgumentError,
    ConfigurationError,
    DuplicateJobError,
    JobDeadError,
    PayloadError,
    Queue,
    QueueDB,
    Retry,
    State,
)
from queue_db.aio import AsyncLeasedJob, AsyncQueueDB
from queue_db.tasks import TaskJob, Tasks
from queue_db.testing import drain
from queue_db.worker import JobSnapshot, Worker
from queue_db.worker.handlers import HandlerSpec
from tests.tasks.shop_of_tasks import double, render
from tests.tasks.shop_of_tasks import tasks as shop

ID = UUID("6f2d9a2e-8f6f-4a9b-9c2e-0a1b2c3d4e5f")


class Mail:
    """Tasks of one queue, and what they were called with."""

    def __init__(self, queue: str) -> None:
        self.tasks = tasks = Tasks()
        self.seen: list[Any] = []

        @tasks.task(queue=queue, result_ttl=600, aliases=["old_welcome"])
        def welcome(user: int, at: datetime | None = None) -> datetime | None:
            self.seen.append((user, at))
            return at

        @tasks.task(queue=queue, result_ttl=600, max_attempts=1)
        async def report(job: TaskJob, account: UUID) -> UUID | Retry:
            self.seen.append((job.id, job.payload, account))
            return Retry("not yet") if account.int == 0 else account

        @tasks.task(queue=queue)
        def snapshot(job: JobSnapshot, account: UUID) -> None:
            self.seen.append((type(job), job.payload, account))

        self.welcome, self.report, self.snapshot = welcome, report, snapshot


@pytest.fixture
def mail(db: QueueDB, name: str) -> Mail:
    found = Mail(name)
    found.tasks.bind(db)
    return found


def test_a_task_runs_with_the_arguments_of_its_call(mail: Mail, db: QueueDB) -> None:
    now = datetime.now(UTC)
    first, second = mail.welcome.enqueue(user=7, at=now), mail.report.enqueue(ID)
    mail.snapshot.enqueue(ID)
    summary = Worker(db, mail.tasks, concurrency=1).run(until_empty=True)
    assert summary.completed == 3
    assert (7, now) in mail.seen
    assert (second, {"account": ID}, ID) in mail.seen
    assert (JobSnapshot, {"account": ID}, ID) in mail.seen
    assert mail.welcome.result(first, timeout=10) == now
    assert mail.report.result(second, timeout=10) == ID


def test_an_untyped_job_is_one_of_the_task(mail: Mail, db: QueueDB, queue: Queue) -> None:
    """Also under a name that the task had before."""
    queue.enqueue("welcome", {"user": 7})
    queue.enqueue("old_welcome", {"user": 8, "at": "2026-03-01T00:00:00Z"})
    drain(mail.tasks.worker(db))
    assert mail.seen == [(7, None), (8, datetime(2026, 3, 1, tzinfo=UTC))]
    for kind in ("welcome", "old_welcome"):
        with pytest.raises(PayloadError, match="user: Expected `int`, got `str`"):
            queue.enqueue(kind, {"user": "7"})


def test_a_stored_payload_that_fits_no_more_makes_its_job_dead(mail: Mail, open_db: Callable[..., QueueDB], name: str) -> None:
    """The object through which it is enqueued knows nothing of the tasks, as an older program."""
    older = open_db()
    bad = older.queue(name).enqueue("welcome", {"user": "seven"})
    older.queue(name).enqueue("welcome", {"user": 7})
    deaths: list[Any] = []
    worker = Worker(older, mail.tasks)
    worker.on(lambda event: deaths.append((event.type, event.reason)) if event.type == "dead" else None)
    summary = worker.run(until_empty=True)
    assert (summary.completed, summary.dead) == (1, 1)
    assert deaths == [("dead", "payload")]
    assert mail.seen == [(7, None)]
    (dead,) = older.dead.list(name)
    assert dead.last_error is not None
    assert "does not fit welcome: user: Expected `int`, got `str`" in dead.last_error
    with pytest.raises(JobDeadError):
        mail.welcome.result(bad, timeout=10)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_without_the_check_at_the_worker_the_function_gets_what_is_stored(
    mail: Mail, open_db: Callable[..., QueueDB], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control of the test above."""
    older = open_db()
    older.queue(name).enqueue("welcome", {"user": "seven"})
    monkeypatch.setattr(HandlerSpec, "read", lambda self, job: None)
    drain(mail.tasks.worker(older))
    assert mail.seen == [("seven", None)]


def test_the_options_of_a_task_and_of_a_call(db: QueueDB, name: str) -> None:
    tasks = Tasks()
    tasks.bind(db)

    @tasks.task(queue=name, unique=lambda user: f"u-{user}", group=lambda user: f"g-{user}", priority=3, delay=60, max_attempts=2)
    def task(user: int, size: int = 1) -> None: ...

    made = db.get(task.enqueue(1))
    assert (made.unique_key, made.group, made.priority, made.max_attempts, made.state) == ("u-1", "g-1", 3, 2, State.SCHEDULED)
    with pytest.raises(DuplicateJobError):
        task.enqueue(1, size=2)
    assert task.using(on_duplicate="skip").enqueue(1) is None
    replaced = task.using(on_duplicate="replace", delay=0).enqueue(1, 3)
    assert (replaced, db.get(replaced).payload) == (made.id, {"user": 1, "size": 3})
    headers = {"trace": "x"}
    own = db.get(task.using(unique_key="a", group="b", priority=-1, delay=0, queue=f"{name}-2", headers=headers).enqueue(1))
    assert (own.unique_key, own.group, own.priority, own.queue, own.headers) == ("a", "b", -1, f"{name}-2", headers)
    assert own.state == State.AVAILABLE
    with pytest.raises(ArgumentError, match="dealy: no option of an enqueue; they are queue, delay, run_at"):
        task.using(dealy=3)  # type: ignore[call-overload]


def test_many_calls_are_one_transaction(mail: Mail, db: QueueDB, name: str) -> None:
    welcome = mail.welcome
    ids = welcome.using(delay=60, priority=5).many([welcome.call(1), welcome.using(priority=-5).call(user=2)])
    assert [(db.get(one).payload, db.get(one).priority) for one in ids] == [({"user": 1}, 5), ({"user": 2}, -5)]
    assert {db.get(one).state for one in ids} == {State.SCHEDULED}
    assert welcome.many([]) == []
    keyed = [welcome.using(unique_key="k").call(user) for user in (3, 4)]
    with pytest.raises(DuplicateJobError):
        welcome.many(keyed)
    assert db.queue(name).stats().scheduled == 2
    first, second = welcome.using(on_duplicate="skip").many(keyed)
    assert first is not None
    assert second is None


def test_calls_are_jobs_of_a_batch(mail: Mail, db: QueueDB, queue: Queue) -> None:
    batch, ids = queue.enqueue_batch(
        [mail.welcome.call(1).item, mail.welcome.using(priority=3).call(2).item], mail.report.call(ID).item
    )
    assert [db.get(one).priority for one in ids] == [0, 3]
    drain(mail.tasks.worker(db))
    assert [seen[-1] for seen in mail.seen] == [None, None, ID]
    assert db.batch(batch) is None


def test_calls_of_many_belong_to_its_task(mail: Mail, db: QueueDB, name: str) -> None:
    welcome = mail.welcome
    for calls, message in (
        ([mail.report.call(ID)], "job 0: <Call of 'report'>: must be a call of this task"),
        ([welcome.call(1), 3], "job 1: 3: must be a call of this task"),
        ([welcome.using(queue="a").call(1)], "job 0: queue must be the same for all jobs"),
        ([welcome.using(on_duplicate="skip").call(1)], "job 0: on_duplicate must be the same"),
        (3, "calls=3: must be a list of welcome.call"),
    ):
        with pytest.raises(ArgumentError, match=message):
            welcome.many(calls)  # type: ignore[arg-type]
    assert not db.queue(name).stats().available


def test_a_rollback_takes_the_jobs_of_its_transaction_along(mail: Mail, db: QueueDB, name: str, url: str) -> None:
    welcome, stats, engine = mail.welcome, db.queue(name).stats, create_engine(url, poolclass=NullPool)
    with Session(engine) as session:
        welcome.using(connection=session).enqueue(1)
        welcome.using(connection=session).many([welcome.call(2)])
        session.rollback()
    assert stats().available == 0
    with engine.begin() as connection:
        welcome.using(connection=connection).enqueue(3)
        assert stats().available == 0
    assert stats().available == 1


async def test_tasks_of_asyncio(adb: AsyncQueueDB, db: QueueDB, name: str, async_url: str) -> None:
    mail, engine = Mail(name), create_async_engine(async_url, poolclass=NullPool)
    mail.tasks.bind(adb)
    mail.tasks.bind(db)
    welcome, stats = mail.welcome, adb.queue(name).stats
    async with AsyncSession(engine) as session:
        await welcome.using(connection=session).aenqueue(1)
        await welcome.using(connection=session).amany([welcome.call(2)])
        await session.rollback()
    assert (await stats()).available == 0
    async with engine.begin() as connection:
        await welcome.using(connection=connection).aenqueue(3)
    made = await mail.report.aenqueue(ID)
    assert (await stats()).available == 2
    await asyncio.to_thread(mail.tasks.worker(db).run, until_empty=True)
    assert await mail.report.aresult(made, timeout=10) == ID
    with pytest.raises(PayloadError, match="user: Expected `int`"):
        await adb.queue(name).enqueue("welcome", {"user": "x"})


@pytest.mark.parametrize("kind", ["sqlite"])
def test_calls_are_nodes_of_a_graph(mail: Mail, db: QueueDB) -> None:
    welcome = mail.welcome
    with mail.tasks.graph("onboarding", keep=60) as graph:
        second = graph.add(welcome.call(2), name="second")
        graph.add(welcome.using(priority=-5).call(1), after=second)
        with pytest.raises(ArgumentError, match=r"<Call of 'welcome'> has queue, kind, payload and options: give them to using"):
            graph.add(welcome.call(3), "kind")  # type: ignore[call-overload]
    assert db.graphs.get(graph.id).name == "onboarding"
    Worker(db, mail.tasks).run(until_empty=True)
    assert mail.seen == [(2, None), (1, None)]
    with pytest.raises(ConfigurationError, match=r"agraph\(\) needs an AsyncQueueDB"):
        mail.tasks.agraph()


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_calls_are_nodes_of_a_graph_of_asyncio(adb: AsyncQueueDB, name: str) -> None:
    mail = Mail(name)
    mail.tasks.bind(adb)
    async with mail.tasks.agraph() as graph:
        graph.add(mail.welcome.call(2), after=graph.add(mail.welcome.call(1)))
    assert [node.state for node in await adb.graphs.nodes(graph.id)] == ["queued", "waiting"]


def test_what_is_bound_decides_which_verbs_there_are(db: QueueDB, name: str) -> None:
    mail = Mail(name)
    with pytest.raises(ConfigurationError, match=r"enqueue\(\) needs a QueueDB: call tasks.bind\(QueueDB\(…\)\) first$"):
        mail.welcome.enqueue(1)
    with pytest.raises(ArgumentError, match="must be a QueueDB or an AsyncQueueDB"):
        mail.tasks.bind("sqlite://")  # type: ignore[arg-type]
    mail.tasks.bind(db)
    with pytest.raises(ConfigurationError, match=r"aenqueue\(\) needs an AsyncQueueDB: .* first; these tasks have only <QueueDB "):
        asyncio.run(mail.welcome.aenqueue(1))


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_worker_binds_tasks_that_have_no_database(db: QueueDB, open_db: Callable[..., QueueDB], name: str) -> None:
    """A program that only runs tasks need not: its tasks enqueue others through its worker's database."""
    mail = Mail(name)
    Worker(db, mail.tasks)
    Worker(open_db(), mail.tasks)
    mail.welcome.enqueue(1)
    assert mail.tasks.place.enqueue.__self__.sync is db  # type: ignore[attr-defined]


async def test_a_task_of_asyncio_runs_on_the_loop_of_the_application(adb: AsyncQueueDB, name: str) -> None:
    """Its job's methods are awaited, and what it enqueues goes through the AsyncQueueDB of its worker."""
    tasks, seen = Tasks(), asyncio.Queue[tuple[asyncio.AbstractEventLoop, Any]]()

    @tasks.task(queue=name)
    async def second(job: AsyncLeasedJob[Any], number: int) -> None:
        (await job.complete()).require(job)
        await seen.put((asyncio.get_running_loop(), number))

    @tasks.task(queue=name)
    async def first(number: int) -> None:
        await second.aenqueue(number + 1)

    async with tasks.worker(adb):
        await first.aenqueue(1)
        assert await seen.get() == (asyncio.get_running_loop(), 2)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_coroutine_does_not_get_another_job_than_it_asks_for(db: QueueDB, name: str) -> None:
    tasks = Tasks()

    @tasks.task(queue=name)
    async def awaits(job: AsyncLeasedJob[Any]) -> None: ...

    assert awaits.handler.__annotations__ == {"job": "AsyncLeasedJob"}


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_task_runs_in_a_handler_process(own_url: str) -> None:
    with QueueDB(own_url) as db:
        worker = Worker(db, shop)
        shop.bind(db)
        first, second = render.enqueue(date(2026, 3, 1)), double.enqueue(4)
        assert worker.run(until_empty=True).completed == 2
        kind, day, pid = render.result(first, timeout=10)
        assert (kind, day) == ("render", "2026-03-01")
        assert int(pid) != os.getpid()
        assert double.result(second, timeout=10) == 8
