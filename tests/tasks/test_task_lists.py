"""Tasks of many jobs: the function gets a list of typed elements, and each of them has its own outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from queue_db import ArgumentError, Dead, LeasedJob, PayloadError, QueueDB, Snooze
from queue_db.tasks import ListTask, Tasks
from queue_db.testing import assert_enqueued, drain, inline_tasks
from queue_db.worker import Worker


@dataclass
class Page:
    number: int
    price: Decimal = Decimal(0)


class Index:
    """Tasks of lists in one queue, and the lists that they were called with."""

    def __init__(self, queue: str) -> None:
        self.tasks = tasks = Tasks()
        self.seen: list[list[Any]] = []

        @tasks.task(queue=queue, many=10, linger=0.2, result_ttl=600, aliases=["old"], unique=lambda page: f"p-{page.number}")
        def index(pages: list[Page]) -> list[Decimal | Dead | Exception]:
            self.seen.append(pages)
            return [self.outcome(page) for page in pages]

        @tasks.task(queue=queue, many=2)
        async def jobs(some: list[LeasedJob[Page]]) -> None:
            await asyncio.sleep(0)
            self.seen.append([(job.kind, job.payload) for job in some])

        self.index, self.jobs = index, jobs

    def outcome(self, page: Page) -> Decimal | Dead | Exception:
        return {13: Dead("no"), 14: ValueError("no")}.get(page.number, page.price)


def test_a_list_has_typed_elements_and_a_bad_one_dies_alone(db: QueueDB, open_db: Callable[..., QueueDB], name: str) -> None:
    """The object through which it is enqueued knows nothing of the tasks, as an older program."""
    mine, older = Index(name), open_db()
    mine.tasks.bind(db)
    bad = older.queue(name).enqueue("index", {"number": "seven"})
    older.queue(name).enqueue("old", {"number": 6})
    first, second, dead = mine.index.many([mine.index.call(Page(n, Decimal("1.5"))) for n in (1, 2, 13)])
    summary = Worker(db, mine.tasks, concurrency=10).run(until_empty=True)
    assert (summary.completed, summary.dead) == (3, 2)
    assert sorted(page.number for pages in mine.seen for page in pages) == [1, 2, 6, 13]
    assert len(max(mine.seen, key=len)) == 3
    assert [mine.index.result(one, timeout=10) for one in (first, second)] == [Decimal("1.5")] * 2
    errors = {one.id: one.last_error or "" for one in db.dead.list(name)}
    assert errors.keys() == {bad, dead}
    assert "does not fit index: number: Expected `int`, got `str`" in errors[bad]


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_list_of_jobs(db: QueueDB, name: str) -> None:
    mine = Index(name)
    mine.tasks.bind(db)
    mine.jobs.many([mine.jobs.call(Page(1)), mine.jobs.using(priority=3).call(Page(2))])
    with pytest.raises(PayloadError, match="does not fit jobs: price"):
        db.queue(name).enqueue("jobs", {"number": 7, "price": []})
    assert_enqueued(mine.jobs, Page(1))
    drain(mine.tasks.worker(db, concurrency=10))
    assert mine.seen == [[("jobs", Page(1))], [("jobs", Page(2))]]
    mine.index.enqueue(Page(7))
    assert db.queue(name).jobs("available").jobs[0].unique_key == "p-7"


@pytest.mark.parametrize("wrong", [(3,), (), (Page(1), Page(2)), ([Page(1)],), (Page("x"),)])  # type: ignore[arg-type]
def test_an_enqueue_takes_one_element(wrong: tuple[Any, ...]) -> None:
    mine = Index("search")
    with inline_tasks(mine.tasks), pytest.raises(PayloadError, match="does not fit index: "):
        mine.index.enqueue(*wrong)
    assert not mine.seen


def test_calls_of_many_run_as_lists_inline() -> None:
    mine = Index("search")
    with inline_tasks(mine.tasks, raises=False) as inlined:
        mine.index.many([mine.index.call(Page(n)) for n in (1, 14, 2)])
        mine.jobs.many([mine.jobs.call(Page(n)) for n in (3, 4, 5)])
    assert mine.seen == [[Page(1), Page(14), Page(2)], [("jobs", Page(3)), ("jobs", Page(4))], [("jobs", Page(5))]]
    assert [run.outcome for run in inlined.runs[:3]] == [Decimal(0), None, Decimal(0)]
    assert isinstance(inlined.runs[1].error, ValueError)
    assert all(run.done for run in inlined.runs)
    with inline_tasks(mine.tasks), pytest.raises(ValueError, match="no"):
        mine.index.enqueue(Page(14))


async def test_lists_run_inline_on_an_event_loop() -> None:
    mine = Index("search")
    with inline_tasks(mine.tasks):
        await mine.jobs.amany([mine.jobs.call(Page(n)) for n in (3, 4)])
        made = await mine.index.aenqueue(Page(1, Decimal(3)))
        assert await mine.index.aresult(made, timeout=1) == Decimal(3)
    assert mine.seen == [[("jobs", Page(3)), ("jobs", Page(4))], [Page(1, Decimal(3))]]


def test_a_list_may_be_a_sequence_or_have_no_annotation() -> None:
    tasks, seen = Tasks(), []

    @tasks.task(queue="m", many=3)
    def numbers(numbers: Sequence[int]) -> Snooze:
        seen.append(numbers)
        return Snooze(3)

    @tasks.task(queue="m", many=3)
    def jobs(jobs):
        seen.append([type(job) for job in jobs])

    @tasks.task(queue="m", many=3)
    def values(values):
        seen.append(values)

    with inline_tasks(tasks) as inlined:
        numbers.enqueue(3)
        jobs.enqueue("x")
        values.enqueue({"a": 1})
    assert seen == [[3], [LeasedJob], [{"a": 1}]]
    assert inlined.runs[0].outcome == Snooze(3)
    assert isinstance(numbers, ListTask)
    assert numbers([1]) == Snooze(3)


def two(first: list[int], second: list[int]) -> None: ...
def of_one(job: LeasedJob) -> None: ...
def no_list(page: Page) -> None: ...
def no_json(pages: list[Callable[[], None]]) -> None: ...
def fine(pages: list[Page]) -> None: ...


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (two, {"many": 3}, "task 'two' has many=: its function gets one list"),
        (of_one, {"many": 3}, "task 'of_one' has many=: its function gets one list"),
        (no_list, {"many": 3}, "its function gets a list, and page is "),
        (no_json, {"many": 3}, "task 'no_json': "),
        (fine, {"many": 0}, "many=0"),
        (fine, {"linger": 1}, "without many= there is no list that waits"),
        (fine, {"many": 3, "linger": -1}, "linger=-1"),
        (fine, {"many": 3, "executor": "process"}, "a process gets one job at a time"),
        (fine, {"many": 3, "unique": lambda: "x"}, "must be a function of one element of the list"),
        (fine, {"many": 3, "group": 3}, "must be a function of one element of the list"),
    ],
)
def test_a_definition_that_cannot_work_says_why(function: Any, options: dict[str, Any], message: str) -> None:
    tasks = Tasks()
    with pytest.raises(ArgumentError, match=message):
        tasks.task(**{"queue": "mail", **options})(function).payloads.resolve()
