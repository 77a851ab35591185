"""What users test tasks with: they run where they are enqueued, and a test looks for what was enqueued."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from queue_db import (
    Cancel,
    ConfigurationError,
    Dead,
    HandlerResultError,
    JobDeadError,
    JobNotFoundError,
    LeasedJob,
    PayloadError,
    QueueDB,
    Snooze,
    Suspended,
)
from queue_db.aio import AsyncLeasedJob, AsyncQueueDB
from queue_db.tasks import TaskJob, Tasks
from queue_db.testing import InlineTasks, SettableClock, aassert_enqueued, assert_enqueued, bound_tasks, drain, inline_tasks
from queue_db.testing.fixtures import bind_tasks, queue_clock, queue_database, run_inline  # noqa: F401 - fixtures
from queue_db.worker import JobSnapshot
from tests.tasks.test_task_runs import ID, Mail

tasks = Tasks()
seen: list[Any] = []


@tasks.task(queue="mail", unique=lambda user: f"u-{user}")
def welcome(user: int, at: datetime | None = None) -> Decimal:
    seen.append((user, at))
    return Decimal(user)


@tasks.task(queue="mail")
async def report(job: TaskJob, user: int) -> int:
    await asyncio.sleep(0)
    seen.append((job.id, job.payload, user))
    return user


@tasks.task(queue="mail", executor="process")
def apart(job: JobSnapshot) -> None:
    seen.append(type(job))


@tasks.task(queue="mail")
def chain(user: int) -> None:
    welcome.enqueue(user)
    seen.append("chained")


@tasks.task(queue="mail")
def ends(how: str) -> Any:
    if how == "raise":
        raise ValueError("no")
    return {"snooze": Snooze(60), "dead": Dead("no"), "cancel": Cancel(), "function": lambda: None}[how]


@tasks.task(queue="mail")
def endless() -> None:
    endless.enqueue()


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


@pytest.fixture
def inlined(run_inline: Callable[[Tasks], InlineTasks]) -> InlineTasks:  # noqa: F811
    return run_inline(tasks)


def test_tasks_run_where_they_are_enqueued(inlined: InlineTasks) -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    first = welcome.enqueue(7, at=now)
    assert seen == [(7, now)]
    assert (first, welcome.result(first, timeout=1)) == (1, Decimal(7))
    assert report.result(report.using(delay=60).enqueue(user=8), timeout=1) == 8
    apart.enqueue()
    assert seen[1:] == [(2, {"user": 8}, 8), JobSnapshot]
    assert welcome.many([welcome.call(1), welcome.call(2)]) == [4, 5]
    assert [run.outcome for run in inlined.runs if run.task is welcome] == [Decimal(7), Decimal(1), Decimal(2)]
    with pytest.raises(PayloadError, match="user: Expected `int`"):
        welcome.enqueue("7")  # type: ignore[arg-type]


async def test_a_task_that_takes_an_async_leased_job_gets_one() -> None:
    """Also from a thread without an event loop, and its steps are awaited."""
    of_shop = Tasks()

    async def charge(user: int) -> int:
        return user

    @of_shop.task(queue="mail")
    async def order(job: AsyncLeasedJob, user: int) -> int:
        seen.append(type(job))
        return await job.step("charge", charge, user)

    with inline_tasks(of_shop) as inlined:
        await order.aenqueue(7)
        order.enqueue(8)
        await asyncio.to_thread(order.enqueue, 9)
    assert [run.outcome for run in inlined.runs] == [7, 8, 9]
    assert all(issubclass(one, AsyncLeasedJob) for one in seen)


def test_for_a_task_that_sleeps_or_waits_the_time_passes_at_once() -> None:
    of_shop = Tasks()

    @of_shop.task(queue="shop")
    def order(job: LeasedJob, user: int) -> str:
        job.step("charge", seen.append, user)
        job.sleep(3600)
        try:
            job.wait_for("paid", timeout=60)
        except TimeoutError:
            seen.append("not paid")
        return f"approved by {job.wait_for('approved')}"

    async def charge(user: int) -> None:
        seen.append(user)

    @of_shop.task(queue="shop")
    async def async_order(job: AsyncLeasedJob, user: int) -> str:
        await job.step("charge", charge, user)
        await job.sleep(3600)
        return f"approved by {await job.wait_for('approved')}"

    with inline_tasks(of_shop, signals={"approved": "ann"}) as inlined:
        assert order.result(order.enqueue(7), timeout=1) == "approved by ann"
        assert seen == [7, "not paid"]
        assert asyncio.run(aresult_of(async_order, 8)) == "approved by ann"
        assert async_order.result(async_order.enqueue(9), timeout=1) == "approved by ann"
        assert (seen[2:], len(inlined.runs)) == ([8, 9], 3)
        inlined.signals.clear()
        with pytest.raises(ConfigurationError, match=r"order waits for the signal 'approved'.*signals=\{'approved': …\}"):
            order.enqueue(10)
        assert isinstance(inlined.runs[-1].error, ConfigurationError)
        inlined.signals["paid"] = inlined.signals["approved"] = "bob"
        assert order.result(order.enqueue(11), timeout=1) == "approved by bob"
        assert seen[-1] == 11


async def aresult_of(task: Any, user: int) -> Any:
    return await task.aresult(await task.aenqueue(user), timeout=1)


def test_a_suspension_that_no_verb_has_made_fails_the_task() -> None:
    of_shop = Tasks()

    @of_shop.task(queue="shop")
    def order() -> None:
        raise Suspended(1, "was not suspended")

    with inline_tasks(of_shop), pytest.raises(HandlerResultError, match="only verbs of the job do that"):
        order.enqueue()


def test_a_task_of_a_task_runs_after_it(inlined: InlineTasks) -> None:
    chain.enqueue(7)
    assert seen == ["chained", (7, None)]
    assert [run.task.name for run in inlined.runs] == ["chain", "welcome"]
    with pytest.raises(RuntimeError, match="more than 10,000 jobs: does a task enqueue itself"):
        endless.enqueue()


async def test_on_an_event_loop_they_run_too(inlined: InlineTasks) -> None:
    """Coroutines on the loop of the test, functions in a thread."""
    assert await report.aresult(await report.aenqueue(user=8), timeout=1) == 8
    assert await welcome.aenqueue(7) == 2
    assert await welcome.amany([welcome.call(1)]) == [3]
    assert report.enqueue(user=9) == 4
    assert len(seen) == 4
    with pytest.raises(ValueError, match="no"):
        await ends.aenqueue("raise")


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("raise", JobDeadError),
        ("function", JobDeadError),
        ("dead", JobDeadError),
        ("cancel", JobNotFoundError),
        ("snooze", TimeoutError),
    ],
)
def test_a_task_that_is_not_completed_has_no_result(how: str, error: type[Exception]) -> None:
    with inline_tasks(tasks, raises=False) as ran:
        number = ends.enqueue(how)
        with pytest.raises(error):
            ends.result(number, timeout=1)
        with pytest.raises(JobNotFoundError):
            ends.result(2, timeout=1)
    assert ran.runs[0].done


def test_what_a_task_raises_is_raised_where_it_is_enqueued_after_the_others_have_run(inlined: InlineTasks) -> None:
    with pytest.raises(ValueError, match="no"):
        ends.many([ends.call("raise"), ends.call("dead")])
    assert [run.done for run in inlined.runs] == [True, True]
    with pytest.raises(HandlerResultError):
        ends.enqueue("function")


def test_after_the_block_tasks_are_bound_as_before(inlined: InlineTasks) -> None:
    with inline_tasks(tasks) as inner:
        welcome.enqueue(7)
    assert (len(inner.runs), len(inlined.runs)) == (1, 0)


def test_jobs_of_inline_tasks_are_found(inlined: InlineTasks) -> None:
    welcome.using(priority=3).enqueue(7)
    assert assert_enqueued(welcome, user=7).id == 1
    assert_enqueued(welcome.using(priority=3, unique_key="u-7"), 7) if False else assert_enqueued(welcome.using(priority=3), 7)
    with pytest.raises(
        AssertionError, match="no job of kind 'welcome' with {'user': 8} in queue 'mail'; of this kind there are: {'user': 7}"
    ):
        assert_enqueued(welcome, user=8)
    with pytest.raises(AssertionError, match="and {'priority': 4}"):
        assert_enqueued(welcome.using(priority=4), 7)


def test_arguments_are_compared_and_not_their_texts() -> None:
    of_shop = Tasks()

    @of_shop.task(queue="mail")
    def priced(price: Decimal) -> None: ...

    with inline_tasks(of_shop):
        priced.enqueue(Decimal("9.00"))
        assert_enqueued(priced, Decimal(9))
        with pytest.raises(AssertionError, match="{'price': '8'}"):
            assert_enqueued(priced, Decimal(8))


def test_jobs_in_a_database_are_found(
    bind_tasks: Callable[[Tasks], None],  # noqa: F811
    queue_database: QueueDB,  # noqa: F811
    queue_clock: SettableClock,  # noqa: F811
) -> None:
    bind_tasks(tasks)
    with pytest.raises(AssertionError, match="of this kind there are: none"):
        assert_enqueued(welcome, user=7)
    first = welcome.using(delay=60).enqueue(7, at=datetime(2026, 3, 1, tzinfo=UTC))
    second = welcome.enqueue(user=8)
    assert [assert_enqueued(welcome, user=user).id for user in (7, 8)] == [first, second]
    mail = queue_database.queue("mail")
    mail.enqueue("plain", [1])
    assert_enqueued(mail, "welcome", {"user": 7})
    assert_enqueued(mail, "welcome")
    assert_enqueued(mail, "plain", [1])
    for payload in ([2], {"user": 7}):
        with pytest.raises(AssertionError, match=r"of this kind there are: \[1\]"):
            assert_enqueued(mail, "plain", payload)
    with pytest.raises(AssertionError):
        assert_enqueued(welcome, 7, at=datetime(2026, 3, 2, tzinfo=UTC))
    with pytest.raises(AssertionError):
        assert_enqueued(welcome.using(unique_key="other"), 7)
    assert_enqueued(welcome.using(unique_key="u-7"), 7)
    drain(tasks.worker(queue_database), raises=False)
    assert seen == [(8, None)]
    with pytest.raises(AssertionError):  # it has left its queue
        assert_enqueued(welcome, user=8)


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_jobs_in_a_database_are_found_by_asyncio(adb: AsyncQueueDB, db: QueueDB, name: str) -> None:
    mail = Mail(name)
    with bound_tasks(mail.tasks, adb):
        await mail.welcome.aenqueue(7)
        await aassert_enqueued(mail.welcome, user=7)
        await aassert_enqueued(adb.queue(name), "welcome", {"user": 7})
        with pytest.raises(AssertionError, match="with {'account': "):
            await aassert_enqueued(mail.report, ID)
        with pytest.raises(ConfigurationError, match="write await aassert_enqueued"):
            assert_enqueued(mail.welcome, user=7)
    with bound_tasks(mail.tasks, db), pytest.raises(ConfigurationError, match=r"write assert_enqueued\(…\)"):
        await aassert_enqueued(mail.welcome, user=7)
    with inline_tasks(mail.tasks):
        await mail.welcome.aenqueue(9)
        await aassert_enqueued(mail.welcome, user=9)
    with pytest.raises(ConfigurationError, match=r"aenqueue\(\) needs an AsyncQueueDB"):
        await mail.welcome.aenqueue(7)


def test_the_job_of_an_inline_task_is_a_leased_one(inlined: InlineTasks) -> None:
    report.using(group="g", priority=2, unique_key="k", headers={"a": 1}).enqueue(1)
    (run,) = inlined.runs
    assert isinstance(run.job, LeasedJob)
    assert (run.job.group, run.job.priority, run.job.unique_key, run.job.headers, run.job.kind, run.job.queue) == (
        "g",
        2,
        "k",
        {"a": 1},
        "report",
        "mail",
    )


def test_the_helpers_need_no_greenlet() -> None:
    """A program without asyncio may not have it."""
    program = "import sys; sys.modules['greenlet'] = None; import queue_db.testing.fixtures, queue_db.testing.suite"
    subprocess.run([sys.executable, "-c", program], check=True)
