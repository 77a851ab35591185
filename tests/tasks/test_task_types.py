"""What mypy, pyright and ty make of tasks: good programs pass, and each mistake is an error at its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tasks.type_checkers import CHECKERS, expected

HEAD = """
from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, assert_type
from uuid import UUID

from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from queue_db import LeasedJob, QueueDB, Snooze
from queue_db.aio import AsyncLeasedJob, AsyncQueueDB
from queue_db.tasks import TaskJob, Tasks
from queue_db.tasks.options import HandlerOptions
from queue_db.testing import assert_enqueued, inline_tasks
from queue_db.worker import JobSnapshot, Worker

tasks = Tasks()
"""

CALLS = """
@tasks.task(queue="mail", max_attempts=5, timeout=30, unique=lambda user: f"welcome-{user}")
def welcome(user: int, at: datetime | None = None) -> str:
    return ""

@tasks.task(queue="mail", name="report", aliases=("old_report",))
async def report(job: TaskJob, account: UUID) -> bytes:
    return b""

@tasks.task(queue="mail", executor="process")
def render(job: JobSnapshot, page: int) -> int | Snooze:
    return page

@tasks.task(queue="mail")
async def awaited(job: AsyncLeasedJob[dict[str, int]], page: int) -> None: ...

@tasks.task(queue="mail", on_duplicate="skip", unique=lambda page: str(page))
def skipping(page: int) -> None: ...

@tasks.task(queue="mail")
def alone(job: TaskJob) -> None: ...

@tasks.task(queue="mail")
def nothing() -> None: ...

# The calls and their results.
assert_type(welcome(user=7), str)
assert_type(welcome(7, None), str)
assert_type(welcome.enqueue(user=7), int)
assert_type(welcome.result(1, timeout=10), str)
assert_type(report.enqueue(account=UUID(int=1)), int)
assert_type(report.result(1, timeout=10), bytes)
assert_type(render.result(1, timeout=10), int)
assert_type(skipping.enqueue(page=1), int | None)
alone.enqueue()
nothing.enqueue()
render.enqueue(page=1)
awaited.enqueue(page=1)

async def calls(job: TaskJob, session: AsyncSession) -> None:
    assert_type(await welcome.aenqueue(user=7), int)
    assert_type(await report(job, account=UUID(int=1)), bytes)
    assert_type(await report.aresult(1, timeout=10), bytes)
    assert_type(await report.using(connection=session).aenqueue(account=UUID(int=1)), int)
    assert_type(await report.amany([report.call(account=UUID(int=1))]), list[int])

# Options, then the arguments.
def options(session: Session) -> None:
    assert_type(welcome.using(delay=60, priority=-1, connection=session).enqueue(user=7), int)
    assert_type(welcome.using(unique_key="a", on_duplicate="skip").enqueue(user=7), int | None)
    assert_type(skipping.using(delay=60).enqueue(page=1), int | None)
    assert_type(skipping.using(on_duplicate="raise").enqueue(page=1), int)
    assert_type(welcome.many([welcome.call(user=7), welcome.using(delay=3).call(user=8)]), list[int])
    assert_type(skipping.many([skipping.call(page=7)]), list[int | None])

def workers(db: QueueDB) -> None:
    assert_type(tasks.worker(db, concurrency=3), Worker)
    Worker(db, tasks, concurrency=3)
    tasks.bind(db)

def bound(db: AsyncQueueDB) -> None:
    tasks.bind(db)

def tested(db: QueueDB) -> None:
    with inline_tasks(tasks) as ran:
        assert_enqueued(welcome, user=7)
        assert_enqueued(report.using(priority=3), account=UUID(int=1)).payload
        assert_enqueued(db.queue("mail"), "welcome", {"user": 7})
        ran.runs[0].outcome
        assert_enqueued(welcome, user="7")  # E
        assert_enqueued(report, page=7)  # E

# Mistakes.
welcome(user="7")  # E
welcome.enqueue(user="7")  # E
welcome.enqueue(usr=7)  # E
welcome.enqueue()  # E
welcome.enqueue(7, None, 3)  # E
welcome.enqueue(7, at="tomorrow")  # E
report.enqueue(account="x")  # E
report.enqueue()  # E
render.enqueue()  # E
awaited.enqueue(page="x")  # E
nothing.enqueue(3)  # E
alone.enqueue(3)  # E
welcome.call(user="7")  # E
welcome.using(delay=3).enqueue(user="7")  # E
welcome.using(delay=3).enqueue()  # E
report.using(delay=3).enqueue(account="x")  # E
welcome.using(dealy=3).enqueue(user=7)  # E: mypy pyright
welcome.using(on_duplicate="skpi").enqueue(user=7)  # E
welcome.many([report.call(account=UUID(int=1))])  # E
welcome.many([1])  # E
welcome.result("1", timeout=10)  # E
tasks.bind("sqlite://")  # E
tasks.task(queue="mail", timout=3)  # E: mypy pyright
tasks.task(name="x")  # E
tasks.task(queue="mail", executor="proces")  # E
tasks.task(queue="mail", on_duplicate="skpi")  # E
"""

LISTS = """
# The function gets a list, and each enqueue makes one element of it.
@dataclass
class Page:
    number: int

@tasks.task(queue="search", many=100, linger=0.2, unique=lambda page: str(page.number))
def index(pages: list[Page]) -> list[str | Exception]:
    return [str(page.number) for page in pages]

