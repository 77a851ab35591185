"""Web applications in which a worker runs: their lifespan, and real processes of uvicorn."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import create_engine, text

from queue_db import ArgumentError, ConfigurationError, Queue, QueueDB, State
from queue_db.aio import AsyncLeasedJob, AsyncQueueDB
from queue_db.worker import Worker, lifespan
from tests.aio.loop import for_asyncio
from tests.patience import PATIENCE, wait_for

ROOT = Path(__file__).parents[2]

on_sqlite = pytest.mark.parametrize("kind", ["sqlite"])

#: A job begins, and ends when a line comes on standard input.
APPLICATION = """
import asyncio
import os

from fastapi import FastAPI

from queue_db.aio import AsyncLeasedJob, AsyncQueueDB
from queue_db.worker import Worker, lifespan

db = AsyncQueueDB(os.environ["DATABASE_URL"])
mail = os.environ["QUEUE"]
worker = Worker(db, mail, concurrency=1, grace=float(os.environ["GRACE"]))


@worker.handles("n")
async def handler(job: AsyncLeasedJob) -> None:
    go = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, go.set)
    print("begun", flush=True)
    await go.wait()
    asyncio.get_running_loop().remove_reader(0)
    async with job.transaction():
        pass


app = FastAPI(lifespan=lifespan(db, worker))


@app.post("/jobs")
async def enqueue() -> int:
    return await db.queue(mail).enqueue("n")
"""


class Server:
    """``uvicorn shop:app``."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "shop:app", "--port", "0", "--no-access-log", "--no-use-colors"],
            cwd=folder,
            env=os.environ | environment | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._watchdog = threading.Timer(PATIENCE, self.process.kill)  # no process may hang
        self._watchdog.start()
        self.port = re.findall(r":(\d+) ", self.logged("Uvicorn running on"))[0]

    def logged(self, part: str) -> str:
        lines = []
        for line in self.process.stderr or ():
            lines.append(line)
            if part in line:
                return line
        raise AssertionError(f"{part!r} was not logged: {''.join(lines)}")

    def post(self, path: str) -> int:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method="POST")
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310
            return int(answer.read())

    def end(self) -> int:
        out, err = self.process.communicate("")
        self._watchdog.cancel()
        print(out, err)
        return self.process.returncode


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def start(program: str, **environment: str) -> Server:
        (tmp_path / "shop.py").write_text(program)
        started.append(Server(tmp_path, environment))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.end()


#: uvicorn ends itself by the signal that stopped it, after the lifespan.
STOPPED = {0, -signal.SIGTERM}


def test_sigterm_lets_the_running_job_finish(serve: Callable[..., Server], url: str, queue: Queue) -> None:
    server = serve(APPLICATION, DATABASE_URL=for_asyncio(url), QUEUE=queue.name, GRACE=str(PATIENCE))
    server.post("/jobs")
    assert server.process.stdout.readline() == "begun\n"
    waiting = server.post("/jobs")
    server.process.send_signal(signal.SIGTERM)
    server.logged("Waiting for application shutdown")
    assert server.process.poll() is None
    server.process.stdin.write("go\n")
    server.logged("Application shutdown complete")
    assert server.end() in STOPPED
    (left,) = queue.peek(10)
    assert (left.id, left.attempts) == (waiting, 0)
    assert queue.stats().running == 0


def test_after_the_grace_time_the_job_of_the_application_is_released(serve: Callable[..., Server], url: str, queue: Queue) -> None:
    server = serve(APPLICATION, DATABASE_URL=for_asyncio(url), QUEUE=queue.name, GRACE="0")
    job_id = server.post("/jobs")
    assert server.process.stdout.readline() == "begun\n"
    server.process.send_signal(signal.SIGTERM)
    server.logged("Application shutdown complete")
    assert server.end() in STOPPED
    job = queue.get(job_id)
    assert (job.state, job.attempts) == (State.AVAILABLE, 0)


@pytest.mark.rest("tests/docs executes the code of the page, and the tests above run an application")
def test_the_application_of_the_page_runs(serve: Callable[..., Server], tmp_path: Path) -> None:
    page = (ROOT / "docs" / "async.md").read_text()
    (program,) = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "FastAPI(" in code]
    url = f"sqlite:///{tmp_path}/queue.db"
    with QueueDB(url) as db:
        db.migrate()
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE welcomed (user INTEGER)"))
    server = serve(program)
    server.post("/users/7")

    def welcomed() -> object:
        with engine.connect() as connection:
            return connection.execute(text("SELECT user FROM welcomed")).scalar()

    assert wait_for(welcomed) == 7
    server.process.send_signal(signal.SIGTERM)
    assert server.end() in STOPPED
    engine.dispose()


@on_sqlite
async def test_a_lifespan_opens_and_closes_in_order(async_url: str, name: str) -> None:
    db = AsyncQueueDB(async_url)
    worker = Worker(db, name, schedules=False)
    happened: list[object] = []

    @worker.handles("n")
    async def handler(job: AsyncLeasedJob) -> None:
        happened.append("job")

    @asynccontextmanager
    async def own(app: FastAPI) -> AsyncIterator[dict[str, int]]:
        await db.queue(name).enqueue("n")  # the database is open
        happened.append((app.title, worker.running))
        yield {"answer": 42}
        happened.append(("closes", worker.running))
        await db.queue(name).stats()

    app = FastAPI(title="shop", lifespan=lifespan(db, worker, also=own))
    for _ in range(2):  # as tests do
        happened.clear()
        async with app.router.lifespan_context(app) as state:
            assert state == {"answer": 42}
            assert worker.running
            await asyncio.to_thread(wait_for, lambda: "job" in happened)
        assert happened == [("shop", False), "job", ("closes", False)]
        with pytest.raises(ConfigurationError, match="not open"):
            db.queue(name)


@on_sqlite
async def test_a_lifespan_whose_start_fails_closes_what_it_has_opened(async_url: str, queue: Queue) -> None:
    closed = []

    @asynccontextmanager
    async def own(app: object) -> AsyncIterator[None]:
        try:
            yield
        finally:
            closed.append(app)

    db = AsyncQueueDB(async_url)
    for runs in (Worker(db, queue.name), Worker(queue.db, queue.name)):  # without handlers
        with pytest.raises(ConfigurationError, match="no handlers"):
            async with lifespan(runs.given, runs, also=own)("app"):
                raise AssertionError
    assert closed == ["app", "app"]
    assert db._opened is None
    assert not queue.db.database.closed  # it is its owner's


class Registry:
    """As a registry of tasks."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.made: list[Worker] = []

    def worker(self, db: Any) -> Worker:
        self.made.append(Worker(db, self.queue, schedules=False))
        self.made[-1].handles("n")(print)
        return self.made[-1]


@on_sqlite
async def test_a_registry_makes_the_worker_of_a_lifespan(db: QueueDB, name: str) -> None:
    registry = Registry(name)
    async with lifespan(db, registry)(None):
        assert registry.made[0].running
    assert not registry.made[0].running
    async with lifespan(db)(None) as state:
        assert state is None


@on_sqlite
def test_a_lifespan_refuses_what_it_cannot_use(db: QueueDB, name: str) -> None:
    for arguments, reason in (
        ((Worker(db, name),), r"lifespan\(db, worker\)"),
        (("sqlite://",), "must be a QueueDB or an AsyncQueueDB"),
        ((db, print), "must be a Worker, or have a method worker"),
    ):
        with pytest.raises(ArgumentError, match=reason):
            lifespan(*arguments)
    with pytest.raises(ArgumentError, match="asynccontextmanager"):
        lifespan(db, also=5)
