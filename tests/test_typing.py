"""What a type checker makes of the public names: the types of results, and options that are misspelt."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import get_type_hints

import pytest

import queue_db.aio
import queue_db.worker
from queue_db import FailureGroup, Feed, JobPage, Queue, QueueDB, Topic
from tests.type_checking import complaints

ERROR = re.compile(r"program\.py:(\d+): error: .*\[([a-z-]+)\]$")

#: Each line that ends with a comment ``# E: code`` is an error, and no other is.
PROGRAM = """
import sqlite3
import django.db
import psycopg
from typing import Any, assert_type
from dataclasses import dataclass
from collections.abc import Sequence
from queue_db import LeasedJob, Queue, QueueDB, State, Verdict
from queue_db.backoff import constant, give_up
from queue_db.aio import AsyncLeasedJob, AsyncQueue, AsyncQueueDB
from queue_db.model import OnDuplicate
from queue_db.steps.resumption import Loop
from queue_db.worker import JobSnapshot, Worker, lifespan
from queue_db.worker.events import JobEvent
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

@dataclass
class Welcome:
    user: int

def enqueues(db: QueueDB, policy: OnDuplicate, text: str) -> None:
    queue = db.queue("mail")
    assert_type(queue.enqueue("k"), int)
    assert_type(queue.enqueue("k", on_duplicate="replace", unique_key="a"), int)
    assert_type(queue.enqueue("k", on_duplicate="skip", unique_key="a"), int | None)
    assert_type(queue.enqueue("k", on_duplicate=policy), int | None)
    queue.enqueue("k", using=sqlite3.connect("x"))
    queue.enqueue("k", using=psycopg.connect())
    queue.enqueue("k", using=django.db.connection)
    queue.enqueue("k", using=db)  # E: call-overload
    queue.enqueue("k", on_duplicate="skpi")  # E: call-overload
    queue.enqueue("k", on_duplicate=text)  # E: call-overload
    assert_type(queue.enqueue_many([("k", 1)]), list[int])
    assert_type(queue.enqueue_many([("k", 1)], on_duplicate="skip"), list[int | None])
    assert_type(queue.enqueue_many([("k", 1)], ids=False), int)
    assert_type(queue.enqueue_batch([("k", 1)], ("then", 1)), tuple[int, list[int]])
    assert_type(queue.enqueue_batch([("k", 1)], ("then", 1), on_duplicate="skip"), tuple[int, list[int | None]])
    queue.jobs("dead")
    queue.jobs(State.DEAD)
    queue.jobs("deda")  # E: arg-type
    db.feed("f").read(on_trimmed="skpi")  # E: arg-type
    db.feeds.set("f", ordering="ranked")
    db.feeds.set("f", ordering="rankd")  # E: arg-type
    db.routes.subscribe("a.#", "r", form="amqp")
    db.routes.subscribe("a.#", "r", form="ampq")  # E: arg-type
    db.schedules.set("s", "q", "k", every=60, catch_up="al")  # E: arg-type
    Worker(db, "mail", mode="at_most_onec")  # E: arg-type
    Worker(db, "mail", unknown="died")  # E: arg-type
    Worker(db, "mail").configure(mode="at_most_onec")  # E: arg-type
    assert_type(db.state(1), State)

async def awaited(db: AsyncQueueDB) -> None:
    queue = db.queue("mail")
    assert_type(await queue.enqueue("k"), int)
    assert_type(await queue.enqueue("k", on_duplicate="skip", unique_key="a"), int | None)
    await queue.enqueue("k", using=await psycopg.AsyncConnection.connect())
    await queue.enqueue("k", using=psycopg.connect())  # E: call-overload
    await queue.enqueue("k", on_duplicate="skpi")  # E: call-overload
    assert_type(await queue.enqueue_many([("k", 1)]), list[int])
    assert_type(await queue.enqueue_batch([("k", 1)], ("then", 1)), tuple[int, list[int]])