@tasks.task(queue="search", many=100, on_duplicate="skip", timeout=3)
async def index_jobs(jobs: list[LeasedJob[Page]]) -> None: ...

assert_type(index([Page(1)]), list[str | Exception])
assert_type(index.enqueue(Page(1)), int)
assert_type(index.using(delay=3).enqueue(Page(1)), int)
assert_type(index.many([index.call(Page(1)), index.using(delay=3).call(Page(2))]), list[int])
assert_type(index_jobs.enqueue(Page(1)), int | None)

async def index_later(jobs: list[LeasedJob[Page]]) -> None:
    assert_type(await index.aenqueue(Page(1)), int)
    assert_type(await index_jobs(jobs), None)

def index_tested() -> None:
    assert_enqueued(index, Page(1))
    assert_enqueued(index, 1)  # E

index.enqueue(3)  # E
index.enqueue()  # E
index.enqueue([Page(1)])  # E
index.call(3)  # E
index.using(delay=3).enqueue(3)  # E
index_jobs.enqueue(3)  # E
index(Page(1))  # E
tasks.task(queue="search", many="3")  # E
tasks.task(queue="search", linger=3)  # E: mypy pyright
"""

#: What users of other libraries have asked for: arguments that are injected looked required.
INJECTED = """
# A real argument and an injected one, with options between them and the enqueue.
@tasks.task(queue="mail")
async def my_task(job: TaskJob, real_value: Annotated[int, "a count"]) -> None: ...

async def send(session: AsyncSession) -> None:
    await my_task.using(connection=session).aenqueue(real_value=123)
    await my_task.using(connection=session).aenqueue(real_value="123")  # E

# The same in a checker that reads a class with a type parameter.
@tasks.task(queue="mail")
async def typed(job: LeasedJob[dict[str, int]], name: str, size: int = 1) -> None: ...

async def send_typed() -> None:
    await typed.aenqueue("a", size=3)
    await typed.aenqueue(name="a")
    await typed.aenqueue(size=3)  # E

# A private coroutine, with options from a mapping, that a method of a class enqueues.
class EmailData(BaseModel):
    subject: str

EMAIL: HandlerOptions = {"max_attempts": 3, "timeout": 30.0}

@tasks.task(queue="mail", **EMAIL)
async def _send_email(context: TaskJob, email_data: EmailData) -> None: ...

class DeferredSender:
    def send(self, data: EmailData) -> int:
        _send_email.enqueue(data="x")  # E
        return _send_email.enqueue(email_data=data)

# Many arguments: enumerations, models, lists of them.
class Source(enum.Enum):
    A = "a"

class Line(BaseModel):
    x: float

@dataclass
class Box:
    west: float
    east: float

@tasks.task(queue="mail")
def analysis(
    context: JobSnapshot, source: Source, box: Box, lines: list[Line], indicators: list[Source], with_maps: bool
) -> str:
    return ""

assert_type(
    analysis.enqueue(box=Box(1, 2), source=Source.A, indicators=[Source.A], with_maps=True, lines=[Line(x=1)]), int
)
analysis.enqueue(box=Box(1, 2), source=Source.A, indicators=[Source.A], with_maps=True, lines=[3])  # E
analysis.enqueue(box=Box(1, 2), source=Source.A, indicators=[Source.A], lines=[])  # E

# Whether a parameter of type Any or object is for the job cannot be told: its calls are accepted.
@tasks.task(queue="mail")
def anything(value: Any) -> None: ...

@tasks.task(queue="mail")
def objects(value: object) -> None: ...

anything.enqueue(value=3)
objects.enqueue(value=3)

# The job may be optional, for direct calls.
@tasks.task(queue="mail")
def optional(job: TaskJob | None = None, *, page: int) -> None: ...

optional(page=3)
optional.enqueue(page=3)
optional.enqueue(page="x")  # E

# A plain LeasedJob has a payload of type Any: mypy checks its calls no more, as a TaskJob's.
@tasks.task(queue="mail")
def leased(job: LeasedJob, page: int) -> None: ...

leased.enqueue(page=3)
leased.enqueue(page="x")  # E: pyright ty
leased.enqueue()  # E: pyright ty
"""

PROGRAM = HEAD + CALLS + LISTS + INJECTED


@pytest.mark.parametrize("checker", CHECKERS)
def test_each_mistake_is_an_error_at_its_line_and_nothing_else_is(checker: str, tmp_path: Path) -> None:
    found, lines = CHECKERS[checker](PROGRAM, tmp_path), PROGRAM.removeprefix("\n").splitlines()
    assert not {number: lines[number - 1] for number in found ^ expected(PROGRAM, checker)}


_OTHERS = pytest.mark.rest("with ty it shows that marks and findings are compared")


@pytest.mark.parametrize("checker", ["ty", *(pytest.param(name, marks=_OTHERS) for name in ("mypy", "pyright"))])
def test_the_marks_are_compared_with_what_a_checker_finds(checker: str, tmp_path: Path) -> None:
    """Without the types of tasks it finds nothing, and then the marks are wrong."""
    untyped = PROGRAM.replace("tasks = Tasks()", "tasks: Any = Tasks()")
    assert expected(untyped, checker) - CHECKERS[checker](untyped, tmp_path)