def handlers(worker: Worker) -> None:
    @worker.handles("welcome", schema=Welcome)
    def welcome(job: LeasedJob[Welcome]) -> None:
        assert_type(job.payload.user, int)
        job.payload.usre  # E: attr-defined
        with job.transaction() as connection:
            assert_type(connection, Connection)

    @worker.handles("nothing")  # E: type-var
    def nothing() -> None: ...

    @worker.handles("two")  # E: type-var
    def two(job: LeasedJob, more: int) -> None: ...

    @worker.handles("text")  # E: type-var
    def text(job: str) -> None: ...

    @worker.handles("leased", executor="process")  # E: type-var
    def leased(job: LeasedJob) -> None: ...

    @worker.handles("apart", executor="process")
    def apart(job: JobSnapshot) -> None: ...

    worker.handles("misspelt", executor="proces")  # E: call-overload

    @worker.handles("list", many=10, linger=0.2, schema=Welcome, retry={ValueError: give_up, OSError: 5, TimeoutError: constant(1)})
    def many(jobs: list[LeasedJob[Welcome]]) -> list[None]:
        assert_type(jobs[0].payload.user, int)
        return [None for job in jobs]

    @worker.handles("list", many=10)
    async def awaited_many(jobs: Sequence[LeasedJob]) -> None: ...

    @worker.handles("list", many=10)  # E: type-var
    def one(job: LeasedJob) -> None: ...

    worker.handles("list", many=10, executor="process")  # E: call-overload
    worker.handles("list", linger=1.0)  # E: call-overload
    worker.handles("policy", retry={"ValueError": give_up})  # E: dict-item
    worker.on("faild")  # E: call-overload

    @worker.on("failed", "dead")
    def noted(event: JobEvent) -> None: ...

    @worker.on_start
    async def begins() -> None: ...

    @worker.on_stop  # E: type-var
    def ends(worker: Worker) -> None: ...

    @worker.handles("any")
    def anything(job: LeasedJob) -> None:
        assert_type(job.payload, Any)

    @worker.handles("coroutine")
    async def coroutine(job: LeasedJob[Welcome], session: AsyncSession | None = None) -> None:
        async with job.transaction() as connection:
            assert_type(connection, AsyncConnection)
        if session is not None:
            (await job.complete(using=session)).require(job)

    @worker.handles("awaited")
    async def awaited(job: AsyncLeasedJob[Welcome]) -> None:
        assert_type(await job.complete(), Verdict)
        assert_type(job.payload.user, int)
        async with job.transaction() as connection:
            assert_type(connection, AsyncConnection)

    @worker.handles("not awaited")  # E: type-var
    def not_awaited(job: AsyncLeasedJob) -> None: ...

async def served(db: AsyncQueueDB, threads: QueueDB) -> None:
    async with Worker(db, "mail") as worker:
        assert_type(worker, Worker)
    lifespan(threads, Worker(threads, "mail"))
    lifespan(db, 5)  # E: arg-type
def steps(job: LeasedJob[Welcome], used: Connection) -> None:
    def charge(amount: int, *, unit: str = "EUR") -> str:
        return unit
    def book(connection: Connection, amount: int) -> bytes:
        return b""
    def rename(loop: Loop, start: int) -> float:
        loop.advance(start)
        return 1.0
    assert_type(job.step("charge", charge, 3, unit="CHF"), str)
    assert_type(job.step_transaction("book", book, 3), bytes)
    assert_type(job.loop("rename", rename, 3), float)
    assert_type(job.step("charge", charge, 3, unit="CHF", using=used), str)
    job.step("charge", charge, "3")  # E: call-overload
    job.step_transaction("book", book, "3")  # E: arg-type

async def awaited_steps(job: AsyncLeasedJob[Welcome]) -> None:
    async def charge(amount: int) -> str:
        return ""
    async def book(connection: AsyncConnection, amount: int) -> bytes:
        return b""
    assert_type(await job.step("charge", charge, 3), str)
    assert_type(await job.step_transaction("book", book, 3), bytes)
    await job.step("charge", charge, "3")  # E: call-overload

def claimed(job: AsyncLeasedJob[Welcome]) -> int:
    return job.payload.user
"""


def test_the_types_of_the_public_names(tmp_path: Path) -> None:
    lines = complaints(PROGRAM, tmp_path)
    found = {line.groups() for line in map(ERROR.match, lines) if line}
    program = PROGRAM.removeprefix("\n").split("\n")
    expected = {(str(number), line.partition("# E: ")[2]) for number, line in enumerate(program, 1) if "# E: " in line}
    assert found == expected, lines


def test_the_types_of_slices_are_found_for_who_asks_for_type_hints() -> None:
    """The queue imports no slice, but tools that read annotations need their classes."""
    found = {verb: get_type_hints(getattr(QueueDB, verb))["return"] for verb in ("feed", "topic", "failures")}
    assert found == {"feed": Feed, "topic": Topic, "failures": list[FailureGroup]}
    assert get_type_hints(Queue.jobs)["return"] is JobPage


@pytest.mark.parametrize("package", [queue_db, queue_db.worker, queue_db.aio])
def test_every_public_method_has_type_hints_that_can_be_evaluated(package: ModuleType) -> None:
    for owner in filter(inspect.isclass, (getattr(package, name) for name in package.__all__)):
        for name, member in inspect.getmembers(owner):
            function = member.fget if isinstance(member, property) else member
            if inspect.isfunction(function) and (name == "__init__" or not name.startswith("_")):
                get_type_hints(function)


def test_type_hints_import_sessions_only_when_they_are_evaluated() -> None:
    program = (
        "import sys, typing, queue_db\n"
        "print('sqlalchemy.orm' in sys.modules, typing.get_type_hints(queue_db.Queue.enqueue)['using'])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"False .*\bsqlalchemy\.orm\.session\.Session\b.*", done.stdout.strip())
